//! VolumeAttachments.

use crate::amounts::round_up;
use crate::at::At;
use crate::builtin::core::persistent_volume::{volume_source, volume_spec};
use crate::builtin::core::volume_source::driver_name;
use crate::cells::{Common, Row, cell, read};
use crate::kind::{
    CHANGE, Context, Deletion, Kind, NodeGraphObject, Resource, ServerComponent, Written, cluster,
    sub,
};
use crate::object::{Object, at_mut, with};
use crate::typed::member_type;
use lockgate_api::field::FieldErrors;
use lockgate_api::meta::names::check_subdomain;
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
    fn component(&self) -> Option<ServerComponent> {
        Some(ServerComponent::NodeGraph(NodeGraphObject::Attachment))
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_create(new, context);
        let (spec, former) = (
            At::root(new.object(), "spec"),
            At::root(old.object(), "spec"),
        );
        if subresource.is_empty() {
            let ty = member_type("storage.k8s.io", "VolumeAttachment", &["spec"]);
            spec.immutable_typed(&mut errors, &former, ty);
        }
        errors
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        volume_attachment(errors, new.object());
    }

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

fn volume_attachment(errors: &mut FieldErrors, object: &Object) {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let at = At::root(object, "spec");
    driver_name(errors, &at.at("attacher"));
    let source = at.at("source");
    let (inline, name) = (
        source.at("inlineVolumeSpec"),
        source.at("persistentVolumeName"),
    );
    match (inline.is_set(), name.is_set()) {
        (false, false) => source.required_because(errors, ONE),
        (true, true) => source.forbidden(errors, ONE),
        (false, true) => {
            if name.is_empty() {
                let detail = "must specify non empty persistentVolumeName";
                name.required_because(errors, detail);
            }
        }
        (true, false) => volume_spec(errors, &inline, "", true, None),
    }
    at.at("nodeName").check(errors, check_subdomain);
    if name.is_set() {
        name.check(errors, check_subdomain);
    }
    let status = At::root(object, "status");
    for key in ["attachError", "detachError"] {
        let failure = status.at(key);
        let code = failure.at("errorCode");
        if failure.at("message").text().len() > MESSAGE_MAX {
            failure.at("message").too_long(errors, METADATA_MAX);
        }
        if code.int() < 0 {
            code.within(errors, 0, i64::from(i32::MAX));
        }
    }
}

const MESSAGE_MAX: usize = 1024;
/// Upstream applies this limit to messages, too.
const METADATA_MAX: usize = 256 * 1024;
