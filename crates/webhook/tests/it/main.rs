//! Tests of the framework: requests and responses of webhooks, and the server over real TLS.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "what is not there fails the test, also in the helpers"
)]

mod support;

mod chain;
mod conversion;
mod denial;
mod guard;
mod kit;
mod manifests;
mod patch;
mod review;

mod certificates;
mod clients;
mod drain;
mod hostile;
mod limits;
mod log;
mod plain_http;
mod probes;
mod serving;
