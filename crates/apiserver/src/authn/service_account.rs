//! ServiceAccount tokens: signed, and valid as long as the objects they are bound to exist.
//!
//! UPSTREAM: kubernetes pkg/serviceaccount/jwt.go, pkg/serviceaccount/claims.go

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lockgate_api::admission::UserInfo;
use lockgate_api::meta::time::Time;
use lockgate_go::quote::quote;
use lockgate_store::{ReadAt, Store};
use serde::{Deserialize, Serialize};

use super::keys::{Header, SigningKey, VerifyingKey};
use crate::config::ServiceAccounts;
use crate::encoding;
use crate::metadata;

/// The tolerated clock skew in seconds.
///
/// UPSTREAM: go-jose jwt/validation.go (DefaultLeeway)
const LEEWAY: i64 = 60;

/// The claims of a token.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Claims {
    #[serde(rename = "aud", default, deserialize_with = "one_or_many")]
    pub(crate) audiences: Vec<String>,
    #[serde(rename = "exp")]
    pub(crate) expires: Option<i64>,
    #[serde(rename = "iat")]
    pub(crate) issued: Option<i64>,
    #[serde(rename = "iss", default)]
    pub(crate) issuer: String,
    #[serde(rename = "jti", default)]
    pub(crate) id: String,
    #[serde(rename = "kubernetes.io", default)]
    pub(crate) kubernetes: Bound,
    #[serde(rename = "nbf")]
    pub(crate) not_before: Option<i64>,
    #[serde(rename = "sub", default)]
    pub(crate) subject: String,
}

/// The objects a token is bound to.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Bound {
    #[serde(default)]
    pub(crate) namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Reference>,
    #[serde(rename = "serviceaccount", default)]
    pub(crate) account: Reference,
}

/// A reference to an object by name and UID.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
}

fn one_or_many<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Audience {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Audience::deserialize(input)? {
        Audience::One(one) => vec![one],
        Audience::Many(many) => many,
    })
}

/// The account of a token, and the matching audiences.
#[derive(Debug)]
pub(crate) struct Verified {
    pub(crate) user: UserInfo,
    pub(crate) audiences: Vec<String>,
}

/// A rejected token, with upstream's message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("invalid bearer token")]
    Unknown,
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    Signature,
    #[error("token audiences {} is invalid for the target audiences {}", quoted(.found), quoted(.wanted))]
    Audiences {
        found: Vec<String>,
        wanted: Vec<String>,
    },
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotYetValid,
    #[error("service account token is issued in the future")]
    IssuedInTheFuture,
    #[error("serviceaccounts {} not found", quote(.0))]
    NoAccount(String),
    #[error("service account UID ({found}) does not match claim ({claimed})")]
    AccountUid { found: String, claimed: String },
    #[error("service account {namespace}/{name} has been deleted")]
    AccountDeleted { namespace: String, name: String },
    #[error("{kind} UID ({found}) does not match service account {kind} ref claim ({claimed})")]
    BoundUid {
        kind: &'static str,
        found: String,
        claimed: String,
    },
    #[error("service account token has been invalidated")]
    Invalidated,
}

/// Signs tokens, and verifies tokens of its issuers.
#[derive(Debug)]
pub(crate) struct Signer {
    key: SigningKey,
    /// The keys that verify tokens.
    keys: Vec<VerifyingKey>,
    /// The issuer of new tokens, and further accepted issuers.
    issuers: Vec<String>,
    /// The audiences of this server.
    audiences: Vec<String>,
}

impl Signer {
    /// Creates a signer for these issuers. By default the key itself verifies tokens, and the issuers are the
    /// audiences.
    pub(crate) fn new(
        key: SigningKey,
        mut keys: Vec<VerifyingKey>,
        issuers: Vec<String>,
        audiences: Vec<String>,
    ) -> Self {
        if keys.is_empty() {
            keys.push(key.verifying().clone());
        }
        let audiences = match audiences.is_empty() {
            true => issuers.clone(),
            false => audiences,
        };
        Self {
            key,
            keys,
            issuers,
            audiences,
        }
    }

