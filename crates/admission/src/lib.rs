//! Kubernetes dynamic admission control as a library.

pub mod call;
pub mod https;
pub mod json_patch;
