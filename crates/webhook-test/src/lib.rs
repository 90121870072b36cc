//! A complete API server around webhooks, in the test's process.
//!
//! [`Cluster::start`] serves webhooks over TLS, starts an API server on a free port, and registers the webhooks with
//! it. Writes go through rules and selectors, match conditions, the call, the patch, reinvocation and validation. It
//! needs no cluster, container or binary, and takes milliseconds.
//!
//! `lockgate-webhook` itself never links an API server, which is why this is a separate crate.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use lockgate_webhook::{Context, Denial, Object, Operation, Registration, Rule, Validator, Verdict, Webhooks, validating};
//! use lockgate_webhook_test::Cluster;
//!
//! struct Closed;
//!
//! impl Validator<ConfigMap> for Closed {
//!     async fn create(&self, _: &Context, _: &Object<ConfigMap>) -> Verdict {
//!         Err(Denial::forbidden("not today").into())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let webhooks = Webhooks::new().with(
//!     Registration::validating("closed.example.com")
//!         .path("/closed")
//!         .rule(Rule::resources(["configmaps"]).operations([Operation::Create])),
//!     validating::<ConfigMap, _>(Closed),
//! );
//! let cluster = Cluster::start(webhooks).await?;
//! let refused = cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}").await;
//! assert!(refused.unwrap_err().status.message.contains("denied the request: not today"));
//! cluster.stop().await;
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

use std::ops::Deref;

use lockgate_apiserver::{Applied, ApplyError, Settings, StartError, TestServer};
use lockgate_webhook::server::Server;
use lockgate_webhook::testing::{Served, serve_with};
use lockgate_webhook::{ManifestOptions, Manifests, Registration, Webhooks};

/// An API server that calls webhooks. Clients connect with [`kubeconfig_path`](TestServer::kubeconfig_path). Dropping
/// it stops both servers immediately and removes its files; [`stop`](Self::stop) waits for requests in progress.
#[derive(Debug)]
pub struct Cluster {
    server: TestServer,
    served: Served,
}

/// A startup error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The API server cannot start.
    #[error("cannot start the API server")]
    Start(#[from] StartError),
    /// The API server rejects a webhook configuration.
    #[error("cannot register the webhooks")]
    Register(#[from] ApplyError),
}

impl Cluster {
    /// Starts an API server with the defaults, and registers these webhooks.
    ///
    /// # Errors
    ///
    /// Fails if a server cannot start, or the API server rejects a webhook configuration.
    pub async fn start(webhooks: Webhooks) -> Result<Self, ClusterError> {
        Self::start_with(
            Server::new(webhooks.clone()),
            &webhooks,
            Settings::default(),
        )
        .await
    }

    /// Starts both servers with custom settings. `webhooks` are the webhooks of `server`.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub async fn start_with(
        server: Server,
        webhooks: &Webhooks,
        settings: Settings,
    ) -> Result<Self, ClusterError> {
        let served = serve_with(server).await;
        let server = TestServer::start_with(settings).await?;
        let cluster = Self { server, served };
        let options = cluster.manifest_options();
        // Every Service in a registration is routed to the webhook server.
        let registrations: Vec<Registration> = webhooks
            .iter()
            .map(|webhook| {
                let mut registration = webhook.registration().clone();
                registration.webhook.client_config = Default::default();
                registration
            })
            .collect();
        let manifests = Manifests::of(&registrations, &options);
        cluster.apply(&manifests.to_yaml()).await?;
        Ok(cluster)
    }

    /// Applies CustomResourceDefinitions, with the conversion settings of these webhooks added.
    ///
    /// # Errors
    ///
    /// Fails if the text is not YAML, or the API server rejects an object.
    pub async fn define(
        &self,
        webhooks: &Webhooks,
        definitions: &str,
    ) -> Result<Applied, ApplyError> {
        let manifests = webhooks.manifests(&self.manifest_options());
        let mut applied = Applied::default();
        for document in definitions.split("\n---") {
            let mut text = document.to_owned();
            if let Ok(mut definition) = lockgate_webhook::testing::read(document)
                && manifests.complete(&mut definition)
            {
                text = definition.to_string();
            }
            let one = self.apply(&text).await?;
            applied.objects.extend(one.objects);
            applied.warnings.extend(one.warnings);
        }
        Ok(applied)
    }

    fn manifest_options(&self) -> ManifestOptions {
        ManifestOptions::new()
            .url(self.served.url(""))
            .ca_bundle(self.served.ca_bundle())
    }

    /// The server of the webhooks.
    #[must_use]
    pub fn webhooks(&self) -> &Served {
        &self.served
    }

    /// Stops both servers.
    pub async fn stop(self) {
        self.server.stop().await;
        self.served.stop().await;
    }
}

impl Deref for Cluster {
    type Target = TestServer;

    fn deref(&self) -> &TestServer {
        &self.server
    }
}
