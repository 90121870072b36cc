//! What objects look like: the built-in kinds as data, and the schemas of custom resources.
//!
//! Every object is a JSON tree. Nothing here performs I/O.

#![warn(missing_docs)]

pub mod conversion;
pub mod crd;
pub mod defaults;
pub mod equality;
pub mod managed_fields;
pub mod resource;
pub mod strategic_merge;
pub mod strategy;
pub mod structural;
pub mod tree;
pub mod typed;
