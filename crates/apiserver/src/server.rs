//! The server: what all requests share, and its life from start to stop.

mod heavy;
mod start;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use lockgate_admission::engine::Engine;
use lockgate_admission::trace::Step;
use lockgate_api::access::{AccessObject, AccessRequest, Authorizer};
use lockgate_plugins::quota::Ledger;
use lockgate_store::Store;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::allocate::Addresses;
use crate::audit::Audit;
use crate::authn::Authenticator;
use crate::authn::service_account::Signer;
use crate::authz;
use crate::authz::node::NodeAuthorizer;
use crate::authz::rbac::Rbac;
use crate::authz::rbac::escalation::Guard;
use crate::call::Call;
use crate::config::{Controllers, FeatureGates, Settings};
use crate::controllers::Terminating;
use crate::controllers::namespace_defaults::Waiting;
use crate::conversion::Converter;
use crate::error::{Outcome, forbidden, internal};
use crate::http::body::Response;
use crate::http::in_flight::InFlight;
use crate::http::negotiate::Encoding;
use crate::http::request_info::Target;
use crate::metrics::Requests;
use crate::namespaces::NamespaceCache;
use crate::registry::Registry;
use crate::respond;
use crate::services::ServiceCache;

use heavy::Heavy;
pub use start::{Running, StartError};

/// What all requests share.
pub(crate) struct Server {
    pub(crate) settings: Settings,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) namespaces: Arc<NamespaceCache>,
    pub(crate) engine: Engine,
    pub(crate) converter: Arc<Converter>,
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) rbac: Arc<Rbac>,
    /// What nodes may do, where that is asked.
    pub(crate) nodes: Option<Arc<NodeAuthorizer>>,
    pub(crate) signer: Arc<Signer>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) requests: Requests,
    pub(crate) reads_in_flight: InFlight,
    pub(crate) writes_in_flight: InFlight,
    /// Where large writes are decoded, validated and merged.
    heavy: Heavy,
    pub(crate) addresses: Addresses,
    pub(crate) services: ServiceCache,
    /// Who writes what is charged to quotas.
    pub(crate) quotas: Arc<Ledger>,
    pub(crate) terminating: Terminating,
    /// Who waits for namespaces to have what every namespace has.
    pub(crate) waiting: Waiting,
    /// The certificate of the authority clients trust.
    pub(crate) ca_pem: String,
    address: SocketAddr,
    /// Held while something is written that other parts of the server are made from, so that they
    /// change in the order of the writes and before the write returns.
    pub(crate) effects: tokio::sync::Mutex<()>,
    stop: watch::Receiver<bool>,
    pub(crate) tasks: TaskTracker,
    /// The server itself, for tasks that outlive a request.
    itself: std::sync::Weak<Self>,
}

impl Server {
    /// Runs a task until it ends or the server stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = task => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        });
    }

    /// Answers a request in a task of its own, which ends when it is done: not when its client goes
    /// away, nor when the server stops.
    pub(crate) async fn run_to_end(
        &self,
        body_bytes: Option<u64>,
        answer: impl Future<Output = Response> + Send + 'static,
    ) -> Response {
        let answer = self.tasks.track_future(answer);
        let answering = if body_bytes.is_none_or(|bytes| bytes > heavy::LARGE) {
            self.heavy.spawn(answer)
        } else {
            tokio::spawn(answer)
        };
        match answering.await {
            Ok(response) => response,
            Err(error) => {
                tracing::error!(%error, "a request ended without an answer");
                respond::failed(
                    &internal("the request ended without an answer"),
                    Encoding::Json { pretty: false },
                )
            }
        }
    }

    /// Returns when the server stops.
    pub(crate) async fn stopped(&self) {
        let mut stop = self.stop.clone();
        let _ = stop.wait_for(|stop| *stop).await;
    }

    /// What is on: plugins in the order they run, controllers, feature gates.
    pub(crate) fn parts(&self) -> [(&'static str, Vec<&'static str>); 4] {
        let controllers = Controllers::NAMES.into_iter();
        let gates = FeatureGates::NAMES.into_iter();
        let settings = &self.settings;
        [
            (
                "mutating plugins",
                self.engine.plugins_in(Step::Admit).collect(),
            ),
            (
                "validating plugins",
                self.engine.plugins_in(Step::Validate).collect(),
            ),
            (
                "controllers",
                controllers
                    .filter(|name| settings.controllers.is_on(name))
                    .collect(),
            ),
            (
                "feature gates",
                gates
                    .filter(|name| settings.feature_gates.is_on(name))
                    .collect(),
            ),
        ]
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// The server, to be kept by a task. None while it stops.
    pub(crate) fn shared(&self) -> Option<Arc<Self>> {
        self.itself.upgrade()
    }

    /// Whether a user may do what a request is about.
    pub(crate) fn authorize(&self, call: &Call, verb: &str) -> Outcome<()> {
        let Target {
            group,
            resource,
            subresource,
            namespace,
            ..
        } = &call.target;
        let name = call.target.asked_name(&call.query);
        let (field_selector, label_selector) = call.target.selectors(&call.query);
        let user = authz::user(&call.user);
        let request = AccessRequest {
            user: &user,
            verb,
            object: AccessObject::Resource {
                group,
                resource,
                subresource,
                namespace,
                name: &name,
                field_selector,
                label_selector,
            },
        };
        if self.authorizer.authorize(&request).allowed {
            return Ok(());
        }
        Err(forbidden(
            group,
            resource,
            &name,
            &authz::denied(&call.user.username, &request),
        ))
    }

    /// Refuses roles and bindings that grant more than their author has.
    pub(crate) fn confirm_no_escalation(
        &self,
        call: &Call,
        object: &Value,
        old: Option<&Value>,
    ) -> Outcome<()> {
        let guard = Guard {
            rbac: &self.rbac,
            authorizer: self.authorizer.as_ref(),
            user: &call.user,
            target: &call.target,
        };
        guard.check(object, old)
    }

    /// Whether a user may create what an update found missing.
    pub(crate) fn authorize_create(&self, call: &Call) -> Outcome<()> {
        self.authorize(call, "create")
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}
