//! `PodSecurity`: enforces the Pod Security Standards of a namespace.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/security/podsecurity, pod-security-admission admission/

mod checks;
mod policy;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockgate_admission::audit::Level as AuditLevel;
use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request};
use lockgate_api::field::{FieldError, aggregate};
use lockgate_api::meta::status::{StatusCause, StatusDetails};
use lockgate_go::quote::quote;
use serde::Deserialize;
use serde_json::Value;

use crate::config::{self, ConfigError, Known};
use crate::fields::{at, is_on, items, label, text, text_at};
use crate::lookup::{Lookup, NAMESPACES, PODS, name_of};
use crate::rules::{About, Refusal, Rules, Verdict, WRITE, object, old_object};

use checks::{Pod, detailed, reasons, violations};
use policy::{Level, LevelVersion, Policy, Version, label_key, of_namespace};

const PREFIX: &str = "pod-security.kubernetes.io/";

/// The maximum number of Pods checked, and the time limit, when a namespace becomes stricter.
const MAX_PODS: usize = 3000;
const MAX_TIME: Duration = Duration::from_secs(1);

/// Subresources that are irrelevant to Pod security.
const IGNORED: [&str; 8] = [
    "exec",
    "attach",
    "binding",
    "eviction",
    "log",
    "portforward",
    "proxy",
    "status",
];

/// The configuration of the plugin, `pod-security.admission.config.k8s.io/v1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Configuration {
    /// Defaults for namespaces without labels.
    #[serde(default)]
    pub defaults: Defaults,
    /// Exempt users, namespaces and runtime classes.
    #[serde(default)]
    pub exemptions: Exemptions,
}

/// Levels and versions by mode; `privileged` and `latest` when they are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Defaults {
    /// The level whose violations are denied.
    #[serde(default)]
    pub enforce: String,
    /// Its version.
    #[serde(default)]
    pub enforce_version: String,
    /// The level whose violations are audited.
    #[serde(default)]
    pub audit: String,
    /// Its version.
    #[serde(default)]
    pub audit_version: String,
    /// The level whose violations cause warnings.
    #[serde(default)]
    pub warn: String,
    /// Its version.
    #[serde(default)]
    pub warn_version: String,
}

/// Exempt users, namespaces and runtime classes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exemptions {
    /// Users.
    #[serde(default)]
    pub usernames: Vec<String>,
    /// Namespaces.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Runtime classes of Pods.
    #[serde(default)]
    pub runtime_classes: Vec<String>,
}

impl Configuration {
    /// Parses a configuration of any version.
    ///
    /// # Errors
    ///
    /// Fails if it is invalid, or has unknown fields.
    pub fn read(text: &str) -> Result<Self, ConfigError> {
        const DEFAULTS: Known = Known(&[
            ("enforce", None),
            ("enforce-version", None),
            ("audit", None),
            ("audit-version", None),
            ("warn", None),
            ("warn-version", None),
        ]);
        const EXEMPTIONS: Known = Known(&[
            ("usernames", None),
            ("namespaces", None),
            ("runtimeClasses", None),
        ]);
        config::read_strict(
            text,
            &[
                "pod-security.admission.config.k8s.io/v1",
                "pod-security.admission.config.k8s.io/v1beta1",
                "pod-security.admission.config.k8s.io/v1alpha1",
            ],
            "PodSecurityConfiguration",
            &Known(&[
                ("defaults", Some(&DEFAULTS)),
                ("exemptions", Some(&EXEMPTIONS)),
            ]),
        )
    }
}

/// Denies Pods that violate the enforced level of their namespace.
#[derive(Debug, Clone)]
pub struct PodSecurity {
    lookup: Arc<dyn Lookup>,
    defaults: Policy,
    exemptions: Arc<Exemptions>,
}

