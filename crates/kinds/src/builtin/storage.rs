//! The group `storage.k8s.io`.

mod csi;
mod storage_class;
mod volume_attachment;

use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 6] = [
    csi::CSI_DRIVERS,
    csi::CSI_NODES,
    csi::CSI_STORAGE_CAPACITIES,
    storage_class::STORAGE_CLASSES,
    volume_attachment::VOLUME_ATTACHMENTS,
    storage_class::VOLUME_ATTRIBUTES_CLASSES,
];
