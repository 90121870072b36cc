//! Certificate verification with Go's error messages.
//!
//! rustls verifies the chain. This module implements the other checks of Go's verifier and their order, because the
//! order determines the error message.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use lockgate_api::meta::time::Time;
use lockgate_go::quote::quote;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::AttributeTypeAndValue;

use crate::call::ClientError;

/// The trusted CAs.
#[derive(Debug, Clone)]
pub(super) struct Roots {
    store: Arc<RootCertStore>,
    /// The same certificates in full: a certificate that is itself trusted needs no issuer.
    whole: Arc<HashSet<Vec<u8>>>,
}

impl Roots {
    /// Parses a bundle of PEM certificates, which replaces the system's roots.
    ///
    /// UPSTREAM: k8s.io/client-go transport/transport.go (rootCertPool).
    pub(super) fn from_pem(bundle: &[u8]) -> Result<Self, TlsError> {
        let mut store = RootCertStore::empty();
        let mut whole = HashSet::new();
        let mut malformed = false;
        for certificate in CertificateDer::pem_slice_iter(bundle).flatten() {
            match store.add(certificate.clone()) {
                Ok(()) => {
                    whole.insert(certificate.to_vec());
                }
                Err(_) => malformed = true,
            }
        }
        if whole.is_empty() {
            return Err(TlsError::Roots(if malformed {
                "failed to parse certificate: x509: malformed certificate"
            } else if holds_pem(bundle) {
                "no valid certificate authority data seen"
            } else {
                "unable to parse bytes as PEM block"
            }));
        }
        Ok(Self {
            store: Arc::new(store),
            whole: Arc::new(whole),
        })
    }

    /// The system's roots. Unreadable certificates are skipped.
    pub(super) fn system() -> Self {
        let mut store = RootCertStore::empty();
        let mut whole = HashSet::new();
        for certificate in rustls_native_certs::load_native_certs().certs {
            if store.add(certificate.clone()).is_ok() {
                whole.insert(certificate.to_vec());
            }
        }
        Self {
            store: Arc::new(store),
            whole: Arc::new(whole),
        }
    }
}

impl Roots {
    /// Detects a root with the issuer's name and another key, as after a CA was recreated under its old name without
    /// updating the bundle.
    ///
    /// UPSTREAM: Go crypto/x509/verify.go (UnknownAuthorityError.Error).
    fn candidate_hint(&self, leaf: &X509Certificate<'_>) -> Option<String> {
        let candidate = self.whole.iter().find_map(|der| {
            let (_, root) = X509Certificate::from_der(der).ok()?;
            (root.subject().as_raw() == leaf.issuer().as_raw()).then_some(root)
        })?;
        let problem = match leaf.signature_algorithm.algorithm.to_id_string().as_str() {
            "1.2.840.113549.1.1.5" => "x509: cannot verify signature: insecure algorithm SHA1-RSA",
            "1.2.840.10045.4.1" => "x509: cannot verify signature: insecure algorithm ECDSA-SHA1",
            "1.3.101.112" => "x509: Ed25519 verification failure",
            rsa if rsa.starts_with("1.2.840.113549.1.1.") => "crypto/rsa: verification error",
            ecdsa if ecdsa.starts_with("1.2.840.10045.4.") => "x509: ECDSA verification failure",
            _ => return None,
        };
        let subject = candidate.subject();
        let name = names(subject.iter_common_name())
            .next()
            .or_else(|| names(subject.iter_organization()).next())
            .unwrap_or_else(|| format!("serial:{}", candidate.serial));
        Some(format!(
            " (possibly because of {} while trying to verify candidate authority certificate {})",
            quote(problem),
            quote(&name)
        ))
    }
}

fn names<'a>(
    attributes: impl Iterator<Item = &'a AttributeTypeAndValue<'a>>,
) -> impl Iterator<Item = String> {
    attributes.filter_map(|attribute| attribute.as_str().ok().map(str::to_owned))
}

fn holds_pem(bundle: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bundle);
    text.contains("-----BEGIN ") && text.contains("-----END ")
}

/// Invalid certificates and keys, with Go's messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TlsError {
    #[error("unable to load root certificates: {0}")]
    Roots(&'static str),
    #[error("{0}")]
    Versions(String),
    #[error("tls: failed to find any PEM data in {0} input")]
    NoPem(&'static str),
    #[error("tls: private key does not match public key")]
    Mismatch,
}

/// A client certificate with its key, in PEM.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct ClientCertificate {
    pub(super) certificate_pem: Vec<u8>,
    pub(super) key_pem: Vec<u8>,
}

impl std::fmt::Debug for ClientCertificate {
    /// Hides the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientCertificate").finish_non_exhaustive()
    }
}

/// The protocols offered by ALPN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Offer {
    Http1,
    Http2,
}

/// The verification of server certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verification {
    Full,
    /// Any certificate is accepted; the handshake still proves possession of its key.
    None,
}

