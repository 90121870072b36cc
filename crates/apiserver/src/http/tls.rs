//! Certificates: the server's own CA, its serving certificate, and the trusted client CAs.
//!
//! Missing certificates are generated; with a directory they are stored there, so that a kubeconfig survives a restart.

mod users;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockgate_certs::{Authority, Error, Leaf, Pair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::config::{ServingFiles, SharedCertificates};
use crate::{metadata, private_file};
pub(crate) use users::{PeerCertificates, Users};

impl SharedCertificates {
    /// Generates certificates and keys.
    ///
    /// # Errors
    ///
    /// No entropy source.
    pub fn make() -> Result<Self, TlsError> {
        let (ca, ca_key) = make_authority(None)?;
        let front_proxy = FrontProxy::make()?;
        Ok(Self {
            ca,
            ca_key,
            token_key: lockgate_certs::private_key_pem().map_err(material("the key of tokens"))?,
            front_proxy_ca: front_proxy.ca_pem,
            front_proxy_client: front_proxy.certificate_pem,
            front_proxy_key: front_proxy.key_pem,
        })
    }
}

/// The remaining validity in days below which the serving certificate is renewed at startup.
const RENEW_DAYS: u32 = 90;

/// A TLS configuration error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("cannot use `{path}`: {source}")]
    File {
        /// The file, or the certificate or key.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A certificate or key is invalid.
    #[error("{what}: {why}")]
    Material {
        /// The file, or the certificate or key.
        what: String,
        /// The cause.
        why: String,
    },
}

fn material(what: &str) -> impl Fn(Error) -> TlsError {
    let what = what.to_owned();
    move |error| match error {
        Error::Name { name, reason, .. } => TlsError::Material {
            what: format!("the host name `{name}`"),
            why: reason,
        },
        error => TlsError::Material {
            what: what.clone(),
            why: error.to_string(),
        },
    }
}

/// The CA of a server, and the certificates it issued to itself.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The CA certificate.
    ca_pem: String,
    ca_key_pem: String,
    certificate_pem: String,
    key_pem: String,
    /// True if the serving certificate was issued by this CA.
    is_own: bool,
    /// The client certificate for aggregated servers, with its CA.
    front_proxy: FrontProxy,
}

/// The client certificate for aggregated servers, and the CA they verify it with.
#[derive(Debug, Clone)]
pub(crate) struct FrontProxy {
    pub(crate) ca_pem: String,
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
}

/// The common name of that certificate, as in kubeadm.
pub(crate) const FRONT_PROXY_CLIENT: &str = "front-proxy-client";

impl FrontProxy {
    fn make() -> Result<Self, TlsError> {
        let failed = || material("the authority of the front proxy");
        let authority = Authority::new("lockgate-front-proxy-ca").map_err(failed())?;
        let issued = authority.issue(&Leaf::client(FRONT_PROXY_CLIENT, None));
        let pair = issued.map_err(failed())?;
        Ok(Self {
            ca_pem: authority.pem().to_owned(),
            certificate_pem: pair.certificate_pem,
            key_pem: pair.key_pem,
        })
    }

    /// Loads it from a directory. Missing or expiring files are regenerated: aggregated servers learn of it from the
    /// published ConfigMap.
    fn load_or_make(folder: &Path) -> Result<Self, TlsError> {
        let [ca, certificate, key] = [
            "front-proxy-ca.crt",
            "front-proxy-client.crt",
            "front-proxy-client.key",
        ]
        .map(|name| folder.join(name));
        let read = (
            std::fs::read_to_string(&ca),
            std::fs::read_to_string(&certificate),
            private_file::read(&key),
        );
        if let (Ok(ca_pem), Ok(certificate_pem), Ok(key_pem)) = read
            && is_fresh(&certificate_pem)
        {
            return Ok(Self {
                ca_pem,
                certificate_pem,
                key_pem,
            });
        }
        let made = Self::make()?;
        // The certificate is written last: without it the other files are ignored.
        if certificate.exists() {
            std::fs::remove_file(&certificate).map_err(|source| TlsError::File {
                path: certificate.clone(),
                source,
            })?;
        }
        write(&ca, &made.ca_pem, 0o644)?;
        write(&key, &made.key_pem, 0o600)?;
        write(&certificate, &made.certificate_pem, 0o644)?;
        Ok(made)
    }

    /// Loads it from files, with a CA that is published by others.
    pub(crate) fn from_files(files: &ServingFiles, ca: Option<&Path>) -> Result<Self, TlsError> {
        let read = |path: &Path| {
            std::fs::read_to_string(path).map_err(|source| TlsError::File {
                path: path.to_owned(),
                source,
            })
        };
        Ok(Self {
            ca_pem: ca.map(read).transpose()?.unwrap_or_default(),
            certificate_pem: read(&files.certificate)?,
            key_pem: read(&files.key)?,
        })
    }
}

