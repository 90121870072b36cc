//! Ingresses and IngressClasses.

use crate::builtin::core::service::balancers;
use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::checks::{
    check_label, check_port_name, invalid_each, invalid_json, port_number, required,
};
use crate::kind::{CHANGE, Context, Kind, Resource, SPEC, Written, cluster, namespaced, sub};
use crate::object::{Object, at_mut, fill, get, has, is_empty, list, number, text, with};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::names::check_subdomain;
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
    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        ingress(errors, new.object());
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

fn ingress(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    if is_empty(spec, "rules") && !has(spec, "defaultBackend") {
        let detail = "either `defaultBackend` or `rules` must be specified";
        invalid_json(errors, &path, spec.get("rules"), detail);
    }
    if let Some(default) = get(spec, "defaultBackend") {
        backend(errors, default, &path.child("defaultBackend"));
    }
    let rules = path.child("rules");
    for (index, rule) in list(spec, "rules")
        .iter()
        .filter_map(Value::as_object)
        .enumerate()
    {
        ingress_rule(errors, rule, &rules.index(index));
    }
    let class = text(spec, "ingressClassName");
    if has(spec, "ingressClassName") {
        invalid_each(
            errors,
            &path.child("ingressClassName"),
            class,
            check_subdomain(class),
        );
    }
}

fn ingress_rule(errors: &mut FieldErrors, rule: &Object, path: &Path<'_>) {
    let host = text(rule, "host");
    if !host.is_empty() && !host.contains('*') {
        invalid_each(errors, &path.child("host"), host, check_subdomain(host));
    }
    let Some(http) = get(rule, "http") else {
        return;
    };
    let http_path = path.child("http");
    let paths = http_path.child("paths");
    if is_empty(http, "paths") {
        required(errors, &paths);
    }
    for (index, entry) in list(http, "paths")
        .iter()
        .filter_map(Value::as_object)
        .enumerate()
    {
        let path = paths.index(index);
        if !has(entry, "pathType") {
            errors.push(FieldError::required(
                &path.child("pathType"),
                "pathType must be specified",
            ));
            continue;
        }
        let (kind, own) = (text(entry, "pathType"), text(entry, "path"));
        let is_known = matches!(kind, "Exact" | "Prefix" | "ImplementationSpecific");
        let may_be_empty = kind == "ImplementationSpecific" && own.is_empty();
        if !is_known {
            let set = &["Exact", "ImplementationSpecific", "Prefix"];
            let shown = Shown::Named(kind);
            errors.push(FieldError::not_supported(
                &path.child("pathType"),
                shown,
                set,
            ));
        } else if !own.starts_with('/') && !may_be_empty {
            errors.push(FieldError::invalid(
                &path.child("path"),
                Shown::Text(own),
                "must be an absolute path",
            ));
        }
        let empty = Object::new();
        let target = get(entry, "backend").unwrap_or(&empty);
        backend(errors, target, &path.child("backend"));
    }
}

fn backend(errors: &mut FieldErrors, backend: &Object, path: &Path<'_>) {
    let mut invalid = |detail: &str| {
        errors.push(FieldError::invalid(path, Shown::Text(""), detail));
    };
    let service = match (get(backend, "resource"), get(backend, "service")) {
        (Some(_), Some(_)) => return invalid("cannot set both resource and service backends"),
        (Some(_), None) => return,
        (None, None) => return invalid("resource or service backend is required"),
        (None, Some(service)) => service,
    };
    let service_path = path.child("service");
    let name = text(service, "name");
    if name.is_empty() {
        required(errors, &service_path.child("name"));
    } else {
        invalid_each(errors, &service_path.child("name"), name, check_label(name));
    }
    let empty = Object::new();
    let port = get(service, "port").unwrap_or(&empty);
    let port_path = service_path.child("port");
    match (text(port, "name"), number(port, "number")) {
        ("", 0) => errors.push(FieldError::required(
            path,
            "port name or number is required",
        )),
        ("", own) => port_number(errors, own, &port_path.child("number")),
        (name, 0) => invalid_each(
            errors,
            &port_path.child("name"),
            name,
            check_port_name(name),
        ),
        _ => errors.push(FieldError::invalid(
            path,
            Shown::Text(""),
            "cannot set both port name & port number",
        )),
    }
}

/// The number of items shown before the count of the rest.
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

/// The hosts of an ingress. How many more there are counts rules, with a host or without.
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
    let annotation = "/metadata/annotations/ingressclass.kubernetes.io~1is-default-class";
    Row::of(vec![
        cell(read::with_default(
            common.name,
            read::text(object, annotation) == "true",
        )),
        cell(read::text(object, "/spec/controller")),
        cell(parameters),
        cell(common.age.as_str()),
    ])
}
