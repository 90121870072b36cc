//! The etcd backend: several processes share one store.
//!
//! All writes are one kind of transaction: if the key's mod revision is the expected one, put or delete it;
//! otherwise read it. Reads of one key go to etcd. Lists and watches are served by a watch cache of the whole
//! prefix (`cache`), which first catches up with the cluster's revision for consistent reads.

mod cache;
mod client;
mod compactor;
mod proto;
#[cfg(test)]
mod tests;
mod version;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::task::JoinHandle;

use crate::watch::Cursor;
use crate::{
    Compacted, Entry, Filter, Layout, List, MemoryOptions, Page, PlainLayout, ReadAt, ReadError,
    Revision, Store, Unavailable, Watch, WriteError,
};
use cache::{Cache, Space, after, number, prefix_end, revision};
use client::{CallError, Client};
use compactor::Compactor;
use proto::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RangeResponse, Request,
    RequestOp, Response, TxnRequest, TxnResponse,
};

/// The maximum wait of a read for the cache, before it is read from etcd.
///
/// UPSTREAM: apiserver pkg/storage/cacher/watch_cache.go (blockTimeout)
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);
/// The page size of lists from etcd.
const PAGE: i64 = 2_000;
/// The keys that mark prefixes as Lockgate's. They are outside of every prefix.
const MARKERS: &str = "/lockgate.io/prefixes";
/// The keys written to advance the revision.
const REACHED: &str = "/lockgate.io/reached";
/// The number of concurrent writes to advance it.
const AT_ONCE: u64 = 256;
/// The keys of values that replicas agree on.
const AGREED: &str = "/lockgate.io/agreed";

/// The etcd servers, credentials and key prefix.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// The URLs of the members.
    pub servers: Vec<String>,
    /// The PEM-encoded CA certificates of members.
    pub ca_pem: Option<String>,
    /// The PEM-encoded client certificate and its key.
    pub identity_pem: Option<(String, String)>,
    /// The prefix of all keys.
    pub prefix: String,
    /// The layout of keys and values.
    pub layout: Arc<dyn Layout>,
    /// Use a prefix that contains keys of another program.
    pub adopt_prefix: bool,
    /// The interval of compaction; zero disables it.
    pub compaction_interval: Duration,
    /// The history of the cache.
    pub history: MemoryOptions,
}

impl Default for EtcdOptions {
    /// The defaults of kube-apiserver.
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            ca_pem: None,
            identity_pem: None,
            prefix: String::from("/registry"),
            layout: Arc::new(PlainLayout),
            adopt_prefix: false,
            compaction_interval: Duration::from_secs(300),
            history: MemoryOptions::default(),
        }
    }
}

/// An error on opening a store on etcd.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// No servers are configured.
    #[error("no etcd server given")]
    NoServers,
    /// The URL or the certificates of a server are invalid.
    #[error("cannot use the etcd server `{server}`: {why}")]
    Server {
        /// The server as configured.
        server: String,
        /// The reason.
        why: String,
    },
    /// The prefix is invalid.
    #[error("invalid prefix `{0}`, expected a path below `/`")]
    Prefix(String),
    /// No member is available.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The prefix contains keys of another program.
    #[error(
        "`{key}` was not written by lockgate: the prefix `{prefix}` is used by another program"
    )]
    ForeignPrefix {
        /// The prefix.
        prefix: String,
        /// A key below it.
        key: String,
    },
}

/// A store on etcd. Clones are handles to the same cache.
#[derive(Debug, Clone)]
pub struct EtcdStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Arc<Client>,
    space: Arc<Space>,
    cache: Arc<Cache>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl From<CallError> for Unavailable {
    fn from(error: CallError) -> Self {
        error.unavailable()
    }
}

impl From<CallError> for WriteError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::TooLarge => Self::TooLarge,
            error => Self::Unavailable(error.into()),
        }
    }
}

