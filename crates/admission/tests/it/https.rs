//! The engine against a real webhook server: what the scripted caller shows holds over the wire too.

use std::sync::Arc;

use lockgate_admission::engine::Engine;
use lockgate_admission::host::Host;
use lockgate_admission::https::{HttpsCaller, Settings};
use lockgate_api::decode::Bytes;
use lockgate_api::registration::Webhook;
use lockgate_testkit::{Answer, WebhookServer};
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
    server.script("/patch", [Answer::patch(&label)]);
    server.script("/deny", [Answer::deny("not on Sundays")]);
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
async fn equal_configurations_share_a_connection_across_hooks_and_rounds() {
    let server = WebhookServer::start().await;
    let world = world();
    for name in ["a.example.com", "b.example.com", "c.example.com"] {
        let hook = at(name, &server.url("/"), server.ca_pem());
        world.hook_in(Mutating, "c", hook, Reply::allow());
    }
    server.script("/", [Answer::allow()]);
    world.run(Mutating, create()).await.allowed();
    world.run(Mutating, create()).await.allowed();
    assert_eq!((server.requests().len(), server.connections()), (6, 1));
    server.stop().await;
}
