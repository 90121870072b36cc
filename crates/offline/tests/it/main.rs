//! Integration tests of the chain.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod explaining;
mod replaying;
mod suites;
mod traffic;

use lockgate_offline::cluster::{Cluster, Validation};
use lockgate_offline::manifest;

/// Loads a cluster from YAML.
fn cluster(text: &str) -> Cluster {
    let manifests = manifest::read("test.yaml", text).unwrap();
    match Cluster::from_manifests(manifests, Validation::Strict) {
        Ok(cluster) => cluster,
        Err(error) => panic!("{error}"),
    }
}
