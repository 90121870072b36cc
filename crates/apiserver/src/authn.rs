//! Stage 2: who asks.
//!
//! A client certificate is looked at first, then a bearer token. Who shows neither is anonymous; who
//! shows a token that nobody knows is turned away. Then a user may be asked to be taken for another.

pub(crate) mod impersonation;
pub(crate) mod service_account;
pub(crate) mod tokens;

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use lockgate_api::admission::UserInfo;
use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::authn::service_account::Signer;
use crate::error::{Outcome, unauthorized};
use crate::http::listen::Peer;
use tokens::Tokens;

/// The group of those who proved who they are.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// The group of those who did not.
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of those who did not.
pub(crate) const ANONYMOUS: &str = "system:anonymous";

/// Where it is told with which certificate somebody proved who they are.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Finds out who asks.
#[derive(Debug)]
pub(crate) struct Authenticator {
    pub(crate) tokens: Tokens,
    pub(crate) signer: Arc<Signer>,
    pub(crate) anonymous: bool,
}

impl Authenticator {
    /// Whose token this is.
    pub(crate) fn token(&self, token: &str) -> Option<UserInfo> {
        let user = self
            .tokens
            .find(token)
            .or_else(|| self.signer.verify(token))?;
        Some(with_group(user, AUTHENTICATED))
    }

    /// Who asks.
    pub(crate) fn authenticate(&self, peer: &Peer, headers: &HeaderMap) -> Outcome<UserInfo> {
        if let Some(user) = peer.certificate.as_ref().and_then(from_certificate) {
            return Ok(with_group(user, AUTHENTICATED));
        }
        if let Some(token) = bearer_token(headers) {
            return self.token(token).ok_or_else(unauthorized);
        }
        if !self.anonymous {
            return Err(unauthorized());
        }
        Ok(UserInfo {
            username: ANONYMOUS.to_owned(),
            groups: Some(vec![UNAUTHENTICATED.to_owned()]),
            ..UserInfo::default()
        })
    }
}

/// The token, if one is shown at all.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The common name is the user, the organisations are its groups.
fn from_certificate(certificate: &CertificateDer<'_>) -> Option<UserInfo> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?;
    if name.is_empty() {
        return None;
    }
    let groups: Vec<String> = subject
        .iter_organization()
        .filter_map(|part| part.as_str().ok().map(str::to_owned))
        .collect();
    let digest = Sha256::digest(certificate);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let credential = vec![format!("X509SHA256={digest}")];
    Some(UserInfo {
        username: name.to_owned(),
        groups: Some(groups),
        extra: Some([(CREDENTIAL_ID.to_owned(), credential)].into()),
        ..UserInfo::default()
    })
}

fn with_group(mut user: UserInfo, group: &str) -> UserInfo {
    let groups = user.groups.get_or_insert_default();
    if !groups.iter().any(|known| known == group) {
        groups.push(group.to_owned());
    }
    user
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(authorization: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(authorization).unwrap());
        headers
    }

    fn peer() -> Peer {
        Peer {
            address: ([127, 0, 0, 1], 1).into(),
            certificate: None,
        }
    }

    #[test]
    fn knows_tokens_and_nobody() {
        let tokens = Tokens::parse("secret,ann,7,\"one,two\"\n").unwrap();
        let signer = Arc::new(Signer::new().unwrap());
        let authenticator = Authenticator {
            tokens,
            signer,
            anonymous: true,
        };
        let user = authenticator
            .authenticate(&peer(), &headers("bearer  secret"))
            .unwrap();
        assert_eq!((user.username.as_str(), user.uid.as_str()), ("ann", "7"));
        assert_eq!(user.groups.unwrap(), ["one", "two", AUTHENTICATED]);

        let nobody = authenticator
            .authenticate(&peer(), &HeaderMap::new())
            .unwrap();
        assert_eq!(nobody.username, ANONYMOUS);
        assert_eq!(nobody.groups.unwrap(), [UNAUTHENTICATED]);

        let failure = authenticator
            .authenticate(&peer(), &headers("Bearer guess"))
            .unwrap_err();
        assert_eq!(
            (failure.0.code, failure.0.message.as_str()),
            (401, "Unauthorized")
        );
    }

    #[test]
    fn turns_nobody_away_when_told_to() {
        let signer = Arc::new(Signer::new().unwrap());
        let authenticator = Authenticator {
            tokens: Tokens::default(),
            signer,
            anonymous: false,
        };
        assert!(
            authenticator
                .authenticate(&peer(), &HeaderMap::new())
                .is_err()
        );
    }
}
