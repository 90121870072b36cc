//! Access control: host, origin, user and permissions.
//!
//! A browser adds cookies and basic authentication to requests of every page. So the console uses neither: the page
//! reads its token from the fragment of the URL, which is never sent, and puts it into a header of its own requests.
//! Pages of other origins can neither read it nor set the header.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method};
use lockgate_api::access::{AccessObject, AccessRequest, Authorizer, User};
use lockgate_api::admission::UserInfo;
use sha2::{Digest as _, Sha256};

/// The path under which roles grant the console: `nonResourceURLs: ["/console/*"]`.
const PREFIX: &str = "/console";
/// The user of the startup token.
const USER: &str = "lockgate:console";
/// Its group, which has full permissions.
const MASTERS: &str = "system:masters";

/// The token of the URL that is printed at startup. It is valid for the console only.
#[derive(Clone)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Generates a random token. `None` without an entropy source.
    #[must_use]
    pub fn generate() -> Option<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).ok()?;
        Some(Self(
            bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        ))
    }

    /// The token as a string.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The user, if the request has this token.
    pub(crate) fn user(&self, headers: &HeaderMap) -> Option<UserInfo> {
        let value = headers.get(AUTHORIZATION)?.as_bytes();
        let shown = value.strip_prefix(b"Bearer ")?;
        // Hashes are compared, so that the duration reveals nothing about the token.
        (Sha256::digest(shown) == Sha256::digest(&self.0)).then(|| UserInfo {
            username: USER.to_owned(),
            groups: Some(vec![MASTERS.to_owned()]),
            ..UserInfo::default()
        })
    }
}

/// A rejected request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The Host is not allowed: it may be a DNS rebinding attack.
    Host,
    /// A cross-origin request.
    Origin,
}

/// Checks the origin of a request. Hosts must be IP addresses or `localhost`, since any other name can be made to
/// resolve here.
pub(crate) fn check_origin(head: &Parts, is_secure: bool) -> Result<(), Refused> {
    let text = |value: &http::HeaderValue| value.to_str().ok().map(str::to_owned);
    let host = match head.uri.authority() {
        Some(authority) => Some(authority.to_string()),
        None => head.headers.get(HOST).and_then(text),
    };
    let host = host.ok_or(Refused::Host)?;
    if !is_ours(&host) {
        return Err(Refused::Host);
    }
    if let Some(origin) = head.headers.get(ORIGIN) {
        let scheme = if is_secure { "https" } else { "http" };
        if text(origin) != Some(format!("{scheme}://{host}")) {
            return Err(Refused::Origin);
        }
    }
    let site = head.headers.get("sec-fetch-site").and_then(text);
    let is_page = head.method == Method::GET && !head.uri.path().starts_with("/api/");
    match site.as_deref() {
        None | Some("same-origin" | "none") => Ok(()),
        // Cross-site navigation to the page is harmless: the page has no token.
        Some(_) if is_page => Ok(()),
        Some(_) => Err(Refused::Origin),
    }
}

fn is_ours(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    name.eq_ignore_ascii_case("localhost") || address.unwrap_or(name).parse::<IpAddr>().is_ok()
}

/// The permissions of a user.
pub(crate) struct Rights<'r> {
    user: User,
    authorizer: &'r dyn Authorizer,
}

impl<'r> Rights<'r> {
    pub(crate) fn new(user: &UserInfo, authorizer: &'r dyn Authorizer) -> Self {
        let user = User {
            name: user.username.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone().unwrap_or_default(),
            extra: user.extra.clone().unwrap_or_default(),
        };
        Self { user, authorizer }
    }

    /// Returns true if the user may use this path of the console.
    pub(crate) fn may_use(&self, method: &Method, path: &str) -> bool {
        let verb = method.as_str().to_ascii_lowercase();
        let path = format!("{PREFIX}{path}");
        self.asks(&verb, AccessObject::Path(&path))
    }

    /// Returns true if the user may see all objects, which requires full permissions.
    pub(crate) fn may_see_objects(&self) -> bool {
        let everything = AccessObject::Resource {
            group: "*",
            resource: "*",
            subresource: "",
            namespace: "",
            name: "",
            field_selector: "",
            label_selector: "",
        };
        self.asks("*", everything)
    }

    fn asks(&self, verb: &str, object: AccessObject<'_>) -> bool {
        let request = AccessRequest {
            user: &self.user,
            verb,
            object,
        };
        self.authorizer.authorize(&request).allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(path: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn hosts_are_addresses_or_localhost() {
        for ours in [
            "localhost",
            "localhost:6480",
            "LOCALHOST:1",
            "127.0.0.1:6480",
            "[::1]:6480",
            "10.0.0.1",
        ] {
            assert_eq!(
                check_origin(&head("/", &[("host", ours)]), false),
                Ok(()),
                "{ours}"
            );
        }
        for other in [
            "",
            "evil.example",
            "evil.example:6480",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "127.0.0.1:x",
        ] {
            let refused = check_origin(&head("/", &[("host", other)]), false);
            assert_eq!(refused, Err(Refused::Host), "{other}");
        }
        assert_eq!(check_origin(&head("/", &[]), false), Err(Refused::Host));
    }

    #[test]
    fn other_origins_may_link_to_the_page_and_nothing_else() {
        let host = ("host", "localhost:6480");
        let cases = [
            ("/api/requests", "origin", "http://localhost:6480", Ok(())),
            (
                "/api/requests",
                "origin",
                "http://localhost:3000",
                Err(Refused::Origin),
            ),
            (
                "/api/requests",
                "origin",
                "https://localhost:6480",
                Err(Refused::Origin),
            ),
            ("/api/requests", "origin", "null", Err(Refused::Origin)),
            ("/api/requests", "sec-fetch-site", "same-origin", Ok(())),
            ("/api/requests", "sec-fetch-site", "none", Ok(())),
            (
                "/api/requests",
                "sec-fetch-site",
                "same-site",
                Err(Refused::Origin),
            ),
            (
                "/api/requests",
                "sec-fetch-site",
                "cross-site",
                Err(Refused::Origin),
            ),
            ("/", "sec-fetch-site", "cross-site", Ok(())),
        ];
        for (path, name, value, want) in cases {
            let head = head(path, &[host, (name, value)]);
            assert_eq!(check_origin(&head, false), want, "{path} {name}: {value}");
        }
        let secure = head(
            "/api/requests",
            &[host, ("origin", "https://localhost:6480")],
        );
        assert_eq!(check_origin(&secure, true), Ok(()));
    }

    #[test]
    fn a_token_is_its_owners_alone() {
        let token = Token::generate().unwrap();
        let other = Token::generate().unwrap();
        assert_ne!(token.text(), other.text());
        assert_eq!(format!("{token:?}"), "Token(…)");
        let shown = |text: String| head("/", &[("authorization", &text)]).headers;
        let user = token
            .user(&shown(format!("Bearer {}", token.text())))
            .unwrap();
        assert_eq!(user.username, USER);
        assert!(
            token
                .user(&shown(format!("Bearer {}", other.text())))
                .is_none()
        );
        assert!(token.user(&shown(token.text().to_owned())).is_none());
        assert!(token.user(&HeaderMap::new()).is_none());
    }
}
