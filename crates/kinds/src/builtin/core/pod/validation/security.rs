//! Validation of the security contexts of Pods and containers.

use std::collections::BTreeSet;

use lockgate_api::field::{FieldErrors, Path, Shown};
use lockgate_api::meta::names::check_subdomain;

use super::{APP_ARMOR, CONTAINER_LISTS, SECCOMP_CONTAINER, SECCOMP_POD, Spec};
use crate::at::At;
use crate::builtin::core::volume_source::descending;
use crate::object::{Object, get, has, text};

const WINDOWS_ONLY: &str = "windows options cannot be set for a linux pod";
const NOT_ON_WINDOWS: &str = "cannot be set for a windows pod";

fn id(errors: &mut FieldErrors, at: &At<'_, '_>) {
    if at.is_set() {
        at.within(errors, 0, i64::from(i32::MAX));
    }
}

pub(super) fn pod_context(errors: &mut FieldErrors, spec: &Spec<'_, '_, '_>) {
    let at = spec.at.at("securityContext");
    id(errors, &at.at("fsGroup"));
    id(errors, &at.at("runAsUser"));
    id(errors, &at.at("runAsGroup"));
    for group in at.at("supplementalGroups").items() {
        id(errors, &group);
    }
    if spec.at.at("shareProcessNamespace").flag() && spec.at.at("hostPID").flag() {
        at.at("shareProcessNamespace").invalid_as(
            errors,
            Shown::Rendered("true"),
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
    sysctls(errors, &at.at("sysctls"), spec);
    at.at("fsGroupChangePolicy")
        .known_if_set(errors, &["Always", "OnRootMismatch"]);
    seccomp(errors, &at.at("seccompProfile"));
    windows_options(errors, &at.at("windowsOptions"));
    app_armor(errors, &at.at("appArmorProfile"));
    at.at("supplementalGroupsPolicy")
        .known_if_set(errors, &["Merge", "Strict"]);
    // The feature gate SELinuxMount is disabled: other policies can be kept, but not added.
    let had_policy = spec
        .rules
        .old
        .and_then(|old| get(old, "securityContext"))
        .is_some_and(|context| has(context, "seLinuxChangePolicy"));
    let policies: &[&str] = if had_policy {
        &["MountOption", "Recursive"]
    } else {
        &["Recursive"]
    };
    at.at("seLinuxChangePolicy").known_if_set(errors, policies);
}

/// The kernel namespace of a sysctl.
///
/// UPSTREAM: component-helpers node/util/sysctl/namespace.go
fn namespace(sysctl: &str) -> &'static str {
    let name = sysctl.replace('/', ".");
    match name.as_str() {
        "kernel.sem" => "ipc",
        name if ["kernel.shm", "kernel.msg", "fs.mqueue."]
            .iter()
            .any(|prefix| name.starts_with(prefix)) =>
        {
            "ipc"
        }
        name if name.starts_with("net.") => "net",
        _ => "",
    }
}

fn is_sysctl(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let segment = |segment: &str| {
        let bytes = segment.as_bytes();
        bytes.first().is_some_and(|&byte| plain(byte))
            && bytes.last().is_some_and(|&byte| plain(byte))
            && bytes
                .iter()
                .all(|&byte| plain(byte) || matches!(byte, b'-' | b'_'))
    };
    name.len() <= 253 && name.split(['.', '/']).all(segment)
}

fn is_of_host(sysctl: &str, spec: &Object) -> Option<&'static str> {
    let flag = |key: &str| crate::object::flag(spec, key);
    match namespace(sysctl) {
        "net" if flag("hostNetwork") => Some("hostNetwork"),
        "ipc" if flag("hostIPC") => Some("hostIPC"),
        _ => None,
    }
}

