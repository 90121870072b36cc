//! StatefulSets.

use crate::at::At;
use crate::builtin::core::persistent_volume_claim::claim_spec;
use crate::builtin::core::persistent_volume_claim::defaults as claim_defaults;
use crate::builtin::core::pod::disabled::drop_from_template;
use crate::builtin::core::pod::warnings::of_claim;
use crate::builtin::core::pod::warnings::of_template;
use crate::builtin::core::pod::{template, template_defaults, template_metadata_again};
use crate::builtin::template::{
    ROLLING_UPDATE, TEMPLATE, at_most_all, collisions, containers, controller_template,
    int_or_percent, int_or_percent_value, ready, replica_counts,
};
use crate::cells::{Common, Row, cell};
use crate::checks::{LABEL_NAMES, check_label};
use crate::equality::semantically_equal;
use crate::kind::{CHANGE, Context, Kind, Resource, SCALE, SPEC, Written, namespaced, sub};
use crate::object::{
    Object, at_mut, each, fill, fill_text, get, get_mut, has, list, open, text, with,
};
use crate::typed::type_of;
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::validation::NameRules;
use lockgate_go::json::to_string;
use serde_json::{Value, json};

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
    fn validate_status(&self, errors: &mut FieldErrors, new: &Written<'_>, old: &Written<'_>) {
        let at = At::root(new.object(), "status");
        replica_counts(
            errors,
            &at,
            &[
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ],
            &[
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
            ],
            "status.readyReplicas",
        );
        collisions(errors, &at, &At::root(old.object(), "status"));
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        if subresource.is_empty() {
            with(value, |object| {
                drop_from_template(object, old.as_object(), &["spec", "template"]);
                drop_unavailable(object, old.as_object());
            });
        }
    }

    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        with(value, |object| {
            drop_from_template(object, None, &["spec", "template"]);
            drop_unavailable(object, None);
        });
    }

    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        // Upstream omits `spec` from these paths.
        set_warnings(new.object(), true, None)
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        old: &Written<'_>,
        _context: &Context<'_>,
    ) -> Vec<String> {
        let has_changed = new.metadata.generation != old.metadata.generation;
        set_warnings(new.object(), has_changed, Some("Spec"))
    }

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
        stateful_set(errors, new.object(), old.map(Written::object));
        if let Some(old) = old {
            stateful_set_update(errors, new.object(), old.object());
        }
    }

    fn columns(&self) -> &'static str {
        "Name|Ready|Age|+Containers|+Images"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        stateful_set_row(object, common)
    }
}

/// Drops the field of the feature gate MaxUnavailableStatefulSet, which is disabled.
fn drop_unavailable(object: &mut Object, old: Option<&Object>) {
    const PATH: [&str; 3] = ["spec", "updateStrategy", "rollingUpdate"];
    const MEMBER: &str = "maxUnavailable";
    let former = PATH.iter().try_fold(old, |old, key| Some(get(old?, key)));
    let was_used = former.flatten().is_some_and(|old| has(old, MEMBER));
    if let (false, Some(rolling)) = (was_used, at_mut(object, &PATH)) {
        rolling.remove(MEMBER);
    }
}