    /// Creates a signer with a new key and the default issuer. Returns `None` without an entropy source.
    pub(crate) fn generate() -> Option<Self> {
        let issuers = ServiceAccounts::default().issuers;
        let key = SigningKey::generate()?;
        Some(Self::new(key, Vec::new(), issuers, Vec::new()))
    }

    /// The issuer of new tokens.
    pub(crate) fn issuer(&self) -> &str {
        self.issuers.first().map(String::as_str).unwrap_or_default()
    }

    /// The keys that verify tokens.
    pub(crate) fn keys(&self) -> &[VerifyingKey] {
        &self.keys
    }

    /// The audiences of this server, and the default audiences of tokens.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Signs the claims of a token.
    pub(crate) fn sign(&self, claims: &Claims) -> Option<String> {
        let header = serde_json::to_string(&self.key.header()).ok()?;
        let claims = serde_json::to_string(claims).ok()?;
        let text = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(claims)
        );
        let signature = self.key.sign(text.as_bytes())?;
        Some(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The claims of a token. `None` for other issuers.
    fn open(&self, token: &str) -> Result<Option<Claims>, TokenError> {
        let claimed = || {
            let mut parts = token.split('.');
            let (Some(_), Some(payload), Some(_), None) =
                (parts.next(), parts.next(), parts.next(), parts.next())
            else {
                return None;
            };
            let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
            let claims: Claims = serde_json::from_slice(&payload).ok()?;
            self.issuers.contains(&claims.issuer).then_some(claims)
        };
        let Some(claims) = claimed() else {
            return Ok(None);
        };
        let is_signed = || {
            let (text, signature) = token.rsplit_once('.')?;
            let header = URL_SAFE_NO_PAD.decode(text.split_once('.')?.0).ok()?;
            let header: Header = serde_json::from_slice(&header).ok()?;
            let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
            let mut keys = self.keys.iter();
            keys.find(|key| key.verifies(&header, text.as_bytes(), &signature))
        };
        match is_signed() {
            Some(_) => Ok(Some(claims)),
            None => Err(TokenError::Signature),
        }
    }

    /// The account of a token, for one of these audiences. `None` for other issuers; an error if it is rejected.
    pub(crate) async fn verify(
        &self,
        store: &dyn Store,
        token: &str,
        audiences: &[String],
    ) -> Result<Option<Verified>, TokenError> {
        let Some(mut claims) = self.open(token)? else {
            return Ok(None);
        };
        if claims.audiences.is_empty() {
            claims.audiences.clone_from(&self.audiences);
        }
        let meant = intersect(&claims.audiences, audiences);
        if meant.is_empty() {
            return Err(TokenError::Audiences {
                found: claims.audiences,
                wanted: audiences.to_vec(),
            });
        }
        let now = metadata::now().unix_seconds();
        if claims.expires.is_some_and(|at| now - LEEWAY > at) {
            return Err(TokenError::Expired);
        }
        if claims.not_before.is_some_and(|at| now + LEEWAY < at) {
            return Err(TokenError::NotYetValid);
        }
        if claims.issued.is_some_and(|at| now + LEEWAY < at) {
            return Err(TokenError::IssuedInTheFuture);
        }
        check_bound(store, &claims.kubernetes, now).await?;
        Ok(Some(Verified {
            user: user(claims),
            audiences: meant,
        }))
    }
}

/// The audiences in both lists, in the order of `wanted`.
pub(crate) fn intersect(there: &[String], wanted: &[String]) -> Vec<String> {
    let meant = wanted.iter().filter(|audience| there.contains(audience));
    meant.cloned().collect()
}

fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quote(text)).collect();
    format!("[{}]", texts.join(" "))
}

/// The metadata of an object that a token is bound to.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default)]
    uid: String,
    deletion_timestamp: Option<String>,
}