impl PodSecurity {
    /// Creates the plugin.
    ///
    /// # Errors
    ///
    /// Fails if a level or version is invalid.
    pub fn new(config: Configuration, lookup: impl Lookup) -> Result<Self, ConfigError> {
        Ok(Self {
            lookup: Arc::new(lookup),
            defaults: defaults(&config.defaults)?,
            exemptions: Arc::new(config.exemptions),
        })
    }

    fn is_exempt_namespace(&self, name: &str) -> bool {
        !name.is_empty() && self.exemptions.namespaces.iter().any(|known| known == name)
    }

    /// The exemption of a request, checked before anything else.
    fn exemption(&self, request: &Request) -> Option<&'static str> {
        let user = request.user.username.as_str();
        if self.is_exempt_namespace(&request.namespace) {
            return Some("namespace");
        }
        let mut users = self.exemptions.usernames.iter();
        (!user.is_empty() && users.any(|known| known == user)).then_some("user")
    }

    fn is_exempt_class(&self, pod: &Value) -> bool {
        let class = text_at(pod, &["spec", "runtimeClassName"]);
        let mut classes = self.exemptions.runtime_classes.iter();
        !class.is_empty() && classes.any(|known| known == class)
    }

    async fn check_pod(&self, ask: &mut Admission) -> Verdict {
        let request = ask.request();
        if IGNORED.contains(&request.subresource.as_str()) {
            return Ok(());
        }
        if let Some(by) = self.exemption(request) {
            annotate(ask, "exempt", by);
            return Ok(());
        }
        let name = request.namespace.clone();
        let Ok(Some(namespace)) = self.lookup.get(NAMESPACES, "", &name).await else {
            let why = format!("failed to lookup namespace {}", quote(&name));
            return Err(Refusal::Fault(why));
        };
        let (policy, errors) = of_namespace(&namespace, self.defaults);
        if errors.is_empty() && policy.is_privileged() {
            annotate(ask, "enforce-policy", &LevelVersion::PRIVILEGED.to_string());
            return Ok(());
        }
        let request = ask.request();
        let is_update = request.operation == Operation::Update;
        if is_update && !is_significant(object(request), old_object(request)) {
            return Ok(());
        }
        let pod = object(request).clone();
        self.evaluate(ask, policy, &errors, &pod, Mode::Pod)
    }

    async fn check_template(&self, ask: &mut Admission) -> Verdict {
        let request = ask.request();
        if let Some(by) = self.exemption(request) {
            annotate(ask, "exempt", by);
            return Ok(());
        }
        let name = request.namespace.clone();
        let namespace = match self.lookup.get(NAMESPACES, "", &name).await {
            Ok(Some(namespace)) => namespace,
            failed => {
                let why = match failed {
                    Err(error) => error.to_string(),
                    Ok(_) => format!("namespaces {} not found", quote(&name)),
                };
                let why = format!("failed to lookup namespace {}: {why}", quote(&name));
                annotate(ask, "error", &why);
                return Ok(());
            }
        };
        let (policy, errors) = of_namespace(&namespace, self.defaults);
        let is_lax = |mode: LevelVersion| mode.level == Level::Privileged;
        if errors.is_empty() && is_lax(policy.warn) && is_lax(policy.audit) {
            return Ok(());
        }
        let Some(template) = template_of(ask.request()).cloned() else {
            return Ok(());
        };
        self.evaluate(ask, policy, &errors, &template, Mode::Template)
    }

    fn evaluate(
        &self,
        ask: &mut Admission,
        policy: Policy,
        errors: &[FieldError],
        pod: &Value,
        mode: Mode,
    ) -> Verdict {
        if self.is_exempt_class(pod) {
            annotate(ask, "exempt", "runtimeClass");
            return Ok(());
        }
        if !errors.is_empty() {
            let why = format!("Failed to parse policy: {}", aggregate(errors));
            annotate(ask, "error", &why);
        }
        let pod = Pod(pod);
        let mut refused = None;
        if mode == Mode::Pod {
            annotate(ask, "enforce-policy", &policy.enforce.to_string());
            let found = violations(pod, policy.enforce);
            if !found.is_empty() {
                let level = quote(&policy.enforce.to_string());
                let why = detailed(&found);
                refused = Some(format!("violates PodSecurity {level}: {why}"));
            }
        }
        let would = |wanted: LevelVersion| {
            let found = violations(pod, wanted);
            let level = quote(&wanted.to_string());
            let told = || format!("would violate PodSecurity {level}: {}", detailed(&found));
            (!found.is_empty()).then(told)
        };
        if let Some(told) = would(policy.audit) {
            annotate(ask, "audit-violations", &told);
        }
        match refused {
            Some(why) => Err(Refusal::forbidden(why)),
            None => {
                if let Some(told) = would(policy.warn) {
                    ask.warn(told);
                }
                Ok(())
            }
        }
    }

    async fn check_namespace(&self, ask: &mut Admission) -> Verdict {
        let request = ask.request();
        let namespace = object(request);
        let (policy, errors) = of_namespace(namespace, self.defaults);
        let old = (request.operation == Operation::Update)
            .then(|| of_namespace(old_object(request), self.defaults));
        let name = name_of(namespace).to_owned();
        let is_new = old
            .as_ref()
            .is_none_or(|(_, old_errors)| *old_errors != errors);
        if !errors.is_empty() && is_new {
            return Err(invalid(request, &errors));
        }
        if let Some((old, _)) = old {
            let (before, after) = (old.enforce, policy.enforce);
            let is_laxer = after.version == before.version && after.level <= before.level;
            if after == before || after.level == Level::Privileged || is_laxer {
                return Ok(());
            }
        }
        if self.is_exempt_namespace(&request.namespace) {
            if let Some(warning) = self.ignored(namespace, policy) {
                ask.warn(warning);
            }
            return Ok(());
        }
        if old.is_some() {
            let deadline = request.deadline;
            for warning in self.check_pods(&name, policy.enforce, deadline).await {
                ask.warn(warning);
            }
        }
        Ok(())
    }

    /// The warning about labels of an exempt namespace.
    fn ignored(&self, namespace: &Value, policy: Policy) -> Option<String> {
        if policy.is_privileged() || policy.is_equivalent(&self.defaults) {
            return None;
        }
        let has = |name: &str| label(namespace, &label_key(name)).is_some();
        let modes = [
            ("enforce", policy.enforce),
            ("audit", policy.audit),
            ("warn", policy.warn),
        ];
        let told: Vec<String> = modes
            .into_iter()
            .filter(|(name, mode)| {
                mode.level != Level::Privileged && (has(name) || has(&format!("{name}-version")))
            })
            .map(|(name, mode)| format!("{name}={mode}"))
            .collect();
        let (name, told) = (quote(name_of(namespace)), told.join(", "));
        Some(format!(
            "namespace {name} is exempt from Pod Security, and the policy ({told}) will be ignored"
        ))
    }

    /// The warnings about existing pods that violate the new level of a namespace.
    async fn check_pods(
        &self,
        namespace: &str,
        wanted: LevelVersion,
        deadline: Option<Instant>,
    ) -> Vec<String> {
        let started = Instant::now();
        // At most half of the remaining time.
        let half = deadline.map(|deadline| deadline.saturating_duration_since(started) / 2);
        let time = half.map_or(MAX_TIME, |half| half.min(MAX_TIME));
        let Ok(mut pods) = self.lookup.list(PODS, namespace).await else {
            return vec![String::from(
                "failed to list pods while checking new PodSecurity enforce level",
            )];
        };
        pods.retain(|pod| !self.is_exempt_class(pod));
        first_of_each_controller(&mut pods);
        // The number of Pods per warning, and the first of them by name.
        let mut counts: BTreeMap<String, (usize, String)> = BTreeMap::new();
        let mut checked = 0;
        for pod in pods.iter().take(MAX_PODS) {
            let found = violations(Pod(pod), wanted);
            checked += 1;
            if !found.is_empty() {
                let name = name_of(pod);
                let (count, first) = counts
                    .entry(reasons(&found))
                    .or_insert_with(|| (0, name.to_owned()));
                *count += 1;
                if name < first.as_str() {
                    name.clone_into(first);
                }
            }
            if started.elapsed() > time {
                break;
            }
        }
        let mut warnings = Vec::new();
        if checked < pods.len() {
            let all = pods.len();
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {checked} of {all} \
                 existing pods"
            ));
        }
        if !counts.is_empty() {
            let (namespace, level) = (quote(namespace), quote(&wanted.to_string()));
            warnings.push(format!(
                "existing pods in namespace {namespace} violate the new PodSecurity enforce level \
                 {level}"
            ));
        }
        let mut told: Vec<String> = counts
            .into_iter()
            .map(|(why, (count, first))| match count {
                1 => format!("{first}: {why}"),
                2 => format!("{first} (and 1 other pod): {why}"),
                _ => format!("{first} (and {} other pods): {why}", count - 1),
            })
            .collect();
        told.sort();
        warnings.extend(told);
        warnings
    }
}

