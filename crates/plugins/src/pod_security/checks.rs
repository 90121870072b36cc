//! The checks of the Pod Security Standards.
//!
//! UPSTREAM: pod-security-admission policy/

use std::collections::BTreeSet;

use serde_json::Value;

use super::policy::{Level, LevelVersion, Version};
use crate::fields::{CONTAINER_LISTS, annotation, at, is_on, items, text, text_at, texts};

/// The newest version in which a check changed. Later versions have the same rules.
const NEWEST: u64 = 35;

/// A failed check: its reason and detail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) reason: &'static str,
    pub(crate) detail: String,
}

/// Joins violations as they appear in messages.
pub(crate) fn detailed(violations: &[Violation]) -> String {
    let told = violations.iter().map(|violation| {
        let Violation { reason, detail } = violation;
        format!("{reason} ({detail})")
    });
    told.collect::<Vec<_>>().join(", ")
}

/// The same without the details.
pub(crate) fn reasons(violations: &[Violation]) -> String {
    let told: Vec<&str> = violations
        .iter()
        .map(|violation| violation.reason)
        .collect();
    told.join(", ")
}

/// A Pod or Pod template: its metadata and spec.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pod<'v>(pub(crate) &'v Value);

type Check = fn(Pod<'_>) -> Option<Violation>;

/// The violations of a level by a Pod, in the order of upstream's check names.
pub(crate) fn violations(pod: Pod<'_>, wanted: LevelVersion) -> Vec<Violation> {
    let minor = match wanted.version {
        Version::Latest => NEWEST,
        Version::Minor(minor) => minor.min(NEWEST),
    };
    let restricted = match wanted.level {
        Level::Privileged => return Vec::new(),
        Level::Baseline => false,
        Level::Restricted => true,
    };
    let since = |from: u64, check: Check| (minor >= from).then_some(check);
    // Some checks of the restricted level replace those of the baseline level.
    let unless = |overridden: bool, check: Check| (!(restricted && overridden)).then_some(check);
    let sysctls: Check = match minor {
        ..27 => |pod| check_sysctls(pod, 0),
        27..29 => |pod| check_sysctls(pod, 1),
        29..32 => |pod| check_sysctls(pod, 5),
        _ => |pod| check_sysctls(pod, 7),
    };
    let selinux: Check = match minor {
        ..31 => |pod| check_selinux(pod, 3),
        _ => |pod| check_selinux(pod, 4),
    };
    let proc_mount: Check = if minor < 35 {
        proc_mount
    } else {
        |pod| unless_in_user_namespace(pod, proc_mount)
    };
    let seccomp: Check = if minor < 19 {
        seccomp_annotations
    } else {
        seccomp_baseline
    };
    let baseline = [
        Some(app_armor as Check),
        unless(minor >= 22, capabilities_baseline),
        Some(host_namespaces),
        unless(true, host_path_volumes),
        Some(host_ports),
        since(34, probe_hosts),
        Some(privileged),
        unless(minor >= 35, proc_mount),
        Some(selinux),
        unless(minor >= 19, seccomp),
        Some(sysctls),
        Some(windows_host_process),
    ];
    let not_on_windows = minor >= 25;
    let in_user_namespaces = minor >= 35;
    let linux = |check: Check, relaxed: Check| if not_on_windows { relaxed } else { check };
    let user = |check: Check, relaxed: Check| if in_user_namespaces { relaxed } else { check };
    let restricted_ones = [
        since(
            8,
            linux(privilege_escalation, |pod| {
                unless_windows(pod, privilege_escalation)
            }),
        ),
        since(
            22,
            linux(capabilities_restricted, |pod| {
                unless_windows(pod, capabilities_restricted)
            }),
        ),
        since(35, self::proc_mount),
        Some(restricted_volumes as Check),
        Some(user(run_as_non_root, |pod| {
            unless_in_user_namespace(pod, run_as_non_root)
        })),
        since(
            23,
            user(run_as_user, |pod| {
                unless_in_user_namespace(pod, run_as_user)
            }),
        ),
        since(
            19,
            linux(seccomp_restricted, |pod| {
                unless_windows(pod, seccomp_restricted)
            }),
        ),
    ];
    let stricter = restricted_ones.into_iter().filter(|_| restricted);
    let checks = baseline.into_iter().chain(stricter).flatten();
    checks.filter_map(|check| check(pod)).collect()
}

fn unless_windows(pod: Pod<'_>, check: Check) -> Option<Violation> {
    if text_at(pod.0, &["spec", "os", "name"]) == "windows" {
        return None;
    }
    check(pod)
}

fn unless_in_user_namespace(pod: Pod<'_>, check: Check) -> Option<Violation> {
    if at(pod.0, &["spec", "hostUsers"]) == Some(&Value::Bool(false)) {
        return None;
    }
    check(pod)
}

impl<'v> Pod<'v> {
    /// All containers, in the order they are visited.
    fn containers(self) -> impl Iterator<Item = &'v Value> {
        let lists = CONTAINER_LISTS.into_iter();
        lists.flat_map(move |list| items(self.0, &["spec", list]))
    }

    /// The names of the containers that satisfy a predicate.
    fn named(self, is: impl Fn(&'v Value) -> bool) -> Vec<&'v str> {
        let containers = self.containers().filter(|container| is(container));
        containers
            .map(|container| text(container, "name"))
            .collect()
    }

    /// A field of the security context of the pod.
    fn context(self, path: &[&str]) -> Option<&'v Value> {
        at(at(self.0, &["spec", "securityContext"])?, path)
    }
}

/// A field of the security context of a container.
fn context<'v>(container: &'v Value, path: &[&str]) -> Option<&'v Value> {
    at(at(container, &["securityContext"])?, path)
}

