//! Feeds an engine from a live API server: webhooks are registered there, and asked here.
//!
//! An API server of one's own, aggregated or not, calls the webhooks that users register with the main
//! one. So it lists and watches the registrations, and the namespaces for their labels. This example
//! does that, and says after every change which webhooks would hear of a new note.
//!
//! ```text
//!   cargo run -p lockgate-admission --example watch_registrations -- --kubeconfig ~/.kube/config
//!   cargo run -p lockgate-admission --example watch_registrations -- \
//!     --server https://127.0.0.1:6443 --ca-file ca.crt --token-file token
//! ```

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use http::{Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use lockgate_admission::configuration::Configurations;
use lockgate_admission::engine::Engine;
use lockgate_admission::host::{BoxFuture, Host, Namespace, NamespaceError, Namespaces};
use lockgate_admission::https::{HttpsCaller, Settings};
use lockgate_admission::matching::{Matcher, Selection};
use lockgate_admission::request::{self, Operation, kind, resource};
use lockgate_api::document::{Value, json, yaml};
use lockgate_api::registration::{ConfigurationKind, Version, codec};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

type Failure = Box<dyn Error + Send + Sync>;

const MAX_LIST_BYTES: usize = 256 * 1024 * 1024;
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// How long to wait before asking again, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let server = Arc::new(Server::from_arguments(std::env::args().skip(1))?);
    let feed = Feed::new(server);
    let mut changes = feed.changes();
    let engine = feed.engine.clone();
    tokio::spawn(async move { feed.run(|problem| eprintln!("{problem}")).await });
    while changes.changed().await.is_ok() {
        println!("a new note is told to: {}", told(&engine).join(", "));
    }
    Ok(())
}

/// The webhooks that would hear of a new note in the namespace `default`, conditions aside.
fn told(engine: &Engine) -> Vec<String> {
    let mut note = request::Request::new(
        Operation::Create,
        kind("notes.example.com", "v1", "Note"),
        resource("notes.example.com", "v1", "notes"),
    );
    note.namespace = String::from("default");
    let host = engine.host();
    let mut names = Vec::new();
    for kind in [ConfigurationKind::Mutating, ConfigurationKind::Validating] {
        let snapshot = engine.configurations(kind).snapshot();
        let mut matcher = Matcher::new(host, &note);
        for hook in snapshot.hooks() {
            let verdict = matcher.decide_from_cache(hook, &note, None);
            if verdict.is_ok_and(|verdict| matches!(verdict.selection(), Selection::Call(_))) {
                names.push(hook.name().to_owned());
            }
        }
    }
    names
}

/// An engine, and what keeps it up to date.
pub(crate) struct Feed {
    pub(crate) engine: Engine,
    server: Arc<Server>,
    namespaces: Arc<Known>,
    changes: Arc<watch::Sender<u64>>,
}

impl Feed {
    /// An engine that knows nothing yet; requests wait until it does.
    pub(crate) fn new(server: Arc<Server>) -> Self {
        let namespaces = Arc::new(Known {
            server: Arc::clone(&server),
            namespaces: Mutex::default(),
        });
        let mut host = Host::new(Arc::new(HttpsCaller::new(Settings::default())));
        host.namespaces = namespaces.clone();
        let mut builder = Engine::builder(host);
        for kind in [ConfigurationKind::Mutating, ConfigurationKind::Validating] {
            builder = builder.configurations(Arc::new(Configurations::unsynced(kind)));
        }
        Self {
            engine: builder.build().expect("no plugins were named"),
            server,
            namespaces,
            changes: Arc::new(watch::Sender::new(0)),
        }
    }

    /// Told of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Keeps the engine up to date for as long as it is polled.
    pub(crate) async fn run(&self, report: impl Fn(&str) + Sync) {
        let registrations = "/apis/admissionregistration.k8s.io/v1";
        let mutating = format!("{registrations}/mutatingwebhookconfigurations");
        let validating = format!("{registrations}/validatingwebhookconfigurations");
        let sink = |kind| &**self.engine.configurations(kind);
        tokio::join!(
            self.follow(&mutating, sink(ConfigurationKind::Mutating), &report),
            self.follow(&validating, sink(ConfigurationKind::Validating), &report),
            self.follow("/api/v1/namespaces", &*self.namespaces, &report),
        );
    }

