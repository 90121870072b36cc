//! Kubernetes dynamic admission control as a library.

pub mod call;
pub mod json_patch;