impl EtcdStore {
    /// Connects to etcd and fills the cache.
    ///
    /// # Errors
    ///
    /// No member is available, or the prefix is used by another program.
    pub async fn open(options: EtcdOptions) -> Result<Self, EtcdError> {
        let prefix = options.prefix.trim_end_matches('/').to_owned();
        if prefix.len() < 2 || !prefix.starts_with('/') || prefix.starts_with("/lockgate.io/") {
            return Err(EtcdError::Prefix(options.prefix));
        }
        let client = Arc::new(Client::new(&options)?);
        let space = Arc::new(Space {
            prefix,
            layout: options.layout,
        });
        mark(&client, &space, options.adopt_prefix).await?;
        let cache = Cache::fill(&client, &space, options.history).await;
        let cache = Arc::new(cache.map_err(Unavailable::from)?);
        let mut tasks = Vec::new();
        let kept = Arc::clone(&cache);
        tasks.push(tokio::spawn(async move { kept.run().await }));
        if !options.compaction_interval.is_zero() {
            let (client, period) = (Arc::clone(&client), options.compaction_interval);
            tasks.push(tokio::spawn(async move {
                Compactor::default().run(&client, period).await;
            }));
        }
        Ok(Self {
            shared: Arc::new(Shared {
                client,
                space,
                cache,
                tasks,
            }),
        })
    }

    /// Agrees on a value with all replicas that use the same prefix: the first proposal wins.
    ///
    /// # Errors
    ///
    /// The cluster is not available.
    pub async fn agree(&self, name: &str, value: Bytes) -> Result<Bytes, Unavailable> {
        let key = Bytes::from(format!("{AGREED}{}/{name}", self.shared.space.prefix));
        let put = Request::Put(PutRequest {
            key: key.clone(),
            value: value.clone(),
            ..PutRequest::default()
        });
        let range = Request::Range(RangeRequest {
            key: key.clone(),
            ..RangeRequest::default()
        });
        let request = TxnRequest {
            compare: vec![Compare::mod_revision(key, 0)],
            success: vec![RequestOp { request: Some(put) }],
            failure: vec![RequestOp {
                request: Some(range),
            }],
        };
        let answer = self.shared.client.txn(request).await?;
        if answer.succeeded {
            return Ok(value);
        }
        let response = answer.responses.into_iter().next();
        match response.and_then(|response| response.response) {
            Some(Response::Range(range)) => range.kvs.into_iter().next(),
            _ => None,
        }
        .map(|kv| kv.value)
        .ok_or_else(|| Unavailable(format!("etcd: shared value `{name}` is missing")))
    }

    /// Advances the cluster's revision to at least this one, so that no earlier one is assigned again. Every
    /// revision requires a write.
    ///
    /// # Errors
    ///
    /// The cluster is not available.
    pub async fn advance_revision(&self, revision: Revision) -> Result<(), Unavailable> {
        loop {
            let missing = revision.0.saturating_sub(self.quorum().await?.0);
            if missing == 0 {
                return Ok(());
            }
            let put = || {
                let put = Request::Put(PutRequest {
                    key: Bytes::from(format!("{REACHED}{}", self.shared.space.prefix)),
                    value: Bytes::from(revision.to_string()),
                    ..PutRequest::default()
                });
                self.shared.client.txn(TxnRequest {
                    compare: Vec::new(),
                    success: vec![RequestOp { request: Some(put) }],
                    failure: Vec::new(),
                })
            };
            let puts = (0..missing.min(AT_ONCE)).map(|_| put());
            for put in futures_util::future::join_all(puts).await {
                put?;
            }
        }
    }

    /// The transaction of every write. Returns its revision and response, or the existing entry if the comparison
    /// failed.
    async fn write(
        &self,
        key: &str,
        expected: i64,
        operation: Request,
    ) -> Result<Result<(Revision, Option<Response>), Option<Entry>>, CallError> {
        let stored = self.shared.space.key(key);
        let range = Request::Range(RangeRequest {
            key: stored.clone(),
            ..RangeRequest::default()
        });
        let request = TxnRequest {
            compare: vec![Compare::mod_revision(stored, expected)],
            success: vec![RequestOp {
                request: Some(operation),
            }],
            failure: vec![RequestOp {
                request: Some(range),
            }],
        };
        let TxnResponse {
            header,
            succeeded,
            responses,
        } = self.shared.client.txn(request).await?;
        let response = responses.into_iter().next();
        let response = response.and_then(|response| response.response);
        if succeeded {
            let at = revision(header.unwrap_or_default().revision);
            return Ok(Ok((at, response)));
        }
        let current = match response {
            Some(Response::Range(range)) => range.kvs.into_iter().next(),
            _ => None,
        };
        Ok(Err(current.and_then(|kv| self.shared.space.entry(kv))))
    }

