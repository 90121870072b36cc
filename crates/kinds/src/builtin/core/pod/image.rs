//! Tags of image names.
//!
//! UPSTREAM: pkg/util/parsers/parsers.go over github.com/distribution/reference.

/// The maximum length of a repository name.
const MAX_NAME: usize = 255;
/// The maximum length of a tag.
const MAX_TAG: usize = 128;

/// Returns true for the tag `latest`, which is implied without tag and digest, and false for an invalid name.
pub(crate) fn is_latest(image: &str) -> bool {
    matches!(tag(image), Some("latest"))
}

/// The tag, or `latest` without tag and digest; `None` if the name is invalid.
fn tag(image: &str) -> Option<&str> {
    if image.len() == 64
        && image
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    {
        return None;
    }
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return None;
    }
    // A colon before the last slash separates the port of the domain.
    let start = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match rest[start..].find(':') {
        Some(colon) => (&rest[..start + colon], Some(&rest[start + colon + 1..])),
        None => (rest, None),
    };
    if !is_name(name) || tag.is_some_and(|tag| !is_tag(tag)) {
        return None;
    }
    match (tag, digest) {
        (Some(tag), _) => Some(tag),
        (None, Some(_)) => Some(""),
        (None, None) => Some("latest"),
    }
}

fn is_name(name: &str) -> bool {
    let (domain, path) = match name.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':'])
                || first == "localhost"
                || first.bytes().any(|byte| byte.is_ascii_uppercase()) =>
        {
            (first, rest)
        }
        _ => ("", name),
    };
    // The length includes the implied prefix of official images.
    let prefix = match (domain, path.contains('/')) {
        ("", true) => "docker.io/".len(),
        ("", false) => "docker.io/library/".len(),
        _ => 0,
    };
    let domain_is_good = domain.is_empty() || is_domain(domain) || is_path_component(domain);
    domain_is_good && name.len() + prefix <= MAX_NAME && path.split('/').all(is_path_component)
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.rfind(':') {
        Some(colon) if !domain.ends_with(']') => (&domain[..colon], Some(&domain[colon + 1..])),
        _ => (domain, None),
    };
    let port_is_good =
        port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
    let label = |label: &str| {
        let inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty()
            && label.bytes().all(inside)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let six = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    port_is_good
        && match six {
            Some(address) => {
                !address.is_empty()
                    && address
                        .bytes()
                        .all(|byte| byte.is_ascii_hexdigit() || byte == b':')
            }
            None => host.split('.').all(label),
        }
}

/// Lower-case letters and digits, with `.`, `_`, `__` or dashes between them.
fn is_path_component(component: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    let (Some(&first), Some(&last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    if !plain(first) || !plain(last) {
        return false;
    }
    bytes.split(|&byte| plain(byte)).all(|separator| {
        matches!(separator, b"" | b"." | b"_" | b"__") || separator.iter().all(|&byte| byte == b'-')
    })
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= MAX_TAG
        && tag.bytes().next().is_some_and(word)
        && tag
            .bytes()
            .all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

/// Only digests of known algorithms have a fixed length.
fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else {
        return false;
    };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == length
        && hex
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_tag() {
        let hash = "a".repeat(64);
        for (image, want) in [
            ("nginx", Some("latest")),
            ("nginx:latest", Some("latest")),
            ("nginx:1.2", Some("1.2")),
            ("localhost:5000/a/b", Some("latest")),
            ("localhost:5000/a/b:v1", Some("v1")),
            ("Registry/a", Some("latest")),
            ("[fd00::1]:5000/a", Some("latest")),
            (&format!("nginx@sha256:{hash}"), Some("")),
            (&format!("nginx:1@sha256:{hash}"), Some("1")),
            ("", None),
            ("Nginx", None),
            ("nginx:", None),
            ("a//b", None),
            ("a..b", None),
            ("a_-b", None),
            ("a--b", Some("latest")),
            ("nginx@sha256:abc", None),
            (&hash, None),
        ] {
            assert_eq!(tag(image), want, "{image}");
        }
    }
}