impl Identity {
    /// Loads the identity from a directory, and generates missing files.
    pub(crate) fn load_or_make(folder: &Path, hosts: &[String]) -> Result<Self, TlsError> {
        let file = |name: &str| folder.join(name);
        let failed = |path: PathBuf| move |source| TlsError::File { path, source };
        private_file::secure_folder(folder).map_err(failed(folder.to_owned()))?;
        let text = |name: &str| match name.ends_with(".key") {
            true => private_file::read(&file(name)),
            false => std::fs::read_to_string(file(name)),
        };
        let read = |name: &str| match text(name) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(file(name))(error)),
        };
        // A certificate is written after its key, so a key without one was left by a crash.
        let (ca_pem, ca_key_pem) = match (read("ca.crt")?, read("ca.key")?) {
            (Some(certificate), Some(key)) => (certificate, key),
            (None, key) => {
                let (certificate, key) = make_authority(key.as_deref())?;
                write(&file("ca.key"), &key, 0o600)?;
                write(&file("ca.crt"), &certificate, 0o644)?;
                (certificate, key)
            }
            (Some(_), None) => {
                return Err(TlsError::Material {
                    what: format!("`{}`", folder.display()),
                    why: String::from("ca.crt and ca.key belong together, and one is missing"),
                });
            }
        };
        let (certificate_pem, key_pem) = match (read("apiserver.crt")?, read("apiserver.key")?) {
            (Some(certificate), Some(key)) if is_fresh(&certificate) => (certificate, key),
            (old, _) => {
                // Removed first, so that a crash never leaves the certificate of another key.
                if old.is_some() {
                    let path = file("apiserver.crt");
                    std::fs::remove_file(&path).map_err(failed(path))?;
                }
                let (certificate, key) = issue(&ca_pem, &ca_key_pem, &server_leaf(hosts))?;
                write(&file("apiserver.key"), &key, 0o600)?;
                write(&file("apiserver.crt"), &certificate, 0o644)?;
                (certificate, key)
            }
        };
        Ok(Self {
            ca_pem,
            ca_key_pem,
            certificate_pem,
            key_pem,
            is_own: true,
            front_proxy: FrontProxy::load_or_make(folder)?,
        })
    }

    /// Creates an identity shared with other servers, except for the serving certificate.
    pub(crate) fn shared(
        certificates: &SharedCertificates,
        hosts: &[String],
    ) -> Result<Self, TlsError> {
        let SharedCertificates { ca, ca_key, .. } = certificates;
        let (certificate_pem, key_pem) = issue(ca, ca_key, &server_leaf(hosts))?;
        Ok(Self {
            ca_pem: ca.clone(),
            ca_key_pem: ca_key.clone(),
            certificate_pem,
            key_pem,
            is_own: true,
            front_proxy: FrontProxy {
                ca_pem: certificates.front_proxy_ca.clone(),
                certificate_pem: certificates.front_proxy_client.clone(),
                key_pem: certificates.front_proxy_key.clone(),
            },
        })
    }

    /// Generates an in-memory identity.
    pub(crate) fn make(hosts: &[String]) -> Result<Self, TlsError> {
        let (ca_pem, ca_key_pem) = make_authority(None)?;
        let (certificate_pem, key_pem) = issue(&ca_pem, &ca_key_pem, &server_leaf(hosts))?;
        Ok(Self {
            ca_pem,
            ca_key_pem,
            certificate_pem,
            key_pem,
            is_own: true,
            front_proxy: FrontProxy::make()?,
        })
    }

    /// Replaces the serving certificate by one from files, which another CA may have issued.
    pub(crate) fn serving(mut self, files: &ServingFiles) -> Result<Self, TlsError> {
        let read = |path: &Path| {
            std::fs::read_to_string(path).map_err(|source| TlsError::File {
                path: path.to_owned(),
                source,
            })
        };
        self.certificate_pem = read(&files.certificate)?;
        self.key_pem = read(&files.key)?;
        self.is_own = false;
        Ok(self)
    }

    /// The client certificate for aggregated servers.
    pub(crate) fn front_proxy(&self) -> &FrontProxy {
        &self.front_proxy
    }

    /// The published client CAs: the server's own and those of the file.
    pub(crate) fn client_ca_pem(&self, client_ca: Option<&Path>) -> Result<String, TlsError> {
        let mut pem = self.ca_pem.clone();
        if let Some(path) = client_ca {
            let more = std::fs::read_to_string(path).map_err(|source| TlsError::File {
                path: path.to_owned(),
                source,
            })?;
            pem.push_str(&more);
        }
        Ok(pem)
    }

    /// The CA certificates with which clients verify the server.
    pub(crate) fn trust_pem(&self) -> &str {
        match self.is_own {
            true => &self.ca_pem,
            // With the CA at its end, or self-signed.
            false => &self.certificate_pem,
        }
    }

    /// Issues a client certificate to a user with a group.
    pub(crate) fn issue_to_user(
        &self,
        name: &str,
        group: &str,
    ) -> Result<(String, String), TlsError> {
        let leaf = Leaf::client(name, Some(group));
        issue(&self.ca_pem, &self.ca_key_pem, &leaf)
    }

    /// The CA, for signing certificate requests.
    pub(crate) fn authority(&self) -> Result<Authority, TlsError> {
        Authority::from_pem(&self.ca_pem, &self.ca_key_pem).map_err(|error| TlsError::Material {
            what: String::from("the authority"),
            why: error.to_string(),
        })
    }

    /// Creates the rustls configuration, and the verifier of client certificates. Client certificates are requested but
    /// not required.
    pub(crate) fn server_config(
        &self,
        client_ca: Option<&Path>,
        front_proxy_ca: Option<&Path>,
    ) -> Result<(Arc<ServerConfig>, Arc<Users>), TlsError> {
        let wrong = |what: &str, why: String| TlsError::Material {
            what: what.to_owned(),
            why,
        };
        let mut roots = RootCertStore::empty();
        let mut trusted = Vec::new();
        let mut trust = |what: &str, pem: &str| -> Result<(), TlsError> {
            for certificate in certificates(what, pem)? {
                roots
                    .add(certificate.clone())
                    .map_err(|error| wrong(what, error.to_string()))?;
                trusted.push(certificate);
            }
            Ok(())
        };
        trust("the server's own authority", &self.ca_pem)?;
        if let Some(path) = client_ca {
            let pem = std::fs::read_to_string(path).map_err(|source| TlsError::File {
                path: path.to_owned(),
                source,
            })?;
            trust(&format!("`{}`", path.display()), &pem)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut users = Users::new(trusted, roots, Arc::clone(&provider))
            .map_err(|error| wrong("the authorities of users", error.to_string()))?;
        if let Some(path) = front_proxy_ca {
            let what = format!("`{}`", path.display());
            let pem = std::fs::read_to_string(path).map_err(|source| TlsError::File {
                path: path.to_owned(),
                source,
            })?;
            let mut roots = RootCertStore::empty();
            for certificate in certificates(&what, &pem)? {
                let added = roots.add(certificate);
                added.map_err(|error| wrong(&what, error.to_string()))?;
            }
            users = users
                .with_front_proxies(roots, Arc::clone(&provider))
                .map_err(|error| wrong(&what, error.to_string()))?;
        }
        let users = Arc::new(users);
        let chain = certificates("the server's certificate", &self.certificate_pem)?;
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes())
            .map_err(|error| wrong("the server's key", error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong("the server's protocol versions", error.to_string()))?
            .with_client_cert_verifier(Arc::<Users>::clone(&users))
            .with_single_cert(chain, key)
            .map_err(|error| wrong("the server's certificate", error.to_string()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok((Arc::new(config), users))
    }
}

/// Returns true if the serving certificate has enough remaining validity, and no more than a new one would have.
fn is_fresh(pem: &str) -> bool {
    let Some(Ok(certificate)) = CertificateDer::pem_slice_iter(pem.as_bytes()).next() else {
        return false;
    };
    let Ok((_, parsed)) = X509Certificate::from_der(&certificate) else {
        return false;
    };
    let left = parsed.validity().not_after.timestamp() - metadata::now().unix_seconds();
    let days = |days: u32| i64::from(days) * 24 * 3600;
    (days(RENEW_DAYS)..=days(lockgate_certs::LEAF_DAYS)).contains(&left)
}

fn certificates(what: &str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |why: String| TlsError::Material {
        what: what.to_owned(),
        why,
    };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(error.to_string()))?;
    if chain.is_empty() {
        return Err(wrong(String::from("no certificate found")));
    }
    Ok(chain)
}

/// Creates a CA, with an existing or a new key.
fn make_authority(key_pem: Option<&str>) -> Result<(String, String), TlsError> {
    const NAME: &str = "lockgate-ca";
    let authority = match key_pem {
        Some(pem) => Authority::renew(NAME, pem),
        None => Authority::new(NAME),
    };
    let authority = authority.map_err(material("the server's own authority"))?;
    Ok((authority.pem().to_owned(), authority.key_pem().to_owned()))
}

fn server_leaf(hosts: &[String]) -> Leaf {
    let names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "127.0.0.1",
        "::1",
    ];
    let names = names.into_iter().chain(hosts.iter().map(String::as_str));
    Leaf::server("kube-apiserver", names)
}

fn issue(ca_pem: &str, ca_key_pem: &str, leaf: &Leaf) -> Result<(String, String), TlsError> {
    let issued = Authority::from_pem(ca_pem, ca_key_pem).and_then(|ca| ca.issue(leaf));
    let Pair {
        certificate_pem,
        key_pem,
    } = issued.map_err(material("the server's own authority"))?;
    Ok((certificate_pem, key_pem))
}

/// The key that signs ServiceAccount tokens, from the certificate directory; generated if missing.
pub(crate) fn token_key(folder: &Path) -> Result<String, TlsError> {
    let path = folder.join("sa.key");
    match private_file::read(&path) {
        Ok(pem) => Ok(pem),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let pem = lockgate_certs::private_key_pem().map_err(material("the key of tokens"))?;
            write(&path, &pem, 0o600)?;
            Ok(pem)
        }
        Err(source) => Err(TlsError::File { path, source }),
    }
}

/// Writes a file atomically; secrets are readable by the owner only.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    private_file::write_with(path, text, mode).map_err(|source| TlsError::File {
        path: path.to_owned(),
        source,
    })
}
