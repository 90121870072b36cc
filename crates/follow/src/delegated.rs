//! Authentication and authorization, delegated to the main API server.
//!
//! UPSTREAM: apiserver pkg/authentication/authenticatorfactory, pkg/authorization/authorizerfactory

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use http::HeaderMap;
use lockgate_api::admission::UserInfo;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::server::{Failure, Server};

/// The path of the main server's authentication configuration.
const PUBLISHED: &str =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// The time for which decisions of the main server are cached.
///
/// UPSTREAM: apiserver pkg/server/options (ten seconds for each)
const CACHE_TTL: Duration = Duration::from_secs(10);

/// The maximum number of cached responses.
const MAX_CACHED: usize = 4096;

/// The maximum token length.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// Delegated authentication and authorization by the main API server.
pub struct Delegated {
    server: Arc<Server>,
    published: ArcSwapOption<Published>,
    tokens: Mutex<TtlCache<Option<UserInfo>>>,
    permissions: Mutex<TtlCache<(bool, String)>>,
}

/// The identity of a client: its certificate and headers.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'r> {
    /// The client's certificates, unverified, the leaf first.
    pub certificates: &'r [CertificateDer<'r>],
    /// The headers of the request.
    pub headers: &'r HeaderMap,
}

/// The requested permission.
#[derive(Debug, Clone, Copy, Default)]
pub struct Permission<'r> {
    /// The verb, such as `create`.
    pub verb: &'r str,
    /// The group of the resource.
    pub group: &'r str,
    /// Its version.
    pub version: &'r str,
    /// The resource.
    pub resource: &'r str,
    /// The subresource, if any.
    pub subresource: &'r str,
    /// The namespace, if any.
    pub namespace: &'r str,
    /// The name, if any.
    pub name: &'r str,
    /// The path of a non-resource request.
    pub path: &'r str,
}

/// A rejected request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DelegatedError {
    /// 401: authentication failed.
    #[error("Unauthorized")]
    Unauthorized,
    /// 403: the user lacks the permission.
    #[error("{0}")]
    Forbidden(String),
    /// 500: the main server is unavailable. Requests are rejected meanwhile.
    #[error("the API server is unavailable: {0}")]
    Unknown(Failure),
}

/// The published authentication configuration of the main server.
struct Published {
    front_proxies: Option<Arc<dyn ClientCertVerifier>>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    allowed_names: Vec<String>,
    username: Vec<String>,
    uid: Vec<String>,
    group: Vec<String>,
    extra_prefix: Vec<String>,
}

impl Delegated {
    /// Uses this main server. All requests are unauthenticated before the first [`refresh`](Self::refresh).
    #[must_use]
    pub fn new(server: Arc<Server>) -> Self {
        Self {
            server,
            published: ArcSwapOption::empty(),
            tokens: Mutex::default(),
            permissions: Mutex::default(),
        }
    }

    /// Reads the authentication configuration; to be called periodically.
    ///
    /// # Errors
    ///
    /// Fails if the main server does not publish it. The previous configuration is kept.
    pub async fn refresh(&self) -> Result<(), Failure> {
        let (code, object) = self.server.exchange(PUBLISHED, None).await?;
        if code != 200 {
            return Err(format!("`extension-apiserver-authentication`: status {code}").into());
        }
        self.published.store(Some(Arc::new(read(&object["data"])?)));
        Ok(())
    }

