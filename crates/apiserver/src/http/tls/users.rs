//! Verification of client certificates.
//!
//! The handshake proves that a client holds the key of its certificate. The certificate is verified on the first
//! request, so that the error is an HTTP response.
//!
//! UPSTREAM: apiserver pkg/server/secure_serving.go (`tls.RequestClientCert`), pkg/authentication/request/x509/x509.go

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use x509_parser::prelude::{ASN1Time, FromDer as _, X509Certificate};

/// The CAs of users. Verification is that of webpki, and of Go where webpki differs: a trusted end-entity certificate
/// is valid for its own user.
#[derive(Debug)]
pub(crate) struct Users {
    webpki: Arc<dyn ClientCertVerifier>,
    trusted: Vec<CertificateDer<'static>>,
    /// The CAs of authenticating proxies, which are not valid for users.
    front_proxies: Option<Arc<dyn ClientCertVerifier>>,
    /// The subjects of all CAs, by which clients select a certificate.
    hints: Vec<DistinguishedName>,
}

impl Users {
    /// Creates a verifier that trusts these certificates.
    pub(super) fn new(
        trusted: Vec<CertificateDer<'static>>,
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let webpki = builder.allow_unauthenticated().build()?;
        Ok(Self {
            hints: webpki.root_hint_subjects().to_vec(),
            webpki,
            trusted,
            front_proxies: None,
        })
    }

    /// Adds CAs of authenticating proxies.
    pub(super) fn with_front_proxies(
        mut self,
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let front_proxies = builder.build()?;
        let hints = front_proxies.root_hint_subjects();
        self.hints.extend_from_slice(hints);
        self.front_proxies = Some(front_proxies);
        Ok(self)
    }

    /// Returns true if a chain is that of an authenticating proxy.
    fn is_front_proxy(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> bool {
        let (Some((certificate, intermediates)), Some(verifier)) =
            (chain.split_first(), &self.front_proxies)
        else {
            return false;
        };
        let verified = verifier.verify_client_cert(certificate, intermediates, now);
        verified.is_ok()
    }

    /// Verifies a client certificate with its intermediates.
    fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let Some((certificate, intermediates)) = chain.split_first() else {
            return Err(Error::NoCertificatesPresented);
        };
        if self.trusted.contains(certificate) && is_valid_client(certificate, now) {
            return Ok(());
        }
        self.webpki
            .verify_client_cert(certificate, intermediates, now)
            .map(drop)
    }
}

/// The certificate chain of a client; the handshake proves possession of the first certificate's key.
#[derive(Debug)]
pub(crate) struct PeerCertificates {
    chain: Vec<CertificateDer<'static>>,
    users: Arc<Users>,
    verdict: Mutex<Verification>,
    proxy_verdict: Mutex<Verification>,
}

/// The result of the verification, cached for the connection: verifying a signature takes longer than many a request.
#[derive(Debug, Clone, Copy)]
enum Verification {
    None,
    GoodUntil(UnixTime),
    Refused,
}

impl PeerCertificates {
    pub(crate) fn new(chain: Vec<CertificateDer<'static>>, users: Arc<Users>) -> Self {
        Self {
            chain,
            users,
            verdict: Mutex::new(Verification::None),
            proxy_verdict: Mutex::new(Verification::None),
        }
    }

    /// The client certificate, if it is that of an authenticating proxy.
    pub(crate) fn front_proxy(&self, now: UnixTime) -> Option<&CertificateDer<'static>> {
        let verify = || self.users.is_front_proxy(&self.chain, now);
        self.decide(&self.proxy_verdict, now, verify)
    }

    /// The client certificate; `None` if it is not trusted, for the rest of the connection.
    pub(crate) fn verified(&self, now: UnixTime) -> Option<&CertificateDer<'static>> {
        self.decide(&self.verdict, now, || {
            let verified = self.users.verify(&self.chain, now);
            verified
                .inspect_err(|error| tracing::debug!(%error, "client certificate rejected"))
                .is_ok()
        })
    }

    /// The client certificate, unless it is or was rejected.
    fn decide(
        &self,
        verdict: &Mutex<Verification>,
        now: UnixTime,
        verify: impl FnOnce() -> bool,
    ) -> Option<&CertificateDer<'static>> {
        let certificate = self.chain.first()?;
        let mut verdict = verdict.lock().unwrap_or_else(PoisonError::into_inner);
        let is_good = match *verdict {
            Verification::GoodUntil(end) if now <= end => return Some(certificate),
            Verification::Refused => false,
            Verification::None | Verification::GoodUntil(_) => verify(),
        };
        *verdict = match is_good {
            true => Verification::GoodUntil(earliest_expiry(&self.chain)),
            false => Verification::Refused,
        };
        is_good.then_some(certificate)
    }
}

/// The earliest expiry in the chain. It may be that of an unused certificate, which only causes more frequent
/// verification.
fn earliest_expiry(chain: &[CertificateDer<'_>]) -> UnixTime {
    let end = |certificate: &CertificateDer<'_>| {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        u64::try_from(parsed.validity().not_after.timestamp()).ok()
    };
    let soonest = chain.iter().map(|it| end(it).unwrap_or_default()).min();
    UnixTime::since_unix_epoch(Duration::from_secs(soonest.unwrap_or_default()))
}

/// Returns true if a certificate that is itself trusted is currently valid for client authentication.
///
/// UPSTREAM: Go crypto/x509 verify.go (a chain may be the certificate alone)
fn is_valid_client(certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
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
        &self.hints
    }

    /// Accepts any certificate: `PeerCertificates::verified` authenticates the user. Signatures are still verified below, which
    /// proves possession of the key.
    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
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
    use lockgate_certs::{Authority, Leaf};
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    fn users(trusted: &str) -> Users {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(der(trusted)).unwrap();
        Users::new(vec![der(trusted)], roots, provider).unwrap()
    }

    fn verifies(trusted: &str, shown: &str, now: UnixTime) -> bool {
        users(trusted).verify(&[der(shown)], now).is_ok()
    }

    #[test]
    fn a_certificate_that_ends_is_good_no_longer_on_an_open_connection() {
        let authority = Authority::new("ca").unwrap();
        let ann = authority.issue(&Leaf::client("ann", None)).unwrap();
        let chain = vec![der(&ann.certificate_pem)];
        let end = earliest_expiry(&chain);
        let after = UnixTime::since_unix_epoch(Duration::from_secs(end.as_secs() + 1));
        let shown = PeerCertificates::new(chain, Arc::new(users(authority.pem())));
        for (now, expected) in [(UnixTime::now(), true), (end, true), (after, false)] {
            assert_eq!(shown.verified(now).is_some(), expected, "{now:?}");
        }
        // The server's clock was set back: a rejection stays in effect.
        assert!(shown.verified(end).is_none());
        assert!(
            PeerCertificates::new(Vec::new(), Arc::new(users(authority.pem())))
                .verified(end)
                .is_none()
        );
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
