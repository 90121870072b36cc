//! Spans of requests for an OpenTelemetry collector: OTLP over HTTP, in JSON.
//!
//! ```text
//!   request ► admission ► plugin ► call of a webhook ──► SpanLayer ──queue──► a thread ──POST /v1/traces──► collector
//! ```
//!
//! Nothing blocks on the collector: spans are dropped if the queue is full or the export fails, and their number is
//! logged. The protocol is implemented here, since an SDK would add a second HTTP client and generated types for one
//! kind of message.
//!
//! UPSTREAM: opentelemetry-proto docs/specification.md (OTLP/HTTP, JSON encoding)

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// The capacity of the span queue.
const QUEUE: usize = 8192;
/// The maximum number of spans per message.
const BATCH: usize = 512;
/// The maximum delay of a span before export.
const MAX_EXPORT_DELAY: Duration = Duration::from_millis(500);
/// The timeout of each step of an export.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum response size.
const MAX_RESPONSE_BYTES: u64 = 64 * 1024;
/// The maximum length of an attribute value, in bytes.
const MAX_VALUE: usize = 1024;

/// The path of the collector's trace endpoint.
const PATH: &str = "/v1/traces";

/// `http://HOST:PORT` of a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    path: String,
}

/// An invalid collector URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// A scheme other than http.
    #[error("`{0}` does not start with http://")]
    Scheme(String),
    /// A missing host or port.
    #[error("expected http://HOST:PORT, found `{0}`")]
    Host(String),
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    /// Parses `http://localhost:4318`, as in OTEL_EXPORTER_OTLP_ENDPOINT.
    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let rest = text
            .strip_prefix("http://")
            .ok_or_else(|| EndpointError::Scheme(text.to_owned()))?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let port = host.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        let is_plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_graphic());
        if !matches!(port, Some(Ok(_))) || host.starts_with(':') || !is_plain(rest) {
            return Err(EndpointError::Host(text.to_owned()));
        }
        let path = path.trim_end_matches('/');
        let path = if path.is_empty() {
            PATH.to_owned()
        } else {
            format!("/{path}{PATH}")
        };
        let host = host.to_owned();
        Ok(Self { host, path })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.host, self.path)
    }
}

/// Starts the exporter, and returns the layer that feeds it. `rate` traces per million are sampled.
///
/// # Errors
///
/// The exporter thread does not start.
pub fn layer<S>(endpoint: Endpoint, rate: u32) -> std::io::Result<impl Layer<S> + Send + Sync>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    let (queue, spans) = sync_channel(QUEUE);
    let dropped = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&dropped);
    std::thread::Builder::new()
        .name(String::from("otlp-export"))
        .spawn(move || export(&endpoint, &spans, &counted))?;
    let ours =
        |metadata: &Metadata<'_>| metadata.is_span() && metadata.target().starts_with("lockgate");
    let layer = SpanLayer {
        queue,
        rate,
        ids: AtomicU64::new(seed()),
        dropped,
    };
    Ok(layer.with_filter(filter_fn(ours)))
}

/// Collects span data in the extensions of spans, and queues it when they close.
struct SpanLayer {
    queue: SyncSender<Finished>,
    rate: u32,
    ids: AtomicU64,
    /// Logged by the exporter thread, since a layer must not log.
    dropped: Arc<AtomicU64>,
}

/// The data of an open span.
#[derive(Debug)]
struct Open {
    trace: u128,
    id: u64,
    parent: Option<u64>,
    is_sampled: bool,
    started: u128,
    attributes: Vec<(&'static str, Attribute)>,
}

/// A closed span.
#[derive(Debug)]
struct Finished {
    name: &'static str,
    ended: u128,
    open: Open,
}

#[derive(Debug)]
enum Attribute {
    Text(String),
    Integer(i64),
    Boolean(bool),
}

impl SpanLayer {
    /// A unique nonzero number: splitmix64 over a counter with a random start.
    fn number(&self) -> u64 {
        let mut mixed = self.ids.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).max(1)
    }