    /// Returns `true` once the authentication configuration is known.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.published.load().is_some()
    }

    /// Authenticates a request: by the headers of the main server, a client certificate, or a token.
    ///
    /// # Errors
    ///
    /// Authentication fails, or the main server is unavailable.
    pub async fn authenticate(&self, identity: Identity<'_>) -> Result<UserInfo, DelegatedError> {
        let published = self.published.load_full();
        let published =
            published.ok_or_else(|| DelegatedError::Unknown("not synced yet".into()))?;
        if let Some(user) = published.by_certificate(identity)? {
            return Ok(user);
        }
        let Some(token) = bearer(identity.headers) else {
            return Ok(UserInfo {
                username: String::from("system:anonymous"),
                groups: Some(vec![String::from("system:unauthenticated")]),
                ..UserInfo::default()
            });
        };
        if token.len() > MAX_TOKEN_BYTES {
            return Err(DelegatedError::Unauthorized);
        }
        let key: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = lock(&self.tokens).get(&key) {
            return known.ok_or(DelegatedError::Unauthorized);
        }
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token},
        });
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let status = self.review(path, &review).await?;
        let user = (status["authenticated"] == true).then(|| user_of(&status["user"]));
        lock(&self.tokens).put(key, user.clone());
        user.ok_or(DelegatedError::Unauthorized)
    }

    /// Authorizes a user.
    ///
    /// # Errors
    ///
    /// Access is denied, or the main server is unavailable.
    pub async fn authorize(
        &self,
        user: &UserInfo,
        wanted: &Permission<'_>,
    ) -> Result<(), DelegatedError> {
        // The main server's availability checks come as `system:masters`, which the review always allows.
        let mut spec = json!({
            "user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra,
        });
        if wanted.path.is_empty() {
            spec["resourceAttributes"] = json!({
                "verb": wanted.verb, "group": wanted.group, "version": wanted.version,
                "resource": wanted.resource, "subresource": wanted.subresource,
                "namespace": wanted.namespace, "name": wanted.name,
            });
        } else {
            spec["nonResourceAttributes"] = json!({"path": wanted.path, "verb": wanted.verb});
        }
        let key: [u8; 32] = Sha256::digest(spec.to_string()).into();
        let known = lock(&self.permissions).get(&key);
        let (allowed, reason) = match known {
            Some(known) => known,
            None => {
                let review = json!({
                    "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                    "spec": spec,
                });
                let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
                let status = self.review(path, &review).await?;
                let reason = status["reason"].as_str().unwrap_or_default().to_owned();
                let answer = (status["allowed"] == true, reason);
                lock(&self.permissions).put(key, answer.clone());
                answer
            }
        };
        match allowed {
            true => Ok(()),
            false => Err(DelegatedError::Forbidden(denied(user, wanted, &reason))),
        }
    }

    async fn review(&self, path: &str, review: &Value) -> Result<Value, DelegatedError> {
        let asked = self.server.exchange(path, Some(review)).await;
        let (code, mut answer) = asked.map_err(DelegatedError::Unknown)?;
        if !(200..300).contains(&code) {
            let problem = format!("{path}: status {code}");
            return Err(DelegatedError::Unknown(problem.into()));
        }
        Ok(answer["status"].take())
    }
}

impl std::fmt::Debug for Delegated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delegated").finish_non_exhaustive()
    }
}

fn denied(user: &UserInfo, wanted: &Permission<'_>, reason: &str) -> String {
    let Permission { verb, path, .. } = wanted;
    let name = &user.username;
    let reason = match reason {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    if !path.is_empty() {
        return format!("User {name:?} cannot {verb} path {path:?}{reason}");
    }
    let (group, resource) = (wanted.group, wanted.resource);
    let place = match wanted.namespace {
        "" => String::from("at the cluster scope"),
        namespace => format!("in the namespace {namespace:?}"),
    };
    format!(
        "User {name:?} cannot {verb} resource {resource:?} in API group {group:?} {place}{reason}"
    )
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    Some(token.trim()).filter(|token| is_bearer && !token.is_empty())
}

fn user_of(value: &Value) -> UserInfo {
    let text = |member: &str| value[member].as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items
            .filter_map(|item| Some(item.as_str()?.to_owned()))
            .collect()
    };
    let extra = value["extra"].as_object().map(|extra| {
        let entries = extra.iter().map(|(key, value)| (key.clone(), texts(value)));
        entries.collect::<BTreeMap<_, _>>()
    });
    UserInfo {
        username: text("username"),
        uid: text("uid"),
        groups: Some(texts(&value["groups"])),
        extra,
    }
}

