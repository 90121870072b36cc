//! The engine against a real webhook server: the results with the scripted caller hold over the wire too.

use std::sync::Arc;

use lockgate_admission::engine::Engine;
use lockgate_admission::host::{Clock as _, Host, SystemClock};
use lockgate_admission::https::{HttpsCaller, Settings};
use lockgate_api::decode::Bytes;
use lockgate_api::registration::Webhook;
use lockgate_testkit::certs::Authority;
use lockgate_testkit::{ScriptedResponse, WebhookServer};
use serde_json::json;

use super::support::*;

fn world() -> World {
    World::with(|host| {
        Engine::new(Host {
            caller: Arc::new(HttpsCaller::new(Settings::default())),
            ..host
        })
    })
}

fn at(name: &str, url: &str, ca: &str) -> Webhook {
    let mut webhook = webhook(name);
    webhook.client_config.url = Some(url.to_owned());
    webhook.client_config.ca_bundle = Some(Bytes(ca.as_bytes().to_vec()));
    webhook.timeout_seconds = Some(1);
    webhook
}

#[tokio::test]
async fn decisions_and_patches_travel() {
    let server = WebhookServer::start().await;
    let label = json!([{"op": "add", "path": "/metadata/labels/a", "value": "b"}]);
    server.script("/patch", [ScriptedResponse::patch(&label)]);
    server.script("/deny", [ScriptedResponse::deny("not on Sundays")]);
    let world = world();
    let mutating = at("m.example.com", &server.url("/patch"), server.ca_pem());
    world.hook_in(Mutating, "c", mutating, Reply::allow());
    let validating = at("v.example.com", &server.url("/deny"), server.ca_pem());
    world.hook_in(Validating, "c", validating, Reply::allow());

    let outcome = world.run(Mutating, create()).await;
    outcome.allowed();
    assert_eq!(outcome.object()["metadata"]["labels"]["a"], "b");
    let call = outcome.admission.trace().calls().next().unwrap().3;
    assert!(!call.phases.is_empty());
    let outcome = world.run(Validating, create()).await;
    let status = outcome.decision.status().unwrap();
    assert_eq!(
        status.message,
        "admission webhook \"v.example.com\" denied the request: not on Sundays"
    );
    assert_eq!(server.requests().len(), 2);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_cannot_be_made_is_a_failed_call() {
    for kind in [Mutating, Validating] {
        let garbage = at("h.example.com", "https://127.0.0.1:1/", "garbage");
        let world = world();
        world.hook_in(kind, "c", garbage, Reply::allow());
        let outcome = world.run(kind, create()).await;
        let message = "Internal error occurred: failed calling webhook \"h.example.com\": could not \
                       get REST client: unable to load root certificates: unable to parse bytes as \
                       PEM block";
        assert_eq!(outcome.refusal(), Some((500, "InternalError", message)));
    }
}

#[tokio::test]
async fn odd_urls_fail_in_the_words_of_upstream() {
    let no_client = |why: &str| format!("could not get REST client: {why}");
    let unparsable = |why: &str| {
        no_client(&format!(
            "failed calling webhook \"h.example.com\": Unparsable URL: parse {why}"
        ))
    };
    let no_host = |shown: &str| {
        no_client(&format!(
            "host must be a URL or a host:port pair: \"{shown}\""
        ))
    };
    let called = |why: &str| format!("failed to call webhook: Post {why}");
    let refused = |url: &str| {
        called(&format!(
            "\"{url}?timeout=1s\": dial tcp 127.0.0.1:1: connect: connection refused"
        ))
    };
    for (url, want) in [
        (
            "",
            no_client(
                "failed calling webhook \"h.example.com\": webhook configuration must have either \
                 service or URL",
            ),
        ),
        (
            "https://a:b",
            unparsable("\"https://a:b\": invalid port \":b\" after host"),
        ),
        (
            "127.0.0.1:1",
            unparsable("\"127.0.0.1:1\": first path segment in URL cannot contain colon"),
        ),
        ("://x", unparsable("\"://x\": missing protocol scheme")),
        (
            "https://a b/",
            unparsable("\"https://a b/\": invalid character \" \" in host name"),
        ),
        (
            "https://[::1",
            unparsable("\"https://[::1\": missing ']' in host"),
        ),
        (
            "https://127.0.0.1:1/%zz",
            unparsable("\"https://127.0.0.1:1/%zz\": invalid URL escape \"%zz\""),
        ),
        (
            "https://\u{7f}/",
            unparsable("\"https://\\x7f/\": net/url: invalid control character in URL"),
        ),
        ("foo", no_host("://")),
        ("/path", no_host("://")),
        ("https:///p", no_host("https://")),
        ("https:opaque", no_host("https://")),
        (
            "ftp://127.0.0.1:1/x",
            called("\"ftp://127.0.0.1:1/x?timeout=1s\": unsupported protocol scheme \"ftp\""),
        ),
        (
            "https://127.0.0.1:99999/",
            called(
                "\"https://127.0.0.1:99999/?timeout=1s\": dial tcp: address 99999: invalid port",
            ),
        ),
        ("http://127.0.0.1:1/p", refused("http://127.0.0.1:1/p")),
        ("HTTPS://127.0.0.1:1/p", refused("https://127.0.0.1:1/p")),
        (
            "https://user:pw@127.0.0.1:1/",
            refused("https://127.0.0.1:1/"),
        ),
        (
            "https://127.0.0.1:1/a/../b//c/",
            refused("https://127.0.0.1:1/b/c"),
        ),
        ("https://127.0.0.1:1?q=1#f", refused("https://127.0.0.1:1/")),
    ] {
        let world = world();
        world.hook_in(
            Validating,
            "c",
            at("h.example.com", url, ""),
            Reply::allow(),
        );
        let outcome = world.run(Validating, create()).await;
        let message = outcome
            .refusal()
            .map(|refusal| refusal.2)
            .unwrap_or_default();
        let start = "Internal error occurred: failed calling webhook \"h.example.com\": ";
        let found = message.strip_prefix(start).unwrap_or(message);
        assert_eq!(found, want, "{url:?}");
    }
}

#[tokio::test]
async fn equal_configurations_share_a_connection_across_hooks_and_rounds() {
    let server = WebhookServer::start().await;
    let world = world();
    for name in ["a.example.com", "b.example.com", "c.example.com"] {
        let hook = at(name, &server.url("/"), server.ca_pem());
        world.hook_in(Mutating, "c", hook, Reply::allow());
    }
    server.script("/", [ScriptedResponse::allow()]);
    world.run(Mutating, create()).await.allowed();
    world.run(Mutating, create()).await.allowed();
    assert_eq!((server.requests().len(), server.connections()), (6, 1));
    server.stop().await;
}

#[tokio::test]
async fn a_certificate_without_names_is_counted_and_noted() {
    let authority = Authority::new("right");
    let identity = authority.issue_legacy("localhost");
    let builder = WebhookServer::builder().identity(identity, authority.pem());
    let server = builder.start().await;
    let url = format!("https://localhost:{}/", server.address().port());
    let world = world();
    let hook = ignoring(at("h.example.com", &url, server.ca_pem()));
    world.hook_in(Validating, "c", hook, Reply::allow());
    let outcome = world.run(Validating, create()).await;
    outcome.allowed();
    let noted = (
        String::from("missing-san.invalid-cert.kubernetes.io/localhost"),
        String::from(
            "relies on a legacy Common Name field instead of the SAN extension for subject \
             validation",
        ),
    );
    assert!(
        outcome.annotations().contains(&noted),
        "{:?}",
        outcome.annotations()
    );
    let metrics = world.engine.metrics().render(SystemClock.now());
    for line in [
        "apiserver_webhooks_x509_missing_san_total 1",
        "apiserver_webhooks_x509_insecure_sha1_total 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{metrics}");
    }
}
