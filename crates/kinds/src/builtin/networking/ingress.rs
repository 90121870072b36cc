//! Ingresses and IngressClasses.

use crate::at::At;
use crate::builtin::batch::domain_prefixed_path;
use crate::builtin::core::service::{balancer_addresses, balancer_warnings, balancers};
use crate::cells::{Common, Row, cell, read};
use crate::checks::check_label;
use crate::checks::check_port_name;
use crate::checks::{check_wildcard_subdomain, parse_ip_sloppy};
use crate::kind::{CHANGE, Context, Kind, Resource, SPEC, Written, cluster, namespaced, sub};
use crate::object::{Object, at_mut, fill, get, list, with};
use crate::typed::member_type;
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::names::check_path_segment;
use lockgate_api::meta::names::check_subdomain;
use lockgate_go::json::to_string;
use serde_json::Value;

pub(super) const INGRESSES: Resource = namespaced(
    "networking.k8s.io",
    "v1",
    "ingresses",
    "ingress",
    "Ingress",
    "IngressList",
    &Ingress,
)
.in_etcd_as("ingress")
.short(&["ing"])
.subresources(&[sub("status", "networking.k8s.io", "v1", "Ingress", CHANGE)])
.generation(SPEC);

pub(super) const INGRESS_CLASSES: Resource = cluster(
    "networking.k8s.io",
    "v1",
    "ingressclasses",
    "ingressclass",
    "IngressClass",
    "IngressClassList",
    &IngressClass,
)
.generation(SPEC);

/// The kind `Ingress`.
#[derive(Debug)]
pub(super) struct Ingress;

impl Kind for Ingress {
    fn warnings_on_status_update(&self, new: &Written<'_>) -> Vec<String> {
        balancer_warnings(new.object())
    }

    fn validate_status(&self, errors: &mut FieldErrors, new: &Written<'_>, old: &Written<'_>) {
        let at = At::root(new.object(), "status");
        let balancer = at.at("loadBalancer");
        balancer_addresses(errors, &balancer.at("ingress"), old.object(), |_, _| {});
    }

    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        const CLASS: &str = "kubernetes.io/ingress.class";
        let metadata = At::root(new.object(), "metadata");
        if !metadata.at("annotations").entry(CLASS).is_set() {
            return Vec::new();
        }
        vec![format!(
            "annotation \"{CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"
        )]
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_metadata_update(new, old);
        match subresource {
            "" => {
                errors.extend(self.validate_metadata(new));
                self.validate(&mut errors, new, Some(old), context);
            }
            "status" => self.validate_status(&mut errors, new, old),
            _ => {}
        }
        errors
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        ingress(errors, new.object(), old.map(Written::object));
    }

    fn columns(&self) -> &'static str {
        "Name|Class|Hosts|Address|Ports|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        ingress_row(object, common)
    }
}

/// The kind `IngressClass`.
#[derive(Debug)]
pub(super) struct IngressClass;

impl Kind for IngressClass {
    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_metadata_update(new, old);
        let (spec, former) = (
            At::root(new.object(), "spec"),
            At::root(old.object(), "spec"),
        );
        let ty = member_type("networking.k8s.io", "IngressClass", &["spec", "controller"]);
        spec.at("controller")
            .immutable_typed(&mut errors, &former.at("controller"), ty);
        errors.extend(self.validate_create(new, context));
        errors
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        ingress_class(errors, new.object());
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, class_defaults);
    }

    fn columns(&self) -> &'static str {
        "Name|Controller|Parameters|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        class_row(object, common)
    }
}

fn class_defaults(object: &mut Object) {
    if let Some(parameters) = at_mut(object, &["spec", "parameters"]) {
        fill(parameters, "scope", "Cluster");
    }
}

/// The maximum number of printed items.
const SHOWN: usize = 3;

