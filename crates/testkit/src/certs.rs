//! Certificates for tests: CAs, and leaf certificates that are valid or have one defect.

use std::sync::Arc;

use lockgate_certs::Leaf;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// A certificate authority.
#[derive(Debug)]
pub struct Authority(lockgate_certs::Authority);

/// A certificate with its key.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate_pem: String,
    /// Its key.
    pub key_pem: String,
}

impl From<lockgate_certs::Pair> for Identity {
    fn from(pair: lockgate_certs::Pair) -> Self {
        Self {
            certificate_pem: pair.certificate_pem,
            key_pem: pair.key_pem,
        }
    }
}

impl Authority {
    /// Creates a CA with this common name.
    ///
    /// # Panics
    ///
    /// Panics without an entropy source.
    #[must_use]
    pub fn new(common_name: &str) -> Self {
        Self(lockgate_certs::Authority::new(common_name).expect("an authority"))
    }

    /// The certificate of the CA, as in a `caBundle`.
    #[must_use]
    pub fn pem(&self) -> &str {
        self.0.pem()
    }

    /// Issues a certificate for names and addresses.
    #[must_use]
    pub fn issue(&self, names: &[&str]) -> Identity {
        self.sign(&leaf(names))
    }

    /// Issues a certificate that expired at the end of 2020.
    #[must_use]
    pub fn issue_expired(&self, names: &[&str]) -> Identity {
        self.sign(&leaf(names).valid_in_years(2020, 2021))
    }

    /// Issues a certificate that is not valid before the year 4000.
    #[must_use]
    pub fn issue_for_later(&self, names: &[&str]) -> Identity {
        self.sign(&leaf(names).valid_in_years(4000, 4001))
    }

    /// Issues a certificate without subject alternative names: its only name is the common name.
    #[must_use]
    pub fn issue_legacy(&self, common_name: &str) -> Identity {
        self.sign(&Leaf::server(common_name, [""; 0]).with_client_auth())
    }

    /// Issues a certificate for client authentication only.
    #[must_use]
    pub fn issue_for_clients(&self, names: &[&str]) -> Identity {
        self.sign(&leaf(names).client_only())
    }

    fn sign(&self, leaf: &Leaf) -> Identity {
        self.0.issue(leaf).expect("a certificate").into()
    }
}

impl Identity {
    /// Creates a self-signed certificate, as `openssl req -x509` does.
    ///
    /// # Panics
    ///
    /// Panics without an entropy source.
    #[must_use]
    pub fn self_signed(names: &[&str]) -> Self {
        leaf(names).self_signed().expect("a certificate").into()
    }

    /// The TLS server configuration with this certificate; with a client CA, clients must present a certificate of it.
    pub(crate) fn server_config(
        &self,
        client_ca_pem: Option<&str>,
        protocols: &[&str],
    ) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("ring has the default versions");
        let builder = match client_ca_pem {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                    let certificate = certificate.expect("a certificate");
                    roots.add(certificate).expect("an authority");
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .expect("a verifier");
                builder.with_client_cert_verifier(verifier)
            }
        };
        let certificates = CertificateDer::pem_slice_iter(self.certificate_pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .expect("certificates");
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).expect("a key");
        let mut config = builder
            .with_single_cert(certificates, key)
            .expect("a certificate with its key");
        config.alpn_protocols = protocols
            .iter()
            .map(|protocol| protocol.as_bytes().to_vec())
            .collect();
        Arc::new(config)
    }
}

fn leaf(names: &[&str]) -> Leaf {
    Leaf::server("webhook", names.iter().copied()).with_client_auth()
}
