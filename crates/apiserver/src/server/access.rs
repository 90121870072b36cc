//! The API for embedding programs: authentication, authorization, and objects.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderMap;
use lockgate_api::access::Authorizer;
use lockgate_api::admission::UserInfo;
use lockgate_api::meta::status::Status;
use lockgate_store::List;
use serde_json::Value;

use crate::error::Failure;
use crate::http::listen::Peer;
use crate::pipeline::Pipeline;
use crate::registry::split_api_version;

/// Access to the server for an embedding program. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Access {
    pub(super) pipeline: Arc<Pipeline>,
}

impl Access {
    /// Authenticates a client by its headers, as the API does. A client without a bearer token is anonymous.
    ///
    /// # Errors
    ///
    /// Fails if the token is unknown, or anonymous requests are disabled.
    pub async fn authenticate(
        &self,
        address: SocketAddr,
        headers: &HeaderMap,
    ) -> Result<UserInfo, Box<Status>> {
        let peer = Peer {
            address,
            certificate: None,
        };
        let user = self.pipeline.authenticator.authenticate(&peer, headers);
        user.await.map_err(|Failure(status)| status)
    }

    /// The authorizer of the API.
    #[must_use]
    pub fn authorizer(&self) -> Arc<dyn Authorizer> {
        Arc::clone(&self.pipeline.authorizer)
    }

    /// Returns true if objects of this kind are served.
    #[must_use]
    pub fn serves(&self, api_version: &str, kind: &str) -> bool {
        let (group, version) = split_api_version(api_version);
        let snapshot = self.pipeline.registry.snapshot();
        snapshot.by_kind(group, version, kind).is_some()
    }

    /// The first objects of a resource in the latest state, at most `limit`. Empty if the resource is not served.
    ///
    /// # Errors
    ///
    /// Fails if the store is unavailable, or an object cannot be decoded.
    pub async fn objects(
        &self,
        (group, version, plural): (&str, &str, &str),
        limit: usize,
    ) -> Result<Vec<Value>, Box<Status>> {
        let snapshot = self.pipeline.registry.snapshot();
        let Some(resource) = snapshot.find(group, version, plural) else {
            return Ok(Vec::new());
        };
        let storage = &self.pipeline.writer.storage;
        let prefix = storage.prefix(resource, "");
        let list = List {
            limit: Some(limit),
            ..List::all(&prefix)
        };
        let page = storage.store().list(list).await;
        let page = page.map_err(|error| Box::new(Status::internal_error(&error.to_string())))?;
        let mut objects = Vec::with_capacity(page.entries.len());
        for entry in &page.entries {
            let object = storage.decode(entry, resource).await;
            objects.push(object.map_err(|Failure(status)| status)?);
        }
        Ok(objects)
    }
}
