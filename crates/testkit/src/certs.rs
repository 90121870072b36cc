//! Certificates for tests: authorities, and leaves that are right or wrong in one way.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// A certificate authority.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate with its key.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate_pem: String,
    /// Its key.
    pub key_pem: String,
}

impl Authority {
    /// Makes an authority with a common name of its own.
    ///
    /// # Panics
    ///
    /// There is no randomness.
    #[must_use]
    pub fn new(common_name: &str) -> Self {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("an authority");
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// The certificate of the authority, as a `caBundle` holds it.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Issues a certificate for names and addresses.
    #[must_use]
    pub fn issue(&self, names: &[&str]) -> Identity {
        self.sign(leaf(names))
    }

    /// Issues a certificate that ended with the year 2020.
    #[must_use]
    pub fn issue_expired(&self, names: &[&str]) -> Identity {
        let mut params = leaf(names);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.sign(params)
    }

    /// Issues a certificate that begins with the year 4000.
    #[must_use]
    pub fn issue_for_later(&self, names: &[&str]) -> Identity {
        let mut params = leaf(names);
        params.not_before = date_time_ymd(4000, 1, 1);
        params.not_after = date_time_ymd(4001, 1, 1);
        self.sign(params)
    }

    /// Issues a certificate as they were made long ago: its only name is the common name.
    #[must_use]
    pub fn issue_legacy(&self, common_name: &str) -> Identity {
        let mut params = leaf(&[]);
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        self.sign(params)
    }

    /// Issues a certificate that is good for clients only.
    #[must_use]
    pub fn issue_for_clients(&self, names: &[&str]) -> Identity {
        let mut params = leaf(names);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }
}

impl Identity {
    /// Makes a certificate that is its own authority, as `openssl req -x509` does.
    ///
    /// # Panics
    ///
    /// There is no randomness.
    #[must_use]
    pub fn self_signed(names: &[&str]) -> Self {
        let mut params = leaf(names);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Self {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    /// The settings of a TLS server with this certificate; with an authority of clients, they
    /// must show a certificate of theirs.
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

fn leaf(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).expect("names or addresses");
    params
        .distinguished_name
        .push(DnType::CommonName, "webhook");
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params
}
