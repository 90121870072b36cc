//! The serving certificate, the client CAs and the client tokens: read from files, validated, and reloaded while the
//! server runs.
//!
//! All TLS state is one value that every new connection takes, so a connection never mixes certificates and CAs of
//! different times, and sessions are not resumed after their CA is removed.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::{ArcSwap, ArcSwapOption};
use lockgate_file_watch::{FileWatch, directory_of};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Error};

use super::certificates::{Certificates, Source};
use super::client_auth::ClientAuth;
use super::metrics::Metrics;
use super::tokens::{self, AcceptedCredentials, Tokens};

/// The maximum size of certificate, bundle and token files.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The number of immediate reads of a mismatched certificate and key, which may have been replaced between two reads.
const MAX_READS: usize = 3;

/// The delay that batches changes of several files.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// The polling interval if no certificate directory sets one.
const POLL: Duration = Duration::from_secs(10);

/// An unusable file.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("cannot read `{}`: {error}", file.display())]
    Unreadable { file: PathBuf, error: io::Error },
    #[error("`{}` is larger than 4 MiB", .0.display())]
    TooLarge(PathBuf),
    #[error("`{}`: {problem}", file.display())]
    Unusable { file: PathBuf, problem: PemError },
    #[error(transparent)]
    Pem(PemError),
    #[error("the new certificate has already expired")]
    Expired,
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// PEM data that is not a certificate with its key, or not a CA bundle.
#[derive(Debug, thiserror::Error)]
enum PemError {
    #[error("cannot read the file: {0}")]
    Syntax(rustls::pki_types::pem::Error),
    #[error("no certificate found")]
    Empty,
    #[error("cannot parse the certificate: {0}")]
    Certificate(x509_parser::nom::Err<X509Error>),
    #[error("cannot parse the key: {0}")]
    Key(rustls::pki_types::pem::Error),
    #[error("certificate and key do not match: {0}")]
    Mismatch(rustls::Error),
    #[error(transparent)]
    Authority(rustls::Error),
    #[error(transparent)]
    Verifier(#[from] VerifierBuilderError),
}

/// The reason that clients would not accept the certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotServing {
    #[error("no certificate: {0}")]
    NoCertificate(String),
    #[error("the certificate is not valid yet")]
    NotYetValid,
    #[error("the certificate has expired")]
    Expired,
    #[error("the token files contain no token")]
    NoTokens,
}

/// The serving certificate and the client CAs in use.
pub(super) struct Credentials {
    certificates: Certificates,
    auth: ClientAuth,
    http2: bool,
    provider: Arc<CryptoProvider>,
    metrics: Arc<Metrics>,
    tls: ArcSwapOption<Tls>,
    tokens: ArcSwap<tokens::Credentials>,
    good: Mutex<LastGood>,
}

/// The state of a connection.
pub(super) struct Tls {
    pub(super) config: Arc<ServerConfig>,
    validity: Validity,
}

/// The validity period of a certificate, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Validity {
    from: i64,
    to: i64,
}

/// The last valid content of each file, and the current errors.
#[derive(Default)]
struct LastGood {
    pair: Option<Pair>,
    trust: Option<Trust>,
    token_texts: Vec<Vec<Vec<u8>>>,
    problems: Vec<String>,
}

#[derive(Clone)]
struct Pair {
    texts: (Vec<u8>, Vec<u8>),
    certified: Arc<CertifiedKey>,
    validity: Validity,
}

struct Trust {
    text: Vec<u8>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Credentials {
    pub(super) fn new(
        certificates: Certificates,
        auth: ClientAuth,
        http2: bool,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            certificates,
            auth,
            http2,
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            metrics,
            tls: ArcSwapOption::empty(),
            tokens: ArcSwap::default(),
            good: Mutex::default(),
        }
    }

