//! Certificates for tests.

use lockgate_certs::Leaf;

/// A certificate authority for one test.
#[derive(Debug)]
pub struct Authority(lockgate_certs::Authority);

impl Authority {
    /// Creates a CA.
    ///
    /// # Panics
    ///
    /// Panics without an entropy source.
    #[must_use]
    pub fn new() -> Self {
        let authority = lockgate_certs::Authority::new("webhook-test-ca");
        Self(authority.expect("there is an entropy source"))
    }

    /// The certificate of the CA, as in a decoded `caBundle`.
    #[must_use]
    pub fn pem(&self) -> &str {
        self.0.pem()
    }

    /// Issues a certificate for these DNS names and addresses, valid for servers and clients; the first is also the
    /// common name. Returns the certificate and its key.
    ///
    /// # Panics
    ///
    /// Panics if a name is neither a DNS name nor an address.
    #[must_use]
    pub fn issue(&self, names: &[&str]) -> (String, String) {
        let first = names.first().copied().unwrap_or("webhook");
        let leaf = Leaf::server(first, names.iter().copied()).with_client_auth();
        let pair = self.0.issue(&leaf).expect("names or addresses");
        (pair.certificate_pem, pair.key_pem)
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
