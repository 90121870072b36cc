//! `explain` and the server agree: generated configurations, policies and requests go through both, and every
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
use lockgate_offline::request::{Wanted, from_review};
use lockgate_store::MemoryStore;
use serde_json::{Value, json};

/// Random choices that can be made again.
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
            "operations": [self.of(&["CREATE", "UPDATE", "*", "DELETE"])],
            "apiGroups": [self.of(&["", "*", "apps"])],
            "apiVersions": [self.of(&["v1", "*", "v2"])],
            "resources": [self.of(&["configmaps", "*", "*/*", "secrets", "configmaps/status"])],
            "scope": self.of(&["*", "Namespaced", "Cluster"]),
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

    fn webhook(&mut self, kind: &str, name: &str) -> Value {
        let mut webhook = json!({
            "name": format!("{name}.example.com"),
            "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": [self.rule(), self.rule()],
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
            if *operations == json!(["DELETE"]) {
                // Mutating policies cannot list it.
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

/// The verdicts of a trace, as (round, name, verdict).
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
                    // A server keeps no objects, so it does not tell whether one changed.
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
    let mut reached = std::collections::BTreeMap::<&'static str, usize>::new();
    for seed in 0..rounds {
        let mut choices = Choices(seed * 7919 + 17);
        let mut manifests = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one", "labels": {"env": "a"}}}),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "two"}}),
        ];
        for n in 0..4 {
            manifests.push(choices.webhook("Mutating", &format!("m{n}")));
            manifests.push(choices.webhook("Validating", &format!("v{n}")));
        }
        for n in 0..3 {
            manifests.extend(choices.policy("Validating", &format!("vp{n}")));
            manifests.extend(choices.policy("Mutating", &format!("mp{n}")));
        }
        let seen: Arc<Mutex<Vec<Admission>>> = Arc::default();
        let ear = Arc::clone(&seen);
        let observer = Observer::new(move |admission| {
            if admission.request().resource.resource == "configmaps" {
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
        let read = manifest::read("generated", &text(&manifests)).unwrap();
        let cluster = Cluster::from_manifests(read, Validation::Strict).unwrap();
        let mut hooks = Hooks::default();
        hooks.set_others(Hook::Scripted(Box::new(Script {
            error: Some(String::from("unreachable")),
            ..Script::default()
        })));
        let chain = Chain::new(&cluster, hooks);
        for n in 0..6 {
            // The second of a name is an update.
            let object = choices.config_map(["a", "b", "c"][n % 3]);
            let _ = running.apply(&object.to_string()).await;
            let observed = std::mem::take(&mut *seen.lock().unwrap());
            for admission in observed {
                let request = admission.request();
                let is_create = request.operation.name() == "CREATE";
                let made = if is_create && n < 3 {
                    let wanted = Wanted {
                        object: Some(object.clone()),
                        user: request.user.clone(),
                        ..Wanted::default()
                    };
                    wanted.make(&cluster.kinds).unwrap().request
                } else {
                    let record = Record::of(&admission, String::new()).unwrap();
                    from_review(&record.request, &cluster.kinds).unwrap()
                };
                let run = chain.run(made, Tracing::Explained).await;
                let denied = admission
                    .trace()
                    .steps
                    .iter()
                    .any(|step| step.denied.is_some());
                let (server, ours) = (
                    verdicts_of_server(&admission),
                    verdicts_of_server(&run.admission),
                );
                assert_eq!(ours, server, "seed {seed}, object {object}");
                assert_eq!(
                    !run.decision.is_allowed(),
                    denied,
                    "seed {seed}, object {object}"
                );
                // What people read says the same as the trace it is read from.
                let told = explain(&chain, &run);
                assert_eq!(told.decision.allowed, !denied);
                for (_, _, verdict) in &ours {
                    *reached.entry(verdict).or_default() += 1;
                }
                compared += 1;
            }
        }
        running.stop().await;
    }
    assert!(compared >= usize::try_from(rounds).unwrap(), "{compared}");
    // A property that never meets a verdict says nothing about it.
    for verdict in ["excluded", "failed-open", "allowed", "denied"] {
        assert!(reached.contains_key(verdict), "{verdict} in {reached:?}");
    }
    eprintln!("{compared} requests compared: {reached:?}");
}
