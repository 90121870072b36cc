//! The console's interface to its API server.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderMap;
use lockgate_admission::host::BoxFuture;
use lockgate_api::access::Authorizer;
use lockgate_api::admission::UserInfo;
use lockgate_api::meta::status::Status;
use serde_json::Value;

/// A resource by group, version and plural.
pub type Resource = (&'static str, &'static str, &'static str);

/// The API server that a console belongs to.
pub trait Cluster: Send + Sync + 'static {
    /// Authenticates the client of a request as the API does.
    fn authenticate<'f>(
        &'f self,
        address: SocketAddr,
        headers: &'f HeaderMap,
    ) -> BoxFuture<'f, Result<UserInfo, Box<Status>>>;

    /// The authorizer of the API.
    fn authorizer(&self) -> Arc<dyn Authorizer>;

    /// The objects of a resource, at most `limit`; none if the resource is not served.
    fn objects<'f>(
        &'f self,
        resource: Resource,
        limit: usize,
    ) -> BoxFuture<'f, Result<Vec<Value>, Box<Status>>>;
}