impl Meta {
    fn is_gone(&self, now: i64) -> bool {
        let at = self.deletion_timestamp.as_deref();
        at.and_then(|at| Time::parse(at).ok())
            .is_some_and(|at| at.unix_seconds() < now - LEEWAY)
    }
}

async fn read(
    store: &dyn Store,
    plural: &str,
    namespace: Option<&str>,
    name: &str,
) -> Option<Meta> {
    // A name with a slash would read the key of another object.
    if name.contains('/') || namespace.is_some_and(|namespace| namespace.contains('/')) {
        return None;
    }
    let key = format!("{}{name}", encoding::prefix("", plural, namespace));
    let (entry, _) = store.get(&key, ReadAt::Latest).await.ok()?;
    encoding::read_metadata(&entry?.value)
}

/// Checks that the account and the bound object still exist with the same uid.
async fn check_bound(store: &dyn Store, bound: &Bound, now: i64) -> Result<(), TokenError> {
    let namespace = bound.namespace.as_str();
    let account = &bound.account;
    let Some(found) = read(store, "serviceaccounts", Some(namespace), &account.name).await else {
        return Err(TokenError::NoAccount(account.name.clone()));
    };
    if found.uid != account.uid {
        return Err(TokenError::AccountUid {
            found: found.uid,
            claimed: account.uid.clone(),
        });
    }
    if found.is_gone(now) {
        return Err(TokenError::AccountDeleted {
            namespace: namespace.to_owned(),
            name: account.name.clone(),
        });
    }
    let node = bound.node.as_ref().filter(|_| bound.pod.is_none());
    for (reference, plural, namespace, kind) in [
        (&bound.secret, "secrets", Some(namespace), "secret"),
        (&bound.pod, "pods", Some(namespace), "pod"),
        (&node.cloned(), "nodes", None, "node"),
    ] {
        let Some(reference) = reference else {
            continue;
        };
        let found = read(store, plural, namespace, &reference.name)
            .await
            .ok_or(TokenError::Invalidated)?;
        if found.uid != reference.uid {
            return Err(TokenError::BoundUid {
                kind,
                found: found.uid,
                claimed: reference.uid.clone(),
            });
        }
        if found.is_gone(now) {
            return Err(TokenError::Invalidated);
        }
    }
    Ok(())
}

fn user(claims: Claims) -> UserInfo {
    let Bound {
        namespace,
        node,
        pod,
        account,
        ..
    } = claims.kubernetes;
    let mut extra = std::collections::BTreeMap::new();
    let mut tell = |key: &str, value: String| {
        if !value.is_empty() {
            extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value]);
        }
    };
    if !claims.id.is_empty() {
        tell("credential-id", format!("JTI={}", claims.id));
    }
    if let Some(pod) = pod {
        tell("pod-name", pod.name);
        tell("pod-uid", pod.uid);
    }
    if let Some(node) = node {
        tell("node-name", node.name);
        tell("node-uid", node.uid);
    }
    UserInfo {
        username: format!("system:serviceaccount:{namespace}:{}", account.name),
        uid: account.uid,
        groups: Some(vec![
            String::from("system:serviceaccounts"),
            format!("system:serviceaccounts:{namespace}"),
        ]),
        extra: (!extra.is_empty()).then_some(extra),
    }
}

#[cfg(test)]
mod tests {
    use lockgate_store::MemoryStore;
    use serde_json::json;

    use super::*;

    const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

    fn ours() -> Vec<String> {
        vec![ISSUER.to_owned()]
    }

    fn claims() -> Claims {
        let now = metadata::now().unix_seconds();
        Claims {
            audiences: ours(),
            expires: Some(now + 60),
            issued: Some(now),
            issuer: ISSUER.to_owned(),
            id: String::from("1"),
            kubernetes: Bound {
                namespace: String::from("shop"),
                account: reference("robot", "7"),
                ..Bound::default()
            },
            not_before: Some(now),
            subject: String::from("system:serviceaccount:shop:robot"),
        }
    }

