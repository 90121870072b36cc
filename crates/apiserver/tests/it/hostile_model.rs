//! Generated requests against a model: the authorized, executed and audited attributes are equal.
//! `LOCKGATE_MODEL_REQUESTS=100000` sets the number of requests.
//!
//! The model is written from upstream's RequestInfo and RBAC, and shares no code with the server.

use std::collections::BTreeMap;
use std::path::Path;

use http::Method;
use lockgate_apiserver::Settings;
use serde_json::{Value, json};

use crate::support::*;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// By user: the namespaces (none means all), the verbs and the resources.
const GRANTS: [(&str, &str, &[&str], &[&str]); 6] = [
    ("ann", "team-a", &["*"], &["*"]),
    ("ben", "", &["get", "list"], &["configmaps", "namespaces"]),
    (
        "cat",
        "team-b",
        &["create", "update", "patch", "delete"],
        &["configmaps"],
    ),
    (
        "dan",
        "team-a",
        &["get", "update", "patch"],
        &["namespaces", "namespaces/status", "namespaces/finalize"],
    ),
    ("eve", "", &["get"], &["configmaps/status", "pods/log"]),
    ("fay", "team-b", &["*"], &["configmaps"]),
];
const PATHS: [&str; 4] = ["/api/v1", "/apis/apps/v1", "/api", "/apis/example.com/v1"];
const WORDS: [&str; 16] = [
    "namespaces",
    "namespaces",
    "namespaces",
    "team-a",
    "team-b",
    "victim",
    "kube-system",
    "configmaps",
    "configmaps",
    "pods",
    "status",
    "finalize",
    "log",
    "watch",
    "proxy",
    "a",
];
const METHODS: [Method; 7] = [
    Method::GET,
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];

/// A deterministic random number generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }

    fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        let index = self.below(from.len());
        &from[index]
    }
}

/// The authorization attributes of a request, as upstream derives them.
#[derive(Debug, PartialEq, Eq)]
struct Model {
    verb: String,
    group: String,
    namespace: String,
    resource: String,
    name: String,
    subresource: String,
}

/// `None` for non-resource paths.
fn model(method: &Method, path: &str) -> Option<Model> {
    let decoded = path.replace("%2F", "/").replace("%2f", "/");
    let parts: Vec<&str> = decoded.trim_matches('/').split('/').collect();
    let (group, mut parts) = match parts[0] {
        "api" if parts.len() >= 3 => ("", &parts[2..]),
        "apis" if parts.len() >= 4 => (parts[1], &parts[3..]),
        _ => return None,
    };
    let mut verb = match method.as_str() {
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    };
    let mut takes_subresource = true;
    if ["watch", "proxy"].contains(&parts[0]) && parts.len() > 1 {
        verb = parts[0];
        takes_subresource = verb != "proxy";
        parts = &parts[1..];
    }
    let mut namespace = "";
    if parts[0] == "namespaces" && parts.len() > 1 {
        namespace = parts[1];
        if parts.len() > 2 && !["status", "finalize"].contains(&parts[2]) {
            parts = &parts[2..];
        }
    }
    let at = |index: usize| parts.get(index).copied().unwrap_or_default();
    if at(1).is_empty() && verb == "get" {
        verb = "list";
    }
    if at(1).is_empty() && verb == "delete" {
        verb = "deletecollection";
    }
    Some(Model {
        verb: verb.to_owned(),
        group: group.to_owned(),
        namespace: namespace.to_owned(),
        resource: at(0).to_owned(),
        name: at(1).to_owned(),
        subresource: if takes_subresource { at(2) } else { "" }.to_owned(),
    })
}

impl Model {
    fn is_allowed(&self, user: &str) -> bool {
        let whole = match self.subresource.as_str() {
            "" => self.resource.clone(),
            sub => format!("{}/{sub}", self.resource),
        };
        GRANTS.iter().any(|(who, place, verbs, resources)| {
            let has =
                |list: &[&str], wanted: &str| list.iter().any(|it| *it == "*" || *it == wanted);
            *who == user
                && (place.is_empty() || *place == self.namespace)
                && self.group.is_empty()
                && has(verbs, &self.verb)
                && has(resources, &whole)
        })
    }
}

