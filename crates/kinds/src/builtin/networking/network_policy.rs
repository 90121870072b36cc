//! NetworkPolicies.

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::checks::{check_port_name, invalid_each, port_number, wire};
use crate::kind::{Context, Kind, Resource, SPEC, Written, namespaced};
use crate::object::{Object, each, fill, get, get_mut, has, is_empty, list, number, text, with};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::label_selector::{ExpressionValues, LabelSelector};
use serde_json::{Value, json};

pub(super) const NETWORK_POLICIES: Resource = namespaced(
    "networking.k8s.io",
    "v1",
    "networkpolicies",
    "networkpolicy",
    "NetworkPolicy",
    "NetworkPolicyList",
    &NetworkPolicy,
)
.short(&["netpol"])
.generation(SPEC);

/// The kind `NetworkPolicy`.
#[derive(Debug)]
pub(super) struct NetworkPolicy;

impl Kind for NetworkPolicy {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        network_policy(errors, new.object());
    }

    fn columns(&self) -> &'static str {
        "Name|Pod-Selector|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        policy_row(object, common)
    }
}

fn defaults(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    if is_empty(spec, "policyTypes") {
        let types = if is_empty(spec, "egress") {
            json!(["Ingress"])
        } else {
            json!(["Ingress", "Egress"])
        };
        spec.insert("policyTypes".to_owned(), types);
    }
    for direction in ["ingress", "egress"] {
        each(spec, direction, |rule| {
            each(rule, "ports", |port| fill(port, "protocol", "TCP"));
        });
    }
}

fn network_policy(errors: &mut FieldErrors, object: &Object) {
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

fn policy_row(object: &Value, common: &Common<'_>) -> Row {
    Row::of(vec![
        cell(common.name),
        cell(read::shown_selector(object, "/spec/podSelector")),
        cell(common.age.as_str()),
    ])
}