    /// A root span: in the client's trace, or in a new one.
    fn root(&self, attributes: &[(&'static str, Attribute)]) -> (u128, Option<u64>, bool) {
        let sent = attributes.iter().find_map(|(name, value)| match value {
            Attribute::Text(text) if *name == "traceparent" => traceparent(text),
            _ => None,
        });
        if let Some((trace, parent, is_sampled)) = sent {
            return (trace, Some(parent), is_sampled);
        }
        let trace = (u128::from(self.number()) << 64) | u128::from(self.number());
        let is_sampled = trace % 1_000_000 < u128::from(self.rate);
        (trace, None, is_sampled)
    }
}

impl<S> Layer<S> for SpanLayer
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else {
            return;
        };
        let mut values = Values::default();
        attributes.record(&mut values);
        let inherited = span.parent().and_then(|parent| {
            let extensions = parent.extensions();
            let open = extensions.get::<Open>()?;
            Some((open.trace, Some(open.id), open.is_sampled))
        });
        let (trace, parent, is_sampled) = inherited.unwrap_or_else(|| self.root(&values.0));
        values.0.retain(|(name, _)| *name != "traceparent");
        span.extensions_mut().insert(Open {
            trace,
            id: self.number(),
            parent,
            is_sampled,
            started: now(),
            attributes: values.0,
        });
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else {
            return;
        };
        let mut values = Values::default();
        record.record(&mut values);
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            open.attributes.append(&mut values.0);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else {
            return;
        };
        let open = span.extensions_mut().remove::<Open>();
        let Some(open) = open.filter(|open| open.is_sampled) else {
            return;
        };
        let finished = Finished {
            name: span.metadata().name(),
            ended: now(),
            open,
        };
        if self.queue.try_send(finished).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Collects the fields of a span.
#[derive(Default)]
struct Values(Vec<(&'static str, Attribute)>);

impl Values {
    fn push(&mut self, field: &Field, attribute: Attribute) {
        self.0.push((field.name(), attribute));
    }
}

impl Visit for Values {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, Attribute::Boolean(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, Attribute::Integer(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(
            field,
            Attribute::Integer(i64::try_from(value).unwrap_or(i64::MAX)),
        );
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, Attribute::Text(bounded(value)));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        self.push(field, Attribute::Text(bounded(text.trim_matches('"'))));
    }
}

/// A prefix of a string with a limited length.
fn bounded(text: &str) -> String {
    let mut end = text.len().min(MAX_VALUE);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

/// The trace id, span id and sampling flag of `00-TRACE-SPAN-FLAGS`.
///
/// UPSTREAM: W3C Trace Context, 3.2
fn traceparent(text: &str) -> Option<(u128, u64, bool)> {
    let mut parts = text.split('-');
    let parts = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
    let [version, trace, parent, flags] = parts;
    let is_hexadecimal = parts
        .iter()
        .all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let lengths = (version.len(), trace.len(), parent.len(), flags.len());
    if !is_hexadecimal || lengths != (2, 32, 16, 2) || version == "ff" {
        return None;
    }
    let trace = u128::from_str_radix(trace, 16).ok().filter(|it| *it != 0)?;
    let parent = u64::from_str_radix(parent, 16).ok().filter(|it| *it != 0)?;
    let flags = u8::from_str_radix(flags, 16).ok()?;
    Some((trace, parent, flags & 1 == 1))
}

/// Exports spans until the queue is closed.
fn export(endpoint: &Endpoint, spans: &Receiver<Finished>, dropped: &AtomicU64) {
    let mut failures = 0_u64;
    while let Ok(first) = spans.recv() {
        let mut batch = vec![first];
        let until = Instant::now() + MAX_EXPORT_DELAY;
        while batch.len() < BATCH {
            match spans.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(span) => batch.push(span),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        let dropped = dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(dropped, "spans dropped, queue full");
        }
        match send(endpoint, &message(&batch)) {
            Ok(()) => failures = 0,
            Err(error) => {
                failures += 1;
                if failures.is_power_of_two() {
                    tracing::warn!(%endpoint, %error, failures, "span export failed");
                }
            }
        }
    }
}

/// A failed export.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("name resolution returned no address")]
    NoAddress,
    #[error("collector responded `{0}`")]
    Refused(String),
}

fn send(endpoint: &Endpoint, body: &str) -> Result<(), ExportError> {
    let address = endpoint.host.to_socket_addrs()?.next();
    let address = address.ok_or(ExportError::NoAddress)?;
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let Endpoint { host, path } = endpoint;
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = Vec::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some(code) if code.starts_with('2') => Ok(()),
        _ => Err(ExportError::Refused(bounded(status))),
    }
}

/// An ExportTraceServiceRequest. 64-bit numbers are strings, and ids are hexadecimal.
fn message(batch: &[Finished]) -> String {
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let spans: Vec<Value> = batch.iter().map(span).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": [
            text("service.name", "lockgate"),
            text("service.version", env!("CARGO_PKG_VERSION")),
        ]},
        "scopeSpans": [{"scope": {"name": "lockgate"}, "spans": spans}],
    }]})
    .to_string()
}

fn span(finished: &Finished) -> Value {
    /// SPAN_KIND_INTERNAL and SPAN_KIND_SERVER.
    const KINDS: [u8; 2] = [1, 2];
    let Finished { name, ended, open } = finished;
    let attributes: Vec<Value> = open
        .attributes
        .iter()
        .map(|(key, value)| {
            let value = match value {
                Attribute::Text(text) => json!({"stringValue": text}),
                Attribute::Integer(number) => json!({"intValue": number.to_string()}),
                Attribute::Boolean(is) => json!({"boolValue": is}),
            };
            json!({"key": key, "value": value})
        })
        .collect();
    json!({
        "traceId": format!("{:032x}", open.trace),
        "spanId": format!("{:016x}", open.id),
        "parentSpanId": open.parent.map_or_else(String::new, |parent| format!("{parent:016x}")),
        "name": name,
        "kind": KINDS[usize::from(*name == "request")],
        "startTimeUnixNano": open.started.to_string(),
        "endTimeUnixNano": ended.to_string(),
        "attributes": attributes,
    })
}

/// Nanoseconds since the epoch.
fn now() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_nanos()
}

/// The start of the id counter, different in every process.
fn seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_endpoints() {
        for (text, want) in [
            ("http://localhost:4318", "http://localhost:4318/v1/traces"),
            ("http://[::1]:4318/", "http://[::1]:4318/v1/traces"),
            ("http://a:1/otlp/", "http://a:1/otlp/v1/traces"),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), want);
        }
        for text in [
            "",
            "https://a:1",
            "http://a",
            "http://:1",
            "http://a:x",
            "http://a:1/\r\nX: y",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }

    #[test]
    fn reads_the_context_of_clients() {
        let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let (trace, parent, is_sampled) = traceparent(header).unwrap();
        assert_eq!(format!("{trace:032x}"), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!((parent, is_sampled), (0x00f0_67aa_0ba9_02b7, true));
        assert!(!traceparent(&header.replace("-01", "-00")).unwrap().2);
        for wrong in [
            "",
            "00-1-2-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(traceparent(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let long = "é".repeat(MAX_VALUE);
        assert_eq!(bounded(&long).len(), MAX_VALUE);
        assert_eq!(bounded(&format!("x{long}")).len(), MAX_VALUE - 1);
    }
}
