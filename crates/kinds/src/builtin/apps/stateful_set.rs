//! StatefulSets.

use crate::builtin::core::persistent_volume_claim::defaults as claim_defaults;
use crate::builtin::core::pod::template_defaults;
use crate::builtin::template::{ROLLING_UPDATE, TEMPLATE, containers, controller_template, ready};
use crate::cells::{Common, Row, cell};
use crate::checks::{LABEL_NAMES, non_negative};
use crate::kind::{CHANGE, Context, Kind, Resource, SCALE, SPEC, Written, namespaced, sub};
use crate::object::{Object, each, fill, fill_text, get, get_mut, open, text, with};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::validation::NameRules;
use serde_json::Value;

pub(super) const STATEFUL_SETS: Resource = namespaced(
    "apps",
    "v1",
    "statefulsets",
    "statefulset",
    "StatefulSet",
    "StatefulSetList",
    &StatefulSet,
)
.short(&["sts"])
.categories(&["all"])
.subresources(&[SCALE, sub("status", "apps", "v1", "StatefulSet", CHANGE)])
.generation(SPEC);

/// The kind `StatefulSet`.
#[derive(Debug)]
pub(super) struct StatefulSet;

impl Kind for StatefulSet {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn name_rules(&self) -> NameRules {
        LABEL_NAMES
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        match old {
            None => stateful_set(errors, new.object(), true),
            Some(old) => stateful_set_update(errors, new.object(), old.object()),
        }
    }

    fn columns(&self) -> &'static str {
        "Name|Ready|Age|+Containers|+Images"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        stateful_set_row(object, common)
    }
}

fn defaults(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    fill_text(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = open(spec, "updateStrategy") {
        if text(strategy, "type").is_empty() {
            fill_text(strategy, "type", ROLLING_UPDATE);
            open(strategy, "rollingUpdate");
        }
        if let Some(rolling) = get_mut(strategy, "rollingUpdate") {
            fill(rolling, "partition", 0);
        }
    }
    if let Some(policy) = open(spec, "persistentVolumeClaimRetentionPolicy") {
        fill_text(policy, "whenDeleted", "Retain");
        fill_text(policy, "whenScaled", "Retain");
    }
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    template_defaults(spec, "template");
    each(spec, "volumeClaimTemplates", |claim| {
        claim_defaults(claim);
        claim.insert("apiVersion".to_owned(), Value::from("v1"));
        claim.insert("kind".to_owned(), Value::from("PersistentVolumeClaim"));
    });
}

/// A stateful set. Templates that were let in before are not checked again.
fn stateful_set(errors: &mut FieldErrors, object: &Object, checks_template: bool) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    let policy = text(spec, "podManagementPolicy");
    if !matches!(policy, "OrderedReady" | "Parallel") {
        errors.push(FieldError::invalid(
            &path.child("podManagementPolicy"),
            Shown::Named(policy),
            "must be 'OrderedReady' or 'Parallel'",
        ));
    }
    non_negative(errors, spec, "replicas", &path);
    non_negative(errors, spec, "minReadySeconds", &path);
    controller_template(errors, spec, "StatefulSet", checks_template, &path);
}

/// What of a stateful set may change.
fn stateful_set_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    const MUTABLE: [&str; 7] = [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "persistentVolumeClaimRetentionPolicy",
        "revisionHistoryLimit",
    ];
    let mut old_errors = FieldErrors::new();
    stateful_set(&mut old_errors, old, true);
    stateful_set(errors, object, old_errors.is_empty());
    let empty = Object::new();
    let (new, old) = (
        get(object, "spec").unwrap_or(&empty),
        get(old, "spec").unwrap_or(&empty),
    );
    let fixed = |key: &&String| !MUTABLE.contains(&key.as_str());
    let keys = new.keys().chain(old.keys());
    if keys.filter(fixed).any(|key| new.get(key) != old.get(key)) {
        errors.push(FieldError::forbidden(
            &Path::root("spec"),
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', \
             'template', 'updateStrategy', 'revisionHistoryLimit', \
             'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
}

fn stateful_set_row(object: &Value, common: &Common<'_>) -> Row {
    let [names, images] = containers(object, TEMPLATE);
    Row::of(vec![
        cell(common.name),
        ready(object),
        cell(common.age.as_str()),
        names,
        images,
    ])
}