    /// Lists and then watches one collection, and begins anew when the server no longer knows what
    /// happened since.
    async fn follow(&self, path: &str, sink: &dyn Sink, report: &(impl Fn(&str) + Sync)) {
        let mut version = None;
        let mut pause = PAUSE.0;
        loop {
            let step = match version.take() {
                None => self.list(path, sink).await,
                Some(since) => self.watch(path, sink, since).await,
            };
            match step {
                Ok(step) => {
                    version = step.version;
                    if step.progress {
                        pause = PAUSE.0;
                        continue;
                    }
                }
                Err(problem) => report(&format!("{path}: {problem}")),
            }
            tokio::time::sleep(pause).await;
            pause = PAUSE.1.min(pause * 2);
        }
    }

    async fn list(&self, path: &str, sink: &dyn Sink) -> Result<Step, Failure> {
        let response = self.server.get(path).await?;
        if !response.status().is_success() {
            return Err(format!("the list was refused: {}", response.status()).into());
        }
        let body = Limited::new(response.into_body(), MAX_LIST_BYTES);
        let body = body.collect().await?.to_bytes();
        let list = json::parse(&body).map_err(|error| error.to_string())?;
        let items: Vec<Value<'_>> = list
            .root()
            .get("items")
            .into_iter()
            .flat_map(|items| items.items())
            .collect();
        sink.replace(&items)?;
        self.changes.send_modify(|changes| *changes += 1);
        Ok(Step {
            version: resource_version(list.root()),
            progress: true,
        })
    }

    /// Follows one watch to its end.
    async fn watch(&self, path: &str, sink: &dyn Sink, since: String) -> Result<Step, Failure> {
        let query = format!("{path}?watch=1&allowWatchBookmarks=true&resourceVersion={since}");
        let response = self.server.get(&query).await?;
        let expired = Step {
            version: None,
            progress: false,
        };
        if response.status() == http::StatusCode::GONE {
            return Ok(expired);
        }
        if !response.status().is_success() {
            return Err(format!("the watch was refused: {}", response.status()).into());
        }
        let mut step = Step {
            version: Some(since),
            progress: false,
        };
        let mut lines = Lines::new(response.into_body());
        // A watch that breaks off goes on from the last event.
        while let Ok(Some(line)) = lines.next().await {
            let event = json::parse(&line).map_err(|error| error.to_string())?;
            let event = event.root();
            let kind = event.get("type").and_then(|kind| kind.as_str());
            let object = event.get("object").ok_or("an event without an object")?;
            match kind.unwrap_or_default() {
                "ADDED" | "MODIFIED" => sink.put(object)?,
                "DELETED" => sink.remove(name(object)),
                "BOOKMARK" => {}
                // The server no longer knows what happened since: all begins anew.
                "ERROR" => return Ok(expired),
                other => return Err(format!("an event of type `{other}`").into()),
            }
            step.version = resource_version(object).or(step.version);
            step.progress = true;
            self.changes.send_modify(|changes| *changes += 1);
        }
        Ok(step)
    }
}

/// How far a collection is known.
struct Step {
    /// The version to watch from; none to list again.
    version: Option<String>,
    /// Whether anything was learned.
    progress: bool,
}

