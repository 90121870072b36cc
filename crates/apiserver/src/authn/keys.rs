//! Keys that sign and verify tokens: P-256, P-384 and RSA, in the PEM formats of kube-apiserver.
//!
//! UPSTREAM: client-go util/keyutil/key.go, kubernetes pkg/serviceaccount/jwt.go

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::rsa::KeyPair as RsaKeyPair;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED,
    ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use rustls::pki_types::pem::{PemObject as _, SectionKind};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, SubjectPublicKeyInfo, X509Certificate};
use x509_parser::public_key::RSAPublicKey;

/// The encoded object identifier 1.2.840.10045.2.1.
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// 1.2.840.10045.3.1.7.
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
/// 1.3.132.0.34.
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
/// 1.2.840.113549.1.1.1.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];

/// The algorithm of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Es256,
    Es384,
    Rs256,
}

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Rs256 => "RS256",
        }
    }

    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::Es256 => &ECDSA_P256_SHA256_FIXED,
            Self::Es384 => &ECDSA_P384_SHA384_FIXED,
            Self::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
        }
    }
}

/// A public key that verifies tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VerifyingKey {
    algorithm: Algorithm,
    /// The point on an elliptic curve, or an `RSAPublicKey`.
    public: Vec<u8>,
    /// The hash of its `SubjectPublicKeyInfo`, which is the key ID in tokens.
    id: String,
}

impl VerifyingKey {
    fn new(algorithm: Algorithm, public: &[u8]) -> Self {
        let parameters = match algorithm {
            Algorithm::Es256 => [der(6, EC_PUBLIC_KEY), der(6, P256)],
            Algorithm::Es384 => [der(6, EC_PUBLIC_KEY), der(6, P384)],
            Algorithm::Rs256 => [der(6, RSA), der(5, &[])],
        };
        // A bit string starts with the number of unused bits.
        let bits = [&[0], public].concat();
        let info = [der(0x30, &parameters.concat()), der(3, &bits)].concat();
        let digest = Sha256::digest(der(0x30, &info));
        Self {
            algorithm,
            public: public.to_owned(),
            id: URL_SAFE_NO_PAD.encode(digest),
        }
    }

    fn from_info(info: &SubjectPublicKeyInfo<'_>) -> Option<Self> {
        let curve = || info.algorithm.parameters.as_ref()?.as_oid().ok();
        let algorithm = match info.algorithm.algorithm.as_bytes() {
            RSA => Algorithm::Rs256,
            EC_PUBLIC_KEY => match curve()?.as_bytes() {
                P256 => Algorithm::Es256,
                P384 => Algorithm::Es384,
                _ => return None,
            },
            _ => return None,
        };
        // Compressed points and invalid numbers cannot verify tokens.
        let key = Self::new(algorithm, &info.subject_public_key.data);
        key.jwk().is_some().then_some(key)
    }

    /// The key as JWK (RFC 7517). `None` if its bytes are invalid.
    pub(crate) fn jwk(&self) -> Option<Jwk> {
        let (kty, crv) = match self.algorithm {
            Algorithm::Es256 => ("EC", Some("P-256")),
            Algorithm::Es384 => ("EC", Some("P-384")),
            Algorithm::Rs256 => ("RSA", None),
        };
        let number = |bytes: &[u8]| Some(URL_SAFE_NO_PAD.encode(bytes));
        let mut jwk = Jwk {
            usage: "sig",
            kty,
            kid: self.id.clone(),
            crv,
            alg: self.algorithm.name(),
            x: None,
            y: None,
            n: None,
            e: None,
        };
        if self.algorithm == Algorithm::Rs256 {
            let (rest, key) = RSAPublicKey::from_der(&self.public).ok()?;
            jwk.n = number(positive(key.modulus)?);
            jwk.e = number(positive(key.exponent)?);
            return rest.is_empty().then_some(jwk);
        }
        let size = match self.algorithm {
            Algorithm::Es256 => 32,
            _ => 48,
        };
        // UPSTREAM: Go supports uncompressed points only.
        let point = self.public.strip_prefix(&[4])?;
        let (x, y) = point.split_at_checked(size)?;
        (jwk.x, jwk.y) = (number(x), number(y));
        (y.len() == size).then_some(jwk)
    }

