//! Bearer tokens, and users with passwords, for client authentication.

use std::collections::BTreeMap;

use lockgate_go::base64;
use sha2::{Digest, Sha256};

/// Hashes of tokens: all have the same length, and the tokens are not kept in memory.
#[derive(Debug, Default)]
pub(super) struct Tokens(Vec<[u8; 32]>);

impl Tokens {
    /// Reads files with one token per line.
    pub(super) fn read(texts: &[Vec<u8>]) -> Self {
        let lines = texts
            .iter()
            .flat_map(|text| text.split(|byte| *byte == b'\n'));
        let tokens = lines
            .map(<[u8]>::trim_ascii)
            .filter(|line| !line.is_empty());
        Self(tokens.map(hash).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if the token is one of them, in constant time: all of them are compared entirely.
    pub(super) fn contain(&self, shown: &[u8]) -> bool {
        let shown = hash(shown);
        let mut found = 0_u8;
        for token in &self.0 {
            let bytes = token.iter().zip(&shown);
            let difference = bytes.fold(0, |all, (one, other)| all | (one ^ other));
            found |= u8::from(std::hint::black_box(difference) == 0);
        }
        found == 1
    }

    /// Returns `true` if a request has one of them as bearer token.
    pub(super) fn is_authenticated(&self, headers: &http::HeaderMap) -> bool {
        authorization_value(headers, b"bearer ").is_some_and(|token| self.contain(token))
    }

    /// Returns `true` if a request has one of them as user and password.
    fn is_basic_authenticated(&self, headers: &http::HeaderMap) -> bool {
        let shown = authorization_value(headers, b"basic ")
            .and_then(|shown| std::str::from_utf8(shown).ok());
        let pair = shown.and_then(|shown| base64::decode(shown).ok());
        pair.is_some_and(|pair| pair.contains(&b':') && self.contain(&pair))
    }
}

fn authorization_value<'h>(headers: &'h http::HeaderMap, scheme: &[u8]) -> Option<&'h [u8]> {
    let shown = headers.get(http::header::AUTHORIZATION)?.as_bytes();
    let (said, rest) = shown.split_at_checked(scheme.len())?;
    said.eq_ignore_ascii_case(scheme)
        .then_some(rest.trim_ascii())
}

/// The tokens and users of the server, and of paths with their own.
#[derive(Debug, Default)]
pub(super) struct Credentials {
    pub(super) server: AcceptedCredentials,
    pub(super) paths: BTreeMap<String, AcceptedCredentials>,
}

/// The accepted credentials of a path.
#[derive(Debug, Default)]
pub(super) struct AcceptedCredentials {
    /// Bearer tokens; `None` if not required.
    pub(super) tokens: Option<Tokens>,
    /// `user:password`; `None` if not required.
    pub(super) users: Option<Tokens>,
}

impl Credentials {
    pub(super) fn of(&self, path: &str) -> &AcceptedCredentials {
        self.paths.get(path).unwrap_or(&self.server)
    }

    /// Returns `true` if credentials are required but none are configured.
    pub(super) fn lacks_credentials(&self) -> bool {
        let mut all = std::iter::once(&self.server).chain(self.paths.values());
        all.any(|shown| {
            let mut asked = shown.tokens.iter().chain(&shown.users).peekable();
            asked.peek().is_some() && asked.all(Tokens::is_empty)
        })
    }
}

impl AcceptedCredentials {
    /// Returns `true` if a request has valid credentials. Files that were never read allow no request.
    pub(super) fn is_authenticated(&self, headers: &http::HeaderMap) -> bool {
        let by_token = self
            .tokens
            .as_ref()
            .map(|tokens| tokens.is_authenticated(headers));
        let by_user = self
            .users
            .as_ref()
            .map(|users| users.is_basic_authenticated(headers));
        by_token.unwrap_or_default() | by_user.unwrap_or_default()
    }
}

fn hash(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_tokens_are_good() {
        let tokens = Tokens::read(&[b"first\n\n second \n".to_vec(), b"third".to_vec()]);
        for good in ["first", "second", "third"] {
            assert!(tokens.contain(good.as_bytes()), "{good}");
        }
        for bad in ["", "firs", "first\n", "firstsecond", "FIRST"] {
            assert!(!tokens.contain(bad.as_bytes()), "{bad}");
        }
        assert!(!Tokens::default().contain(b""));
        assert!(Tokens::read(&[b" \n".to_vec()]).is_empty());
    }

    #[test]
    fn users_are_shown_with_their_passwords() {
        let asks = AcceptedCredentials {
            tokens: Some(Tokens::read(&[b"secret".to_vec()])),
            users: Some(Tokens::read(&[b"ann:pa:ss\nbob:\n".to_vec()])),
        };
        let shows = |value: String| {
            let mut headers = http::HeaderMap::new();
            headers.insert("authorization", value.parse().unwrap());
            asks.is_authenticated(&headers)
        };
        let basic = |pair: &str| format!("Basic {}", base64::encode(pair.as_bytes()));
        assert!(shows(basic("ann:pa:ss")));
        assert!(shows(basic("bob:")));
        assert!(shows(String::from("Bearer secret")));
        // A user is not accepted as a token, nor a token as a user.
        assert!(!shows(String::from("Bearer ann:pa:ss")));
        assert!(!shows(basic("secret")));
        assert!(!shows(basic("ann:pa")));
        assert!(!shows(basic("ann")));
        assert!(!shows(String::from("Basic ann:pa:ss")));
        assert!(!asks.is_authenticated(&http::HeaderMap::new()));
        assert!(!AcceptedCredentials::default().is_authenticated(&http::HeaderMap::new()));
    }

    #[test]
    fn the_scheme_is_bearer() {
        let tokens = Tokens::read(&[b"secret".to_vec()]);
        let shows = |value: &str| {
            let mut headers = http::HeaderMap::new();
            headers.insert("authorization", value.parse().unwrap());
            tokens.is_authenticated(&headers)
        };
        assert!(shows("Bearer secret"));
        assert!(shows("bearer  secret"));
        assert!(!shows("Basic secret"));
        assert!(!shows("secret"));
        assert!(!shows("Bearer"));
        assert!(!tokens.is_authenticated(&http::HeaderMap::new()));
    }
}
