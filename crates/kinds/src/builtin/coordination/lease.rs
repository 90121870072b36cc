//! Leases.

use crate::at::At;
use crate::cells::{Common, Row, cell, read};
use crate::kind::{Context, Finalizers, Kind, Resource, Written, namespaced};
use crate::object::{Object, get, get_mut, has, with};
use lockgate_api::field::{FieldErrors, Shown};
use lockgate_api::meta::names::check_qualified_name;
use serde_json::Value;

pub(super) const LEASES: Resource = namespaced(
    "coordination.k8s.io",
    "v1",
    "leases",
    "lease",
    "Lease",
    "LeaseList",
    &Lease,
)
.create_on_update()
.conditional_update();

/// The kind `Lease`.
#[derive(Debug)]
pub(super) struct Lease;

impl Kind for Lease {
    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        with(value, |object| drop_coordinated(object, None));
    }

    fn prepare_update(
        &self,
        _subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        with(value, |object| drop_coordinated(object, old.as_object()));
    }

    fn finalizers(&self) -> Finalizers {
        Finalizers::Any
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        lease(errors, new.object());
    }

    fn columns(&self) -> &'static str {
        "Name|Holder|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        Row::plain(common, [cell(read::text(object, "/spec/holderIdentity"))])
    }
}

fn lease(errors: &mut FieldErrors, object: &Object) {
    let at = At::root(object, "spec");
    let (duration, transitions) = (at.at("leaseDurationSeconds"), at.at("leaseTransitions"));
    if duration.is_set() && duration.int() <= 0 {
        duration.invalid_int(errors, "must be greater than 0");
    }
    transitions.non_negative(errors);
    let strategy = at.at("strategy");
    if strategy.is_set() {
        // Upstream repeats the field name in the path.
        let inner = At::new(strategy.path.child("strategy"), strategy.value);
        if strategy.text().contains('/') {
            for message in check_qualified_name(strategy.text()) {
                inner.invalid_as(errors, Shown::Named(strategy.text()), message);
            }
        } else {
            inner.known(errors, &["OldestEmulationVersion"]);
        }
    }
    if !at.at("preferredHolder").is_empty() && strategy.is_empty() {
        let detail = "may only be specified if `strategy` is defined";
        at.at("preferredHolder").forbidden(errors, detail);
    }
}

/// Drops fields of the feature gate CoordinatedLeaderElection, which is disabled by default.
fn drop_coordinated(object: &mut Object, old: Option<&Object>) {
    let old = old.and_then(|old| get(old, "spec"));
    let is_used = |key: &str| old.is_some_and(|old| has(old, key));
    let is_kept = is_used("strategy") || is_used("preferredHolder");
    if let (false, Some(spec)) = (is_kept, get_mut(object, "spec")) {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}