/// Where objects of a collection go.
trait Sink: Sync {
    fn replace(&self, all: &[Value<'_>]) -> Result<(), Failure>;
    fn put(&self, object: Value<'_>) -> Result<(), Failure>;
    fn remove(&self, name: &str);
}

impl Sink for Configurations {
    fn replace(&self, all: &[Value<'_>]) -> Result<(), Failure> {
        let decode = |value: &Value<'_>| codec::decode(*value, self.kind(), Version::V1);
        let all: Result<Vec<_>, _> = all.iter().map(decode).collect();
        let all = all.map_err(|error| error.message)?;
        Self::replace(self, all.iter().map(|decoded| &decoded.value));
        Ok(())
    }

    fn put(&self, object: Value<'_>) -> Result<(), Failure> {
        let decoded = codec::decode(object, self.kind(), Version::V1);
        self.upsert(&decoded.map_err(|error| error.message)?.value);
        Ok(())
    }

    fn remove(&self, name: &str) {
        Self::remove(self, name);
    }
}

/// The namespaces the server told of; none before the first list.
struct Known {
    server: Arc<Server>,
    namespaces: Mutex<Option<HashMap<String, Arc<Namespace>>>>,
}

impl Known {
    fn with<T>(&self, act: impl FnOnce(&mut Option<HashMap<String, Arc<Namespace>>>) -> T) -> T {
        act(&mut self
            .namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink for Known {
    fn replace(&self, all: &[Value<'_>]) -> Result<(), Failure> {
        let all = all
            .iter()
            .map(|object| (name(*object).to_owned(), namespace(*object)));
        self.with(|known| *known = Some(all.collect()));
        Ok(())
    }

    fn put(&self, object: Value<'_>) -> Result<(), Failure> {
        let (name, namespace) = (name(object).to_owned(), namespace(object));
        self.with(|known| known.get_or_insert_default().insert(name, namespace));
        Ok(())
    }

    fn remove(&self, name: &str) {
        self.with(|known| known.get_or_insert_default().remove(name));
    }
}

impl Namespaces for Known {
    fn synced(&self) -> bool {
        self.with(|known| known.is_some())
    }

    fn cached(&self, name: &str) -> Option<Arc<Namespace>> {
        self.with(|known| known.as_ref()?.get(name).cloned())
    }

    fn fetch<'f>(&'f self, name: &'f str) -> BoxFuture<'f, Result<Arc<Namespace>, NamespaceError>> {
        Box::pin(async move {
            let failed = |problem: Failure| NamespaceError::Failed(problem.to_string());
            let path = format!("/api/v1/namespaces/{name}");
            let response = self.server.get(&path).await.map_err(failed)?;
            if response.status() == http::StatusCode::NOT_FOUND {
                return Err(NamespaceError::not_found(name));
            }
            let is_found = response.status().is_success();
            let body = Limited::new(response.into_body(), MAX_EVENT_BYTES);
            let body = body.collect().await.map_err(failed)?.to_bytes();
            match json::parse(&body) {
                Ok(found) if is_found => Ok(namespace(found.root())),
                _ => Err(NamespaceError::Failed(format!(
                    "namespace `{name}` is not told"
                ))),
            }
        })
    }
}

fn metadata<'d>(object: Value<'d>, member: &str) -> Option<Value<'d>> {
    object.get("metadata")?.get(member)
}

fn name(object: Value<'_>) -> &str {
    let name = metadata(object, "name").and_then(|name| name.as_str());
    name.unwrap_or_default()
}

fn resource_version(object: Value<'_>) -> Option<String> {
    let version = metadata(object, "resourceVersion")?.as_str()?;
    Some(version.to_owned())
}

fn namespace(object: Value<'_>) -> Arc<Namespace> {
    let labels = metadata(object, "labels").into_iter();
    let labels = labels.flat_map(|labels| labels.members());
    let labels: BTreeMap<String, String> = labels
        .filter_map(|label| Some((label.key.to_owned(), label.value.as_str()?.to_owned())))
        .collect();
    Arc::new(Namespace {
        labels,
        terminating: metadata(object, "deletionTimestamp").is_some_and(|time| !time.is_null()),
    })
}

/// The lines of a body, as they come.
struct Lines {
    body: Incoming,
    rest: BytesMut,
}

impl Lines {
    fn new(body: Incoming) -> Self {
        Self {
            body,
            rest: BytesMut::new(),
        }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(end + 1).freeze();
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return Ok(Some(line));
            }
            if self.rest.len() > MAX_EVENT_BYTES {
                return Err("an event is too large".into());
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            if let Ok(data) = frame?.into_data() {
                self.rest.extend_from_slice(&data);
            }
        }
    }
}

/// Where the main API server is, and who we are there.
pub(crate) struct Server {
    host: String,
    port: u16,
    tls: Arc<ClientConfig>,
    token: Option<String>,
}

impl Server {
    /// By address, authority and token.
    pub(crate) fn new(url: &str, ca_pem: &[u8], token: Option<String>) -> Result<Self, Failure> {
        Self::with_certificate(url, ca_pem, token, None)
    }

    fn with_certificate(
        url: &str,
        ca_pem: &[u8],
        token: Option<String>,
        certificate: Option<(Vec<u8>, Vec<u8>)>,
    ) -> Result<Self, Failure> {
        let url: Uri = url.parse()?;
        if url.scheme_str() != Some("https") {
            return Err("the server must be given as https://…".into());
        }
        let host = url.host().ok_or("the server has no host")?;
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(ca_pem) {
            roots.add(authority?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let tls = match certificate {
            None => tls.with_no_client_auth(),
            Some((chain, key)) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
                tls.with_client_auth_cert(chain?, PrivateKeyDer::from_pem_slice(&key)?)?
            }
        };
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port_u16().unwrap_or(443),
            tls: Arc::new(tls),
            token,
        })
    }

    /// By the current context of a kubeconfig file.
    pub(crate) fn from_kubeconfig(file: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(file)?;
        let document = yaml::parse(&text).map_err(|error| error.to_string())?;
        let root = document.root();
        let context = root.get("current-context").ok_or("no current context")?;
        let context = entry(root, "contexts", context)?.get("context");
        let context = context.ok_or("an empty context")?;
        let named = |member: &str| {
            context
                .get(member)
                .ok_or_else(|| format!("no {member} in the context"))
        };
        let cluster = entry(root, "clusters", named("cluster")?)?;
        let cluster = cluster.get("cluster").ok_or("an empty cluster")?;
        let user = entry(root, "users", named("user")?)?;
        let user = user.get("user").ok_or("an empty user")?;

        let beside = |path: &str| file.parent().unwrap_or_else(|| Path::new("")).join(path);
        let text_of = |of: Value<'_>, member: &str| Some(of.get(member)?.as_str()?.to_owned());
        let bytes_of = |of: Value<'_>, member: &str| -> Result<Option<Vec<u8>>, Failure> {
            if let Some(data) = text_of(of, &format!("{member}-data")) {
                return Ok(Some(BASE64_STANDARD.decode(data)?));
            }
            let path = text_of(of, member);
            Ok(path.map(|path| fs::read(beside(&path))).transpose()?)
        };
        let url = text_of(cluster, "server").ok_or("no server in the cluster")?;
        let authority = bytes_of(cluster, "certificate-authority")?.unwrap_or_default();
        let token = match text_of(user, "tokenFile") {
            Some(path) => Some(fs::read_to_string(beside(&path))?.trim().to_owned()),
            None => text_of(user, "token"),
        };
        let chain = bytes_of(user, "client-certificate")?;
        let certificate = chain.zip(bytes_of(user, "client-key")?);
        Self::with_certificate(&url, &authority, token, certificate)
    }

    fn from_arguments(arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut given: HashMap<String, String> = HashMap::new();
        let mut arguments = arguments;
        while let Some(flag) = arguments.next() {
            let value = arguments
                .next()
                .ok_or_else(|| format!("{flag} needs a value"))?;
            given.insert(flag, value);
        }
        if let Some(file) = given.get("--kubeconfig") {
            return Self::from_kubeconfig(&PathBuf::from(file));
        }
        let url = given
            .get("--server")
            .ok_or("give --kubeconfig or --server")?;
        let authority = given.get("--ca-file").map(fs::read).transpose()?;
        let token = given
            .get("--token-file")
            .map(fs::read_to_string)
            .transpose()?;
        let token = token.map(|token| token.trim().to_owned());
        Self::new(url, &authority.unwrap_or_default(), token)
    }

    /// Asks on a connection of its own, which ends with the answer.
    async fn get(&self, path: &str) -> Result<Response<Incoming>, Failure> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let name = ServerName::try_from(self.host.clone())?;
        let stream = TlsConnector::from(Arc::clone(&self.tls))
            .connect(name, stream)
            .await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = Request::get(path)
            .header(header::HOST, format!("{}:{}", self.host, self.port))
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, "watch-registrations");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        Ok(sender
            .send_request(request.body(Empty::<Bytes>::new())?)
            .await?)
    }
}

/// The entry of a list in a kubeconfig that has this name.
fn entry<'d>(root: Value<'d>, list: &str, name: Value<'_>) -> Result<Value<'d>, Failure> {
    let mut entries = root.get(list).into_iter().flat_map(|list| list.items());
    let has_name = |entry: &Value<'d>| {
        let found = entry.get("name").and_then(|name| name.as_str());
        found.is_some() && found == name.as_str()
    };
    let found = entries.find(has_name);
    found.ok_or_else(|| format!("no `{}` in {list}", name.as_str().unwrap_or_default()).into())
}
