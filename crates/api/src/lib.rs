//! Wire types and rules of Kubernetes dynamic admission control.
//!
//! This crate holds what the API *says*: the objects of `admissionregistration.k8s.io` and
//! `admission.k8s.io`, their defaults, their validation, and the exact texts a client reads when
//! something is wrong. It performs no I/O and decides nothing about a request.

pub mod admission;
pub mod decode;
pub mod document;
pub mod field;
pub mod go;
pub mod meta;
pub mod registration;
