//! An aggregated API server: it stores notes.
//!
//! ```text
//!   kubectl ──► main API server ──► TLS ──► authentication, authorization ──► webhooks ──► store
//!                     ▲                                 │                            │
//!                     └────── TokenReview, SubjectAccessReview ──┴── webhook configurations ──┘
//! ```
//!
//! The main server authenticates and authorizes a request before it proxies it, and passes the user in headers; its
//! client certificate authenticates the headers. Direct clients are authenticated and authorized through the API of the
//! main server.

mod answer;
mod notes;
mod secure;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lockgate_follow::{Delegated, Failure, Feed, Server};
use lockgate_listener::{Limits, Phase, serve};
use lockgate_store::Store;
use tokio::net::TcpListener;
use tokio::sync::watch;

use notes::Notes;
use secure::Secure;

/// The refresh interval of the main server's authentication configuration.
const REFRESH: Duration = Duration::from_secs(60);

/// A running server, which stops on drop.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    _phase: watch::Sender<Phase>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Running {
    /// Starts to serve notes. `pair` is the serving certificate with its key, in PEM.
    ///
    /// # Errors
    ///
    /// Fails if the address is in use, the certificate is invalid, or the main server is unreachable.
    pub async fn start(
        address: SocketAddr,
        pair: (&[u8], &[u8]),
        main: Server,
        store: Arc<dyn Store>,
    ) -> Result<Self, Failure> {
        let main = Arc::new(main);
        let delegated = Arc::new(Delegated::new(Arc::clone(&main)));
        delegated.refresh().await?;
        let feed = Feed::new(main)?;
        let engine = feed.engine.clone();
        let refreshed = Arc::clone(&delegated);
        let mut tasks = vec![
            tokio::spawn(async move { feed.run(|problem| eprintln!("{problem}")).await }),
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(REFRESH).await;
                    if let Err(problem) = refreshed.refresh().await {
                        eprintln!("{problem}");
                    }
                }
            }),
        ];
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (phase, watched) = watch::channel(Phase::Serving);
        let serving = serve(
            listener,
            Arc::new(Notes::new(engine, delegated, store)),
            Arc::new(Secure::new(pair.0, pair.1)?),
            Limits::default(),
            watched,
            Duration::from_secs(5),
        );
        tasks.push(tokio::spawn(serving));
        Ok(Self {
            address,
            _phase: phase,
            tasks,
        })
    }

    /// The listen address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
