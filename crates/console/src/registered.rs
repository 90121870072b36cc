//! The registered webhooks and policies in the order they run, with their counts and lint findings.

use std::time::{SystemTime, UNIX_EPOCH};

use lockgate_admission::trace::Step;
use lockgate_api::document::json as document;
use lockgate_api::meta::status::Status;
use lockgate_lint::{Options, Set, check};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Resource};
use crate::recorder::Kept;
use crate::statistics::Subject;

/// The maximum number of objects read per resource.
const MAX_OBJECTS: usize = 5_000;

const GROUP: &str = "admissionregistration.k8s.io";

/// Validating or mutating.
const MUTATING_WEBHOOKS: Resource = (GROUP, "v1", "mutatingwebhookconfigurations");
const VALIDATING_WEBHOOKS: Resource = (GROUP, "v1", "validatingwebhookconfigurations");
const MUTATING_POLICIES: Resource = (GROUP, "v1", "mutatingadmissionpolicies");
const VALIDATING_POLICIES: Resource = (GROUP, "v1", "validatingadmissionpolicies");

/// The related resources, for rules about Services, namespaces and backends.
const AROUND: [Resource; 8] = [
    (GROUP, "v1", "mutatingadmissionpolicybindings"),
    (GROUP, "v1", "validatingadmissionpolicybindings"),
    ("", "v1", "namespaces"),
    ("", "v1", "services"),
    ("apps", "v1", "deployments"),
    ("apps", "v1", "statefulsets"),
    ("apps", "v1", "daemonsets"),
    ("policy", "v1", "poddisruptionbudgets"),
];

