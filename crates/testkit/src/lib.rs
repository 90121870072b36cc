//! Test helpers shared by the crates of Lockgate; never published.
//!
//! [`WebhookServer`] is a webhook with scripted responses and failures. [`certs`] creates the certificates for it,
//! valid and invalid ones. [`Browser`] is a real browser.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use lockgate_testkit::{ScriptedResponse, WebhookServer};
//!
//! let server = WebhookServer::start().await;
//! server.script("/deny", [ScriptedResponse::deny("not on Sundays")]);
//! assert!(server.url("/deny").starts_with("https://127.0.0.1:"));
//! assert!(server.requests().is_empty());
//! server.stop().await;
//! # }
//! ```

mod answer;
mod blackhole;
mod browser;
pub mod certs;
mod cut;
mod etcd;
mod gate;
mod webhook;

pub use answer::{Ending, ScriptedResponse};
pub use blackhole::Blackhole;
pub use browser::Browser;
pub use cut::{CutProxy, Network};
pub use etcd::EtcdCluster;
pub use gate::Gate;
pub use webhook::{Builder, Recorded, WebhookServer};