    /// The TLS configuration for a new connection, once there is a certificate.
    pub(super) fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.load_full()
    }

    /// The currently accepted tokens.
    pub(super) fn tokens(&self) -> arc_swap::Guard<Arc<tokens::Credentials>> {
        self.tokens.load()
    }

    /// The client authentication.
    pub(super) fn auth(&self) -> &ClientAuth {
        &self.auth
    }

    /// Returns `false` if plain HTTP is served.
    pub(super) fn has_tls(&self) -> bool {
        !matches!(self.certificates.source, Source::None)
    }

    /// The state of the serving certificate and the client CAs.
    pub(super) fn check(&self) -> Result<(), NotServing> {
        if !self.has_tls() {
            return self.check_tokens();
        }
        let Some(tls) = self.tls.load_full() else {
            let good = self.good();
            let why = good
                .problems
                .first()
                .map_or("it is not read yet", |why| why);
            return Err(NotServing::NoCertificate(why.to_owned()));
        };
        let now = now();
        if now < tls.validity.from {
            return Err(NotServing::NotYetValid);
        }
        if now >= tls.validity.to {
            return Err(NotServing::Expired);
        }
        self.check_tokens()
    }

    fn check_tokens(&self) -> Result<(), NotServing> {
        let asks = |auth: &ClientAuth| !auth.token_files.is_empty() || !auth.user_files.is_empty();
        let is_read = !self.good().token_texts.is_empty();
        let asks_for_any = self.auth.all().any(|(_, auth)| asks(auth));
        if asks_for_any && (!is_read || self.tokens.load().lacks_credentials()) {
            return Err(NotServing::NoTokens);
        }
        Ok(())
    }

    /// Reads the files, blocking.
    pub(super) fn read(&self) {
        let mut good = self.good();
        let mut problems = Vec::new();
        let mut changed = false;

        self.metrics.certificate_reads.inc();
        match self.read_pair(good.pair.as_ref()) {
            Ok(None) => {}
            Ok(Some(pair)) => {
                self.metrics.certificate_expiry.set(pair.validity.to);
                good.pair = Some(pair);
                changed = true;
            }
            Err(error) => {
                self.metrics.certificate_read_errors.inc();
                problems.push(error.to_string());
            }
        }
        match self.read_trust(good.trust.as_ref()) {
            Ok(None) => {}
            Ok(Some(trust)) => {
                good.trust = Some(trust);
                changed = true;
            }
            Err(error) => problems.push(error.to_string()),
        }
        match self.read_tokens(&good.token_texts) {
            Ok(None) => {}
            Ok(Some(texts)) => {
                self.tokens.store(Arc::new(self.asked(&texts)));
                good.token_texts = texts;
            }
            Err(error) => problems.push(error.to_string()),
        }
        if changed {
            match self.build(&good) {
                Ok(Some(tls)) => {
                    let first = self.tls.swap(Some(Arc::new(tls))).is_none();
                    self.metrics.reloaded("success");
                    tracing::info!(first, "certificate loaded");
                }
                Ok(None) => {}
                Err(error) => problems.push(error.to_string()),
            }
        }
        if !problems.is_empty() && problems != good.problems {
            self.metrics.reloaded("failure");
            for problem in &problems {
                tracing::warn!(problem, "certificate not loaded, keeping the previous one");
            }
        }
        good.problems = problems;
    }

    /// Reads the files on every change, until it is dropped.
    pub(super) async fn watch_files(self: Arc<Self>) {
        let mut folders = Vec::new();
        let mut poll = POLL;
        if let Source::Folder {
            folder,
            poll: every,
            ..
        } = &self.certificates.source
        {
            folders.push(folder.clone());
            poll = *every;
        }
        let shown = self.auth.all().flat_map(|(_, auth)| {
            let users = auth.user_files.iter();
            auth.token_files.iter().chain(users)
        });
        let files = self.auth.client_ca.iter().chain(shown);
        folders.extend(files.map(|file| directory_of(file)));
        if folders.is_empty() {
            return;
        }
        let mut files = FileWatch::new(folders);
        let watch = |files: &mut FileWatch| {
            if let Err(error) = files.restart() {
                tracing::debug!(%error, "file watching unavailable, polling");
            }
        };
        watch(&mut files);
        loop {
            // Once more, since a file may have changed before the watch was established.
            self.clone().read_blocking().await;
            tokio::select! {
                () = files.changed() => tokio::time::sleep(DEBOUNCE).await,
                () = tokio::time::sleep(poll) => watch(&mut files),
            }
        }
    }

    /// Reads the files on a blocking thread.
    pub(super) async fn read_blocking(self: Arc<Self>) {
        if let Err(error) = tokio::task::spawn_blocking(move || self.read()).await {
            tracing::error!(%error, "cannot read certificates, retrying");
        }
    }

    /// Returns `true` if there is a certificate with its key.
    pub(super) fn has_pair(&self) -> bool {
        self.good().pair.is_some()
    }

    /// The current error of the files.
    pub(super) fn problems(&self) -> Vec<String> {
        self.good().problems.clone()
    }

    fn good(&self) -> std::sync::MutexGuard<'_, LastGood> {
        self.good.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pair other than the one in use.
    fn read_pair(&self, used: Option<&Pair>) -> Result<Option<Pair>, FileError> {
        let (certificate_file, key_file) = match &self.certificates.source {
            Source::None => return Ok(None),
            Source::Pem { certificate, key } => {
                if used.is_some() {
                    return Ok(None);
                }
                let pair = pair(certificate.clone(), key.clone(), &self.provider);
                return pair.map(Some).map_err(FileError::Pem);
            }
            Source::Folder {
                folder,
                certificate,
                key,
                ..
            } => (folder.join(certificate), folder.join(key)),
        };
        let mut reads = MAX_READS;
        loop {
            reads -= 1;
            let texts = (read(&certificate_file)?, read(&key_file)?);
            if used.is_some_and(|used| used.texts == texts) {
                return Ok(None);
            }
            match pair(texts.0, texts.1, &self.provider) {
                Ok(new) => return replaces(used, new),
                // The halves may be of two different pairs.
                Err(PemError::Mismatch(_)) if reads > 0 => {}
                Err(problem) => {
                    let file = certificate_file;
                    return Err(FileError::Unusable { file, problem });
                }
            }
        }
    }

    fn read_trust(&self, used: Option<&Trust>) -> Result<Option<Trust>, FileError> {
        let Some(file) = &self.auth.client_ca else {
            return Ok(None);
        };
        let text = read(file)?;
        if used.is_some_and(|used| used.text == text) {
            return Ok(None);
        }
        match verifier(&text, &self.provider) {
            Ok(verifier) => Ok(Some(Trust { text, verifier })),
            Err(problem) => Err(FileError::Unusable {
                file: file.clone(),
                problem,
            }),
        }
    }

    /// The token files and the user files, of the server and of each path in order.
    fn read_tokens(&self, used: &[Vec<Vec<u8>>]) -> Result<Option<Vec<Vec<Vec<u8>>>>, FileError> {
        let mut texts = Vec::new();
        for (_, auth) in self.auth.all() {
            for files in [&auth.token_files, &auth.user_files] {
                let read: Result<Vec<_>, _> = files.iter().map(|file| read(file)).collect();
                texts.push(read?);
            }
        }
        Ok((texts != used).then_some(texts))
    }

    /// The accepted credentials, from the file contents in the same order.
    fn asked(&self, texts: &[Vec<Vec<u8>>]) -> tokens::Credentials {
        let mut credentials = tokens::Credentials::default();
        for ((path, auth), texts) in self.auth.all().zip(texts.chunks(2)) {
            let part = |files: &[PathBuf], at: usize| {
                let texts = texts.get(at).map(Vec::as_slice).unwrap_or_default();
                (!files.is_empty()).then(|| Tokens::read(texts))
            };
            let asked = AcceptedCredentials {
                tokens: part(&auth.token_files, 0),
                users: part(&auth.user_files, 1),
            };
            match path {
                None => credentials.server = asked,
                Some(path) => {
                    credentials.paths.insert(path.to_owned(), asked);
                }
            }
        }
        credentials
    }

    /// The TLS configuration of the last valid files; `None` if one is missing.
    fn build(&self, good: &LastGood) -> Result<Option<Tls>, FileError> {
        let Some(pair) = &good.pair else {
            return Ok(None);
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?;
        let builder = match (&self.auth.client_ca, &good.trust) {
            (None, _) => builder.with_no_client_auth(),
            (Some(_), Some(trust)) => {
                builder.with_client_cert_verifier(Arc::clone(&trust.verifier))
            }
            // Fail closed.
            (Some(_), None) => return Ok(None),
        };
        let shown = Arc::new(SingleCertificate(Arc::clone(&pair.certified)));
        let mut config = builder.with_cert_resolver(shown);
        config.alpn_protocols = match self.http2 {
            true => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            false => vec![b"http/1.1".to_vec()],
        };
        Ok(Some(Tls {
            config: Arc::new(config),
            validity: pair.validity,
        }))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("certificates", &self.certificates)
            .finish_non_exhaustive()
    }
}

