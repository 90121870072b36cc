//! The group `policy`.

mod pod_disruption_budget;

use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 1] = [pod_disruption_budget::POD_DISRUPTION_BUDGETS];
