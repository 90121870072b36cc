//! Many requests in a real browser.

use std::time::Instant;

use lockgate_testkit::Browser;
use serde_json::json;

use crate::support::Console;

const COUNT: usize = 10_000;

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_requests_are_as_fast_as_ten() {
    let console = Console::start().await;
    for number in 0..COUNT {
        let plural = if number % 100 == 7 {
            "pods"
        } else {
            "configmaps"
        };
        let name = format!("object-{number}");
        let object = json!({"apiVersion": "v1", "metadata": {"name": name}, "data": {}});
        console.create(plural, &name, object).await;
        // Gives the recorder's thread time, so that no counted request is dropped.
        if number % 500 == 499 {
            console.rows(number + 1).await;
        }
    }
    console.rows(COUNT).await;
    let url = format!("http://{}/#token={}", console.address, console.token.text());
    let mut browser = tokio::task::spawn_blocking(move || {
        let mut browser = Browser::start(1400, 900);
        browser.open(&url);
        browser.wait("document.getElementById('count').textContent === '10000 of 10000'");
        browser
    })
    .await
    .unwrap();
    let spent = tokio::task::spawn_blocking(move || {
        // The token is removed from the address bar, and only the visible rows are in the DOM.
        assert_eq!(
            browser.evaluate("location.hash + location.search"),
            json!("")
        );
        let drawn = browser.evaluate("document.querySelectorAll('#canvas .row').length");
        assert!(drawn.as_u64().unwrap() < 100, "{drawn}");
        // Filtering from the first to the last key, and scrolling from top to bottom: each within a frame or two, far
        // below the threshold of perception.
        let frame = "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now())))";
        let time = |browser: &mut Browser, act: &str| {
            let script = format!(
                "(async () => {{ const start = performance.now(); {act}; return await {frame}) - start; }})()"
            );
            browser.evaluate(&script).as_f64().unwrap()
        };
        let write = "const f = document.getElementById('filter'); f.value = 'verdict:denied object-9'; f.dispatchEvent(new Event('input'))";
        let filtered = time(&mut browser, write);
        let count = browser.wait("document.getElementById('count').textContent");
        assert_eq!(count, json!("11 of 10000"));
        let clear = "const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input'))";
        let cleared = time(&mut browser, clear);
        let scroll = "document.getElementById('rows').scrollTop = 1e9";
        let scrolled = time(&mut browser, scroll);
        browser.wait("[...document.querySelectorAll('#canvas .row')].some((row) => !row.hidden && row.dataset.n === '1')");
        assert_eq!(browser.problems(), [""; 0]);
        (filtered, cleared, scrolled)
    });
    let started = Instant::now();
    let (filtered, cleared, scrolled) = spent.await.unwrap();
    println!(
        "10,000 requests: filter {filtered:.0} ms, clear {cleared:.0} ms, scroll {scrolled:.0} ms, all {:?}",
        started.elapsed()
    );
    // Generous, for machines under other load.
    for span in [filtered, cleared, scrolled] {
        assert!(span < 2_000.0, "{span} ms");
    }
    console.stop().await;
}