    /// Returns true if it verifies the signature of a token with this algorithm and key ID.
    pub(crate) fn verifies(&self, header: &Header, text: &[u8], signature: &[u8]) -> bool {
        let named = header.key.is_empty() || header.key == self.id;
        let key = UnparsedPublicKey::new(self.algorithm.verification(), &self.public);
        named && header.algorithm == self.algorithm.name() && key.verify(text, signature).is_ok()
    }
}

/// A public key as JWK, with its fields in the order of go-jose.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Jwk {
    #[serde(rename = "use")]
    usage: &'static str,
    kty: &'static str,
    kid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    crv: Option<&'static str>,
    alg: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    x: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    y: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e: Option<String>,
}

impl Jwk {
    /// The algorithm of the tokens it verifies.
    pub(crate) fn algorithm(&self) -> &'static str {
        self.alg
    }
}

/// The bytes of a positive integer in DER, without leading zeros.
fn positive(bytes: &[u8]) -> Option<&[u8]> {
    let first = bytes.first().filter(|&&byte| byte < 0x80)?;
    let zeros = match first {
        0 => bytes.iter().take_while(|&&byte| byte == 0).count(),
        _ => 0,
    };
    bytes.get(zeros..).filter(|rest| !rest.is_empty())
}

/// The header of a token.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Header {
    #[serde(rename = "alg", default)]
    pub(crate) algorithm: String,
    #[serde(rename = "kid", default, skip_serializing_if = "String::is_empty")]
    pub(crate) key: String,
}

enum Private {
    Ecdsa(Box<EcdsaKeyPair>),
    Rsa(Box<RsaKeyPair>),
}

/// A private key that signs tokens.
pub(crate) struct SigningKey {
    private: Private,
    public: VerifyingKey,
    random: SystemRandom,
}

impl SigningKey {
    /// Generates a P-256 key. Returns `None` without an entropy source.
    pub(crate) fn generate() -> Option<Self> {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).ok()?;
        Self::ecdsa(made.as_ref())
    }

    /// Parses a private key.
    pub(crate) fn from_pem(pem: &str) -> Option<Self> {
        Self::from_der(&PrivateKeyDer::from_pem_slice(pem.as_bytes()).ok()?)
    }

    fn from_der(key: &PrivateKeyDer<'_>) -> Option<Self> {
        match key {
            PrivateKeyDer::Pkcs8(key) => {
                let der = key.secret_pkcs8_der();
                Self::ecdsa(der).or_else(|| Some(Self::rsa(RsaKeyPair::from_pkcs8(der).ok()?)))
            }
            PrivateKeyDer::Pkcs1(key) => Some(Self::rsa(
                RsaKeyPair::from_der(key.secret_pkcs1_der()).ok()?,
            )),
            PrivateKeyDer::Sec1(key) => [P256, P384]
                .iter()
                .find_map(|curve| Self::ecdsa(&pkcs8(key.secret_sec1_der(), curve))),
            _ => None,
        }
    }

    fn ecdsa(pkcs8: &[u8]) -> Option<Self> {
        let random = SystemRandom::new();
        let read = |algorithm: &'static EcdsaSigningAlgorithm| {
            EcdsaKeyPair::from_pkcs8(algorithm, pkcs8, &random).ok()
        };
        let p256 = read(&ECDSA_P256_SHA256_FIXED_SIGNING).map(|key| (key, Algorithm::Es256));
        let (key, algorithm) = p256.or_else(|| {
            read(&ECDSA_P384_SHA384_FIXED_SIGNING).map(|key| (key, Algorithm::Es384))
        })?;
        let public = VerifyingKey::new(algorithm, key.public_key().as_ref());
        Some(Self {
            private: Private::Ecdsa(Box::new(key)),
            public,
            random,
        })
    }

    fn rsa(key: RsaKeyPair) -> Self {
        let public = VerifyingKey::new(Algorithm::Rs256, key.public_key().as_ref());
        Self {
            private: Private::Rsa(Box::new(key)),
            public,
            random: SystemRandom::new(),
        }
    }

    /// The public key for its signatures.
    pub(crate) fn verifying(&self) -> &VerifyingKey {
        &self.public
    }

    /// The header of the tokens it signs.
    pub(crate) fn header(&self) -> Header {
        Header {
            algorithm: self.public.algorithm.name().to_owned(),
            key: self.public.id.clone(),
        }
    }

    /// Signs data.
    pub(crate) fn sign(&self, text: &[u8]) -> Option<Vec<u8>> {
        match &self.private {
            Private::Ecdsa(key) => Some(key.sign(&self.random, text).ok()?.as_ref().to_owned()),
            Private::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &self.random, text, &mut signature)
                    .ok()?;
                Some(signature)
            }
        }
    }
}

