//! Replays captured requests with another webhook, configuration or policy set, and reports what would change.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use lockgate_admission::host::Kinds as _;
use lockgate_api::kube_version::KubeVersion;
use lockgate_api::registration::hub::ClientConfig;
use lockgate_kinds::resource as rows;
use serde::Serialize;
use serde_json::{Value, json};

use crate::capture::{Capture, Record, RecordedResponses};
use crate::chain::{Chain, Run, Tracing};
use crate::cluster::{Cluster, ClusterError, Validation};
use crate::diff;
use crate::hooks::{Hook, Hooks, Responder};
use crate::kinds::OfflineKinds;
use crate::manifest::Manifest;
use crate::request::{RequestError, from_review};

/// The result of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Result {
    /// True if it was allowed.
    pub allowed: bool,
    /// The status code of a denial.
    pub code: Option<i32>,
    /// The message of a denial.
    pub message: String,
    /// Warnings for the client.
    pub warnings: BTreeSet<String>,
    /// The object after mutating admission; `None` if unknown.
    pub object: Option<Value>,
}

/// A request whose outcome changed.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Changed {
    /// The number of the request in the capture, from 1.
    pub record: usize,
    /// A summary of the request.
    pub request: String,
    /// The changes.
    pub changes: Vec<Change>,
}

/// A change of the outcome.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Change {
    /// The request is denied now.
    Denied {
        /// The message.
        message: String,
    },
    /// The request is allowed now.
    Allowed {
        /// The previous message.
        before: String,
    },
    /// It is still denied, with another message.
    Message {
        /// The message before.
        before: String,
        /// The message now.
        after: String,
    },
    /// It is still denied, with another code.
    Code {
        /// The code before.
        before: Option<i32>,
        /// The code now.
        after: Option<i32>,
    },
    /// The object differs.
    Object {
        /// A unified diff of both as YAML.
        diff: String,
    },
    /// The warnings differ.
    Warnings {
        /// Warnings that no longer occur.
        removed: Vec<String>,
        /// Warnings that are new.
        added: Vec<String>,
    },
    /// The Kubernetes version of the replay does not serve the resource.
    NotServed {
        /// The resource, with its group and version.
        resource: String,
        /// The Kubernetes version.
        kube_version: String,
    },
    /// The request cannot be replayed.
    Error {
        /// The error.
        message: String,
    },
}

/// The outcome of a replay.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The number of requests.
    pub requests: usize,
    /// The number of requests that were allowed and are now denied.
    pub newly_denied: usize,
    /// The number of requests that were denied and are now allowed.
    pub newly_allowed: usize,
    /// The number of requests whose resource is not served.
    pub not_served: usize,
    /// The requests whose outcome changed, in order.
    pub changed: Vec<Changed>,
}

impl Report {
    /// Adds the outcome of a request.
    pub fn add(&mut self, changed: Option<Changed>) {
        self.requests += 1;
        let Some(changed) = changed else {
            return;
        };
        for change in &changed.changes {
            match change {
                Change::Denied { .. } => self.newly_denied += 1,
                Change::Allowed { .. } => self.newly_allowed += 1,
                Change::NotServed { .. } => self.not_served += 1,
                _ => {}
            }
        }
        self.changed.push(changed);
    }
}

impl From<&Run> for Result {
    fn from(run: &Run) -> Self {
        let status = run.decision.status();
        Self {
            allowed: run.decision.is_allowed(),
            code: status.map(|status| status.code),
            message: status
                .map(|status| status.message.clone())
                .unwrap_or_default(),
            warnings: run.admission.warnings().texts().iter().cloned().collect(),
            object: run.object.clone(),
        }
    }
}

/// Replays requests on a chain.
#[derive(Debug)]
pub struct Replay {
    chain: Chain,
    /// The chain to compare with; without it, the captured outcomes.
    baseline: Option<Chain>,
    kinds: Arc<OfflineKinds>,
    version: KubeVersion,
}

/// Recorded responses; a request without one is allowed.
#[derive(Debug)]
struct AllowedByDefault(RecordedResponses);

impl Responder for AllowedByDefault {
    fn answer(&self, request: &Value) -> Option<Value> {
        let recorded = self.0.answer(request);
        Some(recorded.unwrap_or_else(|| json!({"allowed": true})))
    }
}

