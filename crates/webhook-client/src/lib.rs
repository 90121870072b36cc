//! Calls webhooks over HTTPS, as kube-apiserver's client does.
//!
//! A [`Caller`](call::Caller) turns the `clientConfig` of a webhook into a [`Client`](call::Client),
//! and a client posts reviews: it resolves the address, verifies the certificate, presents
//! credentials, pools connections, and formats every failure as Go's client does. Admission and CRD conversion depend
//! on the two traits in [`call`]; [`HttpsCaller`] is their implementation here.
//!
//! The crate does not parse reviews, and does not decide the effect of a failed call on the request.
//!
//! Every call is bounded by its deadline. Nothing outlives the [`HttpsCaller`] and its clients: connections are closed
//! when the last client that may use them is dropped.
//!
//! Deliberate differences from upstream: redirects are not followed by default (a webhook must not choose the targets
//! of the API server), and a response is at most [`MAX_RESPONSE_BYTES`] long.

#![warn(missing_docs)]

// The traits through which the engine calls webhooks.
pub mod call;

// Address resolution and TLS.
mod resolve;
mod target;
mod tls;

// Connections and their errors.
mod tap;

mod clock;
mod wording;

mod wire;

// Credentials, and the proxies to connect through.
pub mod credentials;
mod proxy;

mod settings;

// Connection pools and clients.
mod channel;

mod client;

mod caller;

pub use self::caller::HttpsCaller;
pub use self::proxy::{Proxies, ProxyError};
pub use self::resolve::{
    ClusterIpResolver, DnsResolver, EndpointResolver, MappedResolver, ProxyResolver, ResolveError,
    Service, ServicePort, ServiceResolver, Services,
};
pub use self::settings::{MAX_RESPONSE_BYTES, PlainHttp, Redirects, Settings};
pub use self::target::{is_loopback_http, split_authority};
pub use self::tls::{refusal as tls_refusal, tls_client};