fn some(reason: &'static str, detail: String) -> Option<Violation> {
    Some(Violation { reason, detail })
}

/// Formats `"a", "b"`. Upstream quotes names without escaping.
fn quoted<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    let texts: Vec<&str> = texts.into_iter().collect();
    format!("\"{}\"", texts.join("\", \""))
}

fn plural<'w>(one: &'w str, many: &'w str, count: usize) -> &'w str {
    if count == 1 { one } else { many }
}

/// Formats `container "a"`, `containers "a", "b"`.
fn containers(names: &[&str]) -> String {
    let word = plural("container", "containers", names.len());
    format!("{word} {}", quoted(names.iter().copied()))
}

/// Formats `pod and container "a"`, the violating parts. `None` without violations.
fn setters(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names) {
        (false, []) => None,
        (true, []) => Some(String::from("pod")),
        (false, names) => Some(containers(names)),
        (true, names) => Some(format!("pod and {}", containers(names))),
    }
}

/// The invalid values at a path, and where they are set: in the Pod, and in which containers.
struct FieldViolations<'v> {
    pod: bool,
    containers: Vec<&'v str>,
    values: BTreeSet<&'v str>,
}

/// Checks a string field of the Pod and its containers, and collects violations. An absent field of an existing
/// parent counts as empty.
fn bad<'v>(
    pod: Pod<'v>,
    parent: &str,
    member: &str,
    is_good: fn(&str) -> bool,
) -> FieldViolations<'v> {
    let mut values = BTreeSet::new();
    let mut is_bad = |parent: Option<&'v Value>| {
        let value = parent.map(|parent| text(parent, member));
        let value = value.filter(|value| !is_good(value));
        values.extend(value);
        value.is_some()
    };
    let of_pod = is_bad(pod.context(&[parent]));
    let mut names = Vec::new();
    for container in pod.containers() {
        if is_bad(context(container, &[parent])) {
            names.push(text(container, "name"));
        }
    }
    FieldViolations {
        pod: of_pod,
        containers: names,
        values,
    }
}

fn app_armor(pod: Pod<'_>) -> Option<Violation> {
    const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
    let is_good = |profile: &str| matches!(profile, "RuntimeDefault" | "Localhost");
    let found = bad(pod, "appArmorProfile", "type", is_good);
    let is_fine = |value: &str| {
        value.is_empty() || value == "runtime/default" || value.starts_with("localhost/")
    };
    let annotations = texts(pod.0, &["metadata", "annotations"])
        .filter(|(key, value)| key.starts_with(PREFIX) && !is_fine(value))
        .map(|(key, value)| format!("{key}={}", lockgate_go::quote::quote(value)));
    let mut annotations: Vec<String> = annotations.collect();
    annotations.sort();
    let mut who: Vec<String> = setters(found.pod, &found.containers).into_iter().collect();
    if !annotations.is_empty() {
        who.push(plural("annotation", "annotations", annotations.len()).to_owned());
    }
    if who.is_empty() {
        return None;
    }
    let values: Vec<&str> = found
        .values
        .into_iter()
        .chain(annotations.iter().map(String::as_str))
        .collect();
    let reason = plural(
        "forbidden AppArmor profile",
        "forbidden AppArmor profiles",
        values.len(),
    );
    let (who, values) = (who.join(" and "), quoted(values));
    some(
        reason,
        format!("{who} must not set AppArmor profile type to {values}"),
    )
}