/// Parses the keys of a file: public keys, certificates, or private keys, whose public key is used. Returns an empty
/// list if a section is not a valid key.
pub(crate) fn verifying_keys(pem: &str) -> Vec<VerifyingKey> {
    let mut keys = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem.as_bytes()) {
        let key = match section {
            Ok((SectionKind::Certificate, der)) => X509Certificate::from_der(&der)
                .ok()
                .and_then(|(_, certificate)| VerifyingKey::from_info(certificate.public_key())),
            Ok((SectionKind::PublicKey, der)) => SubjectPublicKeyInfo::from_der(&der)
                .ok()
                .and_then(|(_, info)| VerifyingKey::from_info(&info)),
            Ok((SectionKind::PrivateKey, der)) => public_half(PrivatePkcs8KeyDer::from(der)),
            Ok((SectionKind::RsaPrivateKey, der)) => public_half(PrivatePkcs1KeyDer::from(der)),
            Ok((SectionKind::EcPrivateKey, der)) => public_half(PrivateSec1KeyDer::from(der)),
            // Parameters of curves, for example.
            Ok(_) => continue,
            Err(_) => None,
        };
        let Some(key) = key else {
            return Vec::new();
        };
        keys.push(key);
    }
    keys
}

fn public_half(key: impl Into<PrivateKeyDer<'static>>) -> Option<VerifyingKey> {
    Some(SigningKey::from_der(&key.into())?.public)
}

/// Wraps an `ECPrivateKey` in `PrivateKeyInfo`.
fn pkcs8(sec1: &[u8], curve: &[u8]) -> Vec<u8> {
    let algorithm = [der(6, EC_PUBLIC_KEY), der(6, curve)].concat();
    der(
        0x30,
        &[der(2, &[0]), der(0x30, &algorithm), der(4, sec1)].concat(),
    )
}

