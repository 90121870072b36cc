//! Stage 2: authentication.
//!
//! The headers of an authenticating proxy take precedence, then the client certificate, then the bearer token. A
//! request without credentials is anonymous; a request with only invalid credentials is rejected. Impersonation comes
//! last.

mod certificate;
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
use rustls::pki_types::UnixTime;

use crate::authn::service_account::{Signer, TokenError, Verified, intersect};
use crate::config::RequestHeaders;
use crate::error::{Outcome, unauthorized};
use crate::http::listen::Peer;
use tokens::Tokens;

/// The group of authenticated users.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// The group of unauthenticated users.
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The anonymous user.
pub(crate) const ANONYMOUS: &str = "system:anonymous";

/// Authenticates requests.
pub(crate) struct Authenticator {
    pub(crate) tokens: Tokens,
    pub(crate) signer: Arc<Signer>,
    /// The store of ServiceAccounts.
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
    /// Authenticates a token for these audiences; the server's own if there are none. Returns an error if it is
    /// rejected.
    pub(crate) async fn token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Verified, TokenError> {
        let own = self.signer.audiences();
        let wanted = if audiences.is_empty() { own } else { audiences };
        // A token of the token file has no audiences: it is for this server.
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
    ///
    /// UPSTREAM: kubernetes pkg/kubeapiserver/authenticator/config.go (a certificate that is refused leaves a token its turn)
    pub(crate) async fn authenticate(&self, peer: &Peer, headers: &HeaderMap) -> Outcome<UserInfo> {
        let mut is_refused = false;
        if let Some(shown) = &peer.certificate {
            let proxy = shown.front_proxy(UnixTime::now());
            let names = &self.request_headers;
            match proxy.map(|proxy| request_headers::user(names, proxy, headers)) {
                Some(Ok(Some(user))) => return Ok(with_group(user, AUTHENTICATED)),
                Some(Ok(None)) | None => {}
                Some(Err(_)) => is_refused = true,
            }
            match shown.verified(UnixTime::now()).map(certificate::user) {
                Some(Ok(Some(user))) => return Ok(with_group(user, AUTHENTICATED)),
                Some(Ok(None)) => {}
                Some(Err(error)) => {
                    tracing::debug!(%error, "client certificate rejected");
                    is_refused = true;
                }
                None => is_refused = true,
            }
        }
        if let Some(token) = bearer_token(headers) {
            // A request with a bearer token is never anonymous: an invalid token is rejected.
            let token = std::str::from_utf8(token).map_err(|_| unauthorized())?;
            return match self.token(token, &[]).await {
                Ok(verified) => Ok(verified.user),
                Err(error) => {
                    tracing::debug!(%error, "bearer token rejected");
                    Err(unauthorized())
                }
            };
        }
        // The same holds for client certificates.
        if is_refused || !self.anonymous {
            return Err(unauthorized());
        }
        Ok(UserInfo {
            username: ANONYMOUS.to_owned(),
            groups: Some(vec![UNAUTHENTICATED.to_owned()]),
            ..UserInfo::default()
        })
    }
}

/// The bearer token, if there is an `Authorization` header.
///
/// UPSTREAM: apiserver pkg/authentication/request/bearertoken/bearertoken.go
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes().trim_ascii();
    let mut parts = value.splitn(3, |&byte| byte == b' ');
    let (scheme, token) = (parts.next()?, parts.next()?);
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
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
