//! RuntimeClasses.

use crate::at::At;
use crate::builtin::core::pod::{overhead_amounts, tolerations};
use crate::cells::{Common, Row, cell, read};
use crate::checks::check_label;
use crate::kind::{Context, Finalizers, Kind, Resource, Written, cluster};
use crate::object::Object;
use lockgate_api::field::{FieldErrors, Shown};
use lockgate_go::json::to_string;
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) const RUNTIME_CLASSES: Resource = cluster(
    "node.k8s.io",
    "v1",
    "runtimeclasses",
    "runtimeclass",
    "RuntimeClass",
    "RuntimeClassList",
    &RuntimeClass,
)
.create_on_update()
.conditional_update();

/// The kind `RuntimeClass`.
#[derive(Debug)]
pub(super) struct RuntimeClass;

impl Kind for RuntimeClass {
    fn finalizers(&self) -> Finalizers {
        Finalizers::Any
    }

    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_create(new, context);
        errors.extend(self.validate_metadata_update(new, old));
        let former = At::root(old.object(), "handler");
        At::root(new.object(), "handler").immutable(&mut errors, &former);
        errors
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        runtime_class(errors, new.object());
    }

    fn columns(&self) -> &'static str {
        "Name|Handler|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        Row::plain(common, [cell(read::text(object, "/handler"))])
    }
}

fn runtime_class(errors: &mut FieldErrors, object: &Object) {
    At::root(object, "handler").check_required(errors, check_label);
    let overhead = At::root(object, "overhead");
    if overhead.is_set() {
        let fixed = overhead.at("podFixed");
        overhead_amounts(errors, &At::new(overhead.path, fixed.value));
    }
    let scheduling = At::root(object, "scheduling");
    scheduling.at("nodeSelector").labels(errors);
    let all = scheduling.at("tolerations");
    tolerations(errors, &all, None);
    let mut seen = BTreeSet::new();
    for toleration in all.items() {
        let member = |key: &str| toleration.at(key).text();
        let own = (
            member("key"),
            member("operator"),
            member("value"),
            member("effect"),
        );
        if !seen.insert(own) {
            let shown = format!(
                "{{\"Key\":{},\"Operator\":{},\"Value\":{},\"Effect\":{},\
                 \"TolerationSeconds\":{}}}",
                Shown::Named(own.0),
                Shown::Named(own.1),
                Shown::Named(own.2),
                Shown::Named(own.3),
                toleration
                    .at("tolerationSeconds")
                    .value
                    .map_or_else(|| String::from("null"), to_string),
            );
            toleration.duplicate_as(errors, Shown::Rendered(&shown));
        }
    }
}