fn ingress_row(object: &Value, common: &Common<'_>) -> Row {
    let class = match object.pointer("/spec/ingressClassName") {
        Some(Value::String(class)) => class.as_str(),
        _ => "<none>",
    };
    let ports = if read::items(object, "/spec/tls").is_empty() {
        "80"
    } else {
        "80, 443"
    };
    Row::of(vec![
        cell(common.name),
        cell(class),
        cell(hosts(object)),
        cell(balancers(object)),
        cell(ports),
        cell(common.age.as_str()),
    ])
}

/// The hosts of an Ingress. The number of remaining items counts all rules, with or without a host.
fn hosts(object: &Value) -> String {
    let rules = read::items(object, "/spec/rules");
    let mut shown: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules {
        more |= shown.len() == SHOWN;
        let host = read::text(rule, "/host");
        if !more && !host.is_empty() {
            shown.push(host);
        }
    }
    match (shown.join(","), more) {
        (hosts, _) if hosts.is_empty() => String::from("*"),
        (hosts, false) => hosts,
        (hosts, true) => format!("{hosts} + {} more...", rules.len().saturating_sub(SHOWN)),
    }
}

fn class_row(object: &Value, common: &Common<'_>) -> Row {
    let parameters = match object.pointer("/spec/parameters") {
        Some(parameters) if parameters.is_object() => {
            let group = match parameters.get("apiGroup") {
                Some(Value::String(group)) => format!(".{group}"),
                _ => String::new(),
            };
            let (kind, name) = (
                read::text(parameters, "/kind"),
                read::text(parameters, "/name"),
            );
            format!("{kind}{group}/{name}")
        }
        _ => String::from("<none>"),
    };
    Row::of(vec![
        cell(read::with_default(
            common.name,
            read::annotation(object, "ingressclass.kubernetes.io/is-default-class") == "true",
        )),
        cell(read::text(object, "/spec/controller")),
        cell(parameters),
        cell(common.age.as_str()),
    ])
}

fn ingress(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    const CLASS: &str = "kubernetes.io/ingress.class";
    let at = At::root(object, "spec");
    let old_spec = old.and_then(|old| get(old, "spec"));
    if at.at("rules").is_empty() && !at.at("defaultBackend").is_set() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        let shown = at
            .at("rules")
            .value
            .map_or_else(|| String::from("null"), to_string);
        at.invalid_as(errors, Shown::Rendered(&shown), detail);
    }
    if at.at("defaultBackend").is_set() {
        backend(errors, &at.at("defaultBackend"));
    }
    let had_invalid_wildcard = old_spec.is_some_and(|old| {
        let mut found = FieldErrors::new();
        for rule in At::root(old, "rules").items() {
            if rule.at("host").text().contains('*') && rule.at("http").is_set() {
                http_rule(&mut found, &rule.at("http"));
            }
        }
        !found.is_empty()
    });
    for rule in at.at("rules").items() {
        let host = rule.at("host");
        let is_wildcard = host.text().contains('*');
        if !host.is_empty() {
            if parse_ip_sloppy(host.text()).is_some() {
                host.invalid(errors, "must be a DNS name, not an IP address");
            }
            if is_wildcard {
                host.check(errors, check_wildcard_subdomain);
            } else {
                host.check(errors, check_subdomain);
            }
        }
        if rule.at("http").is_set() && !(is_wildcard && had_invalid_wildcard) {
            http_rule(errors, &rule.at("http"));
        }
    }
    let had_invalid_secret = old_spec.is_some_and(|old| {
        list(old, "tls").iter().any(|tls| {
            let name = tls["secretName"].as_str().unwrap_or_default();
            !name.is_empty() && !check_subdomain(name).is_empty()
        })
    });
    for tls in at.at("tls").items() {
        for host in tls.at("hosts").items() {
            if host.text().contains('*') {
                host.check(errors, check_wildcard_subdomain);
            } else {
                host.check(errors, check_subdomain);
            }
        }
        if !had_invalid_secret {
            tls.at("secretName").check_set(errors, check_subdomain);
        }
    }
    let class = at.at("ingressClassName");
    if class.is_set() {
        class.check(errors, check_subdomain);
    }
    let noted = get(object, "metadata")
        .and_then(|metadata| get(metadata, "annotations"))
        .and_then(|annotations| annotations.get(CLASS)?.as_str());
    if let (None, Some(noted), true) = (old, noted, class.is_set())
        && noted != class.text()
    {
        let annotations = Path::root("annotations");
        errors.push(FieldError::invalid(
            &annotations.child(CLASS),
            Shown::Text(noted),
            "must match `ingressClassName` when both are specified",
        ));
    }
}

