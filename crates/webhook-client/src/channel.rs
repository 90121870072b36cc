//! Connection pooling.
//!
//! A channel belongs to all clients with the same CAs and credentials; it pools connections by address and server
//! name. So a connection is never reused for a Service that has moved, nor with other credentials. A channel lives as
//! long as its clients, and its connections are closed with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::call::Phase;
use crate::clock::Clock;
use crate::proxy::Proxy;
use crate::tap::{Ends, Notes, Tap};
use crate::target::Scheme;
use crate::tls::Offer;
use crate::wire::{self, Wire};
use crate::wording::{self, Failure};

/// The maximum number of idle connections per address.
///
/// UPSTREAM: k8s.io/client-go transport/cache.go (idleConnsPerHost).
const MAX_IDLE: usize = 25;

/// The idle timeout of a connection.
///
/// UPSTREAM: Go net/http/transport.go (DefaultTransport).
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// The destination of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Address {
    pub(super) scheme: Scheme,
    /// The `host:port` to dial, or to request from the proxy.
    pub(super) dial: String,
    /// The name the certificate must carry.
    pub(super) server_name: String,
    pub(super) proxy: Option<Proxy>,
    /// A name that does not resolve to a loopback address is not dialed.
    pub(super) loopback_only: bool,
}

/// A set of connections with one identity.
#[derive(Debug)]
pub(super) struct Channel {
    tls: Arc<rustls::ClientConfig>,
    offer: Offer,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    slots: HashMap<Arc<Address>, Slot>,
    /// Closes idle connections; runs while there are any.
    reaper: Option<AbortHandle>,
}

#[derive(Debug, Default)]
struct Slot {
    /// Idle connections, the most recently used last.
    idle: Vec<(Connection, Instant)>,
    /// A multiplexed connection.
    shared: Option<(Shared, Instant)>,
    /// Held while opening a connection that others may be able to share.
    opening: Arc<tokio::sync::Mutex<()>>,
}

/// A connection for one request at a time.
#[derive(Debug)]
struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    link: Arc<Link>,
}

/// A connection for concurrent requests.
#[derive(Debug, Clone)]
struct Shared {
    sender: http2::SendRequest<Full<Bytes>>,
    link: Arc<Link>,
}

/// The common part of connections. The connection's task ends with its link.
#[derive(Debug)]
pub(super) struct Link {
    driver: AbortHandle,
    pub(super) notes: Arc<Notes>,
    pub(super) ends: Ends,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A connection leased for one request.
#[derive(Debug)]
pub(super) struct Lease {
    kind: Kind,
    address: Arc<Address>,
    channel: Arc<Channel>,
}

#[derive(Debug)]
enum Kind {
    Exclusive(Connection),
    Shared(Shared),
}

impl Lease {
    pub(super) fn link(&self) -> &Arc<Link> {
        match &self.kind {
            Kind::Exclusive(connection) => &connection.link,
            Kind::Shared(shared) => &shared.link,
        }
    }

    pub(super) fn is_http2(&self) -> bool {
        matches!(self.kind, Kind::Shared(_))
    }

    /// Returns the connection to the pool after the response was read completely.
    pub(super) fn release(self) {
        self.channel.keep(self.address, self.kind);
    }

    async fn try_send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Full<Bytes>>>> {
        match &mut self.kind {
            Kind::Exclusive(connection) => connection.sender.try_send_request(request).await,
            Kind::Shared(shared) => shared.sender.try_send_request(request).await,
        }
    }

    async fn is_usable(&mut self) -> bool {
        match &mut self.kind {
            Kind::Exclusive(connection) => connection.sender.ready().await.is_ok(),
            Kind::Shared(shared) => shared.sender.ready().await.is_ok(),
        }
    }
}

impl Channel {
    pub(super) fn new(tls: rustls::ClientConfig, offer: Offer) -> Self {
        Self {
            tls: Arc::new(tls),
            offer,
            state: Mutex::default(),
        }
    }

    /// Sends a request on a pooled connection, or on a new one.
    ///
    /// The peer may have closed a pooled connection. If nothing of the request was written, it is retried on another
    /// connection, as in Go.
    pub(super) async fn send(
        self: &Arc<Self>,
        address: &Arc<Address>,
        make: impl Fn(bool) -> Request<Full<Bytes>>,
        clock: &Clock,
    ) -> Result<(Response<Incoming>, Lease), Failure> {
        loop {
            let (mut lease, fresh) = match self.take(address) {
                Some(lease) => (lease, false),
                None => self.open(address, clock).await?,
            };
            if !lease.is_usable().await && !fresh {
                self.forget(&lease);
                continue;
            }
            let request = make(lease.is_http2());
            clock.writing(&lease.link().notes);
            match lease.try_send(request).await {
                Ok(response) => {
                    clock.response_started();
                    return Ok((response, lease));
                }
                Err(unsent) if unsent.message().is_some() && !fresh => self.forget(&lease),
                Err(failed) => {
                    clock.settle();
                    let link = lease.link();
                    let problem = wording::exchange(failed.error(), &link.ends, &link.notes);
                    return Err(Failure::new(clock.current(), problem));
                }
            }
        }
    }