impl Replay {
    /// Replays on a cluster, whose webhooks return their captured responses. Outcomes are compared with the
    /// baseline's, or with the captured ones.
    #[must_use]
    pub fn on_cluster(cluster: &Cluster, baseline: Option<&Cluster>, capture: &Capture) -> Self {
        let chain = |cluster: &Cluster| Chain::new(cluster, recorded(cluster, capture));
        Self {
            chain: chain(cluster),
            baseline: baseline.map(chain),
            kinds: Arc::clone(&cluster.kinds),
            version: KubeVersion::REFERENCE,
        }
    }

    /// Sets the Kubernetes version of the replay.
    #[must_use]
    pub fn at(self, version: KubeVersion) -> Self {
        Self { version, ..self }
    }

    /// Replays requests on one webhook. Outcomes are compared with the recorded responses of the webhook.
    ///
    /// # Errors
    ///
    /// Fails if there is no webhook of this name.
    pub fn on_webhook(
        name: &str,
        config: ClientConfig,
        caller: Arc<dyn lockgate_admission::call::Caller>,
        timeout_seconds: u8,
        capture: &Capture,
    ) -> std::result::Result<Self, ClusterError> {
        let registered = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "replay"},
            "webhooks": [{
                "name": name, "clientConfig": {"url": "https://replay.invalid/"},
                "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
                "sideEffects": "None", "admissionReviewVersions": ["v1", "v1beta1"],
                "matchPolicy": "Exact", "timeoutSeconds": timeout_seconds,
            }],
        });
        let manifest = Manifest {
            value: registered,
            source: String::from("--webhook"),
            document: 1,
        };
        let cluster = Cluster::from_manifests([manifest], Validation::Strict)?;
        let mut live = Hooks::default().with_caller(caller);
        live.set_others(Hook::Live(Box::new(config)));
        let mut before = Hooks::default();
        before.set_others(Hook::Recorded(Arc::new(AllowedByDefault(
            capture.answers(name),
        ))));
        Ok(Self {
            chain: Chain::new(&cluster, live),
            baseline: Some(Chain::new(&cluster, before)),
            kinds: Arc::clone(&cluster.kinds),
            version: KubeVersion::REFERENCE,
        })
    }

    /// Replays a request; `None` if its outcome is the same.
    pub async fn one(&self, number: usize, record: &Record) -> Option<Changed> {
        let changes = match self.changes(record).await {
            Ok(changes) => changes,
            Err(error) => vec![Change::Error {
                message: error.to_string(),
            }],
        };
        (!changes.is_empty()).then(|| Changed {
            record: number,
            request: summary(&record.request),
            changes,
        })
    }

    async fn changes(&self, record: &Record) -> std::result::Result<Vec<Change>, RequestError> {
        if let Some(change) = self.not_served(&record.request) {
            return Ok(vec![change]);
        }
        let request = from_review(&record.request, &self.kinds)?;
        let before = match &self.baseline {
            Some(chain) => {
                let run = chain.run(request.clone(), Tracing::Verdicts).await;
                Some(Result::from(&run))
            }
            None => recorded_result(record),
        };
        let kind = request.kind.clone();
        let run = self.chain.run(request, Tracing::Verdicts).await;
        let after = Result::from(&run);
        let Some(before) = before else {
            // The previous outcome is unknown: only a denial is reported.
            return Ok(match after.allowed {
                true => Vec::new(),
                false => vec![Change::Denied {
                    message: after.message,
                }],
            });
        };
        let same = |one: &Value, other: &Value| self.kinds.semantically_equal(&kind, one, other);
        Ok(compare(&before, &after, &same))
    }
}

impl Replay {
    /// A server without the requested resource responds 404 before admission.
    fn not_served(&self, request: &Value) -> Option<Change> {
        let asked = ["requestResource", "resource"];
        let mut asked = asked.into_iter().map(|name| &request[name]);
        let asked = asked.find(|it| it.is_object())?;
        let text = |name: &str| asked[name].as_str().unwrap_or_default();
        let (group, version, resource) = (text("group"), text("version"), text("resource"));
        let row = rows::find(group, version, resource)?;
        (!rows::is_served(row, self.version)).then(|| Change::NotServed {
            resource: format!("{resource}.{version}.{group}"),
            kube_version: self.version.to_string(),
        })
    }
}

fn recorded(cluster: &Cluster, capture: &Capture) -> Hooks {
    let mut hooks = Hooks::default();
    for configuration in &cluster.configurations {
        for webhook in configuration.webhooks() {
            let answers = capture.answers(&webhook.name);
            hooks.set(
                &webhook.name,
                Hook::Recorded(Arc::new(AllowedByDefault(answers))),
            );
        }
    }
    hooks
}

