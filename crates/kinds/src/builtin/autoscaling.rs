//! The group `autoscaling`.

mod horizontal_pod_autoscaler;

use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 2] =
    [horizontal_pod_autoscaler::V2, horizontal_pod_autoscaler::V1];