/// The object under evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A pod, which is denied.
    Pod,
    /// A Pod template, which only causes warnings.
    Template,
}

fn annotate(ask: &mut Admission, key: &str, value: &str) {
    ask.annotate(format!("{PREFIX}{key}"), value, AuditLevel::Metadata);
}

fn defaults(told: &Defaults) -> Result<Policy, ConfigError> {
    let mut problems = Vec::new();
    let mut mode = |name: &str, level: &str, version: &str| {
        let mut mode = LevelVersion::PRIVILEGED;
        if !level.is_empty() {
            match Level::parse(level) {
                Ok(level) => mode.level = level,
                Err(why) => problems.push(format!("{name}: {why}")),
            }
        }
        if !version.is_empty() {
            match Version::parse(version) {
                Ok(version) => mode.version = version,
                Err(why) => problems.push(format!("{name}-version: {why}")),
            }
        }
        mode
    };
    let policy = Policy {
        enforce: mode("enforce", &told.enforce, &told.enforce_version),
        audit: mode("audit", &told.audit, &told.audit_version),
        warn: mode("warn", &told.warn, &told.warn_version),
    };
    match crate::texts::aggregate(problems) {
        None => Ok(policy),
        Some(problems) => Err(ConfigError(format!(
            "PodSecurity configuration error: {problems}"
        ))),
    }
}

