//! The built-in kinds: one file per kind or closely related kinds, one directory per group.
//!
//! A file contains everything about its kind: the row with names, subresources and write rules, and the
//! [`Kind`](crate::kind::Kind) with defaults, strategy, validation, columns and field selectors.

mod admissionregistration;
mod apiextensions;
mod apiregistration;
mod apps;
mod authentication;
mod authorization;
mod autoscaling;
mod batch;
mod certificates;
mod coordination;
mod core;
mod discovery;
mod flowcontrol;
mod networking;
mod node;
mod policy;
mod rbac;
mod resource;
mod scheduling;
mod storage;
mod template;

use crate::kind::Resource;

pub use apiextensions::CLEANUP_FINALIZER;
pub use core::pod::{grace_period, quality_of_service};

static EVENTS: [Resource; 1] = [core::event::NEW_EVENTS];

/// The groups in discovery order: the core group, then by priority. Within a group, versions are ordered by priority,
/// resources by name.
pub(crate) static GROUPS: [&[Resource]; 21] = [
    &core::RESOURCES,
    &apiregistration::RESOURCES,
    &apps::RESOURCES,
    &EVENTS,
    &authentication::RESOURCES,
    &authorization::RESOURCES,
    &autoscaling::RESOURCES,
    &batch::RESOURCES,
    &certificates::RESOURCES,
    &networking::RESOURCES,
    &policy::RESOURCES,
    &rbac::RESOURCES,
    &storage::RESOURCES,
    &admissionregistration::RESOURCES,
    &apiextensions::RESOURCES,
    &scheduling::RESOURCES,
    &coordination::RESOURCES,
    &node::RESOURCES,
    &discovery::RESOURCES,
    &resource::RESOURCES,
    &flowcontrol::RESOURCES,
];