fn recorded_result(record: &Record) -> Option<Result> {
    let decision = record.decision.as_ref()?;
    let sent = record.request.get("object").filter(|it| it.is_object());
    // Without a recorded mutated object, the object is known to be unchanged only if the calls show it.
    let object = record
        .mutated
        .as_ref()
        .or_else(|| sent.filter(|_| !record.calls.is_empty()));
    Some(Result {
        allowed: decision.allowed,
        code: decision.code,
        message: decision.message.clone(),
        warnings: decision.warnings.iter().cloned().collect(),
        object: object.cloned(),
    })
}

fn compare(before: &Result, after: &Result, same: &dyn Fn(&Value, &Value) -> bool) -> Vec<Change> {
    let mut changes = Vec::new();
    match (before.allowed, after.allowed) {
        (true, false) => changes.push(Change::Denied {
            message: after.message.clone(),
        }),
        (false, true) => changes.push(Change::Allowed {
            before: before.message.clone(),
        }),
        (false, false) => {
            if before.message != after.message {
                changes.push(Change::Message {
                    before: before.message.clone(),
                    after: after.message.clone(),
                });
            }
            if before.code != after.code {
                changes.push(Change::Code {
                    before: before.code,
                    after: after.code,
                });
            }
        }
        (true, true) => {
            if let (Some(one), Some(other)) = (&before.object, &after.object)
                && !same(one, other)
            {
                let diff = diff::unified(one, other);
                changes.push(Change::Object { diff });
            }
        }
    }
    let removed: Vec<String> = before
        .warnings
        .difference(&after.warnings)
        .cloned()
        .collect();
    let added: Vec<String> = after
        .warnings
        .difference(&before.warnings)
        .cloned()
        .collect();
    if !removed.is_empty() || !added.is_empty() {
        changes.push(Change::Warnings { removed, added });
    }
    changes
}

/// A summary of a request.
fn summary(request: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let resource = match text(&request["subResource"]).as_str() {
        "" => text(&request["resource"]["resource"]),
        part => format!("{}/{part}", text(&request["resource"]["resource"])),
    };
    let name = match text(&request["name"]).as_str() {
        "" => text(&request["object"]["metadata"]["generateName"]),
        name => name.to_owned(),
    };
    let name = match text(&request["namespace"]).as_str() {
        "" => name,
        namespace => format!("{namespace}/{name}"),
    };
    let user = text(&request["userInfo"]["username"]);
    format!(
        "{} {resource} {name} by {user}",
        text(&request["operation"])
    )
}

impl Report {
    /// The report as human-readable text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        for changed in &self.changed {
            let _ = writeln!(text, "#{} {}", changed.record, changed.request);
            for change in &changed.changes {
                match change {
                    Change::Denied { message } => {
                        let _ = writeln!(text, "- allowed\n+ denied: {message}");
                    }
                    Change::Allowed { before } => {
                        let _ = writeln!(text, "- denied: {before}\n+ allowed");
                    }
                    Change::Message { before, after } => {
                        let _ = writeln!(text, "- denied: {before}\n+ denied: {after}");
                    }
                    Change::Code { before, after } => {
                        let shown = |code: &Option<i32>| {
                            code.map_or_else(|| String::from("none"), |code| code.to_string())
                        };
                        let _ = writeln!(text, "- code {}\n+ code {}", shown(before), shown(after));
                    }
                    Change::Object { diff } => text.push_str(diff),
                    Change::Warnings { removed, added } => {
                        for warning in removed {
                            let _ = writeln!(text, "- warning: {warning}");
                        }
                        for warning in added {
                            let _ = writeln!(text, "+ warning: {warning}");
                        }
                    }
                    Change::NotServed {
                        resource,
                        kube_version,
                    } => {
                        let _ = writeln!(text, "+ {resource} is not served by {kube_version}");
                    }
                    Change::Error { message } => {
                        let _ = writeln!(text, "! {message}");
                    }
                }
            }
            text.push('\n');
        }
        let _ = write!(
            text,
            "{} requests, {} changed: {} denied now, {} allowed now",
            self.requests,
            self.changed.len(),
            self.newly_denied,
            self.newly_allowed
        );
        if self.not_served > 0 {
            let _ = write!(text, ", {} not served", self.not_served);
        }
        text.push('\n');
        text
    }
}
