//! An etcd client, connected to one member of the cluster at a time.

use std::error::Error as _;
use std::future::Future;
use std::time::Duration;

use futures_util::stream;
use http::uri::PathAndQuery;
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, timeout, timeout_at};
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{ConnectError, Status, Streaming};
use tonic_prost::ProstCodec;

use super::proto::{
    CompactionRequest, CompactionResponse, LeaseGrantRequest, LeaseGrantResponse, RangeRequest,
    RangeResponse, StatusRequest, StatusResponse, TxnRequest, TxnResponse, WatchRequest,
    WatchResponse,
};
use super::{EtcdError, EtcdOptions, version};
use crate::Unavailable;

/// The connect timeout per member.
const CONNECT: Duration = Duration::from_secs(2);
/// The timeout of a read, before switching to another member.
const READ: Duration = Duration::from_secs(2);
/// The time limit for retries of calls that were certainly not executed.
const RETRY_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of a call that may have been executed.
const WRITE: Duration = Duration::from_secs(7);
/// The delay after all members were tried.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// The keepalive interval; etcd closes connections with pings more often than every five seconds.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// The maximum response size: a page of large objects.
const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// A failed call.
#[derive(Debug, Clone)]
pub(super) enum CallError {
    /// The revision is compacted.
    Compacted,
    /// The revision is in the future.
    Future,
    TooLarge,
    /// The call was not executed.
    NotSent(String),
    /// Another error; a write may have been executed.
    Failed(String),
}

impl CallError {
    pub(super) fn unavailable(&self) -> Unavailable {
        Unavailable(match self {
            Self::Compacted => String::from("etcd: the revision is compacted"),
            Self::Future => String::from("etcd: the revision is ahead of the cluster"),
            Self::TooLarge => String::from("etcd: the request is too large"),
            Self::NotSent(why) | Self::Failed(why) => format!("etcd: {why}"),
        })
    }
}

impl From<Status> for CallError {
    /// UPSTREAM: etcd api/v3rpc/rpctypes/error.go
    fn from(status: Status) -> Self {
        let message = status.message();
        if message.contains("required revision has been compacted") {
            return Self::Compacted;
        }
        if message.contains("required revision is a future revision") {
            return Self::Future;
        }
        if message.contains("request is too large") || message.contains("larger than max") {
            return Self::TooLarge;
        }
        let mut source = status.source();
        while let Some(error) = source {
            if error.is::<ConnectError>() {
                return Self::NotSent(error.to_string());
            }
            source = error.source();
        }
        // Rejected before the proposal.
        if message == "etcdserver: no leader" || message == "etcdserver: too many requests" {
            return Self::NotSent(message.to_owned());
        }
        Self::Failed(match message {
            "" => status.code().description().to_owned(),
            message => message.to_owned(),
        })
    }
}

/// A connection to a member.
#[derive(Debug, Clone)]
struct Connection {
    channel: Channel,
    /// Identifies the connection.
    number: u64,
}

#[derive(Debug, Default)]
struct Current {
    connection: Option<Connection>,
    /// The index of the next member to try.
    next: usize,
    count: u64,
    /// The cluster id, after the first connection to a member.
    cluster: Option<u64>,
}

/// A client of a cluster.
#[derive(Debug)]
pub(super) struct Client {
    members: Vec<Endpoint>,
    current: Mutex<Current>,
}