/// Returns true if an update changes fields that the checks depend on.
fn is_significant(new: &Value, old: &Value) -> bool {
    for list in ["containers", "initContainers"] {
        let (new, old) = (items(new, &["spec", list]), items(old, &["spec", list]));
        let mut pairs = new.iter().zip(old);
        if new.len() != old.len()
            || pairs.any(|(new, old)| text(new, "image") != text(old, "image"))
        {
            return true;
        }
    }
    let path = ["spec", "ephemeralContainers"];
    items(new, &path).iter().any(|new| {
        let mut old = items(old, &path).iter();
        let known = old.find(|old| text(old, "name") == text(new, "name"));
        known.is_none_or(|known| text(known, "image") != text(new, "image"))
    })
}

/// The pod template of the object, if it has one.
fn template_of(request: &Request) -> Option<&Value> {
    let object = object(request);
    match request.resource.resource.as_str() {
        "podtemplates" => at(object, &["template"]),
        "cronjobs" => at(object, &["spec", "jobTemplate", "spec", "template"]),
        _ => at(object, &["spec", "template"]),
    }
}

/// Moves one Pod of each controller to the front; the others are most likely equal.
fn first_of_each_controller(pods: &mut [Arc<Value>]) {
    let mut seen = HashSet::new();
    pods.sort_by_cached_key(|pod| {
        let mut owners = items(pod, &["metadata", "ownerReferences"]).iter();
        let controller = owners.find(|owner| is_on(owner, &["controller"]));
        controller.is_some_and(|owner| !seen.insert(text(owner, "uid").to_owned()))
    });
}

