//! Scripted responses of test webhooks.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::Gate;

/// A scripted response or failure.
#[derive(Clone)]
pub struct ScriptedResponse {
    pub(crate) gate: Option<Gate>,
    pub(crate) delay: Option<Duration>,
    pub(crate) act: Act,
}

/// The end of a connection after raw bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It is closed regularly.
    Close,
    /// It ends without a TLS `close_notify`, as when a process dies.
    Cut,
    /// It is reset.
    Reset,
    /// It stays open without data until the client gives up or the server stops.
    Hold,
}

type MakeBody = Arc<dyn Fn(&Value) -> Value + Send + Sync>;

#[derive(Clone)]
pub(crate) enum Act {
    /// An HTTP response.
    Http {
        code: u16,
        headers: Vec<(String, String)>,
        body: Body,
    },
    /// Bytes that need not be HTTP.
    Raw(Bytes, Ending),
}

#[derive(Clone)]
pub(crate) enum Body {
    Bytes(Bytes),
    Zipped(Bytes),
    /// Computed from the review.
    Review(MakeBody),
    /// This many zeros.
    Zeros(u64),
    /// One byte after each pause, forever.
    Drip(Duration),
}

impl std::fmt::Debug for ScriptedResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Answer");
        match &self.act {
            Act::Http { code, headers, .. } => {
                shown.field("code", code).field("headers", headers);
            }
            Act::Raw(bytes, ending) => {
                shown.field("raw", bytes).field("ending", ending);
            }
        }
        shown.finish_non_exhaustive()
    }
}

impl ScriptedResponse {
    /// Allows the request.
    #[must_use]
    pub fn allow() -> Self {
        Self::respond(json!({"allowed": true}))
    }

    /// Denies the request with a message and code 403.
    #[must_use]
    pub fn deny(message: &str) -> Self {
        Self::deny_with(json!({"message": message, "code": 403}))
    }

    /// Denies the request with a status.
    #[must_use]
    pub fn deny_with(status: Value) -> Self {
        Self::respond(json!({"allowed": false, "status": status}))
    }

    /// Allows the request and patches the object.
    #[must_use]
    pub fn patch(operations: &Value) -> Self {
        let patch = BASE64_STANDARD.encode(operations.to_string());
        Self::respond(json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
    }

    /// Returns a response; the uid of the request is added.
    #[must_use]
    pub fn respond(response: Value) -> Self {
        Self::review(move |review| {
            let mut response = response.clone();
            response["uid"] = review["request"]["uid"].clone();
            json!({
                "apiVersion": review["apiVersion"],
                "kind": review["kind"],
                "response": response,
            })
        })
    }

    /// Returns the result of `make` for the review.
    pub fn review(make: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        Self::with_body(200, Body::Review(Arc::new(make)))
            .header("content-type", "application/json")
    }

    /// Returns a status code and a body.
    #[must_use]
    pub fn http(code: u16, body: impl Into<Bytes>) -> Self {
        Self::with_body(code, Body::Bytes(body.into()))
    }

    /// Returns a gzip-compressed body with its `Content-Encoding`.
    ///
    /// # Panics
    ///
    /// Never: compressing into memory does not fail.
    #[must_use]
    pub fn gzip(code: u16, body: &[u8]) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(body).expect("memory");
        let zipped = encoder.finish().expect("memory");
        Self::with_body(code, Body::Zipped(zipped.into()))
    }

    /// Redirects the client.
    #[must_use]
    pub fn redirect(code: u16, location: &str) -> Self {
        Self::http(code, "").header("location", location)
    }

    /// Returns 200 with this many zeros.
    #[must_use]
    pub fn huge(bytes: u64) -> Self {
        Self::with_body(200, Body::Zeros(bytes)).header("content-type", "application/json")
    }

    /// Returns 200 and then sends one byte after each pause, forever.
    #[must_use]
    pub fn drip(pause: Duration) -> Self {
        Self::with_body(200, Body::Drip(pause)).header("content-type", "application/json")
    }

    /// Writes raw bytes after the request has been read; HTTP/1.1 only.
    #[must_use]
    pub fn raw(bytes: impl Into<Bytes>, ending: Ending) -> Self {
        Self {
            gate: None,
            delay: None,
            act: Act::Raw(bytes.into(), ending),
        }
    }

    /// Adds a header to an HTTP response.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Act::Http { headers, .. } = &mut self.act {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Waits for a signal first.
    #[must_use]
    pub fn after(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Waits for a delay first, whatever the client's timeout.
    #[must_use]
    pub fn delayed(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    fn with_body(code: u16, body: Body) -> Self {
        Self {
            gate: None,
            delay: None,
            act: Act::Http {
                code,
                headers: Vec::new(),
                body,
            },
        }
    }
}
