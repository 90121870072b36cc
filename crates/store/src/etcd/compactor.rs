//! Compacts the history of etcd, by one replica per interval: the first one to update a key.
//!
//! The key and its value are kube-apiserver's, so that both can run on the same cluster.
//!
//! UPSTREAM: apiserver pkg/storage/etcd3/compact.go

use std::time::Duration;

use bytes::Bytes;

use super::client::{CallError, Client};
use super::proto::{
    Compare, PutRequest, RangeRequest, Request, RequestOp, Response, TxnRequest, TxnResponse,
};

const KEY: &[u8] = b"compact_rev_key";

/// The compaction state of a replica.
#[derive(Debug, Default)]
pub(super) struct Compactor {
    /// The last known version of the key.
    version: i64,
    /// The revision at the previous interval, which is compacted in this one.
    revision: i64,
}

impl Compactor {
    /// Compacts once per interval, forever.
    pub(super) async fn run(mut self, client: &Client, period: Duration) {
        loop {
            tokio::time::sleep(period).await;
            match self.turn(client).await {
                Ok(Some(revision)) => tracing::debug!(revision, "etcd compacted"),
                Ok(None) => {}
                Err(error) => {
                    let error = error.unavailable();
                    tracing::warn!(%error, "etcd compaction failed, retrying");
                }
            }
        }
    }

    /// Runs one interval; returns the compacted revision, if this replica compacted.
    pub(super) async fn turn(&mut self, client: &Client) -> Result<Option<i64>, CallError> {
        let key = Bytes::from_static(KEY);
        let put = Request::Put(PutRequest {
            key: key.clone(),
            value: self.revision.to_string().into(),
            ..PutRequest::default()
        });
        let range = Request::Range(RangeRequest {
            key: key.clone(),
            ..RangeRequest::default()
        });
        let request = TxnRequest {
            compare: vec![Compare::version(key, self.version)],
            success: vec![RequestOp { request: Some(put) }],
            failure: vec![RequestOp {
                request: Some(range),
            }],
        };
        let answer: TxnResponse = client.txn(request).await?;
        let now = answer.header.unwrap_or_default().revision;
        let due = std::mem::replace(&mut self.revision, now);
        if !answer.succeeded {
            let response = answer.responses.into_iter().next();
            if let Some(Response::Range(range)) = response.and_then(|response| response.response) {
                self.version = range.kvs.first().map_or(0, |kv| kv.version);
            }
            return Ok(None);
        }
        self.version += 1;
        if due == 0 {
            return Ok(None);
        }
        match client.compact(due).await {
            // Already compacted further by another client.
            Ok(()) | Err(CallError::Compacted) => Ok(Some(due)),
            Err(error) => Err(error),
        }
    }
}
