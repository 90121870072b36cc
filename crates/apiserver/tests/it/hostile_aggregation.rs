//! Malicious aggregated servers: redirects, and the cost of their documents.

use std::time::Instant;

use http::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::aggregation::{API_SERVICES, Behind, NOTES, wait_for};
use crate::support::*;

/// Sends an upgrade request, and returns the response until the connection is closed.
async fn upgrade(server: &lockgate_apiserver::TestServer, name: &str) -> String {
    let (certificate, key) = server.admin();
    let credentials = Credentials {
        certificate: Some((certificate.to_owned(), key.to_owned())),
        headers: Vec::new(),
    };
    let mut stream = connect(&tls(server, &credentials, "http/1.1"), server.address()).await;
    let head = format!(
        "GET {NOTES}/{name} HTTP/1.1\r\nhost: server\r\nconnection: Upgrade, close\r\nupgrade: words\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    let mut piece = [0; 1024];
    while !String::from_utf8_lossy(&text).contains("status code") {
        let read = within(stream.read(&mut piece)).await.unwrap();
        if read == 0 {
            break;
        }
        text.extend_from_slice(&piece[..read]);
    }
    String::from_utf8(text).unwrap()
}

/// A client follows a redirect with its credentials (CVE-2022-3172).
#[tokio::test]
async fn redirects_and_protocols_that_nobody_asked_for_are_not_passed_on() {
    for http2 in [true, false] {
        let behind = Behind::start(http2).await;
        let server = start_with(behind.settings()).await;
        let client = Client::admin(&server).await;
        client.create(API_SERVICES, behind.api_service()).await;
        wait_for(&client, "True", "Passed").await;

        let answer = client.get(&format!("{NOTES}/elsewhere")).await;
        assert_eq!(answer.code, 502);
        assert_eq!(answer.headers.get("location"), None);
        let text = answer.text();
        let want = "the backend attempted to redirect this request, which is not permitted";
        assert_eq!(text.trim_end(), want);
        // A 304 without a redirect target is an ordinary response.
        assert_eq!(client.get(&format!("{NOTES}/nowhere")).await.code, 304);

        let text = upgrade(&server, "elsewhere").await;
        assert!(text.starts_with("HTTP/1.1 503"), "{text}");
        assert!(!text.to_lowercase().contains("location"), "{text}");
        assert!(
            text.contains("invalid upgrade response: status code 302"),
            "{text}"
        );

        // HTTP/2 does not support upgrades.
        if !http2 {
            let answer = client.get(&format!("{NOTES}/unasked")).await;
            assert_eq!(answer.code, 503);
            let text = answer.text();
            let want = "backend tried to switch protocol \"words\" when \"\" was requested";
            assert_eq!(text.trim_end(), want);
        }
        // Later requests get their own responses.
        assert_eq!(client.get(&format!("{NOTES}/a")).await.code, 200);

        let answer = client.get(&format!("{NOTES}/public")).await;
        let caching = answer.headers.get_all("cache-control").iter();
        let caching: Vec<_> = caching.map(|value| value.to_str().unwrap()).collect();
        assert_eq!(caching, ["public", "no-cache, private"]);
        server.stop().await;
    }
}

/// Any client may read OpenAPI, and building it takes a second of CPU time.
#[tokio::test(flavor = "multi_thread")]
async fn openapi_of_several_servers_is_made_once() {
    let behind = Behind::start(true).await;
    let server = start_with(behind.settings()).await;
    let client = Client::admin(&server).await;
    client.create(API_SERVICES, behind.api_service()).await;
    wait_for(&client, "True", "Passed").await;
    let started = Instant::now();
    let first = client.get("/openapi/v2").await;
    let made = started.elapsed();
    let merged = first.json();
    assert!(merged["paths"]["/apis/notes.example.com/v1/notes"].is_object());
    let etag = first.headers["etag"].to_str().unwrap().to_owned();
    let started = Instant::now();
    for _ in 0..40 {
        let headers = [("if-none-match", etag.as_str())];
        let answer = client
            .request(Method::GET, "/openapi/v2", &headers, "")
            .await;
        assert_eq!(answer.code, 304);
    }
    let again = started.elapsed();
    assert!(again < made * 10, "made in {made:?}, 40 more in {again:?}");

    // A new CustomResourceDefinition is included immediately.
    let versions = json!([open_version("v1", true)]);
    client.create(DEFINITIONS, definition(versions)).await;
    let newer = client.get("/openapi/v2").await;
    assert_ne!(newer.headers["etag"].to_str().unwrap(), etag);
    server.stop().await;
}
