//! The server as clients see it: real TLS, real processes, no sleeping.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod access;
mod aggregation;
mod allocations;
mod answers;
mod concurrency;
mod custom;
mod defaults;
mod durable;
mod faults;
mod flow_control;
mod garbage;
mod hostile;
mod hostile_advisories;
mod hostile_aggregation;
mod hostile_audit;
mod hostile_bounds;
mod hostile_certificates;
mod hostile_connections;
mod hostile_conversion;
mod hostile_definitions;
mod hostile_growth;
mod hostile_identity;
mod hostile_model;
mod hostile_tokens;
mod hostile_work;
mod impersonation;
mod introspection;
mod kube_rs;
mod kube_versions;
mod kubectl;
mod metrics;
mod namespaces;
mod on_etcd;
mod openid;
mod options;
mod part_metadata;
mod policy_params;
mod policy_status;
mod quotas;
mod reads;
mod registrations;
mod roles;
mod settings;
mod shuffled;
mod soak;
mod subresources;
mod support;
mod versions;
mod volumes;
mod writes;
mod zpages;
