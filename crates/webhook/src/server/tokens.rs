//! Bearer tokens that clients may show.

use sha2::{Digest, Sha256};

/// Tokens, by their hashes: their lengths are all the same, and they are not kept.
#[derive(Debug, Default)]
pub(super) struct Tokens(Vec<[u8; 32]>);

impl Tokens {
    /// Reads files with a token on each line.
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

    /// Returns `true` if a token is one of them, in constant time: every one is
    /// compared, to its end.
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

    /// Returns `true` if a request shows one of them.
    pub(super) fn let_in(&self, headers: &http::HeaderMap) -> bool {
        let shown = headers.get(http::header::AUTHORIZATION);
        let token = shown.and_then(|shown| {
            let (scheme, token) = shown.as_bytes().split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
        });
        token.is_some_and(|token| self.contain(token.trim_ascii()))
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
    fn the_scheme_is_bearer() {
        let tokens = Tokens::read(&[b"secret".to_vec()]);
        let shows = |value: &str| {
            let mut headers = http::HeaderMap::new();
            headers.insert("authorization", value.parse().unwrap());
            tokens.let_in(&headers)
        };
        assert!(shows("Bearer secret"));
        assert!(shows("bearer  secret"));
        assert!(!shows("Basic secret"));
        assert!(!shows("secret"));
        assert!(!shows("Bearer"));
        assert!(!tokens.let_in(&http::HeaderMap::new()));
    }
}
