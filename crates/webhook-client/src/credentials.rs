//! Credentials for webhooks.
//!
//! Credentials come from the users of a kubeconfig file; the webhook's host and port select the user. [`load`] reads
//! the files, at startup only, except for token files.

mod files;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};

use crate::tls::ClientCertificate;

pub use files::{PluginConfiguration, load, parse_kubeconfig, plugin_part};

/// The time for which a token is cached before its file is read again.
///
/// UPSTREAM: k8s.io/client-go transport/token_source.go (NewCachedFileTokenSource).
const TOKEN_LIFETIME: Duration = Duration::from_secs(60);

/// Users by the webhook names they apply to.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    users: BTreeMap<String, Arc<User>>,
    /// The user of the current context.
    current: Option<String>,
    in_cluster: Option<Arc<User>>,
}

impl Credentials {
    /// Creates credentials from users, and the name of the default user.
    #[must_use]
    pub fn new(users: impl IntoIterator<Item = User>, current: Option<String>) -> Self {
        Self {
            users: users
                .into_iter()
                .map(|user| (user.name.clone(), Arc::new(user)))
                .collect(),
            current,
            in_cluster: None,
        }
    }

    /// Sets the user for `kubernetes.default.svc` if none is configured for it.
    #[must_use]
    pub fn with_in_cluster(mut self, user: User) -> Self {
        self.in_cluster = Some(Arc::new(user));
        self
    }

    /// The user for a target, which is `host:port`; `None` means anonymous.
    ///
    /// UPSTREAM: k8s.io/apiserver pkg/util/webhook/authentication.go (clientConfig).
    #[must_use]
    pub fn find(&self, target: &str) -> Option<Arc<User>> {
        self.find_named(target)
            .or_else(|| {
                let host = target.strip_suffix(":443")?;
                self.find_named(host)
            })
            .or_else(|| {
                let in_cluster = self.in_cluster.as_ref();
                in_cluster.filter(|_| target == "kubernetes.default.svc:443")
            })
            .or_else(|| self.users.get("*"))
            .or_else(|| self.users.get(self.current.as_ref()?))
            .cloned()
    }

    /// The user with that name, or with the closest wildcard domain.
    fn find_named(&self, name: &str) -> Option<&Arc<User>> {
        self.users.get(name).or_else(|| {
            name.match_indices('.')
                .find_map(|(dot, _)| self.users.get(&format!("*{}", &name[dot..])))
        })
    }
}

/// Credentials for a set of webhooks.
#[derive(Default)]
pub struct User {
    /// The webhooks they apply to: a host with or without port, `*.` and a domain, or `*`.
    pub name: String,
    /// A bearer token.
    pub token: Option<String>,
    /// A file with a bearer token, used if no token is set, and read again every minute.
    pub token_file: Option<TokenFile>,
    /// A certificate with its key.
    pub client_certificate: Option<Material>,
    /// The key of the certificate.
    pub client_key: Option<Material>,
    /// The username for basic authentication.
    pub username: String,
    /// The password for basic authentication.
    pub password: String,
    /// The user to impersonate.
    pub impersonate: Option<Impersonate>,
    /// The expected name in the webhook's certificate, if not its host.
    pub tls_server_name: Option<String>,
    /// The error if the user is invalid.
    pub unusable: Option<String>,
}

impl fmt::Debug for User {
    /// Prints the name only, no secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A file with a token that is rotated.
pub struct TokenFile {
    path: PathBuf,
    /// The token and the time it was read.
    known: Mutex<Option<(Instant, String)>>,
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenFile").field(&self.path).finish()
    }
}

/// PEM data, or the path of a file with it.
#[derive(Clone, PartialEq, Eq)]
pub enum Material {
    /// The data.
    Data(Vec<u8>),
    /// A file.
    File(PathBuf),
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(_) => f.write_str("Data(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// The user to impersonate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Impersonate {
    /// The user.
    pub user: String,
    /// Its uid.
    pub uid: String,
    /// Its groups.
    pub groups: Vec<String>,
    /// Extra values.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Invalid credentials, or an invalid credentials file; with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CredentialsError(String);

impl From<String> for CredentialsError {
    fn from(text: String) -> Self {
        Self(text)
    }
}

fn fail<T>(text: String) -> Result<T, CredentialsError> {
    Err(CredentialsError(text))
}

impl User {
    /// Checks that the credentials are valid.
    pub(super) fn check(&self) -> Result<(), CredentialsError> {
        if let Some(problem) = &self.unusable {
            return fail(problem.clone());
        }
        let basic = !self.username.is_empty() || !self.password.is_empty();
        if basic && (self.token.is_some() || self.token_file.is_some()) {
            return fail(String::from(
                "username/password or bearer token may be set, but not both",
            ));
        }
        if let (None, Some(file)) = (&self.token, &self.token_file) {
            file.read_first()?;
        }
        Ok(())
    }

    /// The client certificate, read from its files if necessary.
    pub(super) fn client_certificate(&self) -> Result<Option<ClientCertificate>, CredentialsError> {
        let (Some(certificate), Some(key)) = (&self.client_certificate, &self.client_key) else {
            return Ok(None);
        };
        Ok(Some(ClientCertificate {
            certificate_pem: certificate.read()?,
            key_pem: key.read()?,
        }))
    }

    /// Adds the authentication headers.
    pub(super) async fn show(&self, headers: &mut HeaderMap) -> Result<(), CredentialsError> {
        if let Some(token) = self.current_token().await {
            let value = secret(&format!("Bearer {token}"))?;
            headers.insert(header::AUTHORIZATION, value);
        } else if !self.username.is_empty() || !self.password.is_empty() {
            let pair = format!("{}:{}", self.username, self.password);
            let value = secret(&format!("Basic {}", BASE64_STANDARD.encode(pair)))?;
            headers.insert(header::AUTHORIZATION, value);
        }
        let Some(impersonate) = &self.impersonate else {
            return Ok(());
        };
        let mut add = |name: &str, value: &str| -> Result<(), CredentialsError> {
            let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
            let value = HeaderValue::try_from(value).map_err(|error| error.to_string())?;
            headers.append(name, value);
            Ok(())
        };
        add("impersonate-user", &impersonate.user)?;
        if !impersonate.uid.is_empty() {
            add("impersonate-uid", &impersonate.uid)?;
        }
        for group in &impersonate.groups {
            add("impersonate-group", group)?;
        }
        for (key, values) in &impersonate.extra {
            for value in values {
                add(&format!("impersonate-extra-{}", escape_key(key)), value)?;
            }
        }
        Ok(())
    }

    async fn current_token(&self) -> Option<String> {
        match (&self.token, &self.token_file) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(file)) => file.current().await,
            (None, None) => None,
        }
    }
}

