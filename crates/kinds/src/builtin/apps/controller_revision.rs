//! ControllerRevisions.

use crate::at::At;
use crate::cells::{Common, Row, cell, read};
use crate::kind::{Context, Kind, Resource, Written, namespaced};
use lockgate_api::field::FieldErrors;
use serde_json::Value;

pub(super) const CONTROLLER_REVISIONS: Resource = namespaced(
    "apps",
    "v1",
    "controllerrevisions",
    "controllerrevision",
    "ControllerRevision",
    "ControllerRevisionList",
    &ControllerRevision,
);

/// The kind `ControllerRevision`.
#[derive(Debug)]
pub(super) struct ControllerRevision;

impl Kind for ControllerRevision {
    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_metadata_update(new, old);
        errors.extend(self.validate_metadata(new));
        self.validate(&mut errors, new, Some(old), context);
        errors
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        At::root(new.object(), "revision").non_negative(errors);
        let data = At::root(new.object(), "data");
        match (data.value, old) {
            (_, Some(old)) => {
                data.immutable(errors, &At::root(old.object(), "data"));
            }
            (None, None) => data.required_because(errors, "data is mandatory"),
            (Some(Value::Object(_)), None) => {}
            (Some(_), None) => {
                data.required_because(errors, "data must be a valid JSON object");
            }
        }
    }

    fn columns(&self) -> &'static str {
        "Name|Controller|Revision|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        revision_row(object, common)
    }
}

fn revision_row(object: &Value, common: &Common<'_>) -> Row {
    let owner = read::items(object, "/metadata/ownerReferences")
        .iter()
        .find(|owner| read::is_true(owner, "/controller"));
    let controller = owner.map_or_else(
        || String::from("<none>"),
        |owner| {
            let kind = read::text(owner, "/kind");
            let kind = match read::text(owner, "/apiVersion").split_once('/') {
                Some((group, _)) => format!("{kind}.{group}"),
                None => kind.to_owned(),
            };
            format!("{}/{}", kind.to_lowercase(), read::text(owner, "/name"))
        },
    );
    Row::of(vec![
        cell(common.name),
        cell(controller),
        cell(read::integer(object, "/revision")),
        cell(common.age.as_str()),
    ])
}
