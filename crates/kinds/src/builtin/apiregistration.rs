//! The group `apiregistration.k8s.io`.

mod api_service;

use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 1] = [api_service::API_SERVICES];