    fn reference(name: &str, uid: &str) -> Reference {
        Reference {
            name: name.to_owned(),
            uid: uid.to_owned(),
        }
    }

    async fn store() -> MemoryStore {
        let store = MemoryStore::new();
        for (key, uid) in [
            ("/core/serviceaccounts/shop/robot", "7"),
            ("/core/pods/shop/web", "8"),
            ("/core/secrets/shop/key", "9"),
        ] {
            let object = json!({"metadata": {"name": "x", "uid": uid}});
            store
                .create(key, encoding::encode(&object), None)
                .await
                .unwrap();
        }
        store
    }

    async fn told(
        signer: &Signer,
        store: &MemoryStore,
        token: &str,
        audiences: &[String],
    ) -> String {
        match signer.verify(store, token, audiences).await {
            Ok(Some(verified)) => verified.user.username,
            Ok(None) => String::from("not ours"),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn accepts_its_own_tokens_while_they_are_good() {
        let signer = Signer::generate().unwrap();
        let store = store().await;
        let now = metadata::now().unix_seconds();
        let robot = "system:serviceaccount:shop:robot";
        type Change = fn(&mut Claims, i64);
        let cases: [(&str, Change); 12] = [
            (robot, |_, _| {}),
            (robot, |claims, _| claims.audiences.clear()),
            (robot, |claims, now| claims.expires = Some(now - 50)),
            ("service account token has expired", |claims, now| {
                claims.expires = Some(now - 120);
            }),
            ("service account token is not valid yet", |claims, now| {
                claims.not_before = Some(now + 120);
            }),
            ("serviceaccounts \"other\" not found", |claims, _| {
                claims.kubernetes.account = reference("other", "7");
            }),
            ("serviceaccounts \"a/../robot\" not found", |claims, _| {
                claims.kubernetes.account = reference("a/../robot", "7");
            }),
            (
                "service account UID (7) does not match claim (6)",
                |claims, _| {
                    claims.kubernetes.account = reference("robot", "6");
                },
            ),
            (robot, |claims, _| {
                claims.kubernetes.pod = Some(reference("web", "8"))
            }),
            (
                "pod UID (8) does not match service account pod ref claim (5)",
                |claims, _| claims.kubernetes.pod = Some(reference("web", "5")),
            ),
            ("service account token has been invalidated", |claims, _| {
                claims.kubernetes.secret = Some(reference("gone", "9"));
            }),
            ("service account token has been invalidated", |claims, _| {
                claims.kubernetes.node = Some(reference("n", "1"));
            }),
        ];
        for (want, change) in cases {
            let mut claims = claims();
            change(&mut claims, now);
            let token = signer.sign(&claims).unwrap();
            assert_eq!(told(&signer, &store, &token, &ours()).await, want);
        }
    }

    #[tokio::test]
    async fn accepts_no_other_tokens() {
        let signer = Signer::generate().unwrap();
        let store = store().await;
        let token = signer.sign(&claims()).unwrap();
        assert_eq!(
            told(&signer, &store, &token, &[String::from("vault")]).await,
            format!(
                "token audiences [\"{ISSUER}\"] is invalid for the target audiences [\"vault\"]"
            )
        );
        let broken = "go-jose/go-jose: error in cryptographic primitive";
        let other = Signer::generate().unwrap();
        assert_eq!(told(&other, &store, &token, &ours()).await, broken);
        let (text, signature) = token.rsplit_once('.').unwrap();
        let forged = format!("{text}.AAAA");
        assert_eq!(told(&signer, &store, &forged, &ours()).await, broken);
        let (_, payload) = text.split_once('.').unwrap();
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        let unsigned = format!("{none}.{payload}.{signature}");
        assert_eq!(told(&signer, &store, &unsigned, &ours()).await, broken);
        for text in ["", "not a token", "a.b", "a.b.c", "a.b.c.d", "{}"] {
            assert_eq!(told(&signer, &store, text, &ours()).await, "not ours");
        }
    }
}
