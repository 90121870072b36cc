//! Writing: one short recipe per verb over the stages decode, mutate, validate and persist.

pub(crate) mod admission;
pub(crate) mod connect;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod managed_fields;
pub(crate) mod patch;
pub(crate) mod scale;
pub(crate) mod strategy;
pub(crate) mod subresource;
pub(crate) mod token_request;
pub(crate) mod update;
