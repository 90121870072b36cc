//! Common parts of Kubernetes objects: metadata, selectors, names, times and Status.

pub mod label_selector;
pub mod names;
pub mod object;
pub mod selector;
pub mod status;
pub mod time;
pub mod type_meta;
pub mod validation;
