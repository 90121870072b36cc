//! Tokens from a file: `token,user,uid,"group1,group2"` on each line.
//!
//! UPSTREAM: apiserver pkg/authentication/token/tokenfile/tokenfile.go

use std::collections::HashMap;

use lockgate_api::admission::UserInfo;
use sha2::{Digest as _, Sha256};

/// An error in a token file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TokenFileError {
    line: usize,
    why: &'static str,
}

/// Users by token digest. Digests make the lookup time independent of the token's prefix.
#[derive(Debug, Default)]
pub(crate) struct Tokens(HashMap<[u8; 32], UserInfo>);

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

impl Tokens {
    /// Parses the lines of a file.
    pub(crate) fn parse(text: &str) -> Result<Self, TokenFileError> {
        let mut tokens = Self::default();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why| TokenFileError {
                line: index + 1,
                why,
            };
            let fields = fields(line).ok_or_else(|| wrong("a quote is not closed"))?;
            let [token, user, uid, rest @ ..] = fields.as_slice() else {
                return Err(wrong("expected token, user name and user uid"));
            };
            if token.is_empty() {
                return Err(wrong("the token is empty"));
            }
            let groups = rest.first().map(|groups| {
                groups
                    .split(',')
                    .map(str::trim)
                    .filter(|group| !group.is_empty())
                    .map(str::to_owned)
                    .collect()
            });
            let user = UserInfo {
                username: user.clone(),
                uid: uid.clone(),
                groups,
                extra: None,
            };
            tokens.add(token, user);
        }
        Ok(tokens)
    }

    /// Adds a token.
    pub(crate) fn add(&mut self, token: &str, user: UserInfo) {
        self.0.insert(digest(token), user);
    }

    /// The user of a token.
    pub(crate) fn find(&self, token: &str) -> Option<UserInfo> {
        self.0.get(&digest(token)).cloned()
    }
}

/// The fields of a line; commas in quotes are literal, and a doubled quote is a literal quote.
fn fields(line: &str) -> Option<Vec<String>> {
    let mut fields = Vec::new();
    let mut rest = line.trim();
    loop {
        rest = rest.trim_start();
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let mut field = String::new();
                let mut quoted = quoted;
                loop {
                    let (part, after) = quoted.split_once('"')?;
                    field.push_str(part);
                    match after.strip_prefix('"') {
                        Some(more) => {
                            field.push('"');
                            quoted = more;
                        }
                        None => break (field, after.trim_start()),
                    }
                }
            }
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (field, after) = rest.split_at(end);
                (field.trim_end().to_owned(), after)
            }
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None if after.is_empty() => return Some(fields),
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lines() {
        let text = "# who\nt1,ann,1\n\nt2,bob,2,\"a, b\"\nt3,\"c\"\"d\",3,e\n";
        let tokens = Tokens::parse(text).unwrap();
        assert_eq!(tokens.find("t1").unwrap().groups, None);
        assert_eq!(tokens.find("t2").unwrap().groups.unwrap(), ["a", "b"]);
        assert_eq!(tokens.find("t3").unwrap().username, "c\"d");
        assert!(tokens.find("t4").is_none());
    }

    #[test]
    fn says_which_line_is_wrong() {
        for (text, want) in [
            ("a,b\n", "line 1: expected token, user name and user uid"),
            ("\n,b,c\n", "line 2: the token is empty"),
            ("a,b,c,\"d\n", "line 1: a quote is not closed"),
        ] {
            assert_eq!(Tokens::parse(text).unwrap_err().to_string(), want);
        }
    }
}
