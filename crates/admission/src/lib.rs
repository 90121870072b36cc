//! Kubernetes dynamic admission control as a library.

pub mod call;
