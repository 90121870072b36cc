//! The HTTPS caller against a scripted webhook.

mod calls;
mod credentials;
mod faults;
mod proxies;
mod support;
