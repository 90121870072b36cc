//! Starts the servers of a configuration, and runs them until shutdown.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lockgate_webhook::server::{
    Certificates, ClientAuth, Limits, ProbePaths, Running, Server, StartError,
};

use crate::config::{Config, LookupScope};
use crate::lookup::{Live, LookupError, Scope};
use crate::profile::ProfileRules;
use crate::webhooks::webhooks;

/// A startup error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The API client cannot be created.
    #[error("cannot reach the Kubernetes API")]
    Lookup(#[from] LookupError),
    /// The server cannot start.
    #[error("cannot start the webhook server")]
    Start(#[from] StartError),
}

/// Starts the servers. The API server may still be unreachable: the readiness probe fails until it responds.
///
/// # Errors
///
/// Fails if the API client cannot be created, or a port is in use.
pub async fn start(config: &Config) -> Result<Running, ServeError> {
    let scope = match config.lookup_scope {
        LookupScope::Cluster => Scope::Cluster,
        LookupScope::Namespaces => Scope::Namespaces {
            assignments: config.assignment_namespace.clone(),
            profiles: config.profile_namespace.clone(),
        },
    };
    let live = match config.kubeconfig() {
        None => Live::in_cluster(scope)?,
        Some(path) => Live::from_kubeconfig(path, scope).await?,
    };
    let checked = live.clone();
    let rules = ProfileRules {
        lookup: Arc::new(live),
        controllers: config.controller_users.clone().into(),
        deletion: config.profile_deletion,
    };
    let server = server(config, &rules).ready_check("kubernetes-api", move || {
        let live = checked.clone();
        async move { live.check().await.map_err(|error| chain(&error)) }
    });
    Ok(server.start().await?)
}

fn server(config: &Config, rules: &ProfileRules) -> Server {
    let options = &config.webhook_server;
    let host = config.host();
    // The other servers listen on all addresses of the same family: kubelets and Prometheus connect from other hosts.
    let all = match host {
        IpAddr::V4(_) => IpAddr::from([0, 0, 0, 0]),
        IpAddr::V6(_) => IpAddr::from([0_u16; 8]),
    };
    let certificates =
        Certificates::folder(&options.cert_dir).names(&options.cert_name, &options.key_name);
    let limits = Limits::default()
        .body_bytes(options.max_request_bytes)
        .request_timeout(options.request_timeout.get())
        .in_flight(options.max_in_flight);
    let probes = ProbePaths {
        liveness: config.probes_server.liveness_path.clone(),
        readiness: config.probes_server.readiness_path.clone(),
    };
    Server::new(webhooks(rules))
        .listen(SocketAddr::new(host, options.port))
        .certificates(certificates)
        .client_auth(client_auth(config))
        .limits(limits)
        .http2(options.http2)
        .probes(SocketAddr::new(all, config.probes_server.port), probes)
        .metrics(
            SocketAddr::new(all, config.metrics_server.port),
            config.metrics_server.path.as_str(),
        )
        .shutdown_delay(options.shutdown_delay.get())
}

fn client_auth(config: &Config) -> ClientAuth {
    let options = &config.webhook_server;
    let mut auth = ClientAuth::new();
    if !options.client_ca_name.is_empty() {
        auth = auth.client_ca(options.cert_dir.join(&options.client_ca_name));
    }
    for name in &options.client_subject_names {
        auth = auth.allow_name(name.as_str());
    }
    if !options.bearer_token_file.is_empty() {
        auth = auth.bearer_tokens(&options.bearer_token_file);
    }
    auth
}

/// Formats an error with its causes in one line.
#[must_use]
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}
