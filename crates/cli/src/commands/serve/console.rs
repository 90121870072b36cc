//! The web console beside the API server.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderMap;
use lockgate_admission::host::BoxFuture;
use lockgate_api::access::Authorizer;
use lockgate_api::admission::UserInfo;
use lockgate_api::meta::status::Status;
use lockgate_apiserver::{Access, Observer, Running};
use lockgate_console::cluster::{Cluster, Resource};
use lockgate_console::{Limits, Recorder, Serving, Token, serve};
use lockgate_listener::Phase;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::commands::CommandError;

/// A console with a bound address, before its server is started.
#[derive(Debug)]
pub(super) struct BoundConsole {
    listener: TcpListener,
    address: SocketAddr,
    recorder: Arc<Recorder>,
    token: Token,
}

impl BoundConsole {
    /// Binds the address.
    pub(super) async fn bind(address: SocketAddr) -> Result<Self, CommandError> {
        let taken = |error: std::io::Error| {
            CommandError::failed(format!(
                "cannot listen on {address} for the console: {error}"
            ))
            .with_help("set another address with --console=IP:PORT; port 0 picks a free one")
        };
        let listener = TcpListener::bind(address).await.map_err(taken)?;
        let address = listener.local_addr().map_err(taken)?;
        let recorder = Recorder::start(Limits::default());
        let recorder = recorder.map_err(|error| {
            CommandError::failed(format!("cannot start a thread for the console: {error}"))
        })?;
        let token = Token::generate().ok_or_else(|| {
            CommandError::failed("cannot generate the console token: no entropy source")
        })?;
        Ok(Self {
            listener,
            address,
            recorder: Arc::new(recorder),
            token,
        })
    }

    /// Observes the server for the console.
    pub(super) fn observer(&self) -> Observer {
        let recorder = Arc::clone(&self.recorder);
        Observer::new(move |admission| recorder.observe(admission)).recording_objects()
    }

    /// Opens the console of a server.
    pub(super) fn open(self, running: &Running) -> Console {
        let is_loopback = self.address.ip().is_loopback();
        let scheme = if is_loopback { "http" } else { "https" };
        let url = format!("{scheme}://{}/#token={}", self.address, self.token.text());
        let (phase, watched) = watch::channel(Phase::Serving);
        let serving = Serving {
            recorder: self.recorder,
            cluster: Arc::new(Server(running.access())),
            token: self.token,
            tls: (!is_loopback).then(|| running.tls()),
        };
        let task = tokio::spawn(serve(self.listener, serving, watched));
        Console { url, phase, task }
    }
}

/// A running console.
#[derive(Debug)]
pub(in crate::commands) struct Console {
    url: String,
    phase: watch::Sender<Phase>,
    task: JoinHandle<()>,
}

impl Console {
    /// The URL to open, with the console token.
    pub(in crate::commands) fn url(&self) -> &str {
        &self.url
    }

    /// Ends streams and stops.
    pub(in crate::commands) async fn close(self) {
        let _ = self.phase.send(Phase::Closing);
        let _ = self.task.await;
    }
}

/// The API server, for the console.
struct Server(Access);

impl Cluster for Server {
    fn authenticate<'f>(
        &'f self,
        address: SocketAddr,
        headers: &'f HeaderMap,
    ) -> BoxFuture<'f, Result<UserInfo, Box<Status>>> {
        Box::pin(self.0.authenticate(address, headers))
    }

    fn authorizer(&self) -> Arc<dyn Authorizer> {
        self.0.authorizer()
    }

    fn objects<'f>(
        &'f self,
        resource: Resource,
        limit: usize,
    ) -> BoxFuture<'f, Result<Vec<Value>, Box<Status>>> {
        Box::pin(self.0.objects(resource, limit))
    }
}
