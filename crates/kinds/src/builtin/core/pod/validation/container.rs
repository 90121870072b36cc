//! Validation of containers, and of container-level and pod-level resources.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_api::field::{FieldError, FieldErrors, Shown};
use lockgate_api::meta::names::{check_subdomain, check_subdomain_prefix};
use serde_json::Value;

use super::{Spec, security};
use crate::amounts::aggregate;
use crate::at::At;
use crate::builtin::core::resource_name::{
    container_resource_name, is_huge_page, overcommits, quantity_value, resource_name,
};
use crate::builtin::core::volume_source::{
    descending, field_reference, has_backsteps, is_claim, no_backsteps, resource_reference,
};
use crate::checks::{
    check_config_key, check_environment_name, check_header_name, check_label, check_port_name,
};
use crate::object::{Object, get, list, text};
use lockgate_go::quantity::Quantity;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const ONLY_SIDECARS: &str = "may not be set for init containers without restartPolicy=Always";

/// The volumes and claims that containers may refer to.
pub(super) struct Context<'c, 'p, 'v> {
    spec: At<'p, 'v>,
    volumes: &'c BTreeMap<&'v str, &'v Object>,
    claims: &'c BTreeSet<&'v str>,
    old: Option<&'c Object>,
    host_users: bool,
}

impl<'c, 'p, 'v> Context<'c, 'p, 'v> {
    pub(super) fn new(
        spec: &Spec<'c, 'p, 'v>,
        volumes: &'c BTreeMap<&'v str, &'v Object>,
        claims: &'c BTreeSet<&'v str>,
    ) -> Self {
        let users = spec.at.at("hostUsers");
        Self {
            spec: spec.at,
            volumes,
            claims,
            old: spec.rules.old,
            host_users: !users.is_set() || users.flag(),
        }
    }
}

pub(super) fn containers(errors: &mut FieldErrors, context: &Context<'_, '_, '_>) {
    let all = context.spec.at("containers");
    if all.is_empty() {
        return all.required(errors);
    }
    let mut names = BTreeSet::new();
    for container in all.items() {
        common(errors, &container, context);
        if !names.insert(container.at("name").text()) {
            container.at("name").duplicate(errors);
        }
        lifecycle_and_probes(errors, &container, context);
        restart_policy(errors, &container);
    }
    host_port_conflicts(errors, all.items(), &mut BTreeSet::new());
}

pub(super) fn init_containers(errors: &mut FieldErrors, context: &Context<'_, '_, '_>) {
    let all = context.spec.at("initContainers");
    let mut names: BTreeSet<&str> = context
        .spec
        .at("containers")
        .items()
        .map(|container| container.at("name").text())
        .collect();
    for container in all.items() {
        common(errors, &container, context);
        let policy = container.at("restartPolicy");
        if policy.is_set() {
            restart_policy(errors, &container);
        } else if !container.at("restartPolicyRules").is_empty() {
            let detail = "must specify restartPolicy when restart rules are used";
            policy.required_because(errors, detail);
        }
        let is_sidecar = policy.text() == "Always";
        let name = container.at("name");
        if names.contains(name.text()) {
            name.duplicate(errors);
        } else if !name.is_empty() {
            names.insert(name.text());
        }
        // Upstream checks each container in a list of one, so the index is always 0.
        let alone = At::new(all.path.index(0), container.value);
        host_port_conflicts(errors, std::iter::once(alone), &mut BTreeSet::new());
        if is_sidecar {
            lifecycle_and_probes(errors, &container, context);
        } else {
            for key in [
                "lifecycle",
                "livenessProbe",
                "readinessProbe",
                "startupProbe",
            ] {
                if container.at(key).is_set() {
                    container.at(key).forbidden(errors, ONLY_SIDECARS);
                }
            }
            let did_restart = context.old.is_some_and(restarts_init_containers);
            for policy in container.at("resizePolicy").items() {
                let restart = policy.at("restartPolicy");
                if restart.text() == "RestartContainer" && !did_restart {
                    restart.invalid(
                        errors,
                        "must not be set to 'RestartContainer' for non-sidecar initContainers",
                    );
                }
            }
        }
    }
}