fn sysctls(errors: &mut FieldErrors, at: &At<'_, '_>, spec: &Spec<'_, '_, '_>) {
    let did_before = spec.rules.old.is_some_and(|old| {
        get(old, "securityContext")
            .map_or(&[][..], |context| crate::object::list(context, "sysctls"))
            .iter()
            .any(|sysctl| is_of_host(sysctl["name"].as_str().unwrap_or_default(), old).is_some())
    });
    let mut names = BTreeSet::new();
    for sysctl in at.items() {
        let name = sysctl.at("name");
        if name.is_empty() {
            name.required(errors);
        } else if !is_sysctl(name.text()) {
            name.invalid(
                errors,
                "must have at most 253 characters and match regex \
                 ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            );
        } else if names.contains(name.text()) {
            name.duplicate(errors);
        }
        let host = spec
            .at
            .object()
            .and_then(|spec| is_of_host(name.text(), spec));
        if let (false, Some(host)) = (did_before, host) {
            name.invalid(
                errors,
                format!("may not be specified when '{host}' is true"),
            );
        }
        names.insert(name.text());
    }
}

pub(super) fn container_context(errors: &mut FieldErrors, at: &At<'_, '_>, host_users: bool) {
    if !at.is_set() {
        return;
    }
    id(errors, &at.at("runAsUser"));
    id(errors, &at.at("runAsGroup"));
    let mount = at.at("procMount");
    if mount.is_set() {
        mount.known(errors, &["Default", "Unmasked"]);
        if host_users && mount.text() == "Unmasked" {
            mount.invalid(errors, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    seccomp(errors, &at.at("seccompProfile"));
    let escalation = at.at("allowPrivilegeEscalation");
    if escalation.is_set() && !escalation.flag() {
        if at.at("privileged").flag() {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            at.invalid_as(errors, Shown::Rendered(&internal(at)), detail);
        }
        for capability in at.at("capabilities").at("add").texts() {
            if capability == "CAP_SYS_ADMIN" {
                at.invalid_as(
                    errors,
                    Shown::Rendered(&internal(at)),
                    "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` \
                     CAP_SYS_ADMIN",
                );
            }
        }
    }
    windows_options(errors, &at.at("windowsOptions"));
    app_armor(errors, &at.at("appArmorProfile"));
}

/// A security context as upstream prints its internal type, whose fields have no JSON names.
fn internal(at: &At<'_, '_>) -> String {
    let list = |member: &At<'_, '_>| match member.value {
        Some(value) => value.to_string(),
        None => String::from("null"),
    };
    let capabilities = at.at("capabilities");
    let capabilities = if capabilities.is_set() {
        format!(
            "{{\"Add\":{},\"Drop\":{}}}",
            list(&capabilities.at("add")),
            list(&capabilities.at("drop"))
        )
    } else {
        String::from("null")
    };
    let linux = at.at("seLinuxOptions");
    let linux = if linux.is_set() {
        let member = |key: &str| list_text(linux.at(key).text());
        format!(
            "{{\"User\":{},\"Role\":{},\"Type\":{},\"Level\":{}}}",
            member("user"),
            member("role"),
            member("type"),
            member("level")
        )
    } else {
        String::from("null")
    };
    let windows = at.at("windowsOptions");
    let windows = if windows.is_set() {
        format!(
            "{{\"GMSACredentialSpecName\":{},\"GMSACredentialSpec\":{},\"RunAsUserName\":{},\
             \"HostProcess\":{}}}",
            list(&windows.at("gmsaCredentialSpecName")),
            list(&windows.at("gmsaCredentialSpec")),
            list(&windows.at("runAsUserName")),
            list(&windows.at("hostProcess"))
        )
    } else {
        String::from("null")
    };
    let profile = |key: &str| {
        let profile = at.at(key);
        if profile.is_set() {
            format!(
                "{{\"Type\":{},\"LocalhostProfile\":{}}}",
                list_text(profile.at("type").text()),
                list(&profile.at("localhostProfile"))
            )
        } else {
            String::from("null")
        }
    };
    format!(
        "{{\"Capabilities\":{capabilities},\"Privileged\":{},\"SELinuxOptions\":{linux},\
         \"WindowsOptions\":{windows},\"RunAsUser\":{},\"RunAsGroup\":{},\"RunAsNonRoot\":{},\
         \"ReadOnlyRootFilesystem\":{},\"AllowPrivilegeEscalation\":{},\"ProcMount\":{},\
         \"SeccompProfile\":{},\"AppArmorProfile\":{}}}",
        list(&at.at("privileged")),
        list(&at.at("runAsUser")),
        list(&at.at("runAsGroup")),
        list(&at.at("runAsNonRoot")),
        list(&at.at("readOnlyRootFilesystem")),
        list(&at.at("allowPrivilegeEscalation")),
        list(&at.at("procMount")),
        profile("seccompProfile"),
        profile("appArmorProfile"),
    )
}

fn list_text(text: &str) -> String {
    Shown::Named(text).to_string()
}

fn seccomp(errors: &mut FieldErrors, at: &At<'_, '_>) {
    if !at.is_set() {
        return;
    }
    let (kind, profile) = (at.at("type"), at.at("localhostProfile"));
    if kind.is_empty() {
        kind.required_because(errors, "type is required when seccompProfile is set");
    } else {
        kind.known(errors, &["Localhost", "RuntimeDefault", "Unconfined"]);
    }
    match (kind.text() == "Localhost", profile.is_set()) {
        (true, true) => descending(errors, &profile),
        (true, false) => {
            profile.required_because(errors, "must be set when seccomp type is Localhost");
        }
        (false, true) => {
            let shown = format!(
                "{{\"Type\":{},\"LocalhostProfile\":{}}}",
                list_text(kind.text()),
                list_text(profile.text())
            );
            profile.invalid_as(
                errors,
                Shown::Rendered(&shown),
                "can only be set when seccomp type is Localhost",
            );
        }
        (false, false) => {}
    }
}

fn app_armor(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const PROFILE_MAX: usize = 4095;
    const UNSET: &str = "must be set when AppArmor type is Localhost";
    if !at.is_set() {
        return;
    }
    let (kind, profile) = (at.at("type"), at.at("localhostProfile"));
    match kind.text() {
        "Localhost" if !profile.is_set() => profile.required_because(errors, UNSET),
        "Localhost" => {
            if profile.text().trim() != profile.text() {
                profile.invalid(errors, "must not be padded with whitespace");
            } else if profile.is_empty() {
                profile.required_because(errors, UNSET);
            }
            if profile.text().len() > PROFILE_MAX {
                profile.too_long(errors, PROFILE_MAX);
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if profile.is_set() {
                profile.invalid(errors, "can only be set when AppArmor type is Localhost");
            }
        }
        "" => kind.required_because(errors, "type is required when appArmorProfile is set"),
        _ => kind.not_supported(errors, &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
}

/// Validates the annotations that the fields replaced.
pub(super) fn annotations(errors: &mut FieldErrors, at: &At<'_, '_>, spec: &At<'_, '_>) {
    if at.at(SECCOMP_POD).is_set() {
        seccomp_annotation(errors, &at.at(SECCOMP_POD));
    }
    for (key, profile) in at.entries() {
        if key.starts_with(SECCOMP_CONTAINER) {
            seccomp_annotation(errors, &at.at(key));
        }
        let Some(name) = key.strip_prefix(APP_ARMOR) else {
            continue;
        };
        let is_found = CONTAINER_LISTS.iter().any(|list| {
            let containers = spec.at(list);
            containers
                .items()
                .any(|container| container.at("name").text() == name)
        });
        if !is_found {
            profile.invalid_as(errors, Shown::Text(name), "container not found");
        }
        let text = profile.text();
        let is_known = matches!(text, "" | "runtime/default" | "unconfined");
        if !is_known && !text.starts_with("localhost/") {
            let quoted = lockgate_go::quote::quote(text);
            profile.invalid(errors, format!("invalid AppArmor profile name: {quoted}"));
        }
    }
}

fn seccomp_annotation(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let text = at.text();
    if matches!(text, "runtime/default" | "docker/default" | "unconfined") {
        return;
    }
    match text.strip_prefix("localhost/") {
        Some(profile) => {
            let value = serde_json::Value::from(profile);
            descending(errors, &At::new(at.path, Some(&value)));
        }
        None => at.invalid(errors, "must be a valid seccomp profile"),
    }
}

/// Annotations must equal the fields that replaced them.
pub(super) fn annotations_match(
    errors: &mut FieldErrors,
    metadata: Option<&Object>,
    spec: &At<'_, '_>,
) {
    let empty = Object::new();
    let noted = metadata
        .and_then(|metadata| get(metadata, "annotations"))
        .unwrap_or(&empty);
    if noted.is_empty() {
        return;
    }
    let context = spec.at("securityContext");
    if noted.contains_key(SECCOMP_POD) {
        let profile = context.at("seccompProfile");
        profile_matches(errors, &profile, text(noted, SECCOMP_POD), "seccomp");
    }
    for list in CONTAINER_LISTS {
        for container in spec.at(list).items() {
            let key = format!("{SECCOMP_CONTAINER}{}", container.at("name").text());
            if noted.contains_key(&key) {
                let context = container.at("securityContext");
                let profile = context.at("seccompProfile");
                profile_matches(errors, &profile, text(noted, &key), "seccomp");
            }
        }
    }
    if spec.at("os").at("name").text() == "windows" {
        return;
    }
    for list in CONTAINER_LISTS {
        for container in spec.at(list).items() {
            let key = format!("{APP_ARMOR}{}", container.at("name").text());
            if !noted.contains_key(&key) {
                continue;
            }
            let own = container.at("securityContext");
            let own_profile = own.at("appArmorProfile");
            let pods = context.at("appArmorProfile");
            let value = own_profile.value.or(pods.value);
            let profile = At::new(own_profile.path, value);
            profile_matches(errors, &profile, text(noted, &key), "apparmor");
        }
    }
}

fn profile_matches(errors: &mut FieldErrors, profile: &At<'_, '_>, noted: &str, what: &str) {
    let kind = profile.at("type");
    let differs = match kind.text() {
        "Unconfined" => noted != "unconfined",
        "RuntimeDefault" => {
            noted != "runtime/default" && !(what == "seccomp" && noted == "docker/default")
        }
        "Localhost" => match noted.strip_prefix("localhost/") {
            None => true,
            Some(noted) => {
                let own = profile.at("localhostProfile");
                if !own.is_set() || own.text() != noted {
                    let detail = format!("{what} profile in annotation and field must match");
                    own.forbidden(errors, detail);
                }
                false
            }
        },
        _ => false,
    };
    if differs {
        let detail = format!("{what} type in annotation and field must match");
        kind.forbidden(errors, detail);
    }
}

fn windows_options(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const SPEC_MAX: usize = 64 * 1024;
    const DOMAIN_MAX: usize = 256;
    const USER_MAX: usize = 104;
    if !at.is_set() {
        return;
    }
    let name = at.at("gmsaCredentialSpecName");
    if name.is_set() {
        name.check(errors, check_subdomain);
    }
    let credentials = at.at("gmsaCredentialSpec");
    if credentials.is_set() {
        if credentials.is_empty() {
            credentials.invalid(errors, "gmsaCredentialSpec cannot be an empty string");
        } else if credentials.text().len() > SPEC_MAX {
            credentials.invalid(errors, "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    let user_name = at.at("runAsUserName");
    if !user_name.is_set() {
        return;
    }
    let full = user_name.text();
    if full.is_empty() {
        return user_name.invalid(errors, "runAsUserName cannot be an empty string");
    }
    if full.bytes().any(|byte| byte.is_ascii_control()) {
        return user_name.invalid(errors, "runAsUserName cannot contain control characters");
    }
    let parts: Vec<&str> = full.split('\\').collect();
    let (domain, user) = match parts[..] {
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => {
            let detail = "runAsUserName cannot contain more than one backslash";
            return user_name.invalid(errors, detail);
        }
    };
    if let Some(domain) = domain {
        if domain.len() >= DOMAIN_MAX {
            let detail = "runAsUserName's Domain length must be under 256 characters";
            user_name.invalid(errors, detail);
        }
        if !is_net_bios(domain) && !is_dns_domain(domain) {
            let detail = "runAsUserName's Domain doesn't match the NetBios nor the DNS format";
            user_name.invalid(errors, detail);
        }
    }
    if user.is_empty() {
        user_name.invalid(errors, "runAsUserName's User cannot be empty");
    } else if user.len() > USER_MAX {
        let detail = "runAsUserName's User length must not be longer than 104 characters";
        user_name.invalid(errors, detail);
    }
    if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
        let detail = "runAsUserName's User cannot contain only periods or spaces";
        user_name.invalid(errors, detail);
    }
    if user.contains(|c| "\"/\\:;|=,+*?<>@[]".contains(c)) {
        user_name.invalid(
            errors,
            "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]",
        );
    }
}

fn is_net_bios(domain: &str) -> bool {
    let is_bad = |c: char| "\\/:*?\"<>|".contains(c);
    let length = domain.chars().count();
    (1..=15).contains(&length) && !domain.starts_with('.') && !domain.contains(is_bad)
}

fn is_dns_domain(domain: &str) -> bool {
    domain.split('.').all(|label| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

pub(super) fn windows_host_process(errors: &mut FieldErrors, spec: &At<'_, '_>) {
    let context = spec.at("securityContext");
    let options = context.at("windowsOptions");
    let pods = options.at("hostProcess");
    let (mut all, mut on_host) = (0, 0);
    for list in CONTAINER_LISTS {
        for container in spec.at(list).items() {
            all += 1;
            let context = container.at("securityContext");
            let options = context.at("windowsOptions");
            let own = options.at("hostProcess");
            if pods.is_set() && own.is_set() && pods.flag() != own.flag() {
                let detail = format!(
                    "pod hostProcess value must be identical if both are specified, was {}",
                    pods.flag()
                );
                own.invalid(errors, detail);
            }
            let is_on_host = if own.is_set() {
                own.flag()
            } else {
                pods.flag()
            };
            on_host += i32::from(is_on_host);
        }
    }
    if on_host == 0 {
        return;
    }
    if on_host != all {
        spec.invalid_as(
            errors,
            Shown::Text(""),
            "If pod contains any hostProcess containers then all containers must be HostProcess \
             containers",
        );
    }
    if !spec.at("hostNetwork").flag() {
        spec.at("hostNetwork").invalid_as(
            errors,
            Shown::Rendered("false"),
            "hostNetwork must be true if pod contains any hostProcess containers",
        );
    }
}

pub(super) fn host_users(errors: &mut FieldErrors, spec: &Spec<'_, '_, '_>) {
    const WHEN: &str = "when `hostUsers` is false";
    let at = &spec.at;
    if !at.at("hostUsers").is_set() || at.at("hostUsers").flag() {
        return;
    }
    let did_before = spec.rules.old.is_some_and(|old| {
        let is_off = old.get("hostUsers").is_some_and(|users| users == false);
        is_off && crate::object::flag(old, "hostNetwork")
    });
    if at.at("hostNetwork").flag() && !did_before {
        at.at("hostNetwork").forbidden(errors, WHEN);
    }
    for (key, name) in [("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if at.at(key).flag() {
            at.at(name).forbidden(errors, WHEN);
        }
    }
    for list in CONTAINER_LISTS {
        for container in at.at(list).items() {
            if !container.at("volumeDevices").is_empty() {
                container.at("volumeDevices").forbidden(errors, WHEN);
            }
        }
    }
}

pub(super) fn operating_system(errors: &mut FieldErrors, spec: &At<'_, '_>) {
    let os = spec.at("os");
    if !os.is_set() {
        return;
    }
    match os.at("name").text() {
        "" => os.at("name").required(errors),
        "linux" => on_linux(errors, spec),
        "windows" => on_windows(errors, spec),
        _ => At::new(os.path, os.at("name").value).not_supported(errors, &["linux", "windows"]),
    }
}

fn on_linux(errors: &mut FieldErrors, spec: &At<'_, '_>) {
    let mut refuse = |context: &At<'_, '_>| {
        if context.at("windowsOptions").is_set() {
            context.at("windowsOptions").forbidden(errors, WINDOWS_ONLY);
        }
    };
    refuse(&spec.at("securityContext"));
    for list in CONTAINER_LISTS {
        for container in spec.at(list).items() {
            refuse(&container.at("securityContext"));
        }
    }
}

fn on_windows(errors: &mut FieldErrors, spec: &At<'_, '_>) {
    /// Fields of the Pod spec; `true` marks fields of its security context.
    const OF_POD: [(&str, bool); 15] = [
        ("appArmorProfile", true),
        ("seLinuxOptions", true),
        ("hostUsers", false),
        ("hostPID", false),
        ("hostIPC", false),
        ("seccompProfile", true),
        ("fsGroup", true),
        ("fsGroupChangePolicy", true),
        ("sysctls", true),
        ("shareProcessNamespace", false),
        ("runAsUser", true),
        ("runAsGroup", true),
        ("supplementalGroups", true),
        ("supplementalGroupsPolicy", true),
        ("seLinuxChangePolicy", true),
    ];
    const OF_CONTAINER: [&str; 10] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    let context = spec.at("securityContext");
    for (key, in_context) in OF_POD {
        let member = if in_context {
            context.at(key)
        } else {
            spec.at(key)
        };
        let is_given = match key {
            "hostPID" | "hostIPC" => member.flag(),
            "sysctls" => !member.is_empty(),
            _ => member.is_set(),
        };
        if is_given {
            member.forbidden(errors, NOT_ON_WINDOWS);
        }
    }
    for list in CONTAINER_LISTS {
        for container in spec.at(list).items() {
            let context = container.at("securityContext");
            for key in OF_CONTAINER {
                if context.at(key).is_set() {
                    context.at(key).forbidden(errors, NOT_ON_WINDOWS);
                }
            }
        }
    }
}

/// An empty path.
pub(super) fn empty_path() -> At<'static, 'static> {
    At::new(Path::root(""), None)
}