impl Client {
    pub(super) fn new(options: &EtcdOptions) -> Result<Self, EtcdError> {
        if options.servers.is_empty() {
            return Err(EtcdError::NoServers);
        }
        let mut tls = ClientTlsConfig::new();
        if let Some(ca) = &options.ca_pem {
            tls = tls.ca_certificate(Certificate::from_pem(ca));
        }
        if let Some((certificate, key)) = &options.identity_pem {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        let members = options.servers.iter().map(|server| {
            let url = match server.contains("://") {
                true => server.clone(),
                false => format!("http://{server}"),
            };
            let invalid = |error: tonic::transport::Error| EtcdError::Server {
                server: server.clone(),
                why: chain(&error),
            };
            let endpoint = Endpoint::from_shared(url.clone()).map_err(invalid)?;
            let endpoint = endpoint
                .connect_timeout(CONNECT)
                .tcp_nodelay(true)
                .http2_keep_alive_interval(KEEP_ALIVE)
                .keep_alive_timeout(CONNECT)
                .keep_alive_while_idle(true)
                .initial_stream_window_size(4 << 20)
                .initial_connection_window_size(8 << 20);
            match url.starts_with("https://") {
                true => endpoint.tls_config(tls.clone()).map_err(invalid),
                false => Ok(endpoint),
            }
        });
        Ok(Self {
            members: members.collect::<Result<_, _>>()?,
            current: Mutex::default(),
        })
    }

    /// Returns the connection, or connects, trying every member once.
    async fn connection(&self) -> Result<Connection, CallError> {
        let mut current = self.current.lock().await;
        if let Some(connection) = &current.connection {
            return Ok(connection.clone());
        }
        let mut why = String::new();
        for _ in 0..self.members.len() {
            let index = current.next % self.members.len();
            current.next = index + 1;
            let Some(member) = self.members.get(index) else {
                break;
            };
            match connect(member, current.cluster).await {
                Ok((channel, cluster)) => {
                    current.count += 1;
                    current.cluster = Some(cluster);
                    let connection = Connection {
                        channel,
                        number: current.count,
                    };
                    current.connection = Some(connection.clone());
                    tracing::debug!(member = %member.uri(), "etcd connected");
                    return Ok(connection);
                }
                Err(error) => {
                    tracing::debug!(member = %member.uri(), error, "etcd connection failed");
                    why = format!("{}: {error}", member.uri());
                }
            }
        }
        Err(CallError::NotSent(why))
    }

    /// Drops the connection, so that the next call uses another member, unless it was already
    /// replaced.
    async fn drop_connection(&self, connection: &Connection) {
        let mut current = self.current.lock().await;
        if current
            .connection
            .as_ref()
            .is_some_and(|used| used.number == connection.number)
        {
            current.connection = None;
        }
    }

    /// An idempotent call.
    async fn read<Q, A>(&self, path: &'static str, request: Q) -> Result<A, CallError>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        self.call(READ, |error| !is_final(error), path, request)
            .await
    }

    /// A call that must not be executed twice.
    async fn write<Q, A>(&self, path: &'static str, request: Q) -> Result<A, CallError>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let is_safe = |error: &CallError| matches!(error, CallError::NotSent(_));
        self.call(WRITE, is_safe, path, request).await
    }

    async fn call<Q, A>(
        &self,
        max_wait: Duration,
        may_repeat: impl Fn(&CallError) -> bool,
        path: &'static str,
        request: Q,
    ) -> Result<A, CallError>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let end = Instant::now() + RETRY_TIMEOUT;
        let mut tried = 0;
        loop {
            let error = match self.connection().await {
                Err(error) => error,
                Ok(connection) => {
                    let answer = unary(connection.channel.clone(), path, request.clone());
                    let error = match timeout(max_wait, answer).await {
                        Ok(Ok(answer)) => return Ok(answer),
                        Ok(Err(error)) => error,
                        Err(_) => CallError::Failed(String::from("no answer in time")),
                    };
                    if !is_final(&error) {
                        self.drop_connection(&connection).await;
                    }
                    error
                }
            };
            tried += 1;
            if !may_repeat(&error) || Instant::now() + RETRY_DELAY >= end {
                return Err(error);
            }
            if tried % self.members.len() == 0 {
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }

    pub(super) fn range(
        &self,
        request: RangeRequest,
    ) -> impl Future<Output = Result<RangeResponse, CallError>> {
        self.read("/etcdserverpb.KV/Range", request)
    }

    pub(super) fn txn(
        &self,
        request: TxnRequest,
    ) -> impl Future<Output = Result<TxnResponse, CallError>> {
        self.write("/etcdserverpb.KV/Txn", request)
    }

    pub(super) async fn compact(&self, revision: i64) -> Result<(), CallError> {
        let request = CompactionRequest { revision };
        let CompactionResponse {} = self.read("/etcdserverpb.KV/Compact", request).await?;
        Ok(())
    }

    /// Grants a lease with a TTL in seconds.
    pub(super) async fn lease(&self, seconds: i64) -> Result<i64, CallError> {
        let request = LeaseGrantRequest { ttl: seconds };
        let granted: LeaseGrantResponse =
            self.read("/etcdserverpb.Lease/LeaseGrant", request).await?;
        match granted.error.as_str() {
            "" => Ok(granted.id),
            error => Err(CallError::Failed(error.to_owned())),
        }
    }

    /// Opens a watch stream.
    pub(super) async fn watch(&self, first: WatchRequest) -> Result<WatchStream<'_>, CallError> {
        let connection = self.connection().await?;
        let (requests, receiver) = mpsc::channel(16);
        // The channel has capacity for it.
        let _ = requests.try_send(first);
        let opened = timeout(CONNECT, open(connection.channel.clone(), receiver)).await;
        let opened =
            opened.unwrap_or_else(|_| Err(CallError::Failed(String::from("no answer in time"))));
        match opened {
            Ok(answers) => Ok(WatchStream {
                client: self,
                connection,
                requests,
                answers,
            }),
            Err(error) => {
                self.drop_connection(&connection).await;
                Err(error)
            }
        }
    }
}

/// A watch stream.
#[derive(Debug)]
pub(super) struct WatchStream<'c> {
    client: &'c Client,
    connection: Connection,
    requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
}

