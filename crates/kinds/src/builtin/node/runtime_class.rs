//! RuntimeClasses.

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::kind::{Kind, Resource, cluster};
use serde_json::Value;

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
    fn columns(&self) -> &'static str {
        "Name|Handler|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        Row::plain(common, [cell(read::text(object, "/handler"))])
    }
}