/// Warnings about a StatefulSet, with the path prefix that upstream prints for its claims.
///
/// UPSTREAM: pkg/registry/apps/statefulset/strategy.go (WarningsOnCreate, WarningsOnUpdate)
fn set_warnings(object: &Object, has_changed: bool, of_claims: Option<&str>) -> Vec<String> {
    let spec = At::root(object, "spec");
    let mut warnings = match has_changed {
        true => of_template(&spec.at("template")),
        false => Vec::new(),
    };
    for claim in spec.at("volumeClaimTemplates").items() {
        let value = claim.at("spec").value;
        let path = match of_claims {
            None => claim.path,
            Some(name) => claim.path.child(name),
        };
        warnings.extend(of_claim(&At::new(path, value)));
    }
    if spec.at("revisionHistoryLimit").int() < 0 {
        warnings.push(String::from(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value \
             >= 0 is recommended",
        ));
    }
    warnings
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

/// Validates a StatefulSet. A stored invalid template is not validated again.
fn stateful_set(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let skips = old.is_some_and(|old| {
        let mut found = FieldErrors::new();
        spec(&mut found, old, Some(old), false);
        !found.is_empty()
    });
    spec(errors, object, old, skips);
}

fn spec(errors: &mut FieldErrors, object: &Object, old: Option<&Object>, skips_template: bool) {
    let at = At::root(object, "spec");
    let policy = at.at("podManagementPolicy");
    match policy.text() {
        "" => policy.required(errors),
        "OrderedReady" | "Parallel" => {}
        _ => policy.invalid(errors, "must be 'OrderedReady' or 'Parallel'"),
    }
    update_strategy(errors, &at.at("updateStrategy"));
    let retention = at.at("persistentVolumeClaimRetentionPolicy");
    if retention.is_set() {
        for key in ["whenDeleted", "whenScaled"] {
            retention.at(key).known(errors, &["Retain", "Delete"]);
        }
    }
    let claims = at.at("volumeClaimTemplates");
    if old.is_none() {
        for claim in claims.items() {
            claim_spec(errors, &claim.at("spec"), None);
        }
    }
    at.at("replicas").non_negative(errors);
    at.at("minReadySeconds").non_negative(errors);
    At::new(
        at.path.child("ordinals.start"),
        at.at("ordinals").at("start").value,
    )
    .non_negative(errors);
    if old.is_none() {
        at.at("serviceName").check_set(errors, check_label);
    }
    let own = at.at("template");
    let checked = effective_template(&own, &claims);
    let template_at = At::new(own.path, checked.as_ref().or(own.value));
    let old_template = old
        .and_then(|old| get(old, "spec"))
        .and_then(|spec| get(spec, "template"));
    controller_template(errors, &at, &template_at, "StatefulSet", |errors, at| {
        if !skips_template {
            template(errors, at, old_template);
        }
        template_metadata_again(errors, at, old_template);
    });
}

/// The template as its Pods get it: with the hostname that the controller sets, and volumes from the claim templates.
fn effective_template(template: &At<'_, '_>, claims: &At<'_, '_>) -> Option<Value> {
    let mut effective = template.value?.clone();
    let spec = effective.get_mut("spec")?.as_object_mut()?;
    spec.remove("subdomain");
    spec.remove("hostname");
    if !claims.is_empty() {
        let metadata_name = |claim: &Value| {
            claim
                .pointer("/metadata/name")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let mut names: Vec<String> = Vec::new();
        for claim in claims.list() {
            let name = metadata_name(claim);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let own = list(spec, "volumes").iter().filter(|volume| {
            let name = volume.get("name").and_then(Value::as_str);
            !names.iter().any(|known| Some(known.as_str()) == name)
        });
        let volumes: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
            .chain(own.cloned())
            .collect();
        spec.insert("volumes".to_owned(), Value::Array(volumes));
    }
    Some(effective)
}

fn update_strategy(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let rolling = at.at("rollingUpdate");
    match at.at("type").text() {
        "" => at.required(errors),
        "OnDelete" => {
            if rolling.is_set() {
                let shown = format!(
                    "{{\"Partition\":{},\"MaxUnavailable\":{}}}",
                    rolling.at("partition").int(),
                    rolling
                        .at("maxUnavailable")
                        .value
                        .map_or_else(|| String::from("null"), to_string)
                );
                rolling.invalid_as(
                    errors,
                    Shown::Rendered(&shown),
                    "only allowed for updateStrategy 'RollingUpdate'",
                );
            }
        }
        "RollingUpdate" => {
            rolling.at("partition").non_negative(errors);
            let unavailable = rolling.at("maxUnavailable");
            if unavailable.is_set() {
                int_or_percent(errors, &unavailable);
                if int_or_percent_value(&unavailable) == 0 {
                    unavailable.invalid(errors, "cannot be 0");
                }
                at_most_all(errors, &unavailable);
            }
        }
        kind => {
            let rolling = if rolling.is_set() {
                format!(
                    "{{\"Partition\":{},\"MaxUnavailable\":{}}}",
                    rolling.at("partition").int(),
                    rolling
                        .at("maxUnavailable")
                        .value
                        .map_or_else(|| String::from("null"), to_string)
                )
            } else {
                String::from("null")
            };
            let shown = format!(
                "{{\"Type\":{},\"RollingUpdate\":{rolling}}}",
                Shown::Named(kind)
            );
            at.invalid_as(
                errors,
                Shown::Rendered(&shown),
                "must be 'RollingUpdate' or 'OnDelete'",
            );
        }
    }
}

/// Validates which fields of a StatefulSet change.
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
    let empty = Object::new();
    let fixed = |object: &Object| {
        let mut spec = get(object, "spec").unwrap_or(&empty).clone();
        spec.retain(|key, _| !MUTABLE.contains(&key.as_str()));
        Value::Object(spec)
    };
    let same = type_of("apps", "v1", "StatefulSet")
        .and_then(|ty| ty.field("spec"))
        .is_some_and(|field| semantically_equal(field.ty(), &fixed(object), &fixed(old)));
    if !same {
        errors.push(FieldError::forbidden(
            &Path::root("spec"),
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', \
             'template', 'updateStrategy', 'revisionHistoryLimit', \
             'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
}
