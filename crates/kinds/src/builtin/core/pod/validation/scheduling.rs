//! Validation of scheduling fields: affinity, tolerations, topology spread constraints.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_api::field::{FieldErrors, Shown};
use lockgate_api::meta::label_selector::ExpressionValues;
use lockgate_api::meta::names::{check_label_value, check_qualified_name};
use serde_json::Value;

use super::Spec;
use crate::at::At;
use crate::builtin::core::volume_source::{node_selector, node_selector_term};
use crate::checks::check_label;
use crate::object::{Object, list};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Returns true if the old spec violates a rule, which is then not enforced.
fn old_violates(old: Option<&Object>, rule: impl FnOnce(&mut FieldErrors, &At<'_, '_>)) -> bool {
    let Some(old) = old else {
        return false;
    };
    let old = Value::Object(old.clone());
    let mut errors = FieldErrors::new();
    rule(
        &mut errors,
        &At::new(lockgate_api::field::Path::root("spec"), Some(&old)),
    );
    !errors.is_empty()
}

pub(super) fn affinity(errors: &mut FieldErrors, spec: &Spec<'_, '_, '_>) {
    let affinity = spec.at.at("affinity");
    if !affinity.is_set() {
        return;
    }
    let nodes = affinity.at("nodeAffinity");
    let required = nodes.at(REQUIRED);
    if required.is_set() {
        let allows_values = old_violates(spec.rules.old, |errors, old| {
            let affinity = old.at("affinity");
            let nodes = affinity.at("nodeAffinity");
            let required = nodes.at(REQUIRED);
            let terms = required.at("nodeSelectorTerms");
            for term in terms.items() {
                for requirement in term.at("matchExpressions").items() {
                    for value in requirement.at("values").items() {
                        value.check(errors, check_label_value);
                    }
                }
            }
        });
        node_selector(errors, &required, allows_values);
    }
    for term in nodes.at(PREFERRED).items() {
        weight(errors, &term);
        node_selector_term(errors, &term.at("preference"), true);
    }
    let was_invalid = old_violates(spec.rules.old, |errors, old| {
        let affinity = old.at("affinity");
        for key in ["podAffinity", "podAntiAffinity"] {
            let pods = affinity.at(key);
            for term in pods.at(REQUIRED).items() {
                selectors(errors, &term, ExpressionValues::Checked);
            }
            for term in pods.at(PREFERRED).items() {
                selectors(
                    errors,
                    &term.at("podAffinityTerm"),
                    ExpressionValues::Checked,
                );
            }
        }
    });
    let values = if was_invalid {
        ExpressionValues::Unchecked
    } else {
        ExpressionValues::Checked
    };
    for key in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.at(key);
        for term in pods.at(REQUIRED).items() {
            pod_term(errors, &term, values);
        }
        for term in pods.at(PREFERRED).items() {
            weight(errors, &term);
            pod_term(errors, &term.at("podAffinityTerm"), values);
        }
    }
}

fn weight(errors: &mut FieldErrors, term: &At<'_, '_>) {
    let weight = term.at("weight");
    if !(1..=100).contains(&weight.int()) {
        weight.invalid_int(errors, "must be in the range 1-100");
    }
}

fn selectors(errors: &mut FieldErrors, term: &At<'_, '_>, values: ExpressionValues) {
    term.at("labelSelector").label_selector_with(errors, values);
    term.at("namespaceSelector")
        .label_selector_with(errors, values);
}

fn pod_term(errors: &mut FieldErrors, at: &At<'_, '_>, values: ExpressionValues) {
    selectors(errors, at, values);
    for name in at.at("namespaces").texts() {
        for message in check_label(name) {
            at.at("namespace")
                .invalid_as(errors, Shown::Text(name), message);
        }
    }
    label_keys(
        errors,
        at,
        &at.at("matchLabelKeys"),
        &at.at("mismatchLabelKeys"),
    );
    let key = at.at("topologyKey");
    if key.is_empty() {
        key.required_because(errors, "can not be empty");
    }
    key.check(errors, check_qualified_name);
}

