//! The plugins, called as an API server calls them: with a review, and again with their own result.

#![expect(
    clippy::unwrap_used,
    reason = "a test that meets something unexpected fails"
)]

mod kit;

mod events;
mod images;
mod lifecycle;
mod limits;
mod namespaces;
mod nodes;
mod pods;
mod process;
mod services;
mod sidecars;
mod storage;
mod upstream;