async fn grant(admin: &Client) {
    for (user, place, verbs, resources) in GRANTS {
        let (kind, base) = match place {
            "" => ("Cluster", String::from(RBAC)),
            place => ("", format!("{RBAC}/namespaces/{place}")),
        };
        let plural = kind.to_ascii_lowercase();
        let role = json!({
            "metadata": {"name": user},
            "rules": [{"apiGroups": [""], "resources": resources, "verbs": verbs}],
        });
        admin.create(&format!("{base}/{plural}roles"), role).await;
        let binding = json!({
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": format!("{kind}Role"), "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        admin
            .create(&format!("{base}/{plural}rolebindings"), binding)
            .await;
    }
}

/// Namespaces and ConfigMaps that no test user may change.
async fn out_of_reach(admin: &Client) -> Value {
    let mut state = json!({});
    for path in [
        "/api/v1/namespaces/victim",
        "/api/v1/namespaces/victim/configmaps",
        "/api/v1/namespaces/kube-system/configmaps",
    ] {
        let mut found = admin.get(path).await.expect(200);
        if path.ends_with("configmaps") {
            // The list's resourceVersion changes with every write.
            found = found["items"].take();
        }
        state[path] = found;
    }
    state
}

fn generate(numbers: &mut Numbers) -> (Method, String, &'static str) {
    let method = numbers.pick(&METHODS).clone();
    // Half of them start with a served path.
    let is_usual = numbers.below(2) == 0;
    let mut path = if is_usual {
        let place = numbers.pick::<&str>(&["team-a", "team-b", "victim"]);
        let rest =
            numbers.pick::<&str>(&["", "/configmaps", "/configmaps/a", "/namespaces/victim"]);
        format!("/api/v1/namespaces/{place}{rest}")
    } else {
        (*numbers.pick(&PATHS)).to_owned()
    };
    let words = if is_usual {
        numbers.below(3).saturating_sub(1)
    } else {
        1 + numbers.below(6)
    };
    for _ in 0..words {
        let slash = match numbers.below(40) {
            0 => "//",
            1 => "%2F",
            _ => "/",
        };
        path.push_str(slash);
        path.push_str(numbers.pick::<&str>(&WORDS));
    }
    if numbers.below(30) == 0 {
        path.push('/');
    }
    if numbers.below(60) == 0 {
        path.insert(0, '/');
    }
    let user = GRANTS[numbers.below(GRANTS.len())].0;
    (method, path, user)
}

fn events(path: &Path) -> BTreeMap<String, Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let events = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    events
        .map(|event| (event["auditID"].as_str().unwrap().to_owned(), event))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_executed_and_audited_is_the_same() {
    let count = std::env::var("LOCKGATE_MODEL_REQUESTS");
    let count: usize = count
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2_000);
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let server = start_with(Settings {
        audit_log_path: Some(log.clone()),
        ..settings()
    })
    .await;
    let admin = Client::admin(&server).await;
    for name in ["team-a", "team-b", "victim"] {
        admin
            .create("/api/v1/namespaces", json!({"metadata": {"name": name}}))
            .await;
        let maps = format!("/api/v1/namespaces/{name}/configmaps");
        admin.create(&maps, config_map("a")).await;
    }
    grant(&admin).await;
    let before = out_of_reach(&admin).await;

    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut asked: Vec<(String, Option<Model>, String)> = Vec::new();
    let (mut allowed, mut executed) = (0, 0);
    for _ in 0..count {
        let (method, path, user) = generate(&mut numbers);
        let request = format!("{user}: {method} {path}");
        let (kind, text) = match method {
            Method::PATCH => (
                "application/merge-patch+json",
                r#"{"metadata":{"labels":{"x":"y"}}}"#,
            ),
            Method::POST | Method::PUT => ("application/json", r#"{"metadata":{"name":"a"}}"#),
            _ => ("application/json", ""),
        };
        let headers = [("content-type", kind), ("impersonate-user", user)];
        // Dry runs: the state stays as the model expects it.
        let dry = format!("{path}?dryRun=All");
        let answer = admin.request(method.clone(), &dry, &headers, text).await;
        let model = model(&method, &path);
        let is_allowed = model.as_ref().is_some_and(|model| model.is_allowed(user));
        // Non-resource paths are covered by another test.
        if model.is_some() {
            assert_eq!(
                answer.code != 403,
                is_allowed,
                "{request}: {} {} {model:?}",
                answer.code,
                answer.text()
            );
        }
        allowed += usize::from(is_allowed);
        if let Some(model) = &model
            && matches!(answer.code, 200 | 201)
            && let Ok(object) = serde_json::from_slice::<Value>(&answer.bytes)
            && object["kind"] != "Status"
            && object["items"].is_null()
        {
            executed += 1;
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let place = object["metadata"]["namespace"].as_str().unwrap_or_default();
            if model.verb != "create" {
                assert_eq!(name, model.name, "{request}");
            }
            if model.resource != "namespaces" {
                assert_eq!(place, model.namespace, "{request}");
            }
        }
        asked.push((answer.header("audit-id").to_owned(), model, request));
    }
    assert!(allowed > count / 50 && executed > 0, "{allowed} {executed}");
    assert_eq!(out_of_reach(&admin).await, before);
    server.stop().await;

    let events = events(&log);
    for (id, model, request) in asked {
        let event = &events[&id];
        let reference = &event["objectRef"];
        let Some(model) = model else {
            assert!(reference.is_null(), "{request}: {event}");
            continue;
        };
        let text = |member: &str| reference[member].as_str().unwrap_or_default().to_owned();
        let mut audited = Model {
            verb: event["verb"].as_str().unwrap_or_default().to_owned(),
            group: text("apiGroup"),
            namespace: text("namespace"),
            resource: text("resource"),
            name: text("name"),
            subresource: text("subresource"),
        };
        if model.verb == "create" && model.name.is_empty() {
            // The body contains the name on create.
            audited.name.clear();
        }
        assert_eq!(audited, model, "{request}");
    }
    println!("{count} requests, {allowed} allowed, {executed} executed on an object");
}
