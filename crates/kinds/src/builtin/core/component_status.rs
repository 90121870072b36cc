//! ComponentStatuses, which are never stored.

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::kind::{Kind, Resource, cluster};
use serde_json::Value;

pub(super) const COMPONENT_STATUSES: Resource = cluster(
    "",
    "v1",
    "componentstatuses",
    "componentstatus",
    "ComponentStatus",
    "ComponentStatusList",
    &ComponentStatus,
)
.short(&["cs"])
.verbs(&["get", "list"]);

/// The kind `ComponentStatus`.
#[derive(Debug)]
pub(super) struct ComponentStatus;

impl Kind for ComponentStatus {
    fn deprecation_warning(&self) -> Option<&'static str> {
        // UPSTREAM: api core/v1/zz_generated.prerelease-lifecycle.go
        Some("v1 ComponentStatus is deprecated in v1.19+")
    }

    fn columns(&self) -> &'static str {
        "Name|Status|Message|Error"
    }

    fn row(&self, object: &Value, _common: &Common<'_>) -> Row {
        component_status_row(object)
    }
}

fn component_status_row(object: &Value) -> Row {
    let healthy = read::items(object, "/conditions")
        .iter()
        .find(|condition| read::text(condition, "/type") == "Healthy");
    let (status, message, error) = match healthy {
        None => ("Unknown", "", ""),
        Some(condition) => (
            match read::text(condition, "/status") {
                "True" => "Healthy",
                _ => "Unhealthy",
            },
            read::text(condition, "/message"),
            read::text(condition, "/error"),
        ),
    };
    let name = read::text(object, "/metadata/name");
    Row::of([name, status, message, error].map(cell).to_vec())
}
