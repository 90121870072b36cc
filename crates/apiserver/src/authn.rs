//! Stage 2: authentication.
//!
//! The headers of a proxy with a certificate of its own are looked at first, then a client certificate, then
//! a bearer token. Who shows neither is anonymous; who
//! shows a token that nobody knows is turned away. Then a user may be asked to be taken for another.

pub(crate) mod impersonation;
pub(crate) mod keys;
pub(crate) mod request_headers;
pub(crate) mod service_account;
pub(crate) mod tokens;

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use lockgate_api::admission::UserInfo;
use lockgate_store::Store;
use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::authn::service_account::{Signer, TokenError, Verified, intersect};
use crate::config::RequestHeaders;
use crate::error::{Outcome, unauthorized};
use crate::http::listen::Peer;
use tokens::Tokens;

/// The group of those who proved who they are.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// The group of those who did not.
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of those who did not.
pub(crate) const ANONYMOUS: &str = "system:anonymous";

/// The extra key of the certificate of a user.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Authenticates requests.
pub(crate) struct Authenticator {
    pub(crate) tokens: Tokens,
    pub(crate) signer: Arc<Signer>,
    /// Where the accounts are that tokens are issued to.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) anonymous: bool,
    /// The headers of proxies in front of the server.
    pub(crate) request_headers: RequestHeaders,
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

impl Authenticator {
    /// Whose token this is, and for which of these audiences; the server's own if there are none. An
    /// error says why it is not accepted.
    pub(crate) async fn token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Verified, TokenError> {
        let own = self.signer.audiences();
        let wanted = if audiences.is_empty() { own } else { audiences };
        // A token of the file says nothing of audiences: it is for this server.
        let meant = intersect(own, wanted);
        let mut verified = match self.tokens.find(token) {
            Some(user) if !meant.is_empty() => Verified {
                user,
                audiences: meant,
            },
            _ => {
                let verified = self
                    .signer
                    .verify(self.store.as_ref(), token, wanted)
                    .await?;
                verified.ok_or(TokenError::Unknown)?
            }
        };
        verified.user = with_group(verified.user, AUTHENTICATED);
        Ok(verified)
    }

    /// Authenticates a request.
    pub(crate) async fn authenticate(&self, peer: &Peer, headers: &HeaderMap) -> Outcome<UserInfo> {
        if let Some(certificate) = &peer.front_proxy {
            let user = request_headers::user(&self.request_headers, certificate, headers)?;
            if let Some(user) = user {
                return Ok(with_group(user, AUTHENTICATED));
            }
        }
        if let Some(user) = peer.certificate.as_ref().and_then(from_certificate) {
            return Ok(with_group(user, AUTHENTICATED));
        }
        if let Some(token) = bearer_token(headers) {
            // Whoever shows a token means to be somebody: one that cannot be read is nobody's.
            let token = std::str::from_utf8(token).map_err(|_| unauthorized())?;
            return match self.token(token, &[]).await {
                Ok(verified) => Ok(verified.user),
                Err(error) => {
                    tracing::debug!(%error, "bearer token rejected");
                    Err(unauthorized())
                }
            };
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
///
/// UPSTREAM: apiserver pkg/authentication/request/bearertoken/bearertoken.go
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes().trim_ascii();
    let mut parts = value.splitn(3, |&byte| byte == b' ');
    let (scheme, token) = (parts.next()?, parts.next()?);
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
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
            front_proxy: None,
        }
    }

    #[tokio::test]
    async fn knows_tokens_and_nobody() {
        let tokens = Tokens::parse("secret,ann,7,\"one,two\"\n").unwrap();
        let signer = Arc::new(Signer::generate().unwrap());
        let authenticator = Authenticator {
            tokens,
            signer,
            store: Arc::new(lockgate_store::MemoryStore::new()),
            anonymous: true,
            request_headers: RequestHeaders::default(),
        };
        let user = authenticator
            .authenticate(&peer(), &headers("bearer secret"))
            .await
            .unwrap();
        assert_eq!((user.username.as_str(), user.uid.as_str()), ("ann", "7"));
        assert_eq!(user.groups.unwrap(), ["one", "two", AUTHENTICATED]);

        let nobody = authenticator
            .authenticate(&peer(), &HeaderMap::new())
            .await
            .unwrap();
        assert_eq!(nobody.username, ANONYMOUS);
        assert_eq!(nobody.groups.unwrap(), [UNAUTHENTICATED]);

        let failure = authenticator
            .authenticate(&peer(), &headers("Bearer guess"))
            .await
            .unwrap_err();
        assert_eq!(
            (failure.0.code, failure.0.message.as_str()),
            (401, "Unauthorized")
        );
    }

    #[tokio::test]
    async fn turns_nobody_away_when_told_to() {
        let signer = Arc::new(Signer::generate().unwrap());
        let authenticator = Authenticator {
            tokens: Tokens::default(),
            signer,
            store: Arc::new(lockgate_store::MemoryStore::new()),
            anonymous: false,
            request_headers: RequestHeaders::default(),
        };
        assert!(
            authenticator
                .authenticate(&peer(), &HeaderMap::new())
                .await
                .is_err()
        );
    }
}