/// Validates `matchLabelKeys` and `mismatchLabelKeys`.
fn label_keys(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    matching: &At<'_, '_>,
    mismatching: &At<'_, '_>,
) {
    let selector = at.at("labelSelector");
    for keys in [matching, mismatching] {
        if keys.is_empty() {
            continue;
        }
        if !selector.is_set() {
            let detail = "must not be specified when labelSelector is not set";
            keys.forbidden(errors, detail);
            continue;
        }
        for key in keys.items() {
            key.check(errors, check_qualified_name);
        }
    }
    // Of repeated keys, the last one is reported.
    let keys: BTreeMap<&str, usize> = matching.texts().zip(0..).collect();
    let mut seen: BTreeSet<&str> = selector
        .at("matchLabels")
        .object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key.as_str())
        .collect();
    for expression in selector.at("matchExpressions").items() {
        let key = expression.at("key").text();
        if let (Some(&index), true) = (keys.get(key), seen.contains(key)) {
            At::new(at.path.index(index), None).invalid_as(
                errors,
                Shown::Text(key),
                "exists in both matchLabelKeys and labelSelector",
            );
        }
        seen.insert(key);
    }
    let mismatching: BTreeSet<&str> = mismatching.texts().collect();
    for key in matching.items() {
        if mismatching.contains(key.text()) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            key.invalid(errors, detail);
        }
    }
}

pub(super) fn topology_spread(errors: &mut FieldErrors, spec: &Spec<'_, '_, '_>) {
    let all = spec.at.at("topologySpreadConstraints");
    let allows_selector = old_violates(spec.rules.old, |errors, old| {
        for constraint in old.at("topologySpreadConstraints").items() {
            constraint.at("labelSelector").label_selector(errors);
        }
    });
    let last: BTreeMap<(&str, &str), usize> = all
        .items()
        .map(|it| {
            (
                it.at("topologyKey").text(),
                it.at("whenUnsatisfiable").text(),
            )
        })
        .zip(0..)
        .collect();
    for (index, constraint) in all.items().enumerate() {
        constraint.at("maxSkew").positive(errors);
        let (key, action) = (
            constraint.at("topologyKey"),
            constraint.at("whenUnsatisfiable"),
        );
        if key.is_empty() {
            key.required_because(errors, "can not be empty");
        }
        action.known(errors, &["DoNotSchedule", "ScheduleAnyway"]);
        if last
            .get(&(key.text(), action.text()))
            .is_some_and(|&last| last > index)
        {
            let shown = format!("{{{}, {}}}", key.text(), action.text());
            constraint
                .at("{topologyKey, whenUnsatisfiable}")
                .duplicate_as(errors, Shown::Text(&shown));
        }
        let least = constraint.at("minDomains");
        if least.is_set() {
            least.positive(errors);
            if action.text() != "DoNotSchedule" {
                let detail = format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                    action.text()
                );
                least.invalid_int(errors, detail);
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            constraint
                .at(policy)
                .known_if_set(errors, &["Honor", "Ignore"]);
        }
        let none = At::new(constraint.path.child("mismatchLabelKeys"), None);
        label_keys(errors, &constraint, &constraint.at("matchLabelKeys"), &none);
        if !allows_selector {
            constraint.at("labelSelector").label_selector(errors);
        }
    }
}

pub(in crate::builtin) fn tolerations(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    old: Option<&Object>,
) {
    let compared = old.is_some_and(|old| {
        list(old, "tolerations")
            .iter()
            .any(|toleration| toleration["operator"] == "Lt" || toleration["operator"] == "Gt")
    });
    for toleration in at.items() {
        let (key, value) = (toleration.at("key"), toleration.at("value"));
        let (operator, effect) = (toleration.at("operator"), toleration.at("effect"));
        key.check_set(errors, check_qualified_name);
        if key.is_empty() && operator.text() != "Exists" {
            operator.invalid(
                errors,
                "operator must be Exists when `key` is empty, which means \"match all values and \
                 all keys\"",
            );
        }
        if toleration.at("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            effect.invalid(errors, detail);
        }
        match operator.text() {
            "Equal" | "" => {
                let messages = check_label_value(value.text());
                if !messages.is_empty() {
                    operator.invalid_as(errors, Shown::Text(value.text()), messages.join(";"));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    operator.invalid_as(errors, Shown::Text(value.text()), detail);
                }
            }
            "Lt" | "Gt" if !compared => {
                operator.not_supported(errors, &["Equal", "Exists", "Lt", "Gt"]);
            }
            "Lt" | "Gt" => {}
            _ => operator.not_supported(errors, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            taint_effect(errors, &effect);
        }
    }
}

/// Validates the effect of a taint.
pub(in crate::builtin) fn taint_effect(errors: &mut FieldErrors, at: &At<'_, '_>) {
    at.one_of(errors, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
}
