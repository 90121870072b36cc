//! Probes and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lockgate_webhook::server::prometheus_client::metrics::counter::Counter;
use lockgate_webhook::server::{ProbePaths, Server};
use lockgate_webhook::testing::{Review, serve_with};

use crate::support::{CONFIG_MAP, Client, get, metric, post, until, webhooks};

const LOCAL: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

#[tokio::test]
async fn probes_answer_at_their_paths_and_the_usual_ones() {
    let paths = ProbePaths {
        liveness: String::from("/alive"),
        readiness: String::from("/ready"),
    };
    let served = serve_with(Server::new(webhooks()).probes(LOCAL, paths)).await;
    let probes = served.probes_address().unwrap();
    for path in ["/alive", "/livez", "/healthz", "/ready", "/readyz"] {
        let reply = get(probes, path).await;
        assert_eq!((reply.code, &*reply.body), (200, "ok"), "{path}");
    }
    let reply = get(probes, "/readyz?verbose").await;
    assert_eq!(
        reply.body,
        "[+]certificate ok\n[+]listener ok\nreadyz check passed\n"
    );
    assert_eq!(get(probes, "/metrics").await.code, 404);
    assert_eq!(served.metrics_address(), None);
    served.stop().await;
}

#[tokio::test]
async fn an_application_has_checks_of_its_own() {
    let (synced, asked) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (is_synced, count) = (Arc::clone(&synced), Arc::clone(&asked));
    let server = Server::new(webhooks())
        .probes(LOCAL, ProbePaths::default())
        .ready_check("cache", move || {
            count.fetch_add(1, Ordering::SeqCst);
            let synced = is_synced.load(Ordering::SeqCst);
            async move {
                synced
                    .then_some(())
                    .ok_or_else(|| String::from("not filled yet"))
            }
        });
    let served = serve_with(server).await;
    let probes = served.probes_address().unwrap();
    let reply = get(probes, "/readyz").await;
    assert_eq!(reply.code, 503);
    assert!(
        reply.body.contains("[-]cache failed: not filled yet"),
        "{}",
        reply.body
    );
    // Frequent probes do not run the check frequently.
    for _ in 0..50 {
        get(probes, "/readyz").await;
    }
    assert!(asked.load(Ordering::SeqCst) < 10);
    synced.store(true, Ordering::SeqCst);
    served.until_ready().await;
    until("ready", || async {
        get(probes, "/readyz").await.code == 200
    })
    .await;
    served.stop().await;
}

#[tokio::test]
async fn decisions_are_counted() {
    let counter: Counter = Counter::default();
    let own = counter.clone();
    let server = Server::new(webhooks())
        .probes(LOCAL, ProbePaths::default())
        .metrics(LOCAL, "/metrics")
        .register(|registry| registry.register("apples", "Apples", own));
    let served = serve_with(server).await;
    counter.inc();
    let address = served.metrics_address().unwrap();
    // The configured addresses are equal, so there is one listener.
    assert_eq!(served.probes_address(), Some(address));
    let client = Client::trusting(served.ca_bundle());
    let send = |path, review: Review| client.send(served.address(), post(path, review.to_json()));
    send("/mutate", Review::create(CONFIG_MAP)).await.unwrap();
    send("/mutate", Review::update(CONFIG_MAP, CONFIG_MAP).dry_run())
        .await
        .unwrap();
    let denied = "{apiVersion: v1, kind: ConfigMap, data: {deny: a, warn: b}}";
    send("/validate", Review::create(denied)).await.unwrap();
    send("/fault", Review::of("EXPLODE", None, None))
        .await
        .unwrap();
    client
        .send(served.address(), post("/validate", "{}"))
        .await
        .unwrap();

    let reply = get(address, "/metrics").await;
    assert!(
        reply
            .header("content-type")
            .starts_with("application/openmetrics-text")
    );
    let text = reply.body;
    let decision = |webhook, operation, version, resource, decision, code, dry_run| {
        metric(
            &text,
            &format!(
                "admission_webhook_decisions_total{{webhook=\"{webhook}\",operation=\"{operation}\",group=\"\",version=\"{version}\",resource=\"{resource}\",decision=\"{decision}\",code=\"{code}\",dry_run=\"{dry_run}\"}}"
            ),
        )
    };
    let maps = "configmaps";
    assert_eq!(
        decision(
            "owner.example.com",
            "CREATE",
            "v1",
            maps,
            "allow",
            200,
            false
        ),
        Some(1.0),
        "{text}"
    );
    assert_eq!(
        decision(
            "owner.example.com",
            "UPDATE",
            "v1",
            maps,
            "allow",
            200,
            true
        ),
        Some(1.0)
    );
    assert_eq!(
        decision(
            "strict.example.com",
            "CREATE",
            "v1",
            maps,
            "deny",
            403,
            false
        ),
        Some(1.0)
    );
    assert_eq!(
        decision("fault.example.com", "other", "", "s", "error", 500, false),
        Some(1.0),
        "{text}"
    );
    assert_eq!(
        decision("strict.example.com", "", "", "", "error", 400, false),
        Some(1.0)
    );
    for (series, want) in [
        (
            "controller_runtime_webhook_requests_total{webhook=\"/mutate\",code=\"200\"}",
            2.0,
        ),
        (
            "controller_runtime_webhook_requests_total{webhook=\"/validate\",code=\"400\"}",
            1.0,
        ),
        (
            "controller_runtime_webhook_requests_total{webhook=\"/fault\",code=\"500\"}",
            1.0,
        ),
        (
            "controller_runtime_webhook_latency_seconds_count{webhook=\"/mutate\"}",
            2.0,
        ),
        (
            "admission_webhook_duration_seconds_count{webhook=\"owner.example.com\"}",
            2.0,
        ),
        (
            "admission_webhook_patch_operations_sum{webhook=\"owner.example.com\"}",
            2.0,
        ),
        (
            "admission_webhook_patch_bytes_count{webhook=\"owner.example.com\"}",
            2.0,
        ),
        (
            "admission_webhook_request_bytes_count{webhook=\"strict.example.com\"}",
            2.0,
        ),
        (
            "admission_webhook_warnings_total{webhook=\"strict.example.com\"}",
            1.0,
        ),
        (
            "admission_webhook_queued{webhook=\"owner.example.com\"}",
            0.0,
        ),
        ("certwatcher_read_certificate_errors_total", 0.0),
        ("apples_total", 1.0),
    ] {
        assert_eq!(metric(&text, series), Some(want), "{series}\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    served.stop().await;
}
