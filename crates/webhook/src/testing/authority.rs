//! Certificates for tests.

use lockgate_certs::Leaf;

/// A certificate authority that is gone with the test.
#[derive(Debug)]
pub struct Authority(lockgate_certs::Authority);

impl Authority {
    /// Makes an authority.
    ///
    /// # Panics
    ///
    /// There is no entropy source.
    #[must_use]
    pub fn new() -> Self {
        let authority = lockgate_certs::Authority::new("webhook-test-ca");
        Self(authority.expect("there is an entropy source"))
    }

    /// The certificate of the authority, as a `caBundle` holds it before it is base64.
    #[must_use]
    pub fn pem(&self) -> &str {
        self.0.pem()
    }

    /// Issues a certificate for these DNS names and addresses, good for servers and clients; the first
    /// is the common name too. Returns the certificate and its key.
    ///
    /// # Panics
    ///
    /// A name is neither a DNS name nor an address.
    #[must_use]
    pub fn issue(&self, names: &[&str]) -> (String, String) {
        let first = names.first().copied().unwrap_or("webhook");
        let leaf = Leaf::server(first, names.iter().copied()).or_client();
        let pair = self.0.issue(&leaf).expect("names or addresses");
        (pair.certificate_pem, pair.key_pem)
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