    /// Reads a key from etcd.
    async fn range_key(
        &self,
        key: &str,
        at: Revision,
    ) -> Result<(Option<Entry>, Revision), CallError> {
        let RangeResponse { header, kvs, .. } = self
            .shared
            .client
            .range(RangeRequest {
                key: self.shared.space.key(key),
                revision: number(at),
                ..RangeRequest::default()
            })
            .await?;
        let current = revision(header.unwrap_or_default().revision);
        let kv = kvs.into_iter().next();
        Ok((kv.and_then(|kv| self.shared.space.entry(kv)), current))
    }

    /// The revision of the cluster.
    async fn quorum(&self) -> Result<Revision, CallError> {
        let (key, _) = self.shared.space.range();
        let request = RangeRequest {
            key,
            keys_only: true,
            ..RangeRequest::default()
        };
        let answer = self.shared.client.range(request).await?;
        Ok(revision(answer.header.unwrap_or_default().revision))
    }

    /// Waits until the cache has the requested state. Returns the state to read from the cache, or the revision to
    /// read from etcd on timeout.
    async fn catch_up(&self, at: ReadAt) -> Result<Result<ReadAt, Revision>, ReadError> {
        let cache = &self.shared.cache;
        let unavailable = |error: CallError| ReadError::Unavailable(error.into());
        let wanted = match at {
            ReadAt::Latest => self.quorum().await.map_err(unavailable)?,
            ReadAt::NotOlderThan(wanted) | ReadAt::Exact(wanted) => {
                if wanted > cache.revision() {
                    let current = self.quorum().await.map_err(unavailable)?;
                    if wanted > current {
                        return Err(ReadError::Future { current });
                    }
                }
                wanted
            }
        };
        if !cache.reaches(wanted, CATCH_UP_TIMEOUT).await {
            return Ok(Err(wanted));
        }
        Ok(Ok(match at {
            ReadAt::Exact(_) => at,
            _ => ReadAt::NotOlderThan(wanted),
        }))
    }

    /// Lists from etcd.
    async fn range_list(&self, list: List<'_>, at: Revision) -> Result<Page, ReadError> {
        let Shared {
            client,
            space,
            cache,
            ..
        } = &*self.shared;
        let failed = |error| match error {
            CallError::Compacted => Compacted {
                oldest: cache.published.current().oldest(),
            }
            .into(),
            CallError::Future => ReadError::Future {
                current: cache.revision(),
            },
            error => ReadError::Unavailable(error.into()),
        };
        // Without a common prefix in etcd, keys are sorted here.
        let stored = space.layout.encode_prefix(list.prefix);
        let (mut key, end) = match &stored {
            Some(stored) => {
                let key = format!("{}{stored}", space.prefix);
                let end = prefix_end(key.as_bytes());
                match list.after.filter(|after| *after >= list.prefix) {
                    Some(last) if last.starts_with(list.prefix) => (after(&space.key(last)), end),
                    Some(_) => (end.clone(), end),
                    None => (Bytes::from(key), end),
                }
            }
            None => space.range(),
        };
        let wanted = stored.is_some().then_some(list.limit).flatten();
        let mut entries: Vec<Arc<Entry>> = Vec::new();
        let mut remaining = 0;
        while key < end || end.as_ref() == b"\0" {
            let missing = wanted.map(|wanted| wanted.saturating_sub(entries.len()));
            let missing = missing.map(|missing| i64::try_from(missing).unwrap_or(PAGE));
            let request = RangeRequest {
                key,
                range_end: end.clone(),
                // Zero means no limit, so at least one entry is read.
                limit: missing.map_or(PAGE, |missing| missing.clamp(1, PAGE)),
                revision: number(at),
                keys_only: missing == Some(0),
            };
            let answer = client.range(request).await.map_err(failed)?;
            let last = answer.kvs.last().map(|kv| kv.key.clone());
            let count = usize::try_from(answer.count).unwrap_or_default();
            if missing == Some(0) {
                remaining = count;
                break;
            }
            remaining = count.saturating_sub(answer.kvs.len());
            let found = answer.kvs.into_iter().filter_map(|kv| space.entry(kv));
            entries.extend(found.map(Arc::new));
            let is_full = wanted.is_some_and(|wanted| entries.len() >= wanted);
            match last {
                Some(last) if answer.more && !is_full => key = after(&last),
                _ => break,
            }
        }
        if stored.is_none() {
            let last = list.after.unwrap_or_default();
            entries.retain(|entry| entry.key.starts_with(list.prefix) && &*entry.key > last);
            entries.sort_unstable_by(|one, other| one.key.cmp(&other.key));
            let limit = list.limit.unwrap_or(usize::MAX);
            remaining = entries.len().saturating_sub(limit);
            entries.truncate(limit);
        }
        Ok(Page {
            entries,
            revision: at,
            remaining,
        })
    }
}