/// The default capabilities of containers.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The containers that add disallowed capabilities, and the capabilities.
fn added<'v>(pod: Pod<'v>, allowed: &[&str]) -> (Vec<&'v str>, BTreeSet<&'v str>) {
    let mut all = BTreeSet::new();
    let mut names = Vec::new();
    for container in pod.containers() {
        let path = ["securityContext", "capabilities", "add"];
        let added = items(container, &path).iter().filter_map(Value::as_str);
        let wrong: Vec<&str> = added.filter(|name| !allowed.contains(name)).collect();
        if !wrong.is_empty() {
            names.push(text(container, "name"));
            all.extend(wrong);
        }
    }
    (names, all)
}

fn capabilities_baseline(pod: Pod<'_>) -> Option<Violation> {
    let (names, wrong) = added(pod, &CAPABILITIES);
    if names.is_empty() {
        return None;
    }
    let (who, wrong) = (containers(&names), quoted(wrong));
    let detail = format!("{who} must not include {wrong} in securityContext.capabilities.add");
    some("non-default capabilities", detail)
}

fn capabilities_restricted(pod: Pod<'_>) -> Option<Violation> {
    let keeps = pod.named(|container| {
        let path = ["securityContext", "capabilities", "drop"];
        !items(container, &path).iter().any(|name| name == "ALL")
    });
    let (names, wrong) = added(pod, &["NET_BIND_SERVICE"]);
    let mut details = Vec::new();
    if !keeps.is_empty() {
        let who = containers(&keeps);
        details.push(format!(
            "{who} must set securityContext.capabilities.drop=[\"ALL\"]"
        ));
    }
    if !names.is_empty() {
        let (who, wrong) = (containers(&names), quoted(wrong));
        details.push(format!(
            "{who} must not include {wrong} in securityContext.capabilities.add"
        ));
    }
    if details.is_empty() {
        return None;
    }
    some("unrestricted capabilities", details.join("; "))
}

fn host_namespaces(pod: Pod<'_>) -> Option<Violation> {
    let names = ["hostNetwork", "hostPID", "hostIPC"];
    let shared = names
        .into_iter()
        .filter(|name| is_on(pod.0, &["spec", name]));
    let shared: Vec<String> = shared.map(|name| format!("{name}=true")).collect();
    if shared.is_empty() {
        return None;
    }
    some("host namespaces", shared.join(", "))
}

fn host_path_volumes(pod: Pod<'_>) -> Option<Violation> {
    let volumes = items(pod.0, &["spec", "volumes"]).iter();
    let volumes = volumes.filter(|volume| at(volume, &["hostPath"]).is_some());
    let names: Vec<&str> = volumes.map(|volume| text(volume, "name")).collect();
    if names.is_empty() {
        return None;
    }
    let word = plural("volume", "volumes", names.len());
    some("hostPath volumes", format!("{word} {}", quoted(names)))
}

fn host_ports(pod: Pod<'_>) -> Option<Violation> {
    let ports = |container: &Value| -> Vec<i64> {
        let ports = items(container, &["ports"]).iter();
        let ports = ports.filter_map(|port| at(port, &["hostPort"])?.as_i64());
        ports.filter(|port| *port != 0).collect()
    };
    let names = pod.named(|container| !ports(container).is_empty());
    if names.is_empty() {
        return None;
    }
    let all: BTreeSet<String> = pod
        .containers()
        .flat_map(ports)
        .map(|port| port.to_string())
        .collect();
    let who = containers(&names);
    let (verb, noun) = (
        plural("uses", "use", names.len()),
        plural("hostPort", "hostPorts", all.len()),
    );
    let all: Vec<String> = all.into_iter().collect();
    some(
        "hostPort",
        format!("{who} {verb} {noun} {}", all.join(", ")),
    )
}

fn probe_hosts(pod: Pod<'_>) -> Option<Violation> {
    const HANDLERS: [&[&str]; 5] = [
        &["livenessProbe"],
        &["readinessProbe"],
        &["startupProbe"],
        &["lifecycle", "postStart"],
        &["lifecycle", "preStop"],
    ];
    let hosts = |container: &'_ Value| -> Vec<String> {
        let handlers = HANDLERS.iter().filter_map(|path| at(container, path));
        let hosts = handlers.flat_map(|handler| {
            ["httpGet", "tcpSocket"].map(|kind| text_at(handler, &[kind, "host"]).to_owned())
        });
        hosts.filter(|host| !host.is_empty()).collect()
    };
    let names: BTreeSet<&str> = pod
        .named(|container| !hosts(container).is_empty())
        .into_iter()
        .collect();
    if names.is_empty() {
        return None;
    }
    let all: BTreeSet<String> = pod.containers().flat_map(hosts).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let who = containers(&names);
    let verb = plural("uses", "use", names.len());
    let noun = plural(
        "probe or lifecycle host",
        "probe or lifecycle hosts",
        all.len(),
    );
    let all = quoted(all.iter().map(String::as_str));
    some(
        "probe or lifecycle host",
        format!("{who} {verb} {noun} {all}"),
    )
}

