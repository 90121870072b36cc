//! Webhook configurations from a scripted API server.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lockgate_admission::engine::Engine;
use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request, kind, resource};
use lockgate_api::registration::ConfigurationKind;
use lockgate_follow::{Feed, Server};
use lockgate_testkit::{Ending, Gate, ScriptedResponse, WebhookServer};
use serde_json::{Value, json};

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const NAMESPACES: &str = "/api/v1/namespaces";

/// The timeout of any operation.
const AMPLE: Duration = Duration::from_secs(20);

fn list(version: &str, items: &[Value]) -> ScriptedResponse {
    let list = json!({"metadata": {"resourceVersion": version}, "items": items});
    ScriptedResponse::http(200, list.to_string()).header("content-type", "application/json")
}

fn lines(events: &[(&str, Value)]) -> String {
    let line =
        |(kind, object): &(&str, Value)| format!("{}\n", json!({"type": kind, "object": object}));
    events.iter().map(line).collect()
}

/// A watch that the server ends after these events.
fn watch(events: &[(&str, Value)]) -> ScriptedResponse {
    ScriptedResponse::http(200, lines(events))
}

/// A watch that stays open after these events.
fn open_watch(events: &[(&str, Value)]) -> ScriptedResponse {
    let events = lines(events);
    let mut answer = String::from("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    if !events.is_empty() {
        // In two chunks, the first of which is not a complete line.
        let (one, other) = events.split_at(7);
        for piece in [one, other] {
            answer += &format!("{:x}\r\n{piece}\r\n", piece.len());
        }
    }
    ScriptedResponse::raw(answer, Ending::Hold)
}

fn configuration(name: &str, version: &str, server: &WebhookServer) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": name, "resourceVersion": version},
        "webhooks": [{
            "name": format!("{name}.example.com"),
            "clientConfig": {
                "url": server.url(&format!("/hooks/{name}")),
                "caBundle": BASE64_STANDARD.encode(server.ca_pem()),
            },
            "rules": [{
                "operations": ["*"],
                "apiGroups": ["notes.example.com"],
                "apiVersions": ["*"],
                "resources": ["*"],
            }],
            "namespaceSelector": {"matchLabels": {"tier": "web"}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    })
}

fn names(engine: &Engine, kind: ConfigurationKind) -> Vec<String> {
    let snapshot = engine.configurations(kind).snapshot();
    let hooks = snapshot.hooks().iter();
    hooks.map(|hook| hook.configuration().to_owned()).collect()
}

fn note(namespace: &str) -> Admission {
    let mut request = Request::new(
        Operation::Create,
        kind("notes.example.com", "v1", "Note"),
        resource("notes.example.com", "v1", "notes"),
    );
    request.namespace = namespace.to_owned();
    request.object = Some(json!({"metadata": {"name": "n"}, "text": "t"}).into());
    Admission::new(request)
}

fn namespace(name: &str, version: &str, tier: &str) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": version, "labels": {"tier": tier}}})
}

/// Scripts an API server whose watches end in every possible way.
fn write_script(server: &WebhookServer) {
    let made = |name: &str, version: &str| configuration(name, version, server);
    let gone = json!({"kind": "Status", "code": 410, "reason": "Expired"});
    server.script(
        VALIDATING,
        [
            list("10", &[made("a", "9")]),
            // The connection breaks, and the watch resumes from the last event.
            watch(&[("ADDED", made("b", "11")), ("MODIFIED", made("a", "12"))]),
            watch(&[
                ("DELETED", made("b", "13")),
                ("BOOKMARK", json!({"metadata": {"resourceVersion": "20"}})),
            ]),
            // Expired, by an event and by a code: everything is listed again.
            watch(&[("ADDED", made("c", "21")), ("ERROR", gone)]),
            list("50", &[made("d", "40")]),
            ScriptedResponse::http(410, ""),
            // Temporarily unavailable.
            ScriptedResponse::http(500, ""),
            list("60", &[made("d", "40"), made("e", "55")]),
            open_watch(&[("ADDED", made("f", "61"))]),
        ],
    );
    server.script(MUTATING, [list("10", &[]), open_watch(&[])]);
    server.script(
        NAMESPACES,
        [
            list(
                "10",
                &[namespace("shop", "1", "web"), namespace("lab", "2", "test")],
            ),
            open_watch(&[("MODIFIED", namespace("lab", "11", "web"))]),
        ],
    );
    server.script("/hooks/f", [ScriptedResponse::deny("not on Sundays")]);
}