/// Verifies that the prefix is Lockgate's, and marks it in etcd.
async fn mark(client: &Client, space: &Space, adopt: bool) -> Result<(), EtcdError> {
    let unavailable = |error: CallError| EtcdError::Unavailable(error.into());
    let marker = Bytes::from(format!("{MARKERS}{}", space.prefix));
    let request = RangeRequest {
        key: marker.clone(),
        ..RangeRequest::default()
    };
    let found = client.range(request).await.map_err(unavailable)?;
    if !found.kvs.is_empty() {
        return Ok(());
    }
    let (key, range_end) = space.range();
    let request = RangeRequest {
        key,
        range_end,
        limit: 1,
        keys_only: true,
        ..RangeRequest::default()
    };
    let taken = client.range(request).await.map_err(unavailable)?;
    if let Some(KeyValue { key, .. }) = taken.kvs.first().filter(|_| !adopt) {
        return Err(EtcdError::ForeignPrefix {
            prefix: space.prefix.clone(),
            key: String::from_utf8_lossy(key).into_owned(),
        });
    }
    let put = Request::Put(PutRequest {
        key: marker.clone(),
        value: Bytes::from_static(b"{\"format\":1}"),
        ..PutRequest::default()
    });
    // Another replica may have marked it first.
    let request = TxnRequest {
        compare: vec![Compare::mod_revision(marker, 0)],
        success: vec![RequestOp { request: Some(put) }],
        failure: Vec::new(),
    };
    client.txn(request).await.map_err(unavailable)?;
    Ok(())
}