/// Creates a TLS client configuration for a server behind a Service: `ca_bundle` replaces the system's roots unless it
/// is empty, `identity` is a certificate with its key in PEM, and without verification any certificate is accepted.
///
/// # Errors
///
/// Fails if the bundle contains no certificate, or the identity no key.
pub fn tls_client(
    ca_bundle: &[u8],
    identity: Option<(&[u8], &[u8])>,
    insecure: bool,
    http2: bool,
) -> Result<ClientConfig, ClientError> {
    let unusable = |error: TlsError| ClientError::Credentials(error.to_string());
    let roots = match ca_bundle {
        [] => Roots::system(),
        bundle => Roots::from_pem(bundle).map_err(unusable)?,
    };
    let identity = identity.map(|(certificate, key)| ClientCertificate {
        certificate_pem: certificate.to_vec(),
        key_pem: key.to_vec(),
    });
    let offer = if http2 { Offer::Http2 } else { Offer::Http1 };
    let verification = match insecure {
        true => Verification::None,
        false => Verification::Full,
    };
    client_config(roots, identity.as_ref(), offer, verification).map_err(unusable)
}

/// Creates a TLS client configuration.
pub(super) fn client_config(
    roots: Roots,
    identity: Option<&ClientCertificate>,
    offer: Offer,
    verification: Verification,
) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Verifier::new(roots, &provider, verification);
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| TlsError::Versions(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let certificates: Vec<_> = CertificateDer::pem_slice_iter(&identity.certificate_pem)
                .flatten()
                .collect();
            if certificates.is_empty() {
                return Err(TlsError::NoPem("certificate"));
            }
            let key = PrivateKeyDer::from_pem_slice(&identity.key_pem)
                .map_err(|_| TlsError::NoPem("key"))?;
            builder
                .with_client_auth_cert(certificates, key)
                .map_err(|_| TlsError::Mismatch)?
        }
    };
    config.alpn_protocols = match offer {
        Offer::Http1 => vec![b"http/1.1".to_vec()],
        Offer::Http2 => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    Ok(config)
}

/// An error with Go's message, passed through rustls.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

impl Refusal {
    fn incompatible_usage() -> Self {
        Self(String::from(
            "certificate specifies an incompatible key usage",
        ))
    }
}

/// Formats a rustls error as Go's TLS client does.
pub(super) fn word(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(inner)))
            if inner.is::<Refusal>() =>
        {
            format!("tls: failed to verify certificate: x509: {inner}")
        }
        rustls::Error::InvalidCertificate(problem) => {
            format!("tls: failed to verify certificate: x509: {problem:?}")
        }
        rustls::Error::AlertReceived(alert) => {
            format!("remote error: tls: {}", alert_text(u8::from(*alert)))
        }
        rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType) => {
            String::from("tls: first record does not look like a TLS handshake")
        }
        rustls::Error::PeerIncompatible(_) => {
            String::from("tls: server selected unsupported protocol version or parameters")
        }
        other => format!("tls: {other}"),
    }
}

/// UPSTREAM: Go crypto/tls/alert.go.
fn alert_text(code: u8) -> String {
    let text = match code {
        0 => "close notify",
        10 => "unexpected message",
        20 => "bad record MAC",
        21 => "decryption failed",
        22 => "record overflow",
        30 => "decompression failure",
        40 => "handshake failure",
        42 => "bad certificate",
        43 => "unsupported certificate",
        44 => "revoked certificate",
        45 => "expired certificate",
        46 => "unknown certificate",
        47 => "illegal parameter",
        48 => "unknown certificate authority",
        49 => "access denied",
        50 => "error decoding message",
        51 => "error decrypting message",
        60 => "export restriction",
        70 => "protocol version not supported",
        71 => "insufficient security level",
        80 => "internal error",
        86 => "inappropriate fallback",
        90 => "user canceled",
        100 => "no renegotiation",
        109 => "missing extension",
        110 => "unsupported extension",
        111 => "certificate unobtainable",
        112 => "unrecognized name",
        113 => "bad certificate status response",
        114 => "bad certificate hash value",
        115 => "unknown PSK identity",
        116 => "certificate required",
        120 => "no application protocol",
        121 => "encrypted client hello required",
        code => return format!("alert({code})"),
    };
    text.to_owned()
}

/// Verifies in Go's order: the time, the name, then the chain.
///
/// UPSTREAM: Go crypto/x509/verify.go (Certificate.Verify).
#[derive(Debug)]
struct Verifier {
    roots: Roots,
    /// Verifies handshake signatures, not certificates.
    signatures: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
    verification: Verification,
}

impl Verifier {
    fn new(roots: Roots, provider: &Arc<CryptoProvider>, verification: Verification) -> Self {
        let signatures = WebPkiServerVerifier::builder_with_provider(
            Arc::clone(&roots.store),
            Arc::clone(provider),
        );
        Self {
            // Without any root this verifier cannot be built, and no certificate is trusted either.
            signatures: signatures.build().ok(),
            roots,
            provider: Arc::clone(provider),
            verification,
        }
    }