/// Presents the same certificate for every server name.
struct SingleCertificate(Arc<CertifiedKey>);

impl ResolvesServerCert for SingleCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

impl fmt::Debug for SingleCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SingleCertificate")
    }
}

fn verifier(
    text: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, PemError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(text)? {
        roots.add(authority).map_err(PemError::Authority)?;
    }
    let provider = Arc::clone(provider);
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?)
}

fn pair(certificate: Vec<u8>, key: Vec<u8>, provider: &CryptoProvider) -> Result<Pair, PemError> {
    let chain = certificates(&certificate)?;
    let leaf = chain.first().map_or(&[][..], |leaf| &**leaf);
    let validity = validity(leaf)?;
    let private = PrivateKeyDer::from_pem_slice(&key).map_err(PemError::Key)?;
    let certified = CertifiedKey::from_der(chain, private, provider).map_err(PemError::Mismatch)?;
    Ok(Pair {
        texts: (certificate, key),
        certified: Arc::new(certified),
        validity,
    })
}

/// An expired pair does not replace a valid one.
fn replaces(used: Option<&Pair>, new: Pair) -> Result<Option<Pair>, FileError> {
    let now = now();
    if new.validity.to <= now && used.is_some_and(|used| used.validity.to > now) {
        return Err(FileError::Expired);
    }
    Ok(Some(new))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(PemError::Syntax)?;
    if chain.is_empty() {
        return Err(PemError::Empty);
    }
    Ok(chain)
}

fn validity(der: &[u8]) -> Result<Validity, PemError> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(PemError::Certificate)?;
    let validity = certificate.validity();
    Ok(Validity {
        from: validity.not_before.timestamp(),
        to: validity.not_after.timestamp(),
    })
}

fn read(file: &Path) -> Result<Vec<u8>, FileError> {
    let failed = |error| FileError::Unreadable {
        file: file.to_owned(),
        error,
    };
    let mut text = Vec::new();
    let opened = std::fs::File::open(file).map_err(failed)?;
    let mut bounded = opened.take(MAX_FILE_BYTES + 1);
    bounded.read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(FileError::TooLarge(file.to_owned()));
    }
    Ok(text)
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}
