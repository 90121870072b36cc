//! `explain` agrees with the server: generated configurations, policies and requests are evaluated by both, and every
//! verdict is compared.

use std::sync::{Arc, Mutex};

use lockgate_admission::plugin::Admission;
use lockgate_apiserver::{Controllers, Observer, Running, Settings};
use lockgate_offline::capture::Record;
use lockgate_offline::chain::{Chain, Tracing};
use lockgate_offline::cluster::{Cluster, Validation};
use lockgate_offline::explanation::{HookVerdict, PolicyVerdict, explain};
use lockgate_offline::hooks::{Hook, Hooks, Script};
use lockgate_offline::manifest;
use lockgate_offline::request::{RequestSpec, from_review};
use lockgate_store::MemoryStore;
use lockgate_testkit::{ScriptedResponse, WebhookServer};
use serde_json::{Value, json};

/// Reproducible random choices.
struct Choices(u64);

impl Choices {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        let at = self.next(all.len());
        all[at].clone()
    }

    fn rule(&mut self) -> Value {
        json!({
            "operations": self.of(&[json!(["CREATE"]), json!(["UPDATE", "DELETE"]), json!(["*"]), json!(["CREATE", "UPDATE"]), json!(["DELETE"])]),
            "apiGroups": [self.of(&["", "*", "*", "apps"])],
            "apiVersions": [self.of(&["v1", "*", "*", "v2"])],
            "resources": [self.of(&["configmaps", "*", "*/*", "deployments", "deployments/scale", "deployments/*"])],
            "scope": self.of(&["*", "*", "Namespaced", "Cluster"]),
        })
    }

    fn selector(&mut self, key: &str) -> Value {
        match self.next(5) {
            0 => json!({"matchLabels": {key: "a"}}),
            1 => {
                json!({"matchExpressions": [{"key": key, "operator": "NotIn", "values": ["a", "b"]}]})
            }
            2 => json!({"matchExpressions": [{"key": key, "operator": "Exists"}]}),
            _ => json!({}),
        }
    }

    fn condition(&mut self) -> &'static str {
        self.of(&[
            "has(object.data) && object.data.size() > 1",
            "request.operation == 'CREATE'",
            "object.metadata.labels['team'] == 'a'",
            "!has(object.metadata.labels) || !('skip' in object.metadata.labels)",
            "oldObject == null || oldObject.metadata.name == object.metadata.name",
            "request.userInfo.username.startsWith('kube')",
            "object.data['k'] == 'v'",
            "namespaceObject == null",
        ])
    }

    fn conditions(&mut self) -> Value {
        let count = self.next(3);
        (0..count)
            .map(|n| json!({"name": format!("c{n}"), "expression": self.condition()}))
            .collect::<Vec<_>>()
            .into()
    }

    /// The fixed response of a webhook; `None` for an unreachable one.
    fn answer(&mut self, kind: &str) -> Option<Script> {
        let patch = |operations: Value| Script {
            patch: Some(operations.as_array().unwrap().clone()),
            ..Script::default()
        };
        let of_all = self.next(10);
        Some(match of_all {
            0 => return None,
            1 => Script {
                allowed: Some(false),
                message: Some(String::from("no such luck")),
                code: Some(409),
                reason: Some(String::from("Conflict")),
                ..Script::default()
            },
            2 => Script {
                warnings: vec![String::from("think twice")],
                ..Script::default()
            },
            _ if kind == "Validating" => Script::default(),
            3 => patch(json!([{"op": "add", "path": "/metadata/labels", "value": {"team": "a"}}])),
            4 => patch(
                json!([{"op": "add", "path": "/metadata/annotations", "value": {"seen": "yes"}}]),
            ),
            // These do not apply to every object, or not twice.
            5 => patch(json!([{"op": "remove", "path": "/data/k"}])),
            6 => patch(json!([{"op": "move", "from": "/data/k", "path": "/data/moved"}])),
            7 => patch(json!([{"op": "replace", "path": "/spec/replicas", "value": 2}])),
            _ => Script::default(),
        })
    }

    fn webhook(&mut self, kind: &str, name: &str, hooks: &mut Played<'_>) -> Value {
        let client = hooks.add(name, self.answer(kind));
        let mut webhook = json!({
            "name": format!("{name}.example.com"),
            "clientConfig": client, "rules": [self.rule(), self.rule()],
            "failurePolicy": if self.next(12) == 0 { "Fail" } else { "Ignore" }, "matchPolicy": self.of(&["Exact", "Equivalent"]),
            "namespaceSelector": self.selector("env"), "objectSelector": self.selector("team"),
            "matchConditions": self.conditions(), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 5,
        });
        if kind == "Mutating" {
            webhook["reinvocationPolicy"] = self.of(&["Never", "IfNeeded"]).into();
        }
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
            "metadata": {"name": name}, "webhooks": [webhook]})
    }

    fn policy(&mut self, kind: &str, name: &str) -> [Value; 2] {
        let api = "admissionregistration.k8s.io/v1";
        let mut spec = json!({
            "failurePolicy": self.of(&["Ignore", "Fail"]),
            "matchConstraints": {"resourceRules": [self.rule()], "matchPolicy": "Equivalent",
                "namespaceSelector": self.selector("env"), "objectSelector": self.selector("team")},
        });
        if self.next(2) == 0 {
            spec["matchConditions"] = self.conditions();
        }
        let mut binding = json!({"policyName": name});
        if kind == "Validating" {
            spec["variables"] = json!([{"name": "keys", "expression": "has(object.data) ? object.data.size() : 0"}]);
            spec["validations"] = json!([
                {"expression": self.of(&["variables.keys < 3", "object.data['k'] != 'x'", "true", "object.metadata.name != 'c'"])},
                {"expression": "object == null || object.metadata.namespace != 'nowhere'", "messageExpression": "'in ' + object.metadata.namespace"},
            ]);
            binding["validationActions"] =
                self.of(&[json!(["Deny"]), json!(["Warn"]), json!(["Warn", "Audit"])]);
        } else {
            let operations = &mut spec["matchConstraints"]["resourceRules"][0]["operations"];
            if operations
                .as_array()
                .is_some_and(|all| all.contains(&json!("DELETE")))
            {
                // Mutating policies do not support it.
                *operations = json!(["CREATE", "UPDATE"]);
            }
            spec["reinvocationPolicy"] = self.of(&["Never", "IfNeeded"]).into();
            spec["mutations"] = json!([self.of(&[
                json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
                    "Object{metadata: Object.metadata{labels: {'team': 'a'}}}"}}),
                json!({"patchType": "JSONPatch", "jsonPatch": {"expression":
                    "[JSONPatch{op: 'add', path: '/data/added', value: 'by-policy'}]"}}),
            ])]);
        }
        if self.next(3) == 0 {
            binding["matchResources"] = json!({"objectSelector": self.selector("team")});
        }
        [
            json!({"apiVersion": api, "kind": format!("{kind}AdmissionPolicy"), "metadata": {"name": name}, "spec": spec}),
            json!({"apiVersion": api, "kind": format!("{kind}AdmissionPolicyBinding"), "metadata": {"name": name}, "spec": binding}),
        ]
    }

    fn config_map(&mut self, name: &str) -> Value {
        let mut metadata = json!({"name": name, "namespace": self.of(&["one", "two"])});
        match self.next(4) {
            0 => metadata["labels"] = json!({"team": self.of(&["a", "b", "c"])}),
            1 => metadata["labels"] = json!({"team": "a", "skip": "yes"}),
            _ => {}
        }
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        if self.next(4) != 0 {
            object["data"] = self.of(&[
                json!({"k": "v"}),
                json!({"k": "x", "l": "y"}),
                json!({"a": "1", "b": "2", "c": "3"}),
            ]);
        }
        object
    }
}