impl TokenFile {
    /// A token file that has not been read.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            known: Mutex::default(),
        }
    }

    /// Reads the file when a client is created, so that a missing file is detected early.
    fn read_first(&self) -> Result<(), CredentialsError> {
        let token = read_text(&self.path)?;
        *self.lock() = Some((Instant::now(), token.trim().to_owned()));
        Ok(())
    }

    /// The token, read again when it has expired.
    async fn current(&self) -> Option<String> {
        let known = self.lock().clone();
        if let Some((read, token)) = &known
            && read.elapsed() < TOKEN_LIFETIME
        {
            return Some(token.clone());
        }
        match tokio::fs::read_to_string(&self.path).await {
            Ok(token) => {
                let token = token.trim().to_owned();
                *self.lock() = Some((Instant::now(), token.clone()));
                Some(token)
            }
            // A temporarily missing file must not fail calls that can use the last token.
            Err(_) => known.map(|(_, token)| token),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, String)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Material {
    fn read(&self) -> Result<Vec<u8>, CredentialsError> {
        match self {
            Self::Data(data) => Ok(data.clone()),
            Self::File(file) => read_text(file).map(String::into_bytes),
        }
    }
}

fn read_text(file: &std::path::Path) -> Result<String, CredentialsError> {
    std::fs::read_to_string(file).map_err(|error| files::open_error(file, &error).into())
}

fn secret(text: &str) -> Result<HeaderValue, CredentialsError> {
    let mut value = HeaderValue::try_from(text).map_err(|error| error.to_string())?;
    value.set_sensitive(true);
    Ok(value)
}

/// Escapes characters that are not allowed in header names.
///
/// UPSTREAM: k8s.io/client-go transport/round_trippers.go (headerKeyEscape).
fn escape_key(key: &str) -> String {
    let mut out = String::new();
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str], current: Option<&str>) -> Credentials {
        let users = names.iter().map(|name| User {
            name: (*name).to_owned(),
            ..User::default()
        });
        Credentials::new(users, current.map(str::to_owned))
    }

    #[test]
    fn looks_users_up_in_upstreams_order() {
        let all = [
            "a.b.svc:443",
            "*.b.svc:443",
            "*.svc:443",
            "a.b.svc",
            "*.b.svc",
            "*.svc",
            "*",
            "me",
        ];
        // Without the first, the next one matches, and so on.
        for skip in 0..all.len() {
            let credentials = named(&all[skip..], Some("me"));
            let found = credentials
                .find("a.b.svc:443")
                .map(|user| user.name.clone());
            assert_eq!(found.as_deref(), Some(all[skip]));
        }
        assert!(named(&[], Some("me")).find("a.b.svc:443").is_none());
    }

    #[test]
    fn does_not_take_names_without_port_for_other_ports() {
        let credentials = named(&["a.b.svc", "*.svc"], None);
        assert!(credentials.find("a.b.svc:8443").is_none());
        assert!(credentials.find("a.b.svc:443").is_some());
    }

    #[test]
    fn calls_the_api_server_as_itself() {
        let itself = User {
            name: String::from("itself"),
            ..User::default()
        };
        let credentials = named(&["*"], None).with_in_cluster(itself);
        let found = credentials.find("kubernetes.default.svc:443").unwrap();
        assert_eq!(found.name, "itself");
        assert_eq!(credentials.find("other.default.svc:443").unwrap().name, "*");
    }

    #[tokio::test]
    async fn shows_who_calls() {
        let user = User {
            username: String::from("u"),
            password: String::from("p"),
            impersonate: Some(Impersonate {
                user: String::from("jane"),
                uid: String::from("7"),
                groups: vec![String::from("a"), String::from("b")],
                extra: [(String::from("x/y"), vec![String::from("z")])].into(),
            }),
            ..User::default()
        };
        let mut headers = HeaderMap::new();
        user.show(&mut headers).await.unwrap();
        assert_eq!(headers["authorization"], "Basic dTpw");
        assert_eq!(headers["impersonate-user"], "jane");
        assert_eq!(headers["impersonate-uid"], "7");
        assert_eq!(headers.get_all("impersonate-group").iter().count(), 2);
        assert_eq!(headers["impersonate-extra-x%2fy"], "z");
    }

    #[test]
    fn refuses_two_ways_at_once() {
        let user = User {
            token: Some(String::from("t")),
            username: String::from("u"),
            ..User::default()
        };
        assert_eq!(
            user.check().unwrap_err().to_string(),
            "username/password or bearer token may be set, but not both"
        );
    }
}
