//! Certificates for tests.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A certificate authority that is gone with the test.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// Makes an authority.
    ///
    /// # Panics
    ///
    /// There is no randomness.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "webhook-test-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("there is randomness");
        let certificate = params.self_signed(&key).expect("the parameters are sound");
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// The certificate of the authority, as a `caBundle` holds it before it is base64.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Issues a certificate for these DNS names and addresses, good for servers and clients; the first
    /// is the common name too. Returns the certificate and its key.
    ///
    /// # Panics
    ///
    /// A name is not one.
    #[must_use]
    pub fn issue(&self, names: &[&str]) -> (String, String) {
        let all: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(all).expect("names or addresses");
        let first = names.first().copied().unwrap_or("webhook");
        params.distinguished_name.push(DnType::CommonName, first);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().expect("there is randomness");
        let certificate = params.signed_by(&key, &self.issuer);
        let certificate = certificate.expect("the parameters are sound");
        (certificate.pem(), key.serialize_pem())
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
