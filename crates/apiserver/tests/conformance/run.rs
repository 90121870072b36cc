//! One run of one scenario: setup, steps with their observations, cleanup.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::WARNING;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{AuditLog, Client, Question, Reply};
use crate::hooks::{Hooks, Voice};
use crate::node::{Map, Node, map};
use crate::normalise::{ManagedFields, Normaliser, drop_path, metric_deltas, parse_metrics};
use crate::pattern::Pattern;
use crate::scenario::{Names, POLICY_KINDS, WEBHOOK_KINDS};

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

/// The short names of patch content types.
const PATCH_TYPES: [(&str, &str); 4] = [
    ("json", "application/json-patch+json"),
    ("merge", "application/merge-patch+json"),
    ("strategic", "application/strategic-merge-patch+json"),
    ("apply", "application/apply-patch+yaml"),
];

/// The name of an object of a race.
static RACER: LazyLock<Pattern> = LazyLock::new(|| Pattern::new(r#""race-[0-9]+""#));

#[derive(Debug, Clone, Copy, PartialEq)]
enum Scope {
    Cluster,
    Namespaced,
}

/// The kinds that scenarios may use, with plurals and scopes.
const RESOURCES: [(&str, &str, Scope); 50] = [
    ("Namespace", "namespaces", Scope::Cluster),
    ("ConfigMap", "configmaps", Scope::Namespaced),
    ("Secret", "secrets", Scope::Namespaced),
    ("Pod", "pods", Scope::Namespaced),
    ("Service", "services", Scope::Namespaced),
    ("ServiceAccount", "serviceaccounts", Scope::Namespaced),
    ("Node", "nodes", Scope::Cluster),
    ("Event", "events", Scope::Namespaced),
    ("Deployment", "deployments", Scope::Namespaced),
    ("ReplicaSet", "replicasets", Scope::Namespaced),
    (
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        Scope::Namespaced,
    ),
    ("Role", "roles", Scope::Namespaced),
    ("RoleBinding", "rolebindings", Scope::Namespaced),
    ("ClusterRole", "clusterroles", Scope::Cluster),
    ("ClusterRoleBinding", "clusterrolebindings", Scope::Cluster),
    ("Lease", "leases", Scope::Namespaced),
    (
        "CustomResourceDefinition",
        "customresourcedefinitions",
        Scope::Cluster,
    ),
    ("PriorityClass", "priorityclasses", Scope::Cluster),
    ("ResourceQuota", "resourcequotas", Scope::Namespaced),
    ("LimitRange", "limitranges", Scope::Namespaced),
    (
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        Scope::Namespaced,
    ),
    ("PersistentVolume", "persistentvolumes", Scope::Cluster),
    ("StorageClass", "storageclasses", Scope::Cluster),
    (
        "VolumeAttributesClass",
        "volumeattributesclasses",
        Scope::Cluster,
    ),
    ("RuntimeClass", "runtimeclasses", Scope::Cluster),
    ("Ingress", "ingresses", Scope::Namespaced),
    ("IngressClass", "ingressclasses", Scope::Cluster),
    (
        "CertificateSigningRequest",
        "certificatesigningrequests",
        Scope::Cluster,
    ),
    ("ClusterTrustBundle", "clustertrustbundles", Scope::Cluster),
    ("PodGroup", "podgroups", Scope::Namespaced),
    ("Workload", "workloads", Scope::Namespaced),
    ("Job", "jobs", Scope::Namespaced),
    ("CronJob", "cronjobs", Scope::Namespaced),
    ("DaemonSet", "daemonsets", Scope::Namespaced),
    ("StatefulSet", "statefulsets", Scope::Namespaced),
    (
        "ReplicationController",
        "replicationcontrollers",
        Scope::Namespaced,
    ),
    ("PodTemplate", "podtemplates", Scope::Namespaced),
    ("CSINode", "csinodes", Scope::Cluster),
    ("CSIDriver", "csidrivers", Scope::Cluster),
    ("ResourceSlice", "resourceslices", Scope::Cluster),
    ("ResourceClaim", "resourceclaims", Scope::Namespaced),
    ("NetworkPolicy", "networkpolicies", Scope::Namespaced),
    ("Endpoints", "endpoints", Scope::Namespaced),
    (
        "LocalSubjectAccessReview",
        "localsubjectaccessreviews",
        Scope::Namespaced,
    ),
    (
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        Scope::Cluster,
    ),
    (
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        Scope::Cluster,
    ),
    (
        "MutatingAdmissionPolicy",
        "mutatingadmissionpolicies",
        Scope::Cluster,
    ),
    (
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        Scope::Cluster,
    ),
    (
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        Scope::Cluster,
    ),
    (
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        Scope::Cluster,
    ),
];

/// The environment of scenarios. Scenarios run one at a time, so that their metrics do not mix.
pub(crate) struct Bench {
    pub(crate) client: Client,
    pub(crate) hooks: Hooks,
    pub(crate) audit: AuditLog,
    /// True if metrics were recorded.
    pub(crate) has_metrics: bool,
}

/// Returns the normalised observations of all steps.
pub(crate) async fn run(bench: &mut Bench, spec: &Node) -> Result<Node, String> {
    let mut run = Run::new(bench, spec)?;
    let observed = run.observe().await;
    let cleaned = run.clean_up().await;
    let observed = observed?;
    cleaned?;
    Ok(observed)
}

struct Run<'b> {
    bench: &'b mut Bench,
    spec: Node,
    names: Names,
    normaliser: Normaliser,
    resources: HashMap<String, (String, Scope)>,
    /// Paths of created objects, in order.
    created: Vec<String>,
    metrics: Option<BTreeMap<String, f64>>,
}

impl<'b> Run<'b> {
    fn new(bench: &'b mut Bench, spec: &Node) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let names = Names {
            namespace: format!("lgt{count:08x}x"),
            ca: bench.hooks.ca.clone(),
            other_ca: bench.hooks.other_ca.clone(),
            port: bench.hooks.port(),
        };
        let spec = names.substitute(spec)?;
        let managed_fields = match spec.get("managedFields") {
            Some(Node::Bool(true)) => ManagedFields::Kept,
            _ => ManagedFields::Dropped,
        };
        let normaliser = Normaliser {
            names: vec![
                (names.namespace.clone(), "<ns>"),
                (format!(":{}", names.port), ":<port>"),
            ],
            managed_fields,
        };
        let resources =
            RESOURCES.map(|(kind, plural, scope)| (kind.to_owned(), (plural.to_owned(), scope)));
        Ok(Self {
            bench,
            spec,
            names,
            normaliser,
            resources: resources.into(),
            created: Vec::new(),
            metrics: None,
        })
    }

    async fn observe(&mut self) -> Result<Node, String> {
        self.set_up().await?;
        let mut steps = Vec::new();
        for step in list(&self.spec, "steps") {
            steps.extend(self.step(&step).await?);
        }
        Ok(map! {"scenario": self.spec.text("name")?, "steps": steps}.into())
    }

    // Setup and cleanup

    fn has_namespace(&self) -> bool {
        self.spec.get("namespace") != Some(&Node::Bool(false))
    }

    async fn set_up(&mut self) -> Result<(), String> {
        let behaviours = self.spec.get("hooks").cloned().unwrap_or_default();
        self.bench.hooks.reset(behaviours);
        if self.has_namespace() {
            let labels = self.spec.get("namespaceLabels").cloned();
            let labels = labels.unwrap_or_else(|| Map::default().into());
            let mut metadata = map! {"name": self.names.namespace.as_str(), "labels": labels};
            if let Some(annotations) = self.spec.get("namespaceAnnotations") {
                metadata.set("annotations", annotations.clone());
            }
            let namespace = map! {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": metadata,
            };
            self.must("POST", "/api/v1/namespaces", Some(&namespace.into()))
                .await?;
        }
        let mut items = Vec::new();
        for item in list(&self.spec, "setup") {
            items.extend(self.names.expand(&item)?);
        }
        // Webhooks and policies are created last, so that they do not apply to the other objects.
        let turns = WEBHOOK_KINDS.map(|(_, webhook)| vec![webhook]);
        let policies = POLICY_KINDS.map(|(_, policy, _)| policy).to_vec();
        let bindings = POLICY_KINDS.map(|(_, _, binding)| binding).to_vec();
        let turns = [&turns[..], &[policies, bindings]].concat();
        let turn_of = |item: &Node| {
            let kind = item.text("kind").unwrap_or_default();
            turns.iter().position(|kinds| kinds.contains(&kind))
        };
        for turn in std::iter::once(None).chain((0..turns.len()).map(Some)) {
            for item in items.iter().filter(|item| turn_of(item) == turn) {
                self.create(item).await?;
            }
        }
        // Writes take effect immediately, but timestamps have a resolution of one second, and some are compared.
        if matches!(self.spec.get("settle"), Some(Node::Float(seconds)) if *seconds > 1.0) {
            self.next_second().await;
        }
        self.bench.hooks.take_calls();
        self.bench.hooks.speak(Voice::Loud);
        Ok(())
    }

    /// Waits for the next second, so that later objects have a later timestamp.
    async fn next_second(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let past = now.map_or(0, |now| now.subsec_millis());
        let left = Duration::from_millis(u64::from(1001 - past.min(1000)));
        tokio::time::sleep(left).await;
    }

    async fn create(&mut self, item: &Node) -> Result<(), String> {
        let path = self.collection(item)?;
        self.must("POST", &path, Some(item)).await?;
        let name = item.get("metadata").ok_or("no metadata")?.text("name")?;
        let path = format!("{path}/{name}");
        self.created.push(path.clone());
        if let Some(status) = item.get("status") {
            // Controllers do not run: their status updates are written here.
            let status = map! {"status": status.clone()};
            let question = Question {
                method: "PATCH",
                path: &format!("{path}/status"),
                body: Some(&status.into()),
                content_type: "application/merge-patch+json",
                headers: Vec::new(),
            };
            let reply = self.bench.client.request(&question).await?;
            if reply.code >= 300 {
                let Reply { code, body, .. } = reply;
                return Err(format!("PATCH {path}/status: {code} {}", body.short()));
            }
        }
        if item.text("kind")? == "CustomResourceDefinition" {
            self.await_definition(item).await?;
        }
        Ok(())
    }

    /// A CustomResourceDefinition is served when its creation returns, so there are no retries.
    async fn await_definition(&mut self, definition: &Node) -> Result<(), String> {
        let spec = definition.get("spec").ok_or("a definition without spec")?;
        let names = spec.get("names").ok_or("a definition without names")?;
        let (group, plural) = (spec.text("group")?, names.text("plural")?);
        let scope = match spec.text("scope")? {
            "Namespaced" => Scope::Namespaced,
            _ => Scope::Cluster,
        };
        let kind = names.text("kind")?.to_owned();
        self.resources.insert(kind, (plural.to_owned(), scope));
        for version in list(spec, "versions") {
            if version.get("served") == Some(&Node::Bool(true)) {
                let path = format!("/apis/{group}/{}/{plural}", version.text("name")?);
                self.must("GET", &path, None).await?;
            }
        }
        Ok(())
    }

    async fn must(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Node>,
    ) -> Result<Reply, String> {
        let reply = self.bench.client.ask(method, path, body).await?;
        if reply.code >= 300 {
            return Err(format!(
                "{method} {path}: {} {}",
                reply.code,
                reply.body.short()
            ));
        }
        Ok(reply)
    }

    async fn clean_up(&mut self) -> Result<(), String> {
        self.bench.hooks.speak(Voice::Quiet);
        let (mut paths, others): (Vec<String>, Vec<String>) = std::mem::take(&mut self.created)
            .into_iter()
            .partition(|path| path.starts_with(REGISTRATION));
        paths.extend(others.into_iter().rev());
        if self.has_namespace() {
            paths.push(format!("/api/v1/namespaces/{}", self.names.namespace));
        }
        let mut outcome = Ok(());
        for path in paths {
            let removed = self.remove(&path).await;
            outcome = outcome.and(removed);
        }
        outcome
    }

    async fn remove(&mut self, path: &str) -> Result<(), String> {
        let options = map! {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0};
        let client = &mut self.bench.client;
        let reply = client.ask("DELETE", path, Some(&options.into())).await?;
        if !matches!(reply.code, 200 | 202 | 404 | 409) {
            let Reply { code, body, .. } = reply;
            return Err(format!("{path} is not deleted: {code} {}", body.short()));
        }
        if !path.contains("/namespaces/") {
            // No controller removes finalizers.
            let left = client.ask("GET", path, None).await?;
            if left.code == 200 && left.body.lookup("metadata/finalizers").is_some() {
                let none = map! {"metadata": map! {"finalizers": Node::Null}};
                let question = Question {
                    method: "PATCH",
                    path,
                    body: Some(&none.into()),
                    content_type: "application/merge-patch+json",
                    headers: Vec::new(),
                };
                client.request(&question).await?;
            }
        }
        let is_namespace = path
            .strip_prefix("/api/v1/namespaces/")
            .is_some_and(|name| !name.contains('/'));
        if is_namespace {
            // Deleted synchronously, so that its deletion does not overlap with the next scenario.
            let mut namespace = client.ask("GET", path, None).await?;
            if namespace.code == 200 {
                let none = Node::List(Vec::new());
                namespace.body.assign("/spec/finalizers", &none)?;
                let path = format!("{path}/finalize");
                client.ask("PUT", &path, Some(&namespace.body)).await?;
            }
        }
        if path.contains("/customresourcedefinitions/") {
            let deadline = Instant::now() + Duration::from_secs(20);
            while client.ask("GET", path, None).await?.code != 404 {
                if Instant::now() > deadline {
                    return Err(format!("{path} does not go away"));
                }
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    // Steps

    /// The result of a step; `None` for steps that only wait, which this server does not need: a write is in effect
    /// when it returns.
    async fn step(&mut self, step: &Node) -> Result<Option<Node>, String> {
        if step.get("settle").is_some() {
            return Ok(None);
        }
        if step.get("sync").is_some() || step.get("await").is_some() {
            self.metrics = None;
            return Ok(None);
        }
        if step.get("race").is_some() {
            return self.race(step).await.map(Some);
        }
        let (method, path, body) = self.compose(step).await?;
        let before = match self.metrics.take() {
            Some(metrics) => metrics,
            None => self.read_metrics().await?,
        };
        let content_type = match step.get("type") {
            None => "application/json",
            Some(_) => {
                let name = step.text("type")?;
                let known = PATCH_TYPES.iter().find(|(short, _)| *short == name);
                known.map_or(name, |&(_, content_type)| content_type)
            }
        };
        let question = Question {
            method: &method,
            path: &path,
            body: body.as_ref(),
            content_type,
            headers: headers(step)?,
        };
        let reply = self.bench.client.request(&question).await?;
        let after = self.read_metrics().await?;
        if reply.code == 201 {
            self.remember(&method, &path, &reply.body);
        }
        let mut observed = self.observed(&method, &path, &reply).await?;
        if self.bench.has_metrics {
            observed.set("metrics", metric_deltas(&before, &after));
        }
        if self.spec.get("sortWarnings") == Some(&Node::Bool(true))
            && let Some(Node::List(warnings)) = observed.get_mut("warnings")
        {
            // The reference has no fixed order here.
            warnings.sort_by_cached_key(Node::to_sorted_json);
        }
        self.metrics = Some(after);
        let mut observed = Node::from(observed);
        for ignored in [list(&self.spec, "ignore"), list(step, "ignore")].concat() {
            drop_path(&mut observed, ignored.as_str().unwrap_or_default());
        }
        Ok(Some(observed))
    }

    /// Sends a request many times concurrently, with `#{i}` replaced by 0, 1 and so on. Returns the number of responses
    /// by code, and the distinct messages of rejections.
    async fn race(&mut self, step: &Node) -> Result<Node, String> {
        let Some(Node::Int(count)) = step.get("race") else {
            return Err(String::from("`race` is no number"));
        };
        let text = step.to_json();
        let mut racing = JoinSet::new();
        for n in 0..*count {
            let step = Node::parse_json(&text.replace("#{i}", &n.to_string()))?;
            let (method, path, body) = self.compose(&step).await?;
            let mut client = self.bench.client.another();
            racing.spawn(async move {
                let question = Question {
                    method: &method,
                    path: &path,
                    body: body.as_ref(),
                    content_type: "application/json",
                    headers: headers(&step)?,
                };
                let reply = client.request(&question).await?;
                Ok::<_, String>((method, path, reply))
            });
        }
        let mut codes: BTreeMap<String, i128> = BTreeMap::new();
        let mut messages = BTreeSet::new();
        for outcome in racing.join_all().await {
            let (method, path, reply) = outcome?;
            *codes.entry(reply.code.to_string()).or_default() += 1;
            if reply.code == 201 {
                self.remember(&method, &path, &reply.body);
            } else if reply.code >= 300 {
                let message = reply.body.get("message").and_then(Node::as_str);
                let message = self.normaliser.text(message.unwrap_or_default());
                let Ok(message) = RACER.replace(&message, |_| {
                    Ok::<_, std::convert::Infallible>(String::from("\"race-<i>\""))
                });
                messages.insert(message);
            }
        }
        self.metrics = None;
        let codes: Map = codes
            .into_iter()
            .map(|(code, count)| (code, Node::Int(count)))
            .collect();
        let messages: Vec<String> = messages.into_iter().collect();
        Ok(map! {
            "request": format!("race of {count}"),
            "codes": codes,
            "messages": messages,
        }
        .into())
    }

    async fn observed(&mut self, method: &str, path: &str, reply: &Reply) -> Result<Map, String> {
        let warnings: Vec<String> = reply
            .headers
            .get_all(WARNING)
            .iter()
            .map(|warning| {
                self.normaliser
                    .text(&String::from_utf8_lossy(warning.as_bytes()))
            })
            .collect();
        let annotations = match reply
            .headers
            .get("audit-id")
            .and_then(|id| id.to_str().ok())
        {
            Some(id) => self.bench.audit.annotations(id).await?,
            None => None,
        };
        let kept: Vec<String> = list(&self.spec, "keepAudit")
            .iter()
            .map(Node::spelled)
            .collect();
        Ok(map! {
            "request": self.normaliser.text(&format!("{method} {path}")),
            "code": i128::from(reply.code),
            "body": self.normaliser.value(&reply.body),
            "warnings": warnings,
            "calls": self.normaliser.calls(self.bench.hooks.take_calls()),
            "audit": annotations.map_or(Node::Null, |found| self.normaliser.annotations(&found, &kept)),
        })
    }

    /// The method, path and body of a step.
    async fn compose(&mut self, step: &Node) -> Result<(String, String, Option<Node>), String> {
        let verb = [("create", "POST"), ("update", "PUT")]
            .into_iter()
            .find_map(|(verb, method)| Some((verb, method, step.get(verb)?)));
        let (method, mut path, mut body) = match verb {
            Some((verb, method, object)) => {
                let object = self.names.expand(object)?.swap_remove(0);
                let mut path = self.collection(&object)?;
                if verb == "update" {
                    let metadata = object.get("metadata").ok_or("no metadata")?;
                    path = format!("{path}/{}", metadata.text("name")?);
                }
                (method, path, Some(object))
            }
            None => {
                let text = step.text("do")?.trim_start();
                let (method, path) = text
                    .split_once(char::is_whitespace)
                    .ok_or_else(|| format!("`{text}` has no path"))?;
                let body = step.get("body").filter(|body| !body.is_null());
                (method, self.resolve(path.trim_start())?, body.cloned())
            }
        };
        if step.get("query").is_some() {
            path = format!("{path}?{}", step.text("query")?);
        }
        if let Some(edit) = step.get("edit") {
            let whole = path.split('?').next().unwrap_or_default();
            let mut object = self.bench.client.ask("GET", whole, None).await?.body;
            for (pointer, value) in edit.members() {
                object.assign(pointer, value)?;
            }
            body = Some(object);
        }
        Ok((method.to_owned(), path, body))
    }

    /// Resolves `v1/configmaps/a` in the scenario's namespace; absolute paths are returned as they are.
    fn resolve(&self, path: &str) -> Result<String, String> {
        let bad = || format!("`{path}` is no path");
        if path.starts_with('/') {
            return Ok(path.to_owned());
        }
        let namespace = &self.names.namespace;
        let (first, rest) = path.split_once('/').ok_or_else(bad)?;
        if first == "v1" {
            return Ok(format!("/api/v1/namespaces/{namespace}/{rest}"));
        }
        let (version, rest) = rest.split_once('/').ok_or_else(bad)?;
        Ok(format!(
            "/apis/{first}/{version}/namespaces/{namespace}/{rest}"
        ))
    }

    /// The collection path of an object.
    fn collection(&self, object: &Node) -> Result<String, String> {
        let (kind, version) = (object.text("kind")?, object.text("apiVersion")?);
        let (plural, scope) = self
            .resources
            .get(kind)
            .ok_or_else(|| format!("the kind `{kind}` is not known"))?;
        let root = if version.contains('/') { "apis" } else { "api" };
        Ok(match scope {
            Scope::Cluster => format!("/{root}/{version}/{plural}"),
            Scope::Namespaced => {
                let metadata = object.get("metadata").ok_or("no metadata")?;
                let namespace = match metadata.get("namespace") {
                    Some(_) => metadata.text("namespace")?,
                    None => &self.names.namespace,
                };
                format!("/{root}/{version}/namespaces/{namespace}/{plural}")
            }
        })
    }

    async fn read_metrics(&mut self) -> Result<BTreeMap<String, f64>, String> {
        let reply = self.must("GET", "/metrics", None).await?;
        Ok(parse_metrics(reply.body.as_str().unwrap_or_default()))
    }

    /// Records the objects that a step created.
    fn remember(&mut self, method: &str, path: &str, answer: &Node) {
        let Some(name) = answer.lookup("metadata/name").and_then(Node::as_str) else {
            return;
        };
        let mut path = path.split('?').next().unwrap_or_default().to_owned();
        if method == "POST" {
            path = format!("{path}/{name}");
        }
        let depth = if path.starts_with("/api/") { 5 } else { 6 };
        let is_subresource = path.contains("/namespaces/") && path.matches('/').count() > depth + 1;
        if !name.is_empty() && !is_subresource {
            self.created.push(path);
        }
    }
}

/// The items of a list field.
fn list(node: &Node, key: &str) -> Vec<Node> {
    node.get(key).map_or(&[][..], Node::items).to_vec()
}

/// The headers of a step, including impersonation.
fn headers(step: &Node) -> Result<Vec<(String, Vec<String>)>, String> {
    let texts = |node: &Node| -> Vec<String> {
        match node {
            Node::List(items) => items.iter().map(Node::spelled).collect(),
            single => vec![single.spelled()],
        }
    };
    let mut headers: Vec<(String, Vec<String>)> = step
        .get("headers")
        .into_iter()
        .flat_map(Node::members)
        .map(|(name, value)| (name.to_owned(), texts(value)))
        .collect();
    let Some(user) = step.get("as") else {
        return Ok(headers);
    };
    for (key, header) in [
        ("user", "Impersonate-User"),
        ("uid", "Impersonate-Uid"),
        ("groups", "Impersonate-Group"),
    ] {
        if let Some(value) = user.get(key) {
            headers.push((header.to_owned(), texts(value)));
        }
    }
    for (key, values) in user.get("extra").into_iter().flat_map(Node::members) {
        headers.push((format!("Impersonate-Extra-{}", quote(key)), texts(values)));
    }
    Ok(headers)
}

/// Percent-encodes characters that are not allowed in a header name.
fn quote(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[test]
fn impersonates_with_headers() {
    let step = Node::parse_yaml(
        "{headers: {X: [a, b]}, as: {user: jane, groups: [g, h], extra: {a/b: [c]}}}",
    );
    let headers = headers(&step.unwrap()).unwrap();
    let shown: Vec<String> = headers
        .iter()
        .map(|(name, values)| format!("{name}: {}", values.join("|")))
        .collect();
    assert_eq!(
        shown,
        [
            "X: a|b",
            "Impersonate-User: jane",
            "Impersonate-Group: g|h",
            "Impersonate-Extra-a%2Fb: c"
        ]
    );
}
