//! Error messages of Go's HTTP client.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use lockgate_go::quote::quote_bytes;

use crate::call::Phase;
use crate::tap::{Ends, Notes};
use crate::tls;

/// The reason that a call stopped: the text after `Post "…": `, or the entire message for [`Phase::Read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) phase: Phase,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(phase: Phase, message: impl Into<String>) -> Self {
        Self {
            phase,
            message: message.into(),
        }
    }
}

/// A host name without an address. Go's message also names the DNS server, which is unknown here.
pub(super) fn lookup(host: &str, error: &io::Error) -> Failure {
    let text = error.to_string();
    let problem = if text.contains("Temporary failure") {
        "Temporary failure in name resolution"
    } else {
        "no such host"
    };
    Failure::new(
        Phase::Resolve,
        format!("dial tcp: lookup {host}: {problem}"),
    )
}

pub(super) fn no_address(host: &str) -> Failure {
    Failure::new(
        Phase::Resolve,
        format!("dial tcp: lookup {host}: no such host"),
    )
}

pub(super) fn dial(address: SocketAddr, error: &io::Error) -> Failure {
    let problem = errno(error).unwrap_or_else(|| error.to_string());
    Failure::new(
        Phase::Connect,
        format!("dial tcp {address}: connect: {problem}"),
    )
}

pub(super) fn dial_timeout(address: SocketAddr) -> Failure {
    Failure::new(Phase::Connect, format!("dial tcp {address}: i/o timeout"))
}

/// An error of a connection; `end` is the message for its end.
pub(super) fn io(error: &io::Error, ends: &Ends, end: &str) -> String {
    if let Some(refusal) = tls::refusal(error) {
        return refusal;
    }
    let show = |address: Option<SocketAddr>| address.map_or_else(String::new, |a| a.to_string());
    let (local, peer) = (show(ends.local), show(ends.peer));
    match error.kind() {
        io::ErrorKind::UnexpectedEof => end.to_owned(),
        io::ErrorKind::BrokenPipe => format!("write tcp {local}->{peer}: write: broken pipe"),
        _ => match errno(error) {
            Some(problem) => format!("read tcp {local}->{peer}: read: {problem}"),
            None => error.to_string(),
        },
    }
}

/// The system's error message, without Rust's error number.
fn errno(error: &io::Error) -> Option<String> {
    error.raw_os_error()?;
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    Some(text.to_ascii_lowercase())
}

/// A request without a response; `notes` contains what was received instead.
pub(super) fn exchange(error: &hyper::Error, ends: &Ends, notes: &Notes) -> String {
    if let Some(refusal) = notes.refusal() {
        return refusal;
    }
    if let Some(inner) = find_io(error) {
        return io(inner, ends, "EOF");
    }
    if error.is_parse() || error.is_incomplete_message() {
        return malformed(&notes.head());
    }
    if error.is_canceled() || error.is_closed() {
        return String::from("EOF");
    }
    match error.source() {
        Some(source) => format!("http2: {source}"),
        None => error.to_string(),
    }
}

/// An incomplete body.
///
/// UPSTREAM: k8s.io/client-go rest/request.go (transformResponse).
pub(super) fn body(error: &hyper::Error, ends: &Ends) -> String {
    let original = match find_io(error) {
        Some(inner) if inner.to_string().starts_with("Invalid chunk size") => {
            String::from("invalid byte in chunk length")
        }
        Some(inner) => io(inner, ends, "unexpected EOF"),
        None if error.is_incomplete_message() || error.is_closed() => {
            String::from("unexpected EOF")
        }
        None => error
            .source()
            .map_or_else(|| error.to_string(), ToString::to_string),
    };
    unreadable(&original)
}

/// Formats an error while reading a body.
pub(super) fn unreadable(original: &str) -> String {
    format!("unexpected error when reading response body. Please retry. Original error: {original}")
}

fn find_io(error: &hyper::Error) -> Option<&io::Error> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io);
        }
        source = error.source();
    }
    None
}

/// The error of a malformed response head.
///
/// UPSTREAM: Go net/http/response.go (ReadResponse).
fn malformed(head: &[u8]) -> String {
    if head.is_empty() {
        return String::from("EOF");
    }
    let mut lines = head
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let line = lines.next().unwrap_or_default();
    let problem = status_line(line).or_else(|| {
        lines
            .take_while(|line| !line.is_empty())
            .find(|line| !line.contains(&b':'))
            .map(|line| {
                format!(
                    "malformed MIME header: missing colon: {}",
                    quote_bytes(line)
                )
            })
    });
    let problem = problem.unwrap_or_else(|| String::from("unexpected EOF"));
    format!("net/http: HTTP/1.x transport connection broken: {problem}")
}

fn status_line(line: &[u8]) -> Option<String> {
    let Some(space) = line.iter().position(|byte| *byte == b' ') else {
        return Some(format!("malformed HTTP response {}", quote_bytes(line)));
    };
    let (version, status) = line.split_at(space);
    let status = status.trim_ascii_start();
    let code = status
        .split(|byte| *byte == b' ')
        .next()
        .unwrap_or_default();
    if code.len() != 3 || !code.iter().all(u8::is_ascii_digit) {
        return Some(format!("malformed HTTP status code {}", quote_bytes(code)));
    }
    if !matches!(version, b"HTTP/1.0" | b"HTTP/1.1") {
        return Some(format!("malformed HTTP version {}", quote_bytes(version)));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_broken_answers_like_go() {
        for (head, want) in [
            ("hello there\r\n", "malformed HTTP status code \"there\""),
            ("hello", "malformed HTTP response \"hello\""),
            (
                "HTTX/1.1 200 OK\r\n\r\n",
                "malformed HTTP version \"HTTX/1.1\"",
            ),
            ("HTTP/1.1 2x0 OK\r\n", "malformed HTTP status code \"2x0\""),
            (
                "HTTP/1.1 200 OK\r\nContent-",
                "malformed MIME header: missing colon: \"Content-\"",
            ),
            ("HTTP/1.1 200 OK\r\na: b\r\n", "unexpected EOF"),
        ] {
            let want = format!("net/http: HTTP/1.x transport connection broken: {want}");
            assert_eq!(malformed(head.as_bytes()), want);
        }
        assert_eq!(malformed(b""), "EOF");
    }
}
