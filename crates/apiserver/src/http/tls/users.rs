//! Verification of client certificates.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use x509_parser::prelude::{ASN1Time, FromDer as _, X509Certificate};

/// Verifies as webpki does, and as Go does where webpki differs: a certificate that is itself among the
/// trusted ones is good for its own user.
#[derive(Debug)]
pub(crate) struct Users {
    webpki: Arc<dyn ClientCertVerifier>,
    /// Verifies proxies in front of the server. Their authority speaks for no user.
    front_proxies: Option<Arc<dyn ClientCertVerifier>>,
    trusted: Vec<CertificateDer<'static>>,
}

impl Users {
    /// Trusts these certificates.
    pub(super) fn new(
        trusted: Vec<CertificateDer<'static>>,
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        Ok(Self {
            webpki: builder.allow_unauthenticated().build()?,
            front_proxies: None,
            trusted,
        })
    }

    /// Trusts these authorities to speak for proxies.
    pub(super) fn with_front_proxies(
        mut self,
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        self.front_proxies = Some(builder.build()?);
        Ok(self)
    }

    /// Returns true if a chain is one of a user.
    pub(crate) fn is_user(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> bool {
        let Some((certificate, intermediates)) = chain.split_first() else {
            return false;
        };
        self.verify_user(certificate, intermediates, now).is_ok()
    }

    /// Returns true if a chain is one of a proxy in front of the server.
    pub(crate) fn is_front_proxy(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> bool {
        let (Some((certificate, intermediates)), Some(verifier)) =
            (chain.split_first(), &self.front_proxies)
        else {
            return false;
        };
        let verified = verifier.verify_client_cert(certificate, intermediates, now);
        verified.is_ok()
    }

    fn verify_user(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.trusted.contains(certificate) && is_good(certificate, now) {
            return Ok(ClientCertVerified::assertion());
        }
        self.webpki
            .verify_client_cert(certificate, intermediates, now)
    }
}

/// Returns true if a certificate that is trusted itself may authenticate a client now.
///
/// UPSTREAM: Go crypto/x509 verify.go (a chain may be the certificate alone)
fn is_good(certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return false;
    };
    let at = i64::try_from(now.as_secs())
        .ok()
        .and_then(|at| ASN1Time::from_timestamp(at).ok());
    let in_time = at.is_some_and(|at| parsed.validity().is_valid_at(at));
    let for_clients = match parsed.extended_key_usage() {
        Ok(None) => true,
        Ok(Some(usage)) => usage.value.client_auth || usage.value.any,
        Err(_) => false,
    };
    in_time && for_clients
}

impl ClientCertVerifier for Users {
    fn offer_client_auth(&self) -> bool {
        self.webpki.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.webpki.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.webpki.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let user = self.verify_user(certificate, intermediates, now);
        match &self.front_proxies {
            Some(proxies) if user.is_err() => {
                proxies.verify_client_cert(certificate, intermediates, now)
            }
            _ => user,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockgate_certs::{Authority, Leaf};
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    fn verifies(trusted: &str, shown: &str, now: UnixTime) -> bool {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(der(trusted)).unwrap();
        let users = Users::new(vec![der(trusted)], roots, provider).unwrap();
        users.verify_client_cert(&der(shown), &[], now).is_ok()
    }

    #[test]
    fn accepts_what_is_trusted_itself() {
        let own = Leaf::client("ann", Some("dev")).self_signed().unwrap();
        let other = Leaf::client("bob", None).self_signed().unwrap();
        let server = Leaf::server("web", ["web.test"]).self_signed().unwrap();
        let old = Leaf::client("old", None).valid_in_years(2001, 2002);
        let old = old.self_signed().unwrap();
        let now = UnixTime::now();
        for (trusted, shown, expected) in [
            (&own, &own, true),
            (&own, &other, false),
            (&server, &server, false),
            (&old, &old, false),
        ] {
            let found = verifies(&trusted.certificate_pem, &shown.certificate_pem, now);
            assert_eq!(found, expected);
        }
        let before = UnixTime::since_unix_epoch(Duration::from_secs(1));
        assert!(!verifies(
            &own.certificate_pem,
            &own.certificate_pem,
            before
        ));
    }

    #[test]
    fn accepts_what_an_authority_issued() {
        let authority = Authority::new("ca").unwrap();
        let ann = authority.issue(&Leaf::client("ann", None)).unwrap();
        assert!(verifies(
            authority.pem(),
            &ann.certificate_pem,
            UnixTime::now()
        ));
        assert!(!verifies(
            &ann.certificate_pem,
            authority.pem(),
            UnixTime::now()
        ));
    }
}