/// Invalid labels on a namespace.
fn invalid(request: &Request, errors: &[FieldError]) -> Refusal {
    let name = request.name.as_str();
    let causes = errors.iter().map(|error| StatusCause {
        reason: error.error_type.reason().to_owned(),
        message: error.body(),
        field: error.field.clone(),
    });
    let details = StatusDetails {
        name: name.to_owned(),
        kind: String::from("Namespace"),
        causes: Some(causes.collect()),
        ..StatusDetails::default()
    };
    let message = format!(
        "Namespace {} is invalid: {}",
        quote(name),
        aggregate(errors)
    );
    let mut refusal = Refusal::status(422, "Invalid", message);
    if let Refusal::Status(status) = &mut refusal {
        status.details = Some(details);
    }
    refusal
}

impl Rules for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn validates(&self) -> &'static [About] {
        const CORE: About = About::core(
            WRITE,
            &["namespaces", "replicationcontrollers", "podtemplates"],
        );
        const ALL_PODS: About =
            About::core(WRITE, &["pods", "pods/ephemeralcontainers", "pods/resize"]);
        const APPS: About = About {
            operations: WRITE,
            group: "apps",
            resources: &["replicasets", "deployments", "statefulsets", "daemonsets"],
        };
        const BATCH: About = About {
            operations: WRITE,
            group: "batch",
            resources: &["jobs", "cronjobs"],
        };
        &[CORE, ALL_PODS, APPS, BATCH]
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let resource = &ask.request().resource;
        match (resource.group.as_str(), resource.resource.as_str()) {
            ("", "namespaces") => self.check_namespace(ask).await,
            ("", "pods") => self.check_pod(ask).await,
            _ => self.check_template(ask).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup::Memory;
    use crate::rules::InTree;
    use lockgate_admission::chain::Chain;
    use lockgate_admission::decision::Decision;
    use lockgate_admission::host::SystemClock;
    use lockgate_admission::request::{kind, resource};
    use serde_json::json;

    fn namespace(labels: Value) -> Memory {
        let memory = Memory::new();
        memory.put(
            NAMESPACES,
            json!({"metadata": {"name": "shop", "labels": labels}}),
        );
        memory
    }

    fn create(pod: Value) -> Admission {
        let (kind, resource) = (kind("", "v1", "Pod"), resource("", "v1", "pods"));
        let mut request = Request::new(Operation::Create, kind, resource);
        request.name = String::from("p");
        request.namespace = String::from("shop");
        request.user.username = String::from("jane");
        request.object = Some(pod.into());
        Admission::new(request)
    }

    async fn decide(plugin: PodSecurity, ask: &mut Admission) -> Option<String> {
        let chain = Chain::new(Arc::new(SystemClock), vec![Arc::new(InTree(plugin))]);
        match chain.validate(ask).await {
            Decision::Allow => None,
            Decision::Deny(denial) => Some(denial.status.message),
        }
    }

    #[tokio::test]
    async fn modes_do_what_they_say() {
        let pod = json!({"spec": {"hostPID": true, "containers": [{"name": "c"}]}});
        let plugin =
            |labels| PodSecurity::new(Configuration::default(), namespace(labels)).unwrap();
        let enforce = plugin(json!({"pod-security.kubernetes.io/enforce": "baseline"}));
        let mut ask = create(pod.clone());
        assert_eq!(
            decide(enforce, &mut ask).await.unwrap(),
            "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces \
             (hostPID=true)"
        );
        let others = plugin(json!({
            "pod-security.kubernetes.io/audit": "baseline",
            "pod-security.kubernetes.io/audit-version": "v1.20",
            "pod-security.kubernetes.io/warn": "nonsense",
        }));
        let mut ask = create(pod.clone());
        assert_eq!(decide(others, &mut ask).await, None);
        let told: Vec<String> = ask.warnings().headers().collect();
        assert!(told.is_empty(), "{told:?}");
        let strict = plugin(json!({"pod-security.kubernetes.io/enforce": "nonsense"}));
        assert!(
            decide(strict, &mut create(pod))
                .await
                .unwrap()
                .contains("\"restricted:latest\"")
        );
    }

    #[tokio::test]
    async fn exemptions_come_before_everything() {
        let pod = json!({"spec": {"hostPID": true, "runtimeClassName": "vm", "containers": []}});
        let strict = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        for exemptions in [
            Exemptions {
                usernames: vec!["jane".into()],
                ..Exemptions::default()
            },
            Exemptions {
                namespaces: vec!["shop".into()],
                ..Exemptions::default()
            },
            Exemptions {
                runtime_classes: vec!["vm".into()],
                ..Exemptions::default()
            },
        ] {
            let config = Configuration {
                exemptions,
                ..Configuration::default()
            };
            let plugin = PodSecurity::new(config, namespace(strict.clone())).unwrap();
            assert_eq!(decide(plugin, &mut create(pod.clone())).await, None);
        }
    }

    #[test]
    fn versions_have_the_checks_of_their_time() {
        let told = |level: Level, minor: u64, pod: &Value| {
            let version = Version::Minor(minor);
            reasons(&violations(Pod(pod), LevelVersion { level, version }))
        };
        let restricted = Level::Restricted;
        let plain = json!({"spec": {"containers": [{"name": "c"}]}});
        assert_eq!(told(restricted, 7, &plain), "runAsNonRoot != true");
        assert_eq!(
            told(restricted, 18, &plain),
            "allowPrivilegeEscalation != false, runAsNonRoot != true"
        );
        assert_eq!(
            told(restricted, 99, &plain),
            "allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, \
             seccompProfile"
        );
        let unmasked = json!({"spec": {"hostUsers": false, "containers": [
            {"name": "c", "securityContext": {"procMount": "Unmasked"}},
        ]}});
        assert_eq!(told(Level::Baseline, 34, &unmasked), "procMount");
        assert_eq!(told(Level::Baseline, 35, &unmasked), "");
        assert!(told(restricted, 35, &unmasked).contains("procMount"));
        let sysctl =
            |name: &str| json!({"spec": {"securityContext": {"sysctls": [{"name": name}]}}});
        for (name, since) in [
            ("net.ipv4.tcp_syncookies", 0),
            ("net.ipv4.ip_local_reserved_ports", 27),
            ("net.ipv4.tcp_keepalive_probes", 29),
            ("net.ipv4.tcp_wmem", 32),
        ] {
            let pod = sysctl(name);
            assert_eq!(told(Level::Baseline, since, &pod), "", "{name}");
            if let Some(before) = since.checked_sub(1) {
                assert_eq!(
                    told(Level::Baseline, before, &pod),
                    "forbidden sysctls",
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn configurations_say_what_is_wrong_with_them() {
        let told = Defaults {
            enforce: String::from("strict"),
            warn_version: String::from("x"),
            ..Defaults::default()
        };
        assert_eq!(
            defaults(&told).unwrap_err().to_string(),
            "PodSecurity configuration error: [enforce: must be one of privileged, baseline, \
             restricted, warn-version: must be \"latest\" or \"v1.x\"]"
        );
        let wrong = "{apiVersion: pod-security.admission.config.k8s.io/v1, kind: \
                     PodSecurityConfiguration, default: {enforce: baseline}}";
        assert_eq!(
            Configuration::read(wrong).unwrap_err().to_string(),
            "strict decoding error: unknown field \"default\""
        );
    }
}
