//! Tokens of service accounts: made on demand, signed, and known again.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lockgate_admission::host::{Ids as _, RandomIds};
use lockgate_admission::request::Operation;
use lockgate_api::admission::UserInfo;
use lockgate_api::meta::time::Time;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    UnparsedPublicKey,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use crate::call::Call;
use crate::decode::options::WriteOptions;
use crate::error::{Outcome, bad_request, internal};
use crate::read::get;
use crate::registry::{Resource, Subresource};
use crate::respond::Reply;
use crate::server::Server;
use crate::write::admission::Attempt;
use crate::write::{metadata, subresource};

/// Who issues tokens, and whom they are for when nobody says.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// How long a token is good when nobody says.
const DEFAULT_SECONDS: i64 = 3600;
/// The shortest time a token may be good for, and the longest.
const SECONDS: std::ops::RangeInclusive<i64> = 600..=1 << 32;

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

    fn sign(&self, claims: &Value) -> Option<String> {
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

/// Makes a token for a service account.
pub(crate) async fn create(
    server: &Server,
    call: &mut Call,
    resource: &Resource,
    part: &Subresource,
) -> Outcome<Reply> {
    let options = WriteOptions::of_create(&call.query)?;
    let mut request = subresource::read_body(call, part, &options)?;
    let account = get::get_value(server, call, resource).await?;
    metadata::wipe(&mut request);
    metadata::match_namespace(&mut request, &call.target.namespace)?;
    let named = metadata::text(&request, "name");
    if !named.is_empty() && named != call.target.name {
        return Err(bad_request(
            "name in URL does not match name in TokenRequest object",
        ));
    }
    if request
        .pointer("/spec/expirationSeconds")
        .is_none_or(Value::is_null)
    {
        request["spec"]["expirationSeconds"] = DEFAULT_SECONDS.into();
    }
    let facts = subresource::facts(Operation::Create, call, resource, part, &options);
    let mut attempt = Attempt::new(server, call, resource, &facts, Some(request), None);
    let mut request = attempt.mutate(call).await?;
    let name = call.target.name.clone();
    metadata::set(&mut request, "name", name.clone());
    metadata::fill(&mut request);
    attempt.validate(call, Some(&request), &name).await?;
    attempt.finish(call);

    let seconds = request
        .pointer("/spec/expirationSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(DEFAULT_SECONDS);
    let seconds = seconds.clamp(*SECONDS.start(), *SECONDS.end());
    let mut audiences = request
        .pointer("/spec/audiences")
        .cloned()
        .unwrap_or_default();
    if audiences.as_array().is_none_or(Vec::is_empty) {
        audiences = json!([ISSUER]);
    }
    let now = metadata::now().unix_seconds();
    let claims = json!({
        "aud": audiences,
        "exp": now + seconds,
        "iat": now,
        "nbf": now,
        "iss": ISSUER,
        "jti": RandomIds.uid(),
        "kubernetes.io": {
            "namespace": call.target.namespace,
            "serviceaccount": {"name": name, "uid": metadata::text(&account, "uid")},
        },
        "sub": format!("system:serviceaccount:{}:{name}", call.target.namespace),
    });
    let token = server
        .signer
        .sign(&claims)
        .ok_or_else(|| internal("the token could not be signed"))?;
    metadata::change(&mut request, |metadata| {
        metadata.remove("uid");
    });
    request["spec"]["expirationSeconds"] = seconds.into();
    request["spec"]["audiences"] = audiences;
    request["status"] = json!({
        "token": token,
        "expirationTimestamp": Time::from_unix_seconds(now + seconds).to_string(),
    });
    Ok(Reply::object(request).created())
}

#[cfg(test)]
mod tests {
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