/// Policies by name, of either kind.
pub(crate) async fn policy(
    cluster: &dyn Cluster,
    name: &str,
) -> Result<Option<Value>, Box<Status>> {
    for resource in [VALIDATING_POLICIES, MUTATING_POLICIES] {
        let objects = cluster.objects(resource, MAX_OBJECTS).await?;
        let found = objects
            .into_iter()
            .find(|object| object["metadata"]["name"] == name);
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// A namespace by name.
pub(crate) async fn namespace(
    cluster: &dyn Cluster,
    name: &str,
) -> Result<Option<Value>, Box<Status>> {
    let objects = cluster
        .objects(("", "v1", "namespaces"), MAX_OBJECTS)
        .await?;
    Ok(objects
        .into_iter()
        .find(|object| object["metadata"]["name"] == name))
}

/// Everything that is registered.
pub(crate) struct Registered {
    kinds: Vec<(Resource, Vec<Value>)>,
    around: Vec<Value>,
}

impl Registered {
    pub(crate) async fn read(cluster: &dyn Cluster) -> Result<Self, Box<Status>> {
        let mut kinds = Vec::new();
        for resource in [
            MUTATING_POLICIES,
            MUTATING_WEBHOOKS,
            VALIDATING_POLICIES,
            VALIDATING_WEBHOOKS,
        ] {
            let mut objects = cluster.objects(resource, MAX_OBJECTS).await?;
            // UPSTREAM: apiserver pkg/admission/configuration (sorted by name)
            objects.sort_by(|one, other| name(one).cmp(name(other)));
            kinds.push((resource, objects));
        }
        let mut around = Vec::new();
        for resource in AROUND {
            around.extend(cluster.objects(resource, MAX_OBJECTS).await?);
        }
        Ok(Self { kinds, around })
    }

    /// All of it as JSON. Linting large sets takes time.
    pub(crate) fn to_value(&self, kept: &Kept) -> Value {
        let findings = self.findings();
        let statistics = kept.statistics.lock();
        let statistics = statistics.unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut rows = Vec::new();
        for (resource, objects) in &self.kinds {
            for object in objects {
                let found = |webhook: Option<&str>| of(&findings, object, webhook);
                let step = match *resource == MUTATING_WEBHOOKS {
                    true => Step::Admit,
                    false => Step::Validate,
                };
                if !matches!(*resource, MUTATING_WEBHOOKS | VALIDATING_WEBHOOKS) {
                    let kind = match *resource == MUTATING_POLICIES {
                        true => "MutatingAdmissionPolicy",
                        false => "ValidatingAdmissionPolicy",
                    };
                    let subject = Subject::Policy {
                        kind,
                        name: name(object).to_owned(),
                    };
                    rows.push(self.policy(object, statistics.of(&subject), found(None)));
                    continue;
                }
                for webhook in object["webhooks"].as_array().into_iter().flatten() {
                    let hook = webhook["name"].as_str().unwrap_or_default();
                    let subject = Subject::Webhook {
                        step,
                        configuration: name(object).to_owned(),
                        name: hook.to_owned(),
                    };
                    let mut findings = found(Some(hook));
                    findings.extend(found(None));
                    rows.push(webhook_json(
                        object,
                        webhook,
                        statistics.of(&subject),
                        findings,
                    ));
                }
            }
        }
        for (order, row) in rows.iter_mut().enumerate() {
            row["order"] = json!(order + 1);
        }
        json!({ "rows": rows })
    }

    fn policy(&self, object: &Value, counts: Value, findings: Vec<Value>) -> Value {
        let spec = &object["spec"];
        let is_of = |binding: &&Value| {
            let kind = binding["kind"].as_str().unwrap_or_default();
            binding["spec"]["policyName"] == object["metadata"]["name"]
                && kind.strip_suffix("Binding") == object["kind"].as_str()
        };
        let bindings = self.around.iter().filter(is_of);
        let bindings = bindings.map(|binding| {
            json!({"name": name(binding), "actions": binding["spec"]["validationActions"], "matchResources": binding["spec"]["matchResources"], "paramRef": binding["spec"]["paramRef"]})
        });
        json!({
            "type": "policy",
            "phase": if object["kind"] == "MutatingAdmissionPolicy" { "mutating" } else { "validating" },
            "name": name(object),
            "kind": object["kind"],
            "failurePolicy": spec["failurePolicy"],
            "reinvocationPolicy": spec["reinvocationPolicy"],
            "matchConstraints": spec["matchConstraints"],
            "matchConditions": spec["matchConditions"],
            "paramKind": spec["paramKind"],
            "variables": spec["variables"],
            "validations": spec["validations"],
            "mutations": spec["mutations"],
            "bindings": bindings.collect::<Vec<_>>(),
            "counts": counts,
            "findings": findings,
        })
    }

    /// Findings as JSON with the title of their object and the name of their webhook.
    fn findings(&self) -> Vec<Value> {
        let mut set = Set::default();
        let registered = self.kinds.iter().flat_map(|(_, objects)| objects);
        for object in registered.chain(&self.around) {
            let text = object.to_string();
            // Objects accepted by the API server can be decoded; undecodable ones have no findings.
            if let Ok(parsed) = document::parse(text.as_bytes()) {
                let _ = set.add(parsed.root());
            }
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let options = Options {
            now: now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or_default()),
            ..Options::default()
        };
        let findings = check(&set, &options).into_iter().map(|finding| {
            json!({
                "object": set.title(finding.object),
                "webhook": finding.webhook,
                "rule": finding.rule.id,
                "title": finding.rule.title,
                "advice": finding.rule.advice,
                "severity": finding.severity.name(),
                "path": finding.path,
                "message": finding.message,
            })
        });
        findings.collect()
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The findings about an object, or about one of its webhooks.
fn of(findings: &[Value], object: &Value, webhook: Option<&str>) -> Vec<Value> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let title = format!("{kind}/{}", name(object));
    let is_about = |finding: &&Value| {
        finding["object"] == title.as_str() && finding["webhook"].as_str() == webhook
    };
    findings.iter().filter(is_about).cloned().collect()
}

fn webhook_json(object: &Value, webhook: &Value, counts: Value, findings: Vec<Value>) -> Value {
    let client = &webhook["clientConfig"];
    let address = match &client["service"] {
        Value::Null => client["url"].clone(),
        service => {
            let text = |name: &str| service[name].as_str().unwrap_or_default();
            let port = service["port"].as_u64().unwrap_or(443);
            json!(format!(
                "{}/{}:{port}{}",
                text("namespace"),
                text("name"),
                text("path")
            ))
        }
    };
    json!({
        "type": "webhook",
        "phase": if object["kind"] == "MutatingWebhookConfiguration" { "mutating" } else { "validating" },
        "name": webhook["name"],
        "configuration": name(object),
        "kind": object["kind"],
        "address": address,
        "failurePolicy": webhook["failurePolicy"],
        "timeoutSeconds": webhook["timeoutSeconds"],
        "sideEffects": webhook["sideEffects"],
        "reinvocationPolicy": webhook["reinvocationPolicy"],
        "rules": webhook["rules"],
        "namespaceSelector": webhook["namespaceSelector"],
        "objectSelector": webhook["objectSelector"],
        "matchConditions": webhook["matchConditions"],
        "counts": counts,
        "findings": findings,
    })
}