fn restarts_init_containers(spec: &Object) -> bool {
    let containers = list(spec, "initContainers")
        .iter()
        .filter_map(Value::as_object);
    containers
        .filter(|container| text(container, "restartPolicy") != "Always")
        .flat_map(|container| list(container, "resizePolicy"))
        .any(|policy| policy["restartPolicy"] == "RestartContainer")
}

pub(super) fn ephemeral_containers(errors: &mut FieldErrors, context: &Context<'_, '_, '_>) {
    /// The fields that are forbidden in ephemeral containers, in struct order.
    const OTHERS: [&str; 9] = [
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ];
    const CANNOT: &str = "cannot be set for an Ephemeral Container";
    let named = |key| {
        context
            .spec
            .at(key)
            .items()
            .map(|container| container.at("name").text())
            .collect::<Vec<_>>()
    };
    let others: BTreeSet<&str> = named("containers")
        .into_iter()
        .chain(named("initContainers"))
        .collect();
    let mut names = others.clone();
    for container in context.spec.at("ephemeralContainers").items() {
        common(errors, &container, context);
        let image = container.at("image");
        if image.text().trim().len() != image.text().len() {
            image.invalid(errors, "must not have leading or trailing whitespace");
        }
        let name = container.at("name");
        if !names.insert(name.text()) {
            name.duplicate(errors);
        }
        let target = container.at("targetContainerName");
        if !target.is_empty() && !others.contains(target.text()) {
            target.not_found(errors, "");
        }
        for key in OTHERS {
            let member = container.at(key);
            let is_set = match member.value {
                None => false,
                Some(Value::Object(members)) => key != "resources" || !members.is_empty(),
                // An empty list counts as set.
                Some(_) => true,
            };
            if is_set {
                member.forbidden(errors, CANNOT);
            }
        }
        for mount in container.at("volumeMounts").items() {
            for key in ["subPath", "subPathExpr"] {
                if !mount.at(key).is_empty() {
                    mount.at(key).forbidden(errors, CANNOT);
                }
            }
        }
    }
}

/// Validates the fields common to all containers.
fn common(errors: &mut FieldErrors, at: &At<'_, '_>, context: &Context<'_, '_, '_>) {
    at.at("name").check_required(errors, check_label);
    at.at("image").must_be_set(errors);
    at.at("terminationMessagePolicy")
        .one_of(errors, &["File", "FallbackToLogsOnError"]);
    ports(errors, &at.at("ports"));
    for variable in at.at("env").items() {
        environment(errors, &variable);
    }
    environment_from(errors, &at.at("envFrom"));
    mounts(errors, at, context);
    devices(errors, at, context);
    at.at("imagePullPolicy")
        .one_of(errors, &["Always", "IfNotPresent", "Never"]);
    requirements(
        errors,
        &at.at("resources"),
        container_resource_name,
        context.claims,
    );
    resize_policy(errors, &at.at("resizePolicy"), &context.spec);
    security::container_context(errors, &at.at("securityContext"), context.host_users);
}

fn ports(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let mut names = BTreeSet::new();
    for port in at.items() {
        let name = port.at("name");
        if !name.is_empty() {
            if !check_port_name(name.text()).is_empty() {
                name.check(errors, check_port_name);
            } else if !names.insert(name.text()) {
                name.duplicate(errors);
            }
        }
        let (own, host) = (port.at("containerPort"), port.at("hostPort"));
        if own.int() == 0 {
            own.required(errors);
        } else {
            own.within(errors, 1, 65535);
        }
        if host.int() != 0 {
            host.within(errors, 1, 65535);
        }
        port.at("protocol").one_of(errors, &PROTOCOLS);
    }
}

/// Validates a port number or name.
pub(in crate::builtin) fn port_or_name(errors: &mut FieldErrors, at: &At<'_, '_>) {
    match at.value {
        Some(Value::String(_)) => at.check(errors, check_port_name),
        _ => at.within(errors, 1, 65535),
    }
}