/// Encodes a value in DER.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut made = vec![tag];
    let length = content.len().to_be_bytes();
    let length: Vec<u8> = length.into_iter().skip_while(|byte| *byte == 0).collect();
    match (content.len(), u8::try_from(length.len())) {
        (0..=127, _) => made.push(length.first().copied().unwrap_or_default()),
        // A length has at most eight bytes.
        (_, Ok(count)) => made.push(0x80 | count),
        (_, Err(_)) => {}
    }
    if content.len() > 127 {
        made.extend(length);
    }
    made.extend(content);
    made
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Generated with `openssl ecparam -genkey` and `openssl genpkey`, for these tests only.
    const KEYS: [(&str, &str, &str); 4] = [
        (
            "ES256",
            include_str!("../../tests/keys/sec1.key"),
            include_str!("../../tests/keys/sec1.pub"),
        ),
        (
            "ES384",
            include_str!("../../tests/keys/p384.key"),
            include_str!("../../tests/keys/p384.pub"),
        ),
        (
            "RS256",
            include_str!("../../tests/keys/rsa.key"),
            include_str!("../../tests/keys/rsa.pub"),
        ),
        (
            "RS256",
            include_str!("../../tests/keys/pkcs1.key"),
            include_str!("../../tests/keys/rsa.pub"),
        ),
    ];

    #[test]
    fn signs_with_every_form_of_key() {
        for (algorithm, private, public) in KEYS {
            let key = SigningKey::from_pem(private).unwrap();
            let header = key.header();
            assert_eq!(header.algorithm, algorithm);
            let signature = key.sign(b"text").unwrap();
            let verifying = verifying_keys(public);
            assert_eq!(verifying, [key.verifying().clone()]);
            assert_eq!(verifying_keys(private), verifying);
            assert!(verifying[0].verifies(&header, b"text", &signature));
            assert!(!verifying[0].verifies(&header, b"other", &signature));
            let other = Header {
                key: String::from("another"),
                ..key.header()
            };
            assert!(!verifying[0].verifies(&other, b"text", &signature));
            let wrong = Header {
                algorithm: String::from("none"),
                ..key.header()
            };
            assert!(!verifying[0].verifies(&wrong, b"text", &signature));
        }
    }

    #[test]
    fn reads_the_key_of_a_certificate() {
        let pair = lockgate_certs::Leaf::client("sa", None)
            .self_signed()
            .unwrap();
        let key = SigningKey::from_pem(&pair.key_pem).unwrap();
        let both = format!("{}{}", pair.certificate_pem, pair.key_pem);
        assert_eq!(
            verifying_keys(&both),
            [key.verifying().clone(), key.verifying().clone()]
        );
        assert_eq!(verifying_keys("no key"), []);
    }

    #[test]
    fn writes_keys_for_relying_parties() {
        let of = |pem: &str| lockgate_go::json::to_string(&verifying_keys(pem)[0].jwk().unwrap());
        // Computed from openssl's output of the keys.
        for (public, want) in [
            (
                include_str!("../../tests/keys/sec1.pub"),
                include_str!("../../tests/keys/sec1.jwk"),
            ),
            (
                include_str!("../../tests/keys/rsa.pub"),
                include_str!("../../tests/keys/rsa.jwk"),
            ),
        ] {
            assert_eq!(of(public), want.trim());
        }
        let p384 = of(include_str!("../../tests/keys/p384.pub"));
        assert!(
            p384.contains(r#""crv":"P-384","alg":"ES384","x":""#),
            "{p384}"
        );
    }

    #[test]
    fn takes_no_bytes_for_keys_that_are_none() {
        for (algorithm, public) in [
            (Algorithm::Es256, &b""[..]),
            (Algorithm::Es256, &[4; 64]),
            (Algorithm::Es256, &[4; 66]),
            (Algorithm::Es256, &[2; 33]),
            (Algorithm::Es384, &[4; 65]),
            (Algorithm::Rs256, b""),
            (Algorithm::Rs256, &[0x30, 0]),
            // Zero, a negative number, and trailing data.
            (Algorithm::Rs256, &[0x30, 6, 2, 1, 0, 2, 1, 3]),
            (Algorithm::Rs256, &[0x30, 6, 2, 1, 0x83, 2, 1, 3]),
            (Algorithm::Rs256, &[0x30, 6, 2, 1, 5, 2, 1, 3, 0]),
        ] {
            assert_eq!(
                VerifyingKey::new(algorithm, public).jwk(),
                None,
                "{public:?}"
            );
        }
        let least = VerifyingKey::new(Algorithm::Rs256, &[0x30, 6, 2, 1, 5, 2, 1, 3]);
        assert!(least.jwk().is_some());
    }

    #[test]
    fn names_keys_as_openssl_hashes_them() {
        // openssl pkey -pubin -in rsa.pub -outform der | openssl dgst -sha256 -binary | basenc --base64url
        let key = &verifying_keys(include_str!("../../tests/keys/rsa.pub"))[0];
        assert_eq!(key.id, include_str!("../../tests/keys/rsa.id").trim());
    }
}
