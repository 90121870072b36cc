//! The engine against a real webhook server: what the scripted caller shows holds over the wire too.
//!
//! Every fault is tried for both policies, with and without a dry run, in the first and the second
//! round of mutation and in validation. Nothing hangs: every case has a deadline of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockgate_admission::decision::Cause;
use lockgate_admission::engine::Engine;
use lockgate_admission::host::Host;
use lockgate_admission::https::{HttpsCaller, Settings};
use lockgate_api::decode::Bytes;
use lockgate_api::registration::Webhook;
use lockgate_testkit::certs::Authority;
use lockgate_testkit::{Answer, Blackhole, Ending, WebhookServer};
use serde_json::json;

use super::support::*;

/// What a case may take on a busy machine, beyond its deadline of a second.
const SLACK: Duration = Duration::from_secs(5);

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

/// Where a faulty webhook is, and what its failure begins with.
struct Fault {
    name: &'static str,
    url: String,
    ca: String,
    says: &'static str,
}

async fn faults(server: &WebhookServer, hole: &Blackhole) -> Vec<Fault> {
    let scripted = |name, path: &str, answer: Answer, says| {
        server.script(path, [answer]);
        Fault {
            name,
            url: server.url(path),
            ca: server.ca_pem().to_owned(),
            says,
        }
    };
    let stranger = Authority::new("stranger");
    let mut faults = vec![
        Fault {
            name: "refused",
            url: String::from("https://127.0.0.1:1/"),
            ca: server.ca_pem().to_owned(),
            says: "failed to call webhook: Post \"https://127.0.0.1:1/?timeout=1s\": dial tcp \
                   127.0.0.1:1: connect: connection refused",
        },
        Fault {
            name: "blackholed",
            url: format!("https://{}/", hole.address()),
            ca: server.ca_pem().to_owned(),
            says: "failed to call webhook: Post ",
        },
        Fault {
            name: "wrong CA",
            url: server.url("/"),
            ca: stranger.pem().to_owned(),
            says: "failed to call webhook: Post ",
        },
        Fault {
            name: "garbage for a CA",
            url: server.url("/"),
            ca: String::from("garbage"),
            says: "could not get REST client: unable to load root certificates: unable to parse bytes \
                   as PEM block",
        },
    ];
    faults.extend([
        scripted(
            "server error",
            "/500",
            Answer::http(500, "boom").header("content-type", "text/plain"),
            "failed to call webhook: an error on the server (\"boom\") has prevented the request from \
             succeeding",
        ),
        scripted(
            "not found",
            "/404",
            Answer::http(404, ""),
            "failed to call webhook: the server could not find the requested resource",
        ),
        scripted(
            "too many requests",
            "/429",
            Answer::http(429, ""),
            "failed to call webhook: the server has received too many requests and has asked us to try \
             again later",
        ),
        scripted(
            "redirected",
            "/302",
            Answer::redirect(302, "https://127.0.0.1:1/"),
            "failed to call webhook: the server responded with the status code 302 but did not return \
             more information",
        ),
        scripted(
            "garbage",
            "/garbage",
            Answer::http(200, "\u{1}\u{2}nonsense").header("content-type", "application/json"),
            "failed to call webhook: ",
        ),
        scripted(
            "cut short",
            "/short",
            Answer::raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", Ending::Close),
            "failed to call webhook: ",
        ),
        scripted(
            "drips",
            "/drip",
            Answer::drip(Duration::from_millis(200)),
            "failed to call webhook: ",
        ),
        scripted("huge", "/huge", Answer::huge(1 << 30), "failed to call webhook: "),
        scripted(
            "another uid",
            "/uid",
            Answer::review(|review| {
                json!({
                    "kind": "AdmissionReview",
                    "apiVersion": review["apiVersion"],
                    "response": {"uid": "other", "allowed": true},
                })
            }),
            "received invalid webhook response: expected response.uid=",
        ),
    ]);
    faults
}

/// Where in a request the faulty webhook is met.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    FirstRound,
    SecondRound,
    Validation,
}

async fn try_fault(fault: &Fault, server: &WebhookServer, place: Place, ignore: bool, dry: bool) {
    let world = world();
    let kind = match place {
        Place::Validation => Validating,
        Place::FirstRound | Place::SecondRound => Mutating,
    };
    let mut hook = at("h.example.com", &fault.url, &fault.ca);
    if ignore {
        hook = ignoring(hook);
    }
    if place == Place::SecondRound {
        // A later webhook changes the object, so this one is called again and fails open twice.
        hook = if_needed(hook);
        let change = at("z.example.com", &server.url("/change"), server.ca_pem());
        world.hook_in(kind, "c", ignoring(hook), Reply::allow());
        world.hook_in(kind, "z", change, Reply::allow());
    } else {
        world.hook_in(kind, "c", hook, Reply::allow());
    }
    let request = if dry { dry_run(create()) } else { create() };
    let began = Instant::now();
    let outcome = world.run(kind, request).await;
    let name = fault.name;
    assert!(began.elapsed() < SLACK, "{name} {place:?}");
    if place == Place::SecondRound {
        outcome.allowed();
        let open = "failed-open.mutation.webhook.admission.k8s.io/round_";
        let rounds = outcome
            .annotations()
            .iter()
            .filter(|(key, _)| key.starts_with(open))
            .count();
        assert_eq!(rounds, 2, "{name}");
        return;
    }
    if ignore {
        outcome.allowed();
        return;
    }
    let status = outcome.decision.status().unwrap();
    let prefix = "Internal error occurred: failed calling webhook \"h.example.com\": ";
    let text = status.message.strip_prefix(prefix).unwrap_or_default();
    assert!(
        text.starts_with(fault.says),
        "{name} {place:?}: {}",
        status.message
    );
    assert_eq!(status.code, 500, "{name}");
    let lockgate_admission::decision::Decision::Deny(denial) = &outcome.decision else {
        panic!("{name} is allowed");
    };
    assert_eq!(denial.cause, Cause::CallFailed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_meets_the_failure_policy_in_time() {
    let server = WebhookServer::start().await;
    let hole = Blackhole::start().await;
    let change = json!([{"op": "add", "path": "/metadata/labels/z", "value": "1"}]);
    server.script("/change", [Answer::patch(&change)]);
    let faults = faults(&server, &hole).await;
    for fault in &faults {
        let one = |place, ignore, dry| try_fault(fault, &server, place, ignore, dry);
        tokio::join!(
            one(Place::FirstRound, false, false),
            one(Place::FirstRound, true, true),
            one(Place::SecondRound, true, false),
            one(Place::Validation, false, true),
            one(Place::Validation, true, false),
        );
    }
    drop(faults);
    server.stop().await;
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