fn environment(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const FIELDS: [&str; 9] = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    at.at("name").check_required(errors, check_environment_name);
    let from = at.at("valueFrom");
    if !from.is_set() {
        return;
    }
    let mut found = 0;
    for key in [
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fileKeyRef",
    ] {
        let source = from.at(key);
        if !source.is_set() {
            continue;
        }
        found += 1;
        match key {
            "fieldRef" => field_reference(errors, &source, &FIELDS),
            "resourceFieldRef" => resource_reference(errors, &source, false),
            "fileKeyRef" => {
                source
                    .at("key")
                    .check_required(errors, check_environment_name);
                source.at("volumeName").check_required(errors, check_label);
                if source.at("path").is_empty() {
                    source.at("path").required(errors);
                } else {
                    no_backsteps(errors, &source.at("path"));
                }
            }
            _ => {
                source.at("name").check(errors, check_subdomain);
                source.at("key").check_required(errors, check_config_key);
            }
        }
    }
    let detail = if found == 0 {
        "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
         `fileKeyRef`"
    } else if !at.at("value").is_empty() {
        "may not be specified when `value` is not empty"
    } else if found > 1 {
        "may not have more than one field specified at a time"
    } else {
        return;
    };
    from.invalid_as(errors, Shown::Text(""), detail);
}