    fn check(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Refusal> {
        let malformed = || Refusal(String::from("malformed certificate"));
        let (_, leaf) = X509Certificate::from_der(end_entity).map_err(|_| malformed())?;
        check_time(&leaf, now)?;
        let parsed = rustls::server::ParsedCertificate::try_from(end_entity);
        let Ok(parsed) = parsed else {
            return Err(malformed());
        };
        if rustls::client::verify_server_name(&parsed, server_name).is_err() {
            return Err(Refusal(wrong_name(&leaf, server_name)));
        }
        if self.roots.whole.contains(end_entity.as_ref()) {
            return check_purpose(&leaf);
        }
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots.store,
            intermediates,
            now,
            self.provider.signature_verification_algorithms.all,
        )
        .map_err(|error| match error {
            rustls::Error::InvalidCertificate(
                CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
            ) => Refusal::incompatible_usage(),
            _ => {
                let hint = self.roots.candidate_hint(&leaf).unwrap_or_default();
                Refusal(format!("certificate signed by unknown authority{hint}"))
            }
        })
    }
}

fn check_time(leaf: &X509Certificate<'_>, now: UnixTime) -> Result<(), Refusal> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = leaf.validity();
    let (relation, limit) = if now < validity.not_before.timestamp() {
        ("before", validity.not_before.timestamp())
    } else if now > validity.not_after.timestamp() {
        ("after", validity.not_after.timestamp())
    } else {
        return Ok(());
    };
    Err(Refusal(format!(
        "certificate has expired or is not yet valid: current time {} is {relation} {}",
        rfc3339(now),
        rfc3339(limit)
    )))
}

fn rfc3339(seconds: i64) -> String {
    Time::from_unix_seconds(seconds).to_string()
}

fn check_purpose(leaf: &X509Certificate<'_>) -> Result<(), Refusal> {
    match leaf.extended_key_usage() {
        Ok(Some(usage)) if !usage.value.server_auth && !usage.value.any => {
            Err(Refusal::incompatible_usage())
        }
        _ => Ok(()),
    }
}

/// UPSTREAM: Go crypto/x509/verify.go (HostnameError.Error).
fn wrong_name(leaf: &X509Certificate<'_>, wanted: &ServerName<'_>) -> String {
    let mut names = Vec::new();
    let mut addresses = Vec::new();
    let mut any = false;
    if let Ok(Some(extension)) = leaf.subject_alternative_name() {
        for name in &extension.value.general_names {
            any = true;
            match name {
                GeneralName::DNSName(name) => names.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => addresses.extend(ip_text(bytes)),
                _ => {}
            }
        }
    }
    let host = wanted.to_str();
    let legacy = leaf
        .subject()
        .iter_common_name()
        .next()
        .and_then(|name| name.as_str().ok())
        .is_some_and(|name| name.eq_ignore_ascii_case(&host));
    let is_address = matches!(wanted, ServerName::IpAddress(_));
    if !any && legacy && !is_address {
        return String::from("certificate relies on legacy Common Name field, use SANs instead");
    }
    let valid_for = if is_address { addresses } else { names };
    match (is_address, valid_for.is_empty()) {
        (true, true) => {
            format!("cannot validate certificate for {host} because it doesn't contain any IP SANs")
        }
        (false, true) => {
            format!("certificate is not valid for any names, but wanted to match {host}")
        }
        (_, false) => format!(
            "certificate is valid for {}, not {host}",
            valid_for.join(", ")
        ),
    }
}

fn ip_text(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::IpAddr::from(four).to_string());
    }
    let six = <[u8; 16]>::try_from(bytes).ok()?;
    Some(std::net::IpAddr::from(six).to_string())
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.verification == Verification::None {
            return Ok(ServerCertVerified::assertion());
        }
        self.check(end_entity, intermediates, server_name, now)
            .map(|()| ServerCertVerified::assertion())
            .map_err(|problem| {
                let refusal = OtherError(Arc::new(problem));
                rustls::Error::InvalidCertificate(CertificateError::Other(refusal))
            })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match &self.signatures {
            Some(signatures) => signatures.verify_tls12_signature(message, cert, dss),
            None if self.verification == Verification::None => {
                let algorithms = &self.provider.signature_verification_algorithms;
                rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
            }
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match &self.signatures {
            Some(signatures) => signatures.verify_tls13_signature(message, cert, dss),
            None if self.verification == Verification::None => {
                let algorithms = &self.provider.signature_verification_algorithms;
                rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
            }
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// The TLS error behind an I/O error, with Go's message.
#[must_use]
pub fn refusal(error: &io::Error) -> Option<String> {
    let inner = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(word(inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_bundles_in_the_words_of_upstream() {
        let refused = |bundle: &str| Roots::from_pem(bundle.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            refused("garbage"),
            "unable to load root certificates: unable to parse bytes as PEM block"
        );
        assert_eq!(
            refused("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            "unable to load root certificates: failed to parse certificate: x509: malformed certificate"
        );
        assert_eq!(
            refused("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"),
            "unable to load root certificates: no valid certificate authority data seen"
        );
    }
}
