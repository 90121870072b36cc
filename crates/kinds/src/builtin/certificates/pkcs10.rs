//! PKCS#10 certificate signing requests: self-signed DER in PEM.
//!
//! UPSTREAM: pkg/apis/certificates/helpers.go (ParseCSR), crypto/x509 (ParseCertificateRequest, CheckSignature)

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::error::X509Error;
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;

use crate::checks::pem_blocks;
use crate::upstream_error::UpstreamError;

const KIND: &str = "CERTIFICATE REQUEST";

/// ring does not verify RSA keys below this size.
const RSA_BITS: usize = 2048;

/// Validates a request and its signature. Signatures with unsupported algorithms are left to the signer, which
/// verifies them again.
pub(super) fn check(request: &[u8]) -> Result<(), UpstreamError> {
    let der = match pem_blocks(request).into_iter().next() {
        Some((kind, der)) if kind == KIND => der,
        _ => return Err(format!("PEM block type must be {KIND}").into()),
    };
    let (rest, parsed) = X509CertificationRequest::from_der(&der).map_err(|_| malformed(&der))?;
    if !rest.is_empty() {
        return Err("asn1: syntax error: trailing data".into());
    }
    let key = parsed
        .certification_request_info
        .subject_pki
        .parsed()
        .map_err(|_| "x509: failed to parse public key")?;
    let failed = match &key {
        PublicKey::RSA(key) if key.key_size() < RSA_BITS => return Ok(()),
        PublicKey::RSA(_) => "crypto/rsa: verification error",
        PublicKey::EC(_) => "x509: ECDSA verification failure",
        _ => "x509: Ed25519 verification failure",
    };
    match parsed.verify_signature() {
        Err(X509Error::SignatureVerificationError) => Err(failed.into()),
        _ => Ok(()),
    }
}

/// Go's error for malformed DER.
fn malformed(der: &[u8]) -> &'static str {
    const SEQUENCE: u8 = 0x30;
    match der {
        [] => "asn1: syntax error: sequence truncated",
        [SEQUENCE, ..] => "asn1: syntax error: data truncated",
        _ => "asn1: structure error: tags don't match",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A P-256 request for `CN=ann`, created with openssl.
    const REQUEST: &str = "-----BEGIN CERTIFICATE REQUEST-----\n\
         MIHHMHACAQAwDjEMMAoGA1UEAwwDYW5uMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcD\n\
         QgAEvuUXx7qTP/oCnWp7TOgJB105LAn4efPzs1HRd/Qm0m0CCMdEVBgtA6Kevxuj\n\
         mWLNTlvXuTDc0VNSLQSwI5gOdqAAMAoGCCqGSM49BAMCA0cAMEQCIE+ai+Aorue9\n\
         gJSnZB30IEt+oLaqI5p6HDzIarPq1j87AiBfeET+54uuqluLVg31kUYj9AADkkF2\n\
         uB7m/L5kA7PdSw==\n\
         -----END CERTIFICATE REQUEST-----\n";

    #[test]
    fn requests_sign_themselves() {
        assert_eq!(check(REQUEST.as_bytes()), Ok(()));
        let others = [
            "",
            "nonsense",
            "-----BEGIN CERTIFICATE REQUEST-----\nYQ==\n",
        ];
        for text in others {
            let refused = check(text.as_bytes()).unwrap_err().to_string();
            assert_eq!(
                refused, "PEM block type must be CERTIFICATE REQUEST",
                "{text}"
            );
        }
        let certificate = REQUEST.replace("CERTIFICATE REQUEST", "CERTIFICATE");
        let refused = check(certificate.as_bytes()).unwrap_err().to_string();
        assert_eq!(refused, "PEM block type must be CERTIFICATE REQUEST");
    }

    #[test]
    fn a_changed_request_is_refused() {
        let lines: String = REQUEST
            .lines()
            .filter(|line| !line.starts_with("--"))
            .collect();
        let mut der = lockgate_go::base64::decode(&lines).unwrap();
        let wrap = |der: &[u8]| {
            let body = lockgate_go::base64::encode(der);
            format!("-----BEGIN {KIND}-----\n{body}\n-----END {KIND}-----\n")
        };
        let short = check(wrap(&der[..40]).as_bytes()).unwrap_err().to_string();
        assert_eq!(short, "asn1: syntax error: data truncated");
        let last = der.len() - 1;
        der[last] ^= 1;
        let forged = check(wrap(&der).as_bytes()).unwrap_err().to_string();
        assert_eq!(forged, "x509: ECDSA verification failure");
    }
}
