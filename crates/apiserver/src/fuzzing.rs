//! Entry points for fuzz targets and benches: decoding of requests before authorization, and classification of
//! requests. Not part of this crate's API.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use lockgate_api::access::{AccessObject, FixedAuthorizer};
use lockgate_api::admission::UserInfo;
use lockgate_kinds::flow_control as suggested;
use lockgate_store::{MemoryStore, Store as _};
use serde_json::{Value, json};

use crate::authn::impersonation::{Action, Impersonator};
use crate::authn::service_account::{Claims, Signer};
use crate::authn::tokens::Tokens;
use crate::authn::{ANONYMOUS, Authenticator};
use crate::encoding;
use crate::flow_control::{FlowControl, RequestDigest};
use crate::http::listen::Peer;
use crate::http::negotiate::{self, BodyEncoding, Offer};
use crate::http::query::Query;
use crate::http::request_info::{RequestInfo, Target, Verb};

/// The interpretation of a method, a path and a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// The path cannot be decoded.
    Unreadable,
    /// A non-resource path, for authorization.
    Path(String),
    /// A resource.
    Resource {
        /// True if the resource is served.
        is_served: bool,
        /// Verb, group, version, namespace, resource, subresource and name.
        parts: [String; 7],
        /// The name for authorization.
        asked_name: String,
    },
}

/// Parses a request line.
#[must_use]
pub fn meaning(method: &Method, path: &str, query: &str) -> Meaning {
    let query = Query::parse(query);
    let resource = |target: Target, is_served| Meaning::Resource {
        is_served,
        asked_name: target.asked_name(&query),
        parts: [
            target.verb.name().to_owned(),
            target.group,
            target.version,
            target.namespace,
            target.resource,
            target.subresource,
            target.name,
        ],
    };
    match RequestInfo::read(method, path, &query) {
        None => Meaning::Unreadable,
        Some(RequestInfo::NonResource { path, .. }) => Meaning::Path(path),
        Some(RequestInfo::Resource(target)) => resource(target, true),
        Some(RequestInfo::Unrouted(target)) => resource(target, false),
    }
}

/// Parses the `Content-Type`: true for JSON, `None` if it is not supported.
#[must_use]
pub fn is_json(headers: &HeaderMap) -> Option<bool> {
    let sent = negotiate::body_encoding(headers, &negotiate::ACCEPTED).ok()?;
    Some(sent == BodyEncoding::Json)
}

/// Negotiates the media types of a response and of a patch. Returns `true` for each that is supported.
#[must_use]
pub fn negotiate(headers: &HeaderMap, query: &str) -> (bool, bool) {
    let offer = Offer {
        accepted: &negotiate::ACCEPTED,
        tables: true,
    };
    let wanted = negotiate::negotiate(headers, &Query::parse(query), offer);
    (
        wanted.is_ok(),
        negotiate::patch_type(headers, false).is_ok(),
    )
}

/// The impersonated user, for a requesting user with all or no permissions; an error is the response code.
///
/// # Errors
///
/// Fails if the request is rejected.
pub fn impersonate(headers: &HeaderMap, may: bool) -> Result<Option<UserInfo>, i32> {
    let authorizer = match may {
        true => FixedAuthorizer::AllowAll,
        false => FixedAuthorizer::DenyAll,
    };
    let action = Action {
        verb: "get",
        object: AccessObject::Path("/"),
    };
    let impersonator = Impersonator::new(true);
    let caller = UserInfo::default();
    let impersonated = impersonator.impersonate(&caller, headers, &authorizer, &action);
    match impersonated {
        Ok(impersonated) => Ok(impersonated.map(|it| it.user)),
        Err(failure) => Err(failure.0.code),
    }
}

/// Authenticates tokens. There is a ServiceAccount `robot` in `shop` with the UID `7`, a Pod `web` with the UID `8`,
/// and a token `known` of the user `ann`.
#[derive(Debug)]
pub struct Accounts {
    authenticator: Authenticator,
    runtime: tokio::runtime::Runtime,
}