    fn take(self: &Arc<Self>, address: &Arc<Address>) -> Option<Lease> {
        let mut state = self.lock();
        let slot = state.slots.get_mut(address)?;
        slot.drop_stale();
        let kind = match &mut slot.shared {
            Some((shared, used)) => {
                *used = Instant::now();
                Kind::Shared(shared.clone())
            }
            None => Kind::Exclusive(slot.idle.pop()?.0),
        };
        Some(self.lease(address, kind))
    }

    fn lease(self: &Arc<Self>, address: &Arc<Address>, kind: Kind) -> Lease {
        Lease {
            kind,
            address: Arc::clone(address),
            channel: Arc::clone(self),
        }
    }

    /// Opens a connection, or waits for one that can be shared. Returns `true` with a new one.
    async fn open(
        self: &Arc<Self>,
        address: &Arc<Address>,
        clock: &Clock,
    ) -> Result<(Lease, bool), Failure> {
        if self.offer == Offer::Http1 {
            let kind = self.connect(address, clock).await?;
            return Ok((self.lease(address, kind), true));
        }
        let opening = {
            let mut state = self.lock();
            let slot = state.slots.entry(Arc::clone(address)).or_default();
            Arc::clone(&slot.opening)
        };
        let _turn = opening.lock().await;
        if let Some(lease) = self.take(address) {
            return Ok((lease, false));
        }
        let kind = self.connect(address, clock).await?;
        if let Kind::Shared(shared) = &kind {
            self.keep(Arc::clone(address), Kind::Shared(shared.clone()));
        }
        Ok((self.lease(address, kind), true))
    }

    async fn connect(&self, address: &Address, clock: &Clock) -> Result<Kind, Failure> {
        let stream = match &address.proxy {
            None => wire::dial(&address.dial, address.loopback_only, clock).await?,
            Some(proxy) => proxy.connect(&address.dial, clock).await?,
        };
        let ends = Ends::of(&stream);
        let (wire, speaks_http2) = match address.scheme {
            Scheme::Http => (Wire::Plain(stream), false),
            Scheme::Https => {
                let tls = Arc::clone(&self.tls);
                let stream = wire::tls_handshake(stream, tls, &address.server_name, clock).await?;
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                (Wire::Tls(Box::new(stream)), http2)
            }
        };
        let tap = Tap::new(wire);
        let notes = tap.notes();
        let io = TokioIo::new(tap);
        let failed = |error: hyper::Error| {
            Failure::new(
                Phase::Tls,
                wording::exchange(&error, &ends, &Notes::default()),
            )
        };
        if speaks_http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io)
                .await
                .map_err(failed)?;
            // The requests on a connection get its error.
            let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
            let link = Arc::new(Link {
                driver,
                notes,
                ends,
            });
            return Ok(Kind::Shared(Shared { sender, link }));
        }
        let (sender, connection) = http1::handshake(io).await.map_err(failed)?;
        let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        let link = Arc::new(Link {
            driver,
            notes,
            ends,
        });
        Ok(Kind::Exclusive(Connection { sender, link }))
    }

    fn keep(self: &Arc<Self>, address: Arc<Address>, kind: Kind) {
        let mut state = self.lock();
        let slot = state.slots.entry(address).or_default();
        let now = Instant::now();
        match kind {
            // It may have been replaced while it was in use.
            Kind::Shared(shared) => match &mut slot.shared {
                Some((_, used)) => *used = now,
                None => slot.shared = Some((shared, now)),
            },
            Kind::Exclusive(connection) => {
                if connection.sender.is_closed() {
                    return;
                }
                slot.idle.push((connection, now));
                if slot.idle.len() > MAX_IDLE {
                    slot.idle.remove(0);
                }
            }
        }
        if state.reaper.is_none() {
            let reaper = tokio::spawn(reap(Arc::downgrade(self)));
            state.reaper = Some(reaper.abort_handle());
        }
    }

    /// Removes a connection from the pool.
    fn forget(&self, lease: &Lease) {
        let mut state = self.lock();
        if let Some(slot) = state.slots.get_mut(&lease.address) {
            slot.shared
                .take_if(|(shared, _)| Arc::ptr_eq(&shared.link, lease.link()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops expired connections; returns true if any are left.
    fn drop_stale(&self) -> bool {
        let mut state = self.lock();
        state.slots.retain(|_, slot| {
            slot.drop_stale();
            // A slot with waiters must be kept, as others find it.
            !slot.idle.is_empty() || slot.shared.is_some() || Arc::strong_count(&slot.opening) > 1
        });
        if state.slots.is_empty() {
            state.reaper = None;
        }
        state.reaper.is_some()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(reaper) = &self.reaper {
            reaper.abort();
        }
    }
}

impl Slot {
    fn drop_stale(&mut self) {
        let fresh = |used: &Instant| used.elapsed() < IDLE_TIMEOUT;
        self.idle
            .retain(|(connection, used)| fresh(used) && !connection.sender.is_closed());
        if let Some((shared, used)) = &self.shared {
            let in_use = Arc::strong_count(&shared.link) > 1;
            if shared.sender.is_closed() || !(in_use || fresh(used)) {
                self.shared = None;
            }
        }
    }
}

/// Closes idle connections on time, while there are any.
async fn reap(channel: Weak<Channel>) {
    loop {
        tokio::time::sleep(IDLE_TIMEOUT / 3).await;
        let Some(channel) = channel.upgrade() else {
            return;
        };
        if !channel.drop_stale() {
            return;
        }
    }
}