#[tokio::test]
async fn registrations_follow_the_server() {
    let server = WebhookServer::builder().http1_only().start().await;
    write_script(&server);
    let main = Server::new(
        &server.url(""),
        server.ca_pem().as_bytes(),
        Some(String::from("secret")),
    );
    let feed = Feed::new(Arc::new(main.unwrap())).unwrap();
    let (engine, mut changes) = (feed.engine.clone(), feed.changes());
    let following = tokio::spawn(async move { feed.run(|_| {}).await });

    let validating = ConfigurationKind::Validating;
    let is_told = async {
        let namespaces = &engine.host().namespaces;
        let is_relabelled = || {
            let lab = namespaces.cached("lab");
            lab.is_some_and(|lab| lab.labels["tier"] == "web")
        };
        while names(&engine, validating) != ["d", "e", "f"] || !is_relabelled() {
            changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(AMPLE, is_told)
        .await
        .expect("the last state");
    assert!(names(&engine, ConfigurationKind::Mutating).is_empty());

    // A note in a namespace that the selectors match is sent to the webhooks, over the wire.
    let decision = engine.validate(&mut note("lab")).await;
    let message = "admission webhook \"f.example.com\" denied the request: not on Sundays";
    assert_eq!(decision.status().unwrap().message, message);
    // An unknown namespace is looked up, and does not exist.
    server.script(
        &format!("{NAMESPACES}/nowhere"),
        [ScriptedResponse::http(404, "")],
    );
    let decision = engine.validate(&mut note("nowhere")).await;
    assert_eq!(decision.status().unwrap().code, 404);

    // Watches were resumed from the last event, and lists were repeated only when necessary.
    let requests = server.requests();
    let asked = |path: &str| -> Vec<String> {
        let since = |query: &str| {
            query
                .rsplit_once("resourceVersion=")
                .map(|(_, v)| v.to_owned())
        };
        let asked = requests.iter().filter(|seen| seen.path == path);
        asked
            .map(|seen| since(&seen.query).unwrap_or_else(|| String::from("list")))
            .collect()
    };
    let all = ["list", "10", "12", "20", "list", "50", "list", "list", "60"];
    assert_eq!(asked(VALIDATING), all);
    assert_eq!(asked(NAMESPACES), ["list", "10"]);
    let shown = |seen: &lockgate_testkit::Recorded| seen.header("authorization").map(str::to_owned);
    let listed = requests.iter().find(|seen| seen.path == VALIDATING);
    assert_eq!(listed.and_then(shown).as_deref(), Some("Bearer secret"));
    // The token is for the API server, not for webhooks.
    let called = requests.iter().find(|seen| seen.path == "/hooks/f");
    assert_eq!(called.and_then(shown), None);
    following.abort();
    server.stop().await;
}

#[tokio::test]
async fn an_unchanged_registration_keeps_its_compiled_form_through_a_new_list() {
    let server = WebhookServer::builder().http1_only().start().await;
    let made = |name: &str, version: &str| configuration(name, version, &server);
    let gate = Gate::new();
    server.script(
        VALIDATING,
        [
            list("10", &[made("a", "9")]),
            ScriptedResponse::http(410, "").after(&gate),
            list("50", &[made("a", "9"), made("b", "49")]),
            open_watch(&[]),
        ],
    );
    for path in [MUTATING, NAMESPACES] {
        server.script(path, [list("10", &[]), open_watch(&[])]);
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    let ca = BASE64_STANDARD.encode(server.ca_pem());
    let kubeconfig = json!({
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {
            "server": server.url(""), "certificate-authority-data": ca,
        }}],
        "users": [{"name": "u", "user": {"tokenFile": "token"}}],
    });
    std::fs::File::create(&file)
        .unwrap()
        .write_all(kubeconfig.to_string().as_bytes())
        .unwrap();
    std::fs::write(directory.path().join("token"), "from a file\n").unwrap();
    let feed = Feed::new(Arc::new(Server::from_kubeconfig(&file).unwrap())).unwrap();
    let (engine, mut changes) = (feed.engine.clone(), feed.changes());
    let following = tokio::spawn(async move { feed.run(|_| {}).await });

    let validating = ConfigurationKind::Validating;
    let hooks = || {
        engine
            .configurations(validating)
            .snapshot()
            .hooks()
            .to_vec()
    };
    let mut until = async |count: usize| {
        let wait = async {
            while hooks().len() < count {
                changes.changed().await.unwrap();
            }
            hooks()
        };
        tokio::time::timeout(AMPLE, wait).await.expect("a list")
    };
    let before = until(1).await;
    gate.open();
    let after = until(2).await;
    assert!(Arc::ptr_eq(&before[0], &after[0]));
    let seen = server.requests();
    assert_eq!(seen[0].header("authorization"), Some("Bearer from a file"));
    following.abort();
}
