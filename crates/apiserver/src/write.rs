//! Writing: one short recipe per verb over the stages decode, mutate, validate and persist.

pub(crate) mod admission;
pub(crate) mod connect;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod metadata;
pub(crate) mod owners;
pub(crate) mod patch;
pub(crate) mod scale_owners;
pub(crate) mod strategy;
pub(crate) mod subresource;
pub(crate) mod update;
