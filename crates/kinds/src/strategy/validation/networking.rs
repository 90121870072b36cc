//! Ingresses, network policies, budgets and autoscalers.

use serde_json::Value;

use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::label_selector::{ExpressionValues, LabelSelector};
use lockgate_api::meta::names::{check_path_segment, check_subdomain};

use crate::defaults::object::{Object, get, has, is_empty, list, number, text};

use super::super::names::check_label;
use super::common::{check_port_name, invalid_each, invalid_json, port_number, required, wire};

pub(super) fn ingress(errors: &mut FieldErrors, object: &Object) {
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

pub(super) fn network_policy(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    let selector: LabelSelector = spec.get("podSelector").map(wire).unwrap_or_default();
    errors.extend(selector.validate(ExpressionValues::Checked, &path.child("podSelector")));
    for direction in ["ingress", "egress"] {
        let rules = path.child(direction);
        for (index, rule) in list(spec, direction)
            .iter()
            .filter_map(Value::as_object)
            .enumerate()
        {
            let rule_path = rules.index(index);
            let ports = rule_path.child("ports");
            for (index, port) in list(rule, "ports")
                .iter()
                .filter_map(Value::as_object)
                .enumerate()
            {
                policy_port(errors, port, &ports.index(index));
            }
        }
    }
    let types = path.child("policyTypes");
    for (index, kind) in list(spec, "policyTypes")
        .iter()
        .filter_map(Value::as_str)
        .enumerate()
    {
        if !matches!(kind, "Ingress" | "Egress") {
            let set = &["Ingress", "Egress"];
            errors.push(FieldError::not_supported(
                &types.index(index),
                Shown::Named(kind),
                set,
            ));
        }
    }
}

fn policy_port(errors: &mut FieldErrors, port: &Object, path: &Path<'_>) {
    let protocol = text(port, "protocol");
    if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
        let set = &["TCP", "UDP", "SCTP"];
        let shown = Shown::Named(protocol);
        errors.push(FieldError::not_supported(
            &path.child("protocol"),
            shown,
            set,
        ));
    }
    let end = number(port, "endPort");
    let end_path = path.child("endPort");
    let has_end = has(port, "endPort");
    match port.get("port") {
        Some(Value::Number(own)) => {
            let own = own.as_i64().unwrap_or_default();
            port_number(errors, own, &path.child("port"));
            if has_end && end < own {
                let detail = "must be greater than or equal to `port`";
                errors.push(FieldError::invalid(&end_path, Shown::Integer(own), detail));
            }
            if has_end {
                port_number(errors, end, &end_path);
            }
        }
        Some(Value::String(name)) => {
            if has_end {
                let detail = "may not be specified when `port` is non-numeric";
                errors.push(FieldError::invalid(&end_path, Shown::Integer(end), detail));
            }
            invalid_each(errors, &path.child("port"), name, check_port_name(name));
        }
        _ if has_end => {
            let detail = "may not be specified when `port` is not specified";
            errors.push(FieldError::invalid(&end_path, Shown::Integer(end), detail));
        }
        _ => {}
    }
}

pub(super) fn disruption_budget(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    for key in ["minAvailable", "maxUnavailable"] {
        let value = spec.get(key).and_then(Value::as_i64).unwrap_or_default();
        if value < 0 {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(
                &path.child(key),
                Shown::Integer(value),
                detail,
            ));
        }
    }
    let selector: LabelSelector = spec.get("selector").map(wire).unwrap_or_default();
    errors.extend(selector.validate(ExpressionValues::Checked, &path.child("selector")));
}

pub(super) fn autoscaler(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let old = old.and_then(|old| get(old, "spec"));
    let path = Path::root("spec");
    let (least, most) = (number(spec, "minReplicas"), number(spec, "maxReplicas"));
    let has_least = has(spec, "minReplicas");
    // An autoscaler that may scale to zero came from a server that allowed it.
    let had_zero =
        old.is_some_and(|old| has(old, "minReplicas") && number(old, "minReplicas") == 0);
    let bound = i64::from(!had_zero);
    if has_least && least < bound {
        errors.push(FieldError::invalid(
            &path.child("minReplicas"),
            Shown::Integer(least),
            format!("must be greater than or equal to {bound}"),
        ));
    }
    let most_path = path.child("maxReplicas");
    if most == 0 {
        errors.push(FieldError::required(
            &most_path,
            "must be set and greater than 0",
        ));
    } else if most < 0 {
        let detail = "must be greater than or equal to 1";
        errors.push(FieldError::invalid(
            &most_path,
            Shown::Integer(most),
            detail,
        ));
    }
    if has_least && most < least {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid(
            &most_path,
            Shown::Integer(most),
            detail,
        ));
    }
    scale_target(errors, spec, old, &path.child("scaleTargetRef"));
    let scales_from_zero = list(spec, "metrics")
        .iter()
        .any(|metric| metric["type"] == "Object" || metric["type"] == "External");
    if has_least && least == 0 && has(spec, "metrics") && !scales_from_zero {
        errors.push(FieldError::forbidden(
            &path.child("metrics"),
            "must specify at least one Object or External metric to support scaling to zero replicas",
        ));
    }
}

fn scale_target(errors: &mut FieldErrors, spec: &Object, old: Option<&Object>, path: &Path<'_>) {
    let empty = Object::new();
    let target = get(spec, "scaleTargetRef").unwrap_or(&empty);
    for key in ["kind", "name"] {
        match text(target, key) {
            "" => required(errors, &path.child(key)),
            value => invalid_each(errors, &path.child(key), value, check_path_segment(value)),
        }
    }
    let version = text(target, "apiVersion");
    let is_same = old
        .and_then(|old| get(old, "scaleTargetRef"))
        .is_some_and(|old| {
            text(old, "apiVersion") == version && text(old, "kind") == text(target, "kind")
        });
    if is_same {
        return;
    }
    let problem = match version.matches('/').count() {
        0 | 1 => {
            let has_group = version
                .split_once('/')
                .is_some_and(|(group, _)| !group.is_empty());
            // The core group has one kind that scales.
            let may_lack_group = text(target, "kind") == "ReplicationController";
            (!has_group && !may_lack_group)
                .then(|| String::from("apiVersion must specify API group"))
        }
        _ => Some(format!("unexpected GroupVersion string: {version}")),
    };
    if let Some(problem) = problem {
        errors.push(FieldError::invalid(
            &path.child("apiVersion"),
            Shown::Text(version),
            problem,
        ));
    }
}