fn privileged(pod: Pod<'_>) -> Option<Violation> {
    let names = pod.named(|container| is_on(container, &["securityContext", "privileged"]));
    if names.is_empty() {
        return None;
    }
    let who = containers(&names);
    some(
        "privileged",
        format!("{who} must not set securityContext.privileged=true"),
    )
}

fn proc_mount(pod: Pod<'_>) -> Option<Violation> {
    let unmasked = |container: &'_ Value| {
        let mount = context(container, &["procMount"]).and_then(Value::as_str);
        mount.filter(|mount| *mount != "Default").map(str::to_owned)
    };
    let names = pod.named(|container| unmasked(container).is_some());
    if names.is_empty() {
        return None;
    }
    let kinds: BTreeSet<String> = pod.containers().filter_map(unmasked).collect();
    let (who, kinds) = (containers(&names), quoted(kinds.iter().map(String::as_str)));
    some(
        "procMount",
        format!("{who} must not set securityContext.procMount to {kinds}"),
    )
}

/// Allowed SELinux types, in the order of the versions that added them.
const SELINUX_TYPES: [&str; 4] = [
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
];

fn check_selinux(pod: Pod<'_>, allowed: usize) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let (mut user, mut role) = (false, false);
    let mut is_bad = |options: Option<&Value>| {
        let Some(options) = options else {
            return false;
        };
        let kind = text(options, "type");
        let mut known = SELINUX_TYPES.iter().take(allowed);
        let wrong_type = !kind.is_empty() && !known.any(|known| *known == kind);
        if wrong_type {
            types.insert(kind.to_owned());
        }
        let has = |member: &str| !text(options, member).is_empty();
        user |= has("user");
        role |= has("role");
        wrong_type || has("user") || has("role")
    };
    let of_pod = is_bad(pod.context(&["seLinuxOptions"]));
    let mut names = Vec::new();
    for container in pod.containers() {
        if is_bad(context(container, &["seLinuxOptions"])) {
            names.push(text(container, "name"));
        }
    }
    let who = setters(of_pod, &names)?;
    let mut wrong = Vec::new();
    if !types.is_empty() {
        let word = plural("type", "types", types.len());
        wrong.push(format!(
            "{word} {}",
            quoted(types.iter().map(String::as_str))
        ));
    }
    if user {
        wrong.push(String::from("user may not be set"));
    }
    if role {
        wrong.push(String::from("role may not be set"));
    }
    let wrong = wrong.join("; ");
    some(
        "seLinuxOptions",
        format!("{who} set forbidden securityContext.seLinuxOptions: {wrong}"),
    )
}

fn seccomp_annotations(pod: Pod<'_>) -> Option<Violation> {
    const OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let is_fine = |value: &str| {
        matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/")
    };
    let of_containers = pod
        .containers()
        .map(|container| format!("{OF_CONTAINER}{}", text(container, "name")));
    let mut wrong = BTreeSet::new();
    for key in std::iter::once(OF_POD.to_owned()).chain(of_containers) {
        if let Some(value) = annotation(pod.0, &key).filter(|value| !is_fine(value)) {
            wrong.insert(format!("{key}={}", lockgate_go::quote::quote(value)));
        }
    }
    if wrong.is_empty() {
        return None;
    }
    let word = plural("annotation", "annotations", wrong.len());
    let wrong: Vec<String> = wrong.into_iter().collect();
    some(
        "seccompProfile",
        format!("forbidden {word} {}", wrong.join(", ")),
    )
}

fn is_good_seccomp(profile: &str) -> bool {
    matches!(profile, "RuntimeDefault" | "Localhost")
}

fn seccomp_baseline(pod: Pod<'_>) -> Option<Violation> {
    let found = bad(pod, "seccompProfile", "type", is_good_seccomp);
    let who = setters(found.pod, &found.containers)?;
    let values = quoted(found.values);
    some(
        "seccompProfile",
        format!("{who} must not set securityContext.seccompProfile.type to {values}"),
    )
}