fn http_rule(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let paths = at.at("paths");
    paths.must_be_set(errors);
    for entry in paths.items() {
        let (kind, path) = (entry.at("pathType"), entry.at("path"));
        if !kind.is_set() {
            kind.required_because(errors, "pathType must be specified");
            continue;
        }
        match kind.text() {
            "Exact" | "Prefix" => {
                if !path.text().starts_with('/') {
                    path.invalid(errors, "must be an absolute path");
                }
                for bad in ["//", "/./", "/../", "%2f", "%2F"] {
                    if path.text().contains(bad) {
                        path.invalid(errors, format!("must not contain '{bad}'"));
                    }
                }
                for bad in ["/..", "/."] {
                    if path.text().ends_with(bad) {
                        path.invalid(errors, format!("cannot end with '{bad}'"));
                    }
                }
            }
            "ImplementationSpecific" => {
                if !path.is_empty() && !path.text().starts_with('/') {
                    path.invalid(errors, "must be an absolute path");
                }
            }
            _ => kind.not_supported(errors, &["Exact", "ImplementationSpecific", "Prefix"]),
        }
        backend(errors, &entry.at("backend"));
    }
}

fn backend(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let (resource, service) = (at.at("resource"), at.at("service"));
    let invalid = |errors: &mut FieldErrors, detail: &str| {
        at.invalid_as(errors, Shown::Text(""), detail);
    };
    match (resource.is_set(), service.is_set()) {
        (true, true) => {
            return invalid(errors, "cannot set both resource and service backends");
        }
        (true, false) => return reference(errors, &resource),
        (false, false) => return invalid(errors, "resource or service backend is required"),
        (false, true) => {}
    }
    service.at("name").check_required(errors, check_label);
    let port = service.at("port");
    let (name, number) = (port.at("name"), port.at("number"));
    match (name.is_empty(), number.int() == 0) {
        (false, false) => invalid(errors, "cannot set both port name & port number"),
        (false, true) => name.check(errors, check_port_name),
        (true, false) => number.within(errors, 1, 65535),
        (true, true) => at.required_because(errors, "port name or number is required"),
    }
}

/// Validates a reference by group, kind and name.
fn reference(errors: &mut FieldErrors, at: &At<'_, '_>) {
    if at.at("apiGroup").is_set() {
        at.at("apiGroup").check(errors, check_subdomain);
    }
    at.at("kind").check_required(errors, check_path_segment);
    at.at("name").check_required(errors, check_path_segment);
}

fn ingress_class(errors: &mut FieldErrors, object: &Object) {
    const CONTROLLER_MAX: usize = 250;
    let at = At::root(object, "spec");
    let controller = at.at("controller");
    if controller.text().len() > CONTROLLER_MAX {
        controller.too_long(errors, CONTROLLER_MAX);
    }
    domain_prefixed_path(errors, &controller);
    let parameters = at.at("parameters");
    if !parameters.is_set() {
        return;
    }
    reference(errors, &parameters);
    let (scope, namespace) = (parameters.at("scope"), parameters.at("namespace"));
    match scope.text() {
        _ if !scope.is_set() => scope.required(errors),
        "Namespace" => {
            if namespace.is_set() {
                namespace.check(errors, check_label);
            } else {
                let detail = "`parameters.scope` is set to 'Namespace'";
                namespace.required_because(errors, detail);
            }
        }
        "Cluster" => {
            if namespace.is_set() {
                namespace.forbidden(errors, "`parameters.scope` is set to 'Cluster'");
            }
        }
        _ => errors.push(FieldError::not_supported(
            &scope.path,
            Shown::Text(scope.text()),
            &["Cluster", "Namespace"],
        )),
    }
}
