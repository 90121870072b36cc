//! ControllerRevisions.

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::kind::{Kind, Resource, namespaced};
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