fn seccomp_restricted(pod: Pod<'_>) -> Option<Violation> {
    if let Some(violation) = seccomp_baseline(pod) {
        return Some(violation);
    }
    if pod.context(&["seccompProfile"]).is_some() {
        return None;
    }
    let names = pod.named(|container| context(container, &["seccompProfile"]).is_none());
    if names.is_empty() {
        return None;
    }
    let who = containers(&names);
    some(
        "seccompProfile",
        format!(
            "pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \
             \"Localhost\""
        ),
    )
}

/// Safe sysctls, in the order of the versions that added them.
const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// Allows the first five and `more` sysctls.
fn check_sysctls(pod: Pod<'_>, more: usize) -> Option<Violation> {
    let all = items(pod.0, &["spec", "securityContext", "sysctls"]).iter();
    let names = all.map(|sysctl| text(sysctl, "name"));
    let allowed = |name: &&str| SYSCTLS.iter().take(5 + more).any(|known| known == name);
    let wrong: Vec<&str> = names.into_iter().filter(|name| !allowed(name)).collect();
    if wrong.is_empty() {
        return None;
    }
    some("forbidden sysctls", wrong.join(", "))
}

fn windows_host_process(pod: Pod<'_>) -> Option<Violation> {
    let path = ["windowsOptions", "hostProcess"];
    let is_on = |value: Option<&Value>| value.and_then(Value::as_bool) == Some(true);
    let of_pod = is_on(pod.context(&path));
    let names = pod.named(|container| is_on(context(container, &path)));
    let who = setters(of_pod, &names)?;
    some(
        "hostProcess",
        format!("{who} must not set securityContext.windowsOptions.hostProcess=true"),
    )
}

fn privilege_escalation(pod: Pod<'_>) -> Option<Violation> {
    let names = pod.named(|container| {
        context(container, &["allowPrivilegeEscalation"]) != Some(&Value::Bool(false))
    });
    if names.is_empty() {
        return None;
    }
    let who = containers(&names);
    some(
        "allowPrivilegeEscalation != false",
        format!("{who} must set securityContext.allowPrivilegeEscalation=false"),
    )
}

/// Allowed volume types.
const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// The forbidden volume types, in upstream's order.
const RESTRICTED_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

fn restricted_volumes(pod: Pod<'_>) -> Option<Violation> {
    let has = |volume: &Value, kinds: &[&'static str]| -> Option<&'static str> {
        let mut kinds = kinds.iter().copied();
        kinds.find(|kind| at(volume, &[kind]).is_some())
    };
    let volumes = items(pod.0, &["spec", "volumes"]).iter();
    let wrong: Vec<&Value> = volumes
        .filter(|volume| has(volume, &VOLUMES).is_none())
        .collect();
    if wrong.is_empty() {
        return None;
    }
    let kinds: BTreeSet<&str> = wrong
        .iter()
        .map(|volume| has(volume, &RESTRICTED_VOLUMES).unwrap_or("unknown"))
        .collect();
    let noun = plural("volume", "volumes", wrong.len());
    let verb = plural("uses", "use", wrong.len());
    let type_noun = plural(
        "restricted volume type",
        "restricted volume types",
        kinds.len(),
    );
    let names = quoted(wrong.iter().map(|volume| text(volume, "name")));
    let kinds = quoted(kinds);
    some(
        "restricted volume types",
        format!("{noun} {names} {verb} {type_noun} {kinds}"),
    )
}

fn run_as_non_root(pod: Pod<'_>) -> Option<Violation> {
    let of_pod = pod.context(&["runAsNonRoot"]).and_then(Value::as_bool);
    let of = |container: &Value| context(container, &["runAsNonRoot"]).and_then(Value::as_bool);
    let root = pod.named(|container| of(container) == Some(false));
    let reason = "runAsNonRoot != true";
    if let Some(who) = setters(of_pod == Some(false), &root) {
        let detail = format!("{who} must not set securityContext.runAsNonRoot=false");
        return some(reason, detail);
    }
    let silent = pod.named(|container| of(container).is_none());
    if of_pod == Some(true) || silent.is_empty() {
        return None;
    }
    let who = containers(&silent);
    some(
        reason,
        format!("pod or {who} must set securityContext.runAsNonRoot=true"),
    )
}

fn run_as_user(pod: Pod<'_>) -> Option<Violation> {
    let is_root = |user: Option<&Value>| user.and_then(Value::as_i64) == Some(0);
    let of_pod = is_root(pod.context(&["runAsUser"]));
    let names = pod.named(|container| is_root(context(container, &["runAsUser"])));
    let who = setters(of_pod, &names)?;
    some("runAsUser=0", format!("{who} must not set runAsUser=0"))
}