/// Webhooks with the same responses on both sides.
struct Played<'s> {
    server: &'s WebhookServer,
    offline: Hooks,
}

impl Played<'_> {
    /// Adds a webhook, and returns its client configuration.
    fn add(&mut self, name: &str, answer: Option<Script>) -> Value {
        let full = format!("{name}.example.com");
        let Some(script) = answer else {
            let error = Some(String::from("unreachable"));
            let script = Script {
                error,
                ..Script::default()
            };
            self.offline.set(&full, Hook::Scripted(Box::new(script)));
            return json!({"url": "https://127.0.0.1:1/"});
        };
        let mut response =
            json!({"allowed": script.allowed != Some(false), "warnings": script.warnings});
        if script.allowed == Some(false) {
            response["status"] =
                json!({"message": script.message, "code": script.code, "reason": script.reason});
        }
        if let Some(patch) = &script.patch {
            let text = Value::from(patch.clone()).to_string();
            response["patchType"] = "JSONPatch".into();
            response["patch"] = lockgate_go::base64::encode(text.as_bytes()).into();
        }
        let path = format!("/{name}");
        self.server
            .script(&path, [ScriptedResponse::respond(response)]);
        self.offline.set(&full, Hook::Scripted(Box::new(script)));
        let ca = lockgate_go::base64::encode(self.server.ca_pem().as_bytes());
        json!({"url": self.server.url(&path), "caBundle": ca})
    }
}

/// A client of the server.
struct Api(kube::Client);