impl Accounts {
    /// Creates the accounts, with a new key.
    ///
    /// # Panics
    ///
    /// Panics without an entropy source.
    #[must_use]
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime without I/O needs nothing");
        let store = MemoryStore::new();
        runtime.block_on(async {
            for (key, uid) in [
                ("/core/serviceaccounts/shop/robot", "7"),
                ("/core/pods/shop/web", "8"),
            ] {
                let object = json!({"metadata": {"name": "x", "uid": uid}});
                let created = store.create(key, encoding::encode(&object), None).await;
                created.expect("the store is empty");
            }
        });
        let tokens = Tokens::parse("known,ann,1\n").expect("a file of one line");
        let signer = Signer::generate().expect("random numbers");
        let authenticator = Authenticator {
            request_headers: crate::config::RequestHeaders::default(),
            tokens,
            signer: Arc::new(signer),
            store: Arc::new(store),
            anonymous: true,
        };
        Self {
            authenticator,
            runtime,
        }
    }

    /// Signs claims with the server's key. `None` if they are invalid.
    #[must_use]
    pub fn sign(&self, claims: &Value) -> Option<String> {
        let claims: Claims = serde_json::from_value(claims.clone()).ok()?;
        self.authenticator.signer.sign(&claims)
    }

    /// The issuer of the server.
    #[must_use]
    pub fn issuer(&self) -> &str {
        self.authenticator.signer.issuer()
    }

    /// The user of a token.
    #[must_use]
    pub fn user_of(&self, token: &str) -> Option<String> {
        let verified = self.runtime.block_on(self.authenticator.token(token, &[]));
        verified.ok().map(|verified| verified.user.username)
    }

    /// The user of a request: anonymous without credentials, `None` if rejected.
    #[must_use]
    pub fn authenticate(&self, headers: &HeaderMap) -> Option<String> {
        let peer = Peer {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            certificate: None,
        };
        let user = self
            .runtime
            .block_on(self.authenticator.authenticate(&peer, headers));
        user.ok().map(|user| user.username)
    }

    /// The name of the anonymous user.
    #[must_use]
    pub fn nobody(&self) -> &'static str {
        ANONYMOUS
    }
}

impl Default for Accounts {
    fn default() -> Self {
        Self::new()
    }
}

/// API Priority and Fairness with the suggested objects, and a request.
#[derive(Debug)]
pub struct Classification {
    control: FlowControl,
    user: UserInfo,
    target: Target,
}

impl Classification {
    /// A list request of a user with groups, for a resource in a namespace.
    #[must_use]
    pub fn new(name: &str, groups: &[&str], [group, resource, namespace]: [&str; 3]) -> Self {
        let control = FlowControl::new(600, Duration::from_secs(60));
        for suggested in suggested::all() {
            let object = suggested.object;
            let name = crate::metadata::text(&object, "name").to_owned();
            match suggested.plural {
                suggested::LEVELS => control.set_level(&name, &object),
                _ => control.set_schema(&name, &object),
            }
        }
        Self {
            control,
            user: UserInfo {
                username: name.to_owned(),
                groups: Some(groups.iter().map(|&group| group.to_owned()).collect()),
                ..UserInfo::default()
            },
            target: Target {
                verb: Verb::List,
                group: group.to_owned(),
                version: String::from("v1"),
                namespace: namespace.to_owned(),
                resource: resource.to_owned(),
                name: String::new(),
                subresource: String::new(),
                rest: Vec::new(),
            },
        }
    }

    /// Classifies the request once. Returns true if it has a level.
    #[must_use]
    pub fn run(&self) -> bool {
        let digest = RequestDigest::Resource(&self.target);
        self.control.classify(&self.user, &digest).is_some()
    }
}
