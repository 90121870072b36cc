//! The group `admissionregistration.k8s.io`.

mod json_path;
mod policy;
mod webhook_configuration;

use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 8] = [
    policy::MUTATING_ADMISSION_POLICIES,
    policy::MUTATING_ADMISSION_POLICY_BINDINGS,
    webhook_configuration::MUTATING_V1,
    policy::VALIDATING_ADMISSION_POLICIES,
    policy::VALIDATING_ADMISSION_POLICY_BINDINGS,
    webhook_configuration::VALIDATING_V1,
    webhook_configuration::MUTATING_V1BETA1,
    webhook_configuration::VALIDATING_V1BETA1,
];