impl Api {
    async fn new(running: &Running) -> Self {
        let read = kube::config::Kubeconfig::from_yaml(&running.kubeconfig()).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(read, &options).await;
        Self(kube::Client::try_from(config.unwrap()).unwrap())
    }

    /// Sends a request; the response is ignored, only the admission result matters.
    async fn send(&self, method: &str, path: &str, content_type: &str, body: &Value) {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .body(text.into_bytes());
        let _ = self.0.request::<Value>(request.unwrap()).await;
    }
}

/// Sends a random write.
async fn act(choices: &mut Choices, api: &Api) -> String {
    let name = choices.of(&["a", "b", "c"]);
    let namespace = choices.of(&["one", "two"]);
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    // A fixed name, so that most subresource requests find it.
    let deployments = "/apis/apps/v1/namespaces/one/deployments";
    let json = "application/json";
    let mut object = choices.config_map(name);
    object["metadata"]["namespace"] = namespace.into();
    let labels = object["metadata"]["labels"].clone();
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "one", "labels": labels},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": "web", "namespace": "one"}, "spec": {"replicas": 3}});
    let merge = json!({"metadata": {"labels": {"team": choices.of(&["a", "b", "z"])}}});
    let (method, path, content_type, body) = match choices.next(10) {
        0..3 => ("POST", maps, json, object),
        3 => ("PUT", format!("{maps}/{name}"), json, object),
        4 => (
            "PATCH",
            format!("{maps}/{name}"),
            "application/merge-patch+json",
            merge,
        ),
        5 => ("DELETE", format!("{maps}/{name}"), json, Value::Null),
        6 => ("POST", deployments.to_owned(), json, deployment),
        7 => ("PUT", format!("{deployments}/web/scale"), json, scale),
        8 => ("DELETE", format!("{deployments}/web"), json, Value::Null),
        _ => ("POST", format!("{maps}?dryRun=All"), json, object),
    };
    api.send(method, &path, content_type, &body).await;
    format!("{method} {path} {body}")
}

/// The object without fields that only the server stores.
fn kept(object: Option<Value>) -> Option<Value> {
    let mut object = object.filter(|object| !object.is_null())?;
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata {
        metadata.remove("managedFields");
    }
    Some(object)
}