#[async_trait]
impl Store for EtcdStore {
    async fn create(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Revision, WriteError> {
        let space = &self.shared.space;
        let lease = match ttl {
            // A separate lease: keys of a shared lease expire at one revision, and a watch resumed between two of
            // them would miss the second.
            Some(ttl) => {
                let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(1);
                self.shared.client.lease(seconds).await?
            }
            None => 0,
        };
        let put = Request::Put(PutRequest {
            key: space.key(key),
            value: space.layout.encode_value(key, value),
            lease,
            ignore_lease: false,
        });
        match self.write(key, 0, put).await? {
            Ok((revision, _)) => Ok(revision),
            Err(Some(entry)) => Err(WriteError::AlreadyExists(Box::new(entry))),
            // A key that the layout cannot decode.
            Err(None) => Err(Unavailable(format!("etcd: `{key}` is taken")).into()),
        }
    }

    async fn update(
        &self,
        key: &str,
        expected: Revision,
        value: Bytes,
    ) -> Result<Revision, WriteError> {
        let Shared { space, cache, .. } = &*self.shared;
        // An update with the same bytes is a no-op, so the current bytes must be known.
        let cached = cache.published.current().entry(key);
        let cached = cached.filter(|cached| cached.revision == expected);
        if cached.is_none_or(|cached| cached.value == value) {
            match self.range_key(key, Revision::START).await?.0 {
                None => return Err(WriteError::NotFound),
                Some(current) if current.revision != expected => {
                    return Err(WriteError::Conflict(Box::new(current)));
                }
                Some(current) if current.value == value => return Ok(expected),
                Some(_) => {}
            }
        }
        let put = Request::Put(PutRequest {
            key: space.key(key),
            value: space.layout.encode_value(key, value),
            lease: 0,
            ignore_lease: true,
        });
        match self.write(key, number(expected), put).await? {
            Ok((revision, _)) => Ok(revision),
            Err(Some(entry)) => Err(WriteError::Conflict(Box::new(entry))),
            Err(None) => Err(WriteError::NotFound),
        }
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<(Revision, Entry), WriteError> {
        let space = &self.shared.space;
        let delete = Request::DeleteRange(DeleteRangeRequest {
            key: space.key(key),
            prev_kv: true,
        });
        match self.write(key, number(expected), delete).await? {
            Ok((revision, response)) => {
                let previous = match response {
                    Some(Response::DeleteRange(deleted)) => deleted.prev_kvs.into_iter().next(),
                    _ => None,
                };
                // Without an expected revision, there is nothing to delete.
                let previous = previous.and_then(|kv| space.entry(kv));
                let previous = previous.ok_or(WriteError::NotFound)?;
                Ok((revision, previous))
            }
            Err(Some(entry)) => Err(WriteError::Conflict(Box::new(entry))),
            Err(None) => Err(WriteError::NotFound),
        }
    }

    async fn get(&self, key: &str, at: ReadAt) -> Result<(Option<Entry>, Revision), ReadError> {
        let cache = &self.shared.cache;
        let unavailable = |error: CallError| ReadError::Unavailable(error.into());
        match at {
            ReadAt::Latest => self
                .range_key(key, Revision::START)
                .await
                .map_err(unavailable),
            ReadAt::NotOlderThan(wanted) if wanted <= cache.revision() => {
                cache.published.get(key, at)
            }
            ReadAt::NotOlderThan(wanted) => {
                let (entry, current) = self
                    .range_key(key, Revision::START)
                    .await
                    .map_err(unavailable)?;
                match wanted <= current {
                    true => Ok((entry, current)),
                    false => Err(ReadError::Future { current }),
                }
            }
            ReadAt::Exact(wanted) => {
                if wanted <= cache.revision()
                    && let Ok(found) = cache.published.get(key, at)
                {
                    return Ok(found);
                }
                match self.range_key(key, wanted).await {
                    Ok((entry, _)) => Ok((entry, wanted)),
                    Err(CallError::Compacted) => Err(Compacted {
                        oldest: cache.published.current().oldest(),
                    }
                    .into()),
                    Err(CallError::Future) => Err(ReadError::Future {
                        current: self.quorum().await.map_err(unavailable)?,
                    }),
                    Err(error) => Err(unavailable(error)),
                }
            }
        }
    }

    async fn list(&self, list: List<'_>) -> Result<Page, ReadError> {
        let at = match self.catch_up(list.at).await? {
            Err(wanted) => return self.range_list(list, wanted).await,
            Ok(at) => at,
        };
        match self.shared.cache.published.list(List { at, ..list }) {
            // Etcd may have history that is compacted in the cache, or older than the cache.
            Err(ReadError::Compacted(_)) => {
                let (ReadAt::Exact(at) | ReadAt::NotOlderThan(at)) = at else {
                    return self.range_list(list, self.shared.cache.revision()).await;
                };
                self.range_list(list, at).await
            }
            listed => listed,
        }
    }

    async fn watch_if(
        &self,
        prefix: &str,
        after: Revision,
        filter: Option<Filter>,
    ) -> Result<Box<dyn Watch>, ReadError> {
        if self.catch_up(ReadAt::NotOlderThan(after)).await?.is_err() {
            let behind = format!("the watch of etcd has not reached revision {after}");
            return Err(Unavailable(behind).into());
        }
        Cursor::open(&self.shared.cache.published, prefix, after, filter)
    }

    async fn revision(&self) -> Result<Revision, Unavailable> {
        Ok(self.quorum().await?)
    }

    async fn compact(&self, oldest: Revision) -> Result<(), ReadError> {
        let Shared { client, cache, .. } = &*self.shared;
        match client.compact(number(oldest)).await {
            Ok(()) | Err(CallError::Compacted) => {}
            Err(CallError::Future) => {
                let current = self.quorum().await.map_err(Unavailable::from)?;
                return Err(ReadError::Future { current });
            }
            Err(error) => return Err(Unavailable::from(error).into()),
        }
        if cache.reaches(oldest, CATCH_UP_TIMEOUT).await {
            cache.compact(oldest);
        }
        Ok(())
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn failure(&self) -> Option<Unavailable> {
        self.shared.cache.failure()
    }
}
