//! Tokens of service accounts: signed, and known again.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lockgate_api::admission::UserInfo;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    UnparsedPublicKey,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

use crate::metadata;

/// The issuer of tokens, and their audience unless a request names another.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Signs tokens and knows its own.
pub(crate) struct Signer {
    key: EcdsaKeyPair,
    random: SystemRandom,
}

impl Signer {
    /// A signer with a key of its own.
    pub(crate) fn new() -> Option<Self> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).ok()?;
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random)
            .ok()?;
        Some(Self { key, random })
    }

    /// A signer with a key that is kept, as PEM: it knows the tokens that others made with it.
    pub(crate) fn with_key(pem: &str) -> Option<Self> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).ok()?;
        let random = SystemRandom::new();
        let der = key.secret_pkcs8_der();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random).ok()?;
        Some(Self { key, random })
    }

    /// Signs the claims of a token.
    pub(crate) fn sign(&self, claims: &Value) -> Option<String> {
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256","typ":"JWT"}"#);
        let text = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let signature = self.key.sign(&self.random, text.as_bytes()).ok()?;
        Some(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Whose token this is, if it is one of ours and still good.
    pub(crate) fn verify(&self, token: &str) -> Option<UserInfo> {
        let (text, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key());
        public.verify(text.as_bytes(), &signature).ok()?;
        let claims = URL_SAFE_NO_PAD.decode(text.split_once('.')?.1).ok()?;
        let claims: Value = serde_json::from_slice(&claims).ok()?;
        let now = metadata::now().unix_seconds();
        if claims.get("iss")?.as_str()? != ISSUER || claims.get("exp")?.as_i64()? <= now {
            return None;
        }
        let own = |pointer: &str| claims.pointer(pointer).and_then(Value::as_str);
        let namespace = own("/kubernetes.io/namespace")?;
        let name = own("/kubernetes.io/serviceaccount/name")?;
        let id = format!("JTI={}", own("/jti")?);
        Some(UserInfo {
            username: format!("system:serviceaccount:{namespace}:{name}"),
            uid: own("/kubernetes.io/serviceaccount/uid")?.to_owned(),
            groups: Some(vec![
                String::from("system:serviceaccounts"),
                format!("system:serviceaccounts:{namespace}"),
            ]),
            extra: Some(
                [(
                    String::from("authentication.kubernetes.io/credential-id"),
                    vec![id],
                )]
                .into(),
            ),
        })
    }
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(expires: i64) -> Value {
        json!({
            "iss": ISSUER, "exp": expires, "jti": "1",
            "kubernetes.io": {"namespace": "shop", "serviceaccount": {"name": "robot", "uid": "7"}},
        })
    }

    #[test]
    fn knows_its_own_tokens_while_they_are_good() {
        let signer = Signer::new().unwrap();
        let now = metadata::now().unix_seconds();
        let token = signer.sign(&claims(now + 60)).unwrap();
        let user = signer.verify(&token).unwrap();
        assert_eq!(
            (user.username.as_str(), user.uid.as_str()),
            ("system:serviceaccount:shop:robot", "7")
        );
        assert!(
            signer
                .verify(&signer.sign(&claims(now - 1)).unwrap())
                .is_none()
        );
        assert!(Signer::new().unwrap().verify(&token).is_none());
        let (text, _) = token.rsplit_once('.').unwrap();
        assert!(signer.verify(&format!("{text}.AAAA")).is_none());
        assert!(signer.verify("not a token").is_none());
    }
}
