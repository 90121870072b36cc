//! VolumeAttachments.

use crate::amounts::round_up;
use crate::builtin::core::persistent_volume::volume_source;
use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::kind::{CHANGE, Deletion, Kind, Resource, cluster, sub};
use crate::object::{Object, at_mut, with};
use serde_json::Value;

pub(super) const VOLUME_ATTACHMENTS: Resource = cluster(
    "storage.k8s.io",
    "v1",
    "volumeattachments",
    "volumeattachment",
    "VolumeAttachment",
    "VolumeAttachmentList",
    &VolumeAttachment,
)
.subresources(&[sub(
    "status",
    "storage.k8s.io",
    "v1",
    "VolumeAttachment",
    CHANGE,
)])
.conditional_update();

/// The kind `VolumeAttachment`.
#[derive(Debug)]
pub(super) struct VolumeAttachment;

impl Kind for VolumeAttachment {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn resets_metadata_on_status_update(&self) -> bool {
        true
    }

    fn columns(&self) -> &'static str {
        "Name|Attacher|PV|Node|Attached:boolean|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        attachment_row(object, common)
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object()
    }
}

fn defaults(object: &mut Object) {
    if let Some(spec) = at_mut(object, &["spec", "source", "inlineVolumeSpec"]) {
        round_up(spec, "capacity");
        volume_source(spec);
    }
}

fn attachment_row(object: &Value, common: &Common<'_>) -> Row {
    Row::of(vec![
        cell(common.name),
        cell(read::text(object, "/spec/attacher")),
        cell(read::text(object, "/spec/source/persistentVolumeName")),
        cell(read::text(object, "/spec/nodeName")),
        cell(read::is_true(object, "/status/attached")),
        cell(common.age.as_str()),
    ])
}
