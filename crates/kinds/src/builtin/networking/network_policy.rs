//! NetworkPolicies.

use crate::at::At;
use crate::cells::{Common, Row, cell, read};
use crate::checks::{check_legacy_cidr, check_port_name, masked, parse_cidr_sloppy};
use crate::kind::{Context, Generation, Kind, Resource, Written, namespaced};
use crate::object::{Object, each, fill, get_mut, is_empty, with};
use lockgate_api::field::{FieldErrors, Shown};
use lockgate_api::meta::label_selector::ExpressionValues;
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
.generation(Generation::Exact(&["spec"]));

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
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        network_policy(errors, new.object(), old.map(Written::object));
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

fn policy_row(object: &Value, common: &Common<'_>) -> Row {
    Row::of(vec![
        cell(common.name),
        cell(read::shown_selector(object, "/spec/podSelector")),
        cell(common.age.as_str()),
    ])
}

fn network_policy(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let at = At::root(object, "spec");
    let selector_was_invalid = old.is_some_and(|old| {
        let mut found = FieldErrors::new();
        let spec = At::root(old, "spec");
        spec.at("podSelector").label_selector(&mut found);
        !found.is_empty()
    });
    let values = if selector_was_invalid {
        ExpressionValues::Unchecked
    } else {
        ExpressionValues::Checked
    };
    let known = old.map(ranges).unwrap_or_default();
    at.at("podSelector").label_selector_with(errors, values);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in at.at(direction).items() {
            for port in rule.at("ports").items() {
                policy_port(errors, &port);
            }
            for peer in rule.at(peers).items() {
                policy_peer(errors, &peer, values, &known);
            }
        }
    }
    let types = at.at("policyTypes");
    if types.len() > 2 {
        return types.invalid(errors, "may not specify more than two policyTypes");
    }
    for kind in types.items() {
        kind.known(errors, &["Ingress", "Egress"]);
    }
}

/// The CIDRs of a stored policy, which are accepted.
fn ranges(object: &Object) -> Vec<String> {
    let at = At::root(object, "spec");
    let mut found = Vec::new();
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in at.at(direction).items() {
            for peer in rule.at(peers).items() {
                let block = peer.at("ipBlock");
                if block.is_set() {
                    found.push(block.at("cidr").text().to_owned());
                    found.extend(block.at("except").texts().map(str::to_owned));
                }
            }
        }
    }
    found
}

fn policy_peer(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    values: ExpressionValues,
    known: &[String],
) {
    let (pods, namespaces) = (at.at("podSelector"), at.at("namespaceSelector"));
    pods.label_selector_with(errors, values);
    namespaces.label_selector_with(errors, values);
    let block = at.at("ipBlock");
    if block.is_set() {
        ip_block(errors, &block, known);
    }
    let others = pods.is_set() || namespaces.is_set();
    if !others && !block.is_set() {
        at.required_because(errors, "must specify a peer");
    } else if others && block.is_set() {
        at.forbidden(errors, "may not specify both ipBlock and another peer");
    }
}

fn ip_block(errors: &mut FieldErrors, at: &At<'_, '_>, known: &[String]) {
    let cidr = at.at("cidr");
    if cidr.is_empty() {
        return cidr.required(errors);
    }
    let check = |errors: &mut FieldErrors, range: &At<'_, '_>| {
        if !known.iter().any(|known| known == range.text()) {
            range.check(errors, check_legacy_cidr);
        }
    };
    check(errors, &cidr);
    let Some((address, length)) = parse_cidr_sloppy(cidr.text()) else {
        return;
    };
    for except in at.at("except").items() {
        check(errors, &except);
        let Some((inner, inner_length)) = parse_cidr_sloppy(except.text()) else {
            continue;
        };
        let is_inside = inner.is_ipv4() == address.is_ipv4()
            && masked(inner, length.min(inner_length)) == masked(address, length);
        if !is_inside || length >= inner_length {
            except.invalid(errors, "must be a strict subset of `cidr`");
        }
    }
}

fn policy_port(errors: &mut FieldErrors, at: &At<'_, '_>) {
    at.at("protocol")
        .known_if_set(errors, &["TCP", "UDP", "SCTP"]);
    let (port, end) = (at.at("port"), at.at("endPort"));
    match port.value {
        Some(Value::String(_)) => {
            if end.is_set() {
                end.invalid_int(errors, "may not be specified when `port` is non-numeric");
            }
            port.check(errors, check_port_name);
        }
        Some(_) => {
            port.within(errors, 1, 65535);
            if end.is_set() {
                if end.int() < port.int() {
                    end.invalid_as(
                        errors,
                        Shown::Integer(port.int()),
                        "must be greater than or equal to `port`",
                    );
                }
                end.within(errors, 1, 65535);
            }
        }
        None => {
            if end.is_set() {
                end.invalid_int(errors, "may not be specified when `port` is not specified");
            }
        }
    }
}