impl WatchStream<'_> {
    /// Sends a request. If the channel is full, it is dropped, as the pending requests are
    /// sufficient.
    pub(super) fn send(&self, request: WatchRequest) {
        let _ = self.requests.try_send(request);
    }

    /// The next response; an error on timeout.
    pub(super) async fn next(&mut self, until: Instant) -> Result<WatchResponse, CallError> {
        match timeout_at(until, self.answers.message()).await {
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Ok(None)) => Err(CallError::Failed(String::from("the watch ended"))),
            Ok(Err(status)) => Err(status.into()),
            Err(_) => Err(CallError::Failed(String::from("the watch is silent"))),
        }
    }

    /// Closes the stream and drops its connection, as writes to the same member may fail as well.
    pub(super) async fn abandon(self) {
        self.client.drop_connection(&self.connection).await;
    }
}

/// Returns true for errors of a healthy member.
fn is_final(error: &CallError) -> bool {
    matches!(
        error,
        CallError::Compacted | CallError::Future | CallError::TooLarge
    )
}

async fn connect(member: &Endpoint, cluster: Option<u64>) -> Result<(Channel, u64), String> {
    let connecting = timeout(CONNECT, member.connect()).await;
    let connecting = connecting.map_err(|_| String::from("no connection in time"))?;
    let channel = connecting.map_err(|error| chain(&error))?;
    let asking = unary(
        channel.clone(),
        "/etcdserverpb.Maintenance/Status",
        StatusRequest {},
    );
    let asked: Result<StatusResponse, _> = timeout(CONNECT, asking)
        .await
        .map_err(|_| String::from("no status in time"))?;
    let status = asked.map_err(|error| error.unavailable().0)?;
    if let Some(fault) = version::fault(&status.version) {
        return Err(format!("etcd {} is not supported: {fault}", status.version));
    }
    let found = status.header.unwrap_or_default().cluster_id;
    match cluster {
        Some(cluster) if cluster != found => Err(String::from("it belongs to another cluster")),
        _ => Ok((channel, found)),
    }
}

fn grpc(channel: Channel) -> Grpc<Channel> {
    Grpc::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

/// A request that a member without a leader rejects, since it might return stale data.
fn with_leader<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request
        .metadata_mut()
        .insert("hasleader", MetadataValue::from_static("true"));
    request
}

async fn unary<Q, A>(channel: Channel, path: &'static str, request: Q) -> Result<A, CallError>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let mut grpc = grpc(channel);
    // The channel reconnects by itself; nothing is sent before it is ready.
    grpc.ready()
        .await
        .map_err(|error| CallError::NotSent(chain(&error)))?;
    let path = PathAndQuery::from_static(path);
    let codec = ProstCodec::<Q, A>::default();
    let answer = grpc.unary(with_leader(request), path, codec).await?;
    Ok(answer.into_inner())
}

async fn open(
    channel: Channel,
    requests: mpsc::Receiver<WatchRequest>,
) -> Result<Streaming<WatchResponse>, CallError> {
    let mut grpc = grpc(channel);
    grpc.ready()
        .await
        .map_err(|error| CallError::NotSent(chain(&error)))?;
    let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
    let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
    let requests = stream::unfold(requests, |mut requests| async move {
        let request = requests.recv().await?;
        Some((request, requests))
    });
    let answers = grpc.streaming(with_leader(requests), path, codec).await?;
    Ok(answers.into_inner())
}

/// An error with its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
