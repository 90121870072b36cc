//! Controllers: they watch stored objects and write derived ones, through admission. Each reads the latest state and
//! retries on errors, so that none depends on receiving every event.
//!
//! UPSTREAM: kubernetes pkg/controller, apiextensions-apiserver pkg/controller

mod api_service;
mod definition;
pub(crate) mod flow_control;
mod garbage_collector;
mod identity_lease;
mod kubernetes_service;
mod leader_election;
mod namespace;
pub(crate) mod namespace_defaults;
mod own_object;
mod owner_graph;
mod policy_status;
mod protection;
mod replica;
mod resource_quota;
pub(crate) mod role_aggregation;
mod run;
mod work_queue;
mod workers;
mod workloads;

use std::sync::Arc;
use std::time::Duration;

use lockgate_api::admission::UserInfo;
use lockgate_plugins::quota::Ledger;

use crate::config;
use crate::decode::options::WriteOptions;
use crate::write::Writer;

pub(crate) use replica::{Replica, reachable};
pub(crate) use run::start;
pub(crate) use workloads::simulate;

/// The settings of controllers.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) enabled: config::Controllers,
    pub(crate) request_timeout: Duration,
    pub(crate) namespace_grace: Duration,
    /// The CA certificate that clients trust.
    pub(crate) ca_pem: Arc<str>,
}

/// The parts of the server that controllers use.
#[derive(Debug)]
pub(crate) struct Context {
    writer: Writer,
    settings: Settings,
    /// Charges writes to quotas.
    quotas: Arc<Ledger>,
}

impl Context {
    pub(crate) fn new(writer: Writer, settings: Settings, quotas: Arc<Ledger>) -> Self {
        Self {
            writer,
            settings,
            quotas,
        }
    }
}

/// The service account of a controller.
fn account(name: &str) -> UserInfo {
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:kube-system",
        "system:authenticated",
    ];
    UserInfo {
        username: format!("system:serviceaccount:kube-system:{name}"),
        groups: Some(groups.map(String::from).to_vec()),
        ..UserInfo::default()
    }
}

/// The options of the writes of controllers.
fn options() -> WriteOptions {
    WriteOptions::of_program("kube-controller-manager")
}