/// The verdicts of a trace as (round, name, verdict).
type Verdicts = Vec<(u8, String, &'static str)>;

fn verdicts_of_server(admission: &Admission) -> Verdicts {
    let mut all = Vec::new();
    for (_, plugin) in admission.trace().plugins() {
        for policy in &plugin.policies {
            let failed = match policy.policy.failure_policy() {
                lockgate_admission::configuration::FailurePolicy::Fail => PolicyVerdict::Denied,
                lockgate_admission::configuration::FailurePolicy::Ignore => {
                    PolicyVerdict::FailedOpen
                }
            };
            for binding in &policy.bindings {
                for evaluation in &binding.evaluations {
                    let mut verdict =
                        lockgate_offline::explanation::evaluation_verdict(evaluation, failed);
                    // A server's trace has no objects, so mutations cannot be determined.
                    if verdict == PolicyVerdict::Mutated {
                        verdict = PolicyVerdict::Allowed;
                    }
                    all.push((
                        plugin.round,
                        policy.policy.name().to_owned(),
                        verdict.name(),
                    ));
                }
            }
        }
        for hook in &plugin.hooks {
            let verdict = lockgate_offline::explanation::hook_verdict(hook);
            if verdict != HookVerdict::NotMatched {
                all.push((plugin.round, hook.hook.name().to_owned(), verdict.name()));
            }
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_and_the_server_never_disagree() {
    let rounds: u64 = std::env::var("LOCKGATE_AGREEMENT_ROUNDS")
        .ok()
        .and_then(|it| it.parse().ok())
        .unwrap_or(30);
    let mut compared = 0;
    let mut reached = Reached::new();
    let webhooks = WebhookServer::start().await;
    for seed in 0..rounds {
        let mut choices = Choices(seed * 7919 + 17);
        let mut manifests = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one", "labels": {"env": "a"}}}),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "two"}}),
        ];
        let mut played = Played {
            server: &webhooks,
            offline: Hooks::default(),
        };
        for n in 0..4 {
            manifests.push(choices.webhook("Mutating", &format!("m{n}"), &mut played));
            manifests.push(choices.webhook("Validating", &format!("v{n}"), &mut played));
        }
        for n in 0..3 {
            manifests.extend(choices.policy("Validating", &format!("vp{n}")));
            manifests.extend(choices.policy("Mutating", &format!("mp{n}")));
        }
        let seen: Arc<Mutex<Vec<Admission>>> = Arc::default();
        let ear = Arc::clone(&seen);
        let observer = Observer::new(move |admission| {
            let resource = &admission.request().resource.resource;
            if matches!(resource.as_str(), "configmaps" | "deployments") {
                ear.lock().unwrap().push(admission.clone());
            }
        });
        let settings = Settings {
            secure_port: 0,
            observer: Some(observer.recording_objects()),
            controllers: Controllers::all(false),
            ..Settings::default()
        };
        let running = Running::start(settings, Arc::new(MemoryStore::new()))
            .await
            .unwrap();
        let text = |values: &[Value]| {
            values
                .iter()
                .map(|value| format!("---\n{value}\n"))
                .collect::<String>()
        };
        running.apply(&text(&manifests)).await.unwrap();
        seen.lock().unwrap().clear();
        let api = Api::new(&running).await;
        let read = manifest::read("generated", &text(&manifests)).unwrap();
        let cluster = Cluster::from_manifests(read, Validation::Strict).unwrap();
        let chain = Chain::new(&cluster, played.offline);
        for _ in 0..12 {
            let sent = act(&mut choices, &api).await;
            let observed = std::mem::take(&mut *seen.lock().unwrap());
            for admission in observed {
                compare(seed, &sent, &admission, &cluster, &chain, &mut reached).await;
                compared += 1;
            }
        }
        running.stop().await;
    }
    webhooks.stop().await;
    assert!(
        compared >= usize::try_from(rounds).unwrap() * 3,
        "{compared}"
    );
    eprintln!("{compared} requests compared: {reached:?}");
    // A property test that never covers a case proves nothing about it.
    for met in [
        "excluded",
        "failed-open",
        "allowed",
        "denied",
        "patched",
        "CREATE",
        "UPDATE",
        "DELETE",
        "scale",
        "dry run",
        "second round",
    ] {
        assert!(reached.contains_key(met), "{met} in {reached:?}");
    }
}

/// The number of cases per feature.
type Reached = std::collections::BTreeMap<String, usize>;

async fn compare(
    seed: u64,
    sent: &str,
    admission: &Admission,
    cluster: &Cluster,
    chain: &Chain,
    reached: &mut Reached,
) {
    let request = admission.request();
    let record = Record::of(admission, String::new()).unwrap();
    let made = from_review(&record.request, &cluster.kinds).unwrap();
    // A creation is determined by its object alone.
    let is_plain = request.operation.name() == "CREATE" && request.subresource.is_empty();
    let made = if is_plain && !request.dry_run && seed.is_multiple_of(2) {
        let wanted = RequestSpec {
            object: Some(record.request["object"].clone()),
            user: request.user.clone(),
            ..RequestSpec::default()
        };
        wanted.make(&cluster.kinds).unwrap().request
    } else {
        made
    };
    let run = chain.run(made, Tracing::Explained).await;
    let (server, ours) = (
        verdicts_of_server(admission),
        verdicts_of_server(&run.admission),
    );
    assert_eq!(ours, server, "seed {seed}: {sent}");
    let denied = |admission: &Admission| {
        let mut steps = admission.trace().steps.iter();
        steps.find_map(|step| step.denied.as_ref().and_then(|_| step.status.clone()))
    };
    let theirs = denied(admission);
    assert_eq!(
        run.decision.is_allowed(),
        theirs.is_none(),
        "seed {seed}: {sent}"
    );
    if let (Some(theirs), Some(ours)) = (&theirs, run.decision.status()) {
        assert_eq!(ours.code, theirs.code, "seed {seed}: {sent}");
        // Network errors differ, and with several denials any may be the first.
        let denials = server.iter().filter(|(_, _, verdict)| *verdict == "denied");
        if !theirs.message.contains("failed calling webhook") && denials.count() == 1 {
            assert_eq!(ours.message, theirs.message, "seed {seed}: {sent}");
        }
    }
    let theirs_left = record
        .mutated
        .or_else(|| record.request.get("object").cloned());
    assert_eq!(
        kept(run.object.clone()),
        kept(theirs_left),
        "seed {seed}: {sent}"
    );
    // The printed explanation has the same content as the trace.
    let told = explain(chain, &run);
    assert_eq!(told.decision.allowed, theirs.is_none());
    let mut meet = |what: &str| *reached.entry(what.to_owned()).or_default() += 1;
    for (round, _, verdict) in &ours {
        meet(verdict);
        if *round > 0 {
            meet("second round");
        }
    }
    let mut calls = admission.trace().calls();
    if calls.any(|(.., call)| call.patch.is_some()) {
        meet("patched");
    }
    meet(request.operation.name());
    meet(&request.subresource);
    if request.dry_run {
        meet("dry run");
    }
}