/// Parses the published ConfigMap. An unreadable CA is an error: it must not be treated as an absent one.
fn read(data: &Value) -> Result<Published, Failure> {
    let verifier = |key: &str| -> Result<Option<Arc<dyn ClientCertVerifier>>, Failure> {
        let Some(pem) = data[key].as_str().filter(|pem| !pem.trim().is_empty()) else {
            return Ok(None);
        };
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            roots.add(authority?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        Ok(Some(builder.build()?))
    };
    let names = |key: &str| -> Result<Vec<String>, Failure> {
        match data[key].as_str() {
            None | Some("") => Ok(Vec::new()),
            Some(text) => Ok(serde_json::from_str(text)?),
        }
    };
    Ok(Published {
        front_proxies: verifier("requestheader-client-ca-file")?,
        clients: verifier("client-ca-file")?,
        allowed_names: names("requestheader-allowed-names")?,
        username: names("requestheader-username-headers")?,
        uid: names("requestheader-uid-headers")?,
        group: names("requestheader-group-headers")?,
        extra_prefix: names("requestheader-extra-headers-prefix")?,
    })
}

impl Published {
    /// The user of a certificate, by its subject or by the headers that it authenticates.
    fn by_certificate(&self, identity: Identity<'_>) -> Result<Option<UserInfo>, DelegatedError> {
        let Some((own, intermediates)) = identity.certificates.split_first() else {
            return Ok(None);
        };
        let is_good = |verifier: &Option<Arc<dyn ClientCertVerifier>>| {
            verifier.as_ref().is_some_and(|verifier| {
                let verified = verifier.verify_client_cert(own, intermediates, UnixTime::now());
                verified.is_ok()
            })
        };
        let Ok((_, parsed)) = X509Certificate::from_der(own) else {
            return Err(DelegatedError::Unauthorized);
        };
        let subject = parsed.subject();
        let name = subject.iter_common_name().next();
        let name = name.and_then(|name| name.as_str().ok()).unwrap_or_default();
        if is_good(&self.front_proxies) {
            let is_allowed = self.allowed_names.iter().any(|allowed| allowed == name);
            if !is_allowed && !self.allowed_names.is_empty() {
                return Err(DelegatedError::Unauthorized);
            }
            if let Some(user) = self.by_headers(identity.headers) {
                return Ok(Some(user));
            }
        }
        if is_good(&self.clients) && !name.is_empty() {
            let groups = subject.iter_organization();
            let groups = groups.filter_map(|group| Some(group.as_str().ok()?.to_owned()));
            let groups = groups.chain([String::from("system:authenticated")]);
            return Ok(Some(UserInfo {
                username: name.to_owned(),
                groups: Some(groups.collect()),
                ..UserInfo::default()
            }));
        }
        Ok(None)
    }

    fn by_headers(&self, headers: &HeaderMap) -> Option<UserInfo> {
        let texts = |name: &str| {
            let values = headers.get_all(name).into_iter();
            let texts = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
            texts.filter(|text| !text.is_empty()).collect::<Vec<_>>()
        };
        let first = |names: &[String]| names.iter().find_map(|name| texts(name).into_iter().next());
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &self.extra_prefix {
            let prefix = prefix.to_ascii_lowercase();
            for name in headers.keys() {
                if let Some(key) = name.as_str().strip_prefix(&prefix) {
                    extra
                        .entry(unescaped(key))
                        .or_default()
                        .extend(texts(name.as_str()));
                }
            }
        }
        let mut groups: Vec<String> = self.group.iter().flat_map(|name| texts(name)).collect();
        if !groups.iter().any(|group| group == "system:authenticated") {
            groups.push(String::from("system:authenticated"));
        }
        Some(UserInfo {
            username: first(&self.username)?,
            uid: first(&self.uid).unwrap_or_default(),
            groups: Some(groups),
            extra: (!extra.is_empty()).then_some(extra),
        })
    }
}

fn unescaped(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let [byte, after @ ..] = rest {
        let escaped = (*byte == b'%')
            .then(|| after.get(..2))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Cached responses of the main server.
struct TtlCache<T>(HashMap<[u8; 32], (Instant, T)>);

impl<T> Default for TtlCache<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Clone> TtlCache<T> {
    fn get(&self, key: &[u8; 32]) -> Option<T> {
        let (since, answer) = self.0.get(key)?;
        (since.elapsed() < CACHE_TTL).then(|| answer.clone())
    }

    fn put(&mut self, key: [u8; 32], answer: T) {
        if self.0.len() >= MAX_CACHED {
            self.0.retain(|_, (since, _)| since.elapsed() < CACHE_TTL);
        }
        // Clients choose the keys: when the cache is full of fresh entries, nothing is added.
        if self.0.len() < MAX_CACHED {
            self.0.insert(key, (Instant::now(), answer));
        }
    }
}

fn lock<T>(kept: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
