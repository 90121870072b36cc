//! One of several servers on a store: it has an identity Lease, its address is an endpoint of the Service `kubernetes`,
//! and one of the servers runs the controllers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::identity_lease::{self, Identity};
use super::kubernetes_service::Advertised;
use super::leader_election::{self, Candidate, Times};
use crate::heavy::Heavy;
use crate::tasks::Tasks;
use crate::write::Writer;

/// The maximum time that a stopping server waits for the store.
///
/// UPSTREAM: kubernetes pkg/controlplane/controller/kubernetesservice/controller.go (Stop)
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// One of several servers.
#[derive(Debug)]
pub(crate) struct Replica {
    writer: Writer,
    /// `None` if the store is not shared.
    identity: Option<Identity>,
    /// The endpoint, and the task that maintains it.
    advertised: Option<(Advertised, JoinHandle<()>)>,
    leads: watch::Receiver<bool>,
}

impl Replica {
    /// Joins the other servers. `address` is the bound address, and `advertised` the reachable one.
    pub(crate) fn join(
        writer: Writer,
        address: SocketAddr,
        advertised: Option<IpAddr>,
        tasks: &Tasks,
        threads: &Heavy,
    ) -> Self {
        let is_shared = writer.storage.store().is_shared();
        let (leader, leads) = watch::channel(!is_shared);
        let identity = is_shared.then(|| Identity::new(&hostname(), &address.to_string()));
        if let Some(identity) = &identity {
            let candidate = Candidate::new(&identity.holder, Times::default());
            threads.spawn(tasks.until_stopped(candidate.run(writer.clone(), leader)));
            threads.spawn(tasks.until_stopped(identity.clone().run(writer.clone())));
            threads.spawn(tasks.until_stopped(identity_lease::collect(writer.clone())));
        }
        let ip = match advertised {
            None if is_shared => reachable(address.ip()),
            advertised => advertised,
        };
        let advertised = ip.map(|ip| {
            let advertised = Advertised(SocketAddr::new(ip, address.port()));
            let keeping = tasks.until_draining(advertised.run(writer.clone()));
            (advertised, threads.spawn(keeping))
        });
        Self {
            writer,
            identity,
            advertised,
            leads,
        }
    }

    /// A watch that is true while this server runs the controllers.
    pub(crate) fn leads(&self) -> watch::Receiver<bool> {
        self.leads.clone()
    }

    /// Removes the endpoint while the server still serves, so that clients connect elsewhere.
    pub(crate) async fn withdraw(&mut self) {
        let Some((advertised, keeping)) = self.advertised.take() else {
            return;
        };
        let removing = async {
            let _ = keeping.await;
            advertised.remove(&self.writer).await
        };
        match tokio::time::timeout(STOP_TIMEOUT, removing).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => {
                tracing::warn!(
                    error = failure.0.message,
                    "endpoint not removed, it stays until it expires"
                );
            }
            Err(_) => {
                tracing::warn!("endpoint not removed, it stays until it expires: store timed out")
            }
        }
    }

    /// Releases the leader Lease after the controllers have stopped.
    pub(crate) async fn release(&self) {
        let Some(identity) = &self.identity else {
            return;
        };
        let releasing = leader_election::release(&self.writer, &identity.holder);
        if !matches!(
            tokio::time::timeout(STOP_TIMEOUT, releasing).await,
            Ok(Ok(()))
        ) {
            tracing::warn!("controller lease not released, it stays until it expires");
        }
    }
}

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = name.ok().or_else(|| std::env::var("HOSTNAME").ok());
    let name = name
        .as_deref()
        .map(str::trim)
        .filter(|name| !name.is_empty());
    name.unwrap_or("localhost").to_owned()
}

/// The reachable address of a server: the outgoing interface's, if it listens on all addresses or on loopback. `None`
/// without one.
///
/// UPSTREAM: apimachinery pkg/util/net/interface.go (ResolveBindAddress)
pub(crate) fn reachable(bound: IpAddr) -> Option<IpAddr> {
    if !bound.is_unspecified() && !bound.is_loopback() {
        return Some(bound);
    }
    // Nothing is sent: these are documentation addresses.
    let (any, far): (SocketAddr, SocketAddr) = match bound {
        IpAddr::V4(_) => (
            (Ipv4Addr::UNSPECIFIED, 0).into(),
            (Ipv4Addr::new(192, 0, 2, 1), 9).into(),
        ),
        IpAddr::V6(_) => (
            (Ipv6Addr::UNSPECIFIED, 0).into(),
            (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9).into(),
        ),
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(far).ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_unspecified() && !own.is_loopback()).then_some(own)
}
