//! Leases.

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::kind::{Kind, Resource, namespaced};
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
    fn columns(&self) -> &'static str {
        "Name|Holder|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        Row::plain(common, [cell(read::text(object, "/spec/holderIdentity"))])
    }
}