fn environment_from(errors: &mut FieldErrors, at: &At<'_, '_>) {
    for source in at.items() {
        source
            .at("prefix")
            .check_set(errors, check_environment_name);
        let mut found = 0;
        for key in ["configMapRef", "secretRef"] {
            let reference = source.at(key);
            if reference.is_set() {
                found += 1;
                reference
                    .at("name")
                    .check_required(errors, check_subdomain_prefix);
            }
        }
        let detail = match found {
            0 => "must specify one of: `configMapRef` or `secretRef`",
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        at.invalid_as(errors, Shown::Text(""), detail);
    }
}

fn mounts(errors: &mut FieldErrors, container: &At<'_, '_>, context: &Context<'_, '_, '_>) {
    let all = container.at("volumeMounts");
    let devices = container.at("volumeDevices");
    let mut points = BTreeSet::new();
    for mount in all.items() {
        let (name, point) = (mount.at("name"), mount.at("mountPath"));
        name.must_be_set(errors);
        if !context.volumes.contains_key(name.text()) {
            name.not_found(errors, "");
        }
        point.must_be_set(errors);
        if !points.insert(point.text()) {
            point.invalid(errors, "must be unique");
        }
        if devices
            .items()
            .any(|device| device.at("name").text() == name.text())
        {
            name.invalid(errors, "must not already exist in volumeDevices");
        }
        if devices
            .items()
            .any(|device| device.at("devicePath").text() == point.text())
        {
            point.invalid(errors, "must not already exist as a path in volumeDevices");
        }
        // Upstream omits the index from these paths.
        let bare = At::new(all.path, mount.value);
        let (sub, expression) = (bare.at("subPath"), bare.at("subPathExpr"));
        if !sub.is_empty() {
            descending(errors, &sub);
        }
        if !expression.is_empty() {
            if !sub.is_empty() {
                mount
                    .at("subPathExpr")
                    .invalid(errors, "subPathExpr and subPath are mutually exclusive");
            }
            descending(errors, &expression);
        }
        propagation(errors, &bare, container);
    }
}

fn propagation(errors: &mut FieldErrors, mount: &At<'_, '_>, container: &At<'_, '_>) {
    let mode = mount.at("mountPropagation");
    mode.known_if_set(errors, &["Bidirectional", "HostToContainer", "None"]);
    let privileged = container.at("securityContext").at("privileged").flag();
    if mode.text() == "Bidirectional" && !privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        mode.forbidden(errors, detail);
    }
    let recursive = mount.at("recursiveReadOnly");
    match recursive.text() {
        _ if !recursive.is_set() => {}
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.at("readOnly").flag() {
                recursive.forbidden(errors, "may only be specified when readOnly is true");
            }
            if !matches!(mode.text(), "" | "None") {
                let detail = "may only be specified when mountPropagation is None or not specified";
                recursive.forbidden(errors, detail);
            }
        }
        _ => recursive.not_supported(errors, &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn devices(errors: &mut FieldErrors, container: &At<'_, '_>, context: &Context<'_, '_, '_>) {
    let mounts = container.at("volumeMounts");
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for device in container.at("volumeDevices").items() {
        let (name, path) = (device.at("name"), device.at("devicePath"));
        let volume = context.volumes.get(name.text());
        name.must_be_set(errors);
        if names.contains(name.text()) {
            name.invalid(errors, "must be unique");
        }
        match volume {
            Some(volume) if !is_claim(volume) => name.invalid(
                errors,
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            ),
            Some(_) => {}
            None => name.not_found(errors, ""),
        }
        path.must_be_set(errors);
        if paths.contains(path.text()) {
            path.invalid(errors, "must be unique");
        }
        if has_backsteps(path.text()) {
            path.invalid(errors, "can not contain backsteps ('..')");
        } else {
            paths.insert(path.text());
        }
        if mounts
            .items()
            .any(|mount| mount.at("name").text() == name.text())
        {
            name.invalid(errors, "must not already exist in volumeMounts");
        }
        if mounts
            .items()
            .any(|mount| mount.at("mountPath").text() == path.text())
        {
            path.invalid(errors, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names.insert(name.text());
        }
    }
}

fn resize_policy(errors: &mut FieldErrors, at: &At<'_, '_>, spec: &At<'_, '_>) {
    let mut seen = BTreeSet::new();
    for policy in at.items() {
        let (resource, restart) = (policy.at("resourceName"), policy.at("restartPolicy"));
        if !seen.insert(resource.text()) {
            policy.duplicate_as(errors, Shown::Named(resource.text()));
        }
        // Upstream omits the index from these paths.
        for (value, set) in [
            (resource, ["cpu", "memory"]),
            (restart, ["NotRequired", "RestartContainer"]),
        ] {
            At::new(at.path, value.value).one_of(errors, &set);
        }
        if spec.at("restartPolicy").text() == "Never" && restart.text() != "NotRequired" {
            at.invalid_as(
                errors,
                Shown::Named(restart.text()),
                "must be 'NotRequired' when pod `restartPolicy` is 'Never'",
            );
        }
    }
}

fn restart_policy(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const RULES: usize = 20;
    const EXIT_CODES: usize = 255;
    let (policy, rules) = (at.at("restartPolicy"), at.at("restartPolicyRules"));
    if policy.is_set() {
        policy.known(errors, &["Always", "Never", "OnFailure"]);
    } else if rules.is_empty() {
        return;
    } else {
        let detail = "must specify restartPolicy when restart rules are used";
        policy.required_because(errors, detail);
    }
    if rules.len() > RULES {
        rules.too_many(errors, RULES);
    }
    for rule in rules.items() {
        rule.at("action")
            .known(errors, &["Restart", "RestartAllContainers"]);
        let codes = rule.at("exitCodes");
        if codes.is_set() {
            codes.at("operator").known(errors, &["In", "NotIn"]);
            if codes.at("values").len() > EXIT_CODES {
                codes.at("values").too_many(errors, EXIT_CODES);
            }
        } else {
            codes.required_because(errors, "must be specified");
        }
    }
}

fn host_port_conflicts<'s, 'v: 's>(
    errors: &mut FieldErrors,
    containers: impl Iterator<Item = At<'s, 'v>>,
    seen: &mut BTreeSet<String>,
) {
    for container in containers {
        for port in container.at("ports").items() {
            let host = port.at("hostPort");
            if host.int() == 0 {
                continue;
            }
            let (protocol, ip) = (port.at("protocol").text(), port.at("hostIP").text());
            let key = format!("{protocol}/{ip}/{}", host.int());
            if !seen.insert(key.clone()) {
                host.duplicate_as(errors, Shown::Text(&key));
            }
        }
    }
}

fn lifecycle_and_probes(errors: &mut FieldErrors, at: &At<'_, '_>, context: &Context<'_, '_, '_>) {
    let grace = context.spec.at("terminationGracePeriodSeconds");
    let grace = grace.is_set().then(|| grace.int());
    let lifecycle = at.at("lifecycle");
    for key in ["postStart", "preStop"] {
        let hook = lifecycle.at(key);
        if hook.is_set() {
            let kinds = ["exec", "httpGet", "tcpSocket", "sleep"];
            handler(errors, &hook, &kinds, grace);
        }
    }
    if lifecycle.at("stopSignal").is_set() {
        stop_signal(errors, &lifecycle.at("stopSignal"), &context.spec.at("os"));
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = at.at(key);
        if !probe.is_set() {
            continue;
        }
        handler(
            errors,
            &probe,
            &["exec", "httpGet", "tcpSocket", "grpc"],
            None,
        );
        for member in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            probe.at(member).non_negative(errors);
        }
        let own_grace = probe.at("terminationGracePeriodSeconds");
        if own_grace.is_set() && own_grace.int() <= 0 {
            own_grace.invalid_int(errors, "must be greater than 0");
        }
        if key == "readinessProbe" {
            if own_grace.is_set() {
                own_grace.invalid_int(errors, "must not be set for readinessProbes");
            }
        } else if probe.at("successThreshold").int() != 1 {
            probe
                .at("successThreshold")
                .invalid_int(errors, "must be 1");
        }
    }
}

fn handler(errors: &mut FieldErrors, at: &At<'_, '_>, kinds: &[&str], grace: Option<i64>) {
    let mut found = false;
    for key in kinds {
        let action = at.at(key);
        if !action.is_set() {
            continue;
        }
        if found {
            action.forbidden(errors, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match *key {
            "exec" => action.at("command").must_be_set(errors),
            "httpGet" => http_get(errors, &action),
            "tcpSocket" | "grpc" => port_or_name(errors, &action.at("port")),
            _ => {
                let seconds = action.at("seconds").int();
                if let Some(grace) = grace
                    && !(0..=grace).contains(&seconds)
                {
                    let detail = format!(
                        "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                    );
                    action.invalid_as(errors, Shown::Integer(seconds), detail);
                }
            }
        }
    }
    if !found {
        at.required_because(errors, "must specify a handler type");
    }
}

fn http_get(errors: &mut FieldErrors, at: &At<'_, '_>) {
    at.at("path").must_be_set(errors);
    port_or_name(errors, &at.at("port"));
    at.at("scheme").known(errors, &["HTTP", "HTTPS"]);
    let headers = at.at("httpHeaders");
    for header in headers.items() {
        let name = header.at("name").text();
        for message in check_header_name(name) {
            headers.invalid_as(errors, Shown::Text(name), message);
        }
    }
}

fn stop_signal(errors: &mut FieldErrors, at: &At<'_, '_>, os: &At<'_, '_>) {
    const LINUX: [&str; 65] = [
        "SIGABRT",
        "SIGALRM",
        "SIGBUS",
        "SIGCHLD",
        "SIGCLD",
        "SIGCONT",
        "SIGFPE",
        "SIGHUP",
        "SIGILL",
        "SIGINT",
        "SIGIO",
        "SIGIOT",
        "SIGKILL",
        "SIGPIPE",
        "SIGPOLL",
        "SIGPROF",
        "SIGPWR",
        "SIGQUIT",
        "SIGRTMAX",
        "SIGRTMAX-1",
        "SIGRTMAX-10",
        "SIGRTMAX-11",
        "SIGRTMAX-12",
        "SIGRTMAX-13",
        "SIGRTMAX-14",
        "SIGRTMAX-2",
        "SIGRTMAX-3",
        "SIGRTMAX-4",
        "SIGRTMAX-5",
        "SIGRTMAX-6",
        "SIGRTMAX-7",
        "SIGRTMAX-8",
        "SIGRTMAX-9",
        "SIGRTMIN",
        "SIGRTMIN+1",
        "SIGRTMIN+10",
        "SIGRTMIN+11",
        "SIGRTMIN+12",
        "SIGRTMIN+13",
        "SIGRTMIN+14",
        "SIGRTMIN+15",
        "SIGRTMIN+2",
        "SIGRTMIN+3",
        "SIGRTMIN+4",
        "SIGRTMIN+5",
        "SIGRTMIN+6",
        "SIGRTMIN+7",
        "SIGRTMIN+8",
        "SIGRTMIN+9",
        "SIGSEGV",
        "SIGSTKFLT",
        "SIGSTOP",
        "SIGSYS",
        "SIGTERM",
        "SIGTRAP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGUSR1",
        "SIGUSR2",
        "SIGVTALRM",
        "SIGWINCH",
        "SIGXCPU",
        "SIGXFSZ",
    ];
    match os.at("name").text() {
        _ if !os.is_set() => {
            let detail = "may not be set for containers with empty `spec.os.name`";
            at.forbidden(errors, detail);
        }
        "windows" => at.known(errors, &["SIGKILL", "SIGTERM"]),
        "linux" => at.known(errors, &LINUX),
        _ => {}
    }
}

/// Validates the requests and limits of a container or a Pod.
fn requirements(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    name_check: fn(&mut FieldErrors, &At<'_, '_>, &str),
    claims: &BTreeSet<&str>,
) {
    let (limits, requests) = (at.at("limits"), at.at("requests"));
    let (mut has_compute, mut has_huge_pages) = (false, false);
    for (is_request, list_at) in [(false, limits), (true, requests)] {
        for (name, amount) in list_at.entries() {
            name_check(errors, &amount, name);
            quantity_value(errors, &amount, name);
            let Some(quantity) = amount.quantity() else {
                continue;
            };
            if is_request {
                match limits.entry(name).quantity() {
                    Some(limit) => {
                        let order = quantity.compare(&limit);
                        let rule = if order.is_ne() && !overcommits(name) {
                            "equal to"
                        } else if order.is_gt() {
                            "less than or equal to"
                        } else {
                            ""
                        };
                        if !rule.is_empty() {
                            requests.invalid_as(
                                errors,
                                Shown::Text(&quantity.to_string()),
                                format!("must be {rule} {name} limit of {limit}"),
                            );
                        }
                    }
                    None if !overcommits(name) => limits.required_because(
                        errors,
                        "Limit must be set for non overcommitable resources",
                    ),
                    None => {}
                }
            }
            if is_huge_page(name) {
                has_huge_pages = true;
                if !is_multiple(name, &quantity) {
                    amount.invalid_as(
                        errors,
                        Shown::Text(&quantity.to_string()),
                        format!("{quantity} is not positive integer multiple of {name}"),
                    );
                }
            }
            has_compute |= matches!(name, "cpu" | "memory");
        }
    }
    if !has_compute && has_huge_pages {
        at.forbidden(errors, "HugePages require cpu or memory");
    }
    claim_names(errors, &at.at("claims"), claims);
}

/// Returns true if a quantity of huge pages is a multiple of the page size.
fn is_multiple(name: &str, quantity: &Quantity) -> bool {
    let size = name.strip_prefix("hugepages-").unwrap_or_default();
    let size = Quantity::parse(size).ok().filter(Quantity::is_integer);
    match size.and_then(|size| size.as_integer().ok()) {
        Some(size) if size > 0 => quantity.rounded_up(0) % size == 0,
        _ => false,
    }
}

fn claim_names(errors: &mut FieldErrors, at: &At<'_, '_>, known: &BTreeSet<&str>) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for claim in at.items() {
        let (name, request) = (claim.at("name").text(), claim.at("request"));
        if name.is_empty() {
            claim.required(errors);
            continue;
        }
        if seen.contains(name) {
            claim.duplicate_as(errors, Shown::Text(name));
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                request.check(errors, check_label);
                key = format!("{name}/{}", request.text());
            }
            if seen.contains(&key) {
                claim.duplicate_as(errors, Shown::Text(&key));
            } else if request.is_empty() {
                for other in &seen {
                    if other
                        .split_once('/')
                        .is_some_and(|(first, _)| first == name)
                    {
                        claim.duplicate_as(errors, Shown::Text(name));
                    }
                }
            }
            seen.insert(key);
        }
        if !known.contains(name) {
            let mut detail = String::from("must be one of the names in pod.spec.resourceClaims");
            if known.is_empty() {
                detail.push_str(" which is empty");
            } else {
                let names: Vec<&str> = known.iter().copied().collect();
                detail.push_str(&format!(": {}", names.join(", ")));
            }
            At::new(claim.path, claim.at("name").value).not_found(errors, detail);
        }
    }
}

/// Validates the overhead of a RuntimeClass, like limits.
pub(in crate::builtin) fn overhead(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let limits = at.at("limits");
    let mut has_compute = false;
    let mut has_huge_pages = false;
    let values = At::new(limits.path, at.value);
    for (name, amount) in values.entries() {
        container_resource_name(errors, &amount, name);
        quantity_value(errors, &amount, name);
        has_compute |= matches!(name, "cpu" | "memory");
        if is_huge_page(name) {
            has_huge_pages = true;
            if let Some(quantity) = amount.quantity().filter(|own| !is_multiple(name, own)) {
                amount.invalid_as(
                    errors,
                    Shown::Text(&quantity.to_string()),
                    format!("{quantity} is not positive integer multiple of {name}"),
                );
            }
        }
    }
    if !has_compute && has_huge_pages {
        at.forbidden(errors, "HugePages require cpu or memory");
    }
}

fn pod_resource_name(errors: &mut FieldErrors, at: &At<'_, '_>, name: &str) {
    let before = errors.len();
    resource_name(errors, at, name);
    if errors.len() == before && !matches!(name, "cpu" | "memory") && !is_huge_page(name) {
        errors.push(FieldError::not_supported(
            &at.path,
            Shown::Named(name),
            &["cpu", "hugepages-", "memory"],
        ));
    }
}

/// Validates pod-level resources.
pub(super) fn pod_resources(
    errors: &mut FieldErrors,
    spec: &Spec<'_, '_, '_>,
    claims: &BTreeSet<&str>,
) {
    let at = spec.at.at("resources");
    if !at.is_set() {
        return;
    }
    if spec.at.at("os").at("name").text() == "windows" {
        return at.forbidden(errors, "may not be set for a windows pod");
    }
    if at.at("claims").is_set() {
        let detail = "claims may not be set for Resources at pod-level";
        at.at("claims").forbidden(errors, detail);
    }
    requirements(errors, &at, pod_resource_name, claims);
    let Some(object) = spec.at.object() else {
        return;
    };
    for what in ["requests", "limits"] {
        let own = at.at(what);
        for (name, total) in aggregate(object, what) {
            if what == "limits" && !is_huge_page(&name) {
                continue;
            }
            let amount = own.entry(&name);
            if let Some(quantity) = amount.quantity().filter(|own| total.compare(own).is_gt()) {
                let detail = format!(
                    "must be greater than or equal to aggregate container {what} of {total}"
                );
                amount.invalid_as(errors, Shown::Text(&quantity.to_string()), detail);
            }
        }
    }
    let of_containers = at.at("containers");
    for (index, container) in spec.at.at("containers").items().enumerate() {
        for (name, amount) in container.at("resources").at("limits").entries() {
            let limits = at.at("limits");
            let (Some(own), Some(limit)) = (amount.quantity(), limits.entry(name).quantity())
            else {
                continue;
            };
            if own.compare(&limit).is_gt() {
                let path = of_containers.path.index(index);
                let path = path.key(name);
                At::new(path.child("limits"), None).invalid_as(
                    errors,
                    Shown::Text(&own.to_string()),
                    format!("must be less than or equal to pod limits of {limit}"),
                );
            }
        }
    }
}

/// Validates `fileKeyRef`: its volume must be an emptyDir.
pub(super) fn file_references(errors: &mut FieldErrors, spec: &At<'_, '_>) {
    for key in super::CONTAINER_LISTS {
        for container in spec.at(key).items() {
            for variable in container.at("env").items() {
                let from = variable.at("valueFrom");
                let reference = from.at("fileKeyRef");
                if !reference.is_set() {
                    continue;
                }
                let name = reference.at("volumeName");
                let volumes = spec.at("volumes");
                let volume = volumes
                    .list()
                    .iter()
                    .rfind(|volume| volume["name"].as_str().unwrap_or_default() == name.text());
                match volume.and_then(Value::as_object) {
                    None => name.not_found(errors, ""),
                    Some(volume) if get(volume, "emptyDir").is_none() => {
                        name.invalid(errors, "referenced volume must be of type emptyDir");
                    }
                    Some(_) => {}
                }
            }
        }
    }
}
