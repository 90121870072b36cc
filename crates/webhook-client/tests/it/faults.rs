//! The fault matrix: every way a call can fail ends within its deadline, reports the phase, and has the error message
//! of Go's client (recorded from a real one where it is not obvious).

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockgate_testkit::certs::Authority;
use lockgate_testkit::{Blackhole, Ending, Gate, ScriptedResponse, WebhookServer};
use lockgate_webhook_client::call::{Caller as _, Phase, Post};
use lockgate_webhook_client::{
    ClusterIpResolver, DnsResolver, HttpsCaller, MAX_RESPONSE_BYTES, MappedResolver, Service,
    Services, Settings,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{AMPLE, caller, client_of, failure, post, says, service_config, url_config};

/// For calls that are expected to time out.
const SHORT: Duration = Duration::from_millis(300);

/// The prefix of a failure message.
fn posting(server: &WebhookServer, timeout: &str, problem: &str) -> String {
    format!("Post \"{}?timeout={timeout}\": {problem}", server.url("/"))
}

const UNREADABLE: &str =
    "unexpected error when reading response body. Please retry. Original error: ";

#[tokio::test]
async fn refused() {
    let client = caller()
        .client(&url_config("https://127.0.0.1:1/v/a", ""))
        .unwrap();
    says(
        &failure(client.as_ref(), AMPLE).await,
        Phase::Connect,
        false,
        "Post \"https://127.0.0.1:1/v/a?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused",
    );
}

#[tokio::test]
async fn blackholed() {
    let hole = Blackhole::start().await;
    let url = format!("https://{}/", hole.address());
    let client = caller().client(&url_config(&url, "")).unwrap();
    says(
        &failure(client.as_ref(), SHORT).await,
        Phase::Connect,
        true,
        &format!("Post \"{url}?timeout=1s\": context deadline exceeded"),
    );
}

#[tokio::test]
async fn unknown_host_and_service() {
    let client = caller()
        .client(&url_config("https://nowhere.invalid/", ""))
        .unwrap();
    let error = failure(client.as_ref(), AMPLE).await;
    assert_eq!(error.phase, Phase::Resolve);
    assert!(
        error.message.starts_with(
            "Post \"https://nowhere.invalid/?timeout=10s\": dial tcp: lookup nowhere.invalid"
        ),
        "{error}"
    );

    #[derive(Debug)]
    struct Nothing;
    impl Services for Nothing {
        fn service(&self, _: &str, _: &str) -> Option<Service> {
            None
        }
    }
    let caller = HttpsCaller::new(Settings {
        resolver: Arc::new(ClusterIpResolver(Nothing)),
        ..Settings::default()
    });
    let client = caller.client(&service_config("nowhere", None, "")).unwrap();
    says(
        &failure(client.as_ref(), AMPLE).await,
        Phase::Resolve,
        false,
        "Post \"https://nowhere.default.svc:443/validate?timeout=10s\": service \"nowhere\" not found",
    );
}

#[tokio::test]
async fn stalled_handshake() {
    let server = WebhookServer::builder().stall_handshakes().start().await;
    says(
        &failure(client_of(&server, "/").as_ref(), SHORT).await,
        Phase::Tls,
        true,
        &posting(&server, "1s", "context deadline exceeded"),
    );
}

/// Responds on each connection with bytes that are not TLS, or with nothing.
async fn plain_server(bytes: &'static [u8]) -> (String, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("https://{}/", listener.local_addr().expect("an address"));
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut hello = [0; 1024];
            let _ = stream.read(&mut hello).await;
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
        }
    });
    (url, task)
}

#[tokio::test]
async fn not_tls() {
    for (bytes, want) in [
        (&b""[..], "EOF"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "http: server gave HTTP response to HTTPS client",
        ),
        (
            b"hello there, this is not TLS",
            "tls: first record does not look like a TLS handshake",
        ),
    ] {
        let (url, task) = plain_server(bytes).await;
        let client = caller().client(&url_config(&url, "")).unwrap();
        says(
            &failure(client.as_ref(), AMPLE).await,
            Phase::Tls,
            false,
            &format!("Post \"{url}?timeout=10s\": {want}"),
        );
        task.abort();
    }
}

#[tokio::test]
async fn untrusted_certificates() {
    let (right, wrong) = (Authority::new("right"), Authority::new("wrong"));
    let names = ["127.0.0.1"];
    for (identity, ca_pem, want) in [
        (
            right.issue(&names),
            wrong.pem(),
            "certificate signed by unknown authority",
        ),
        (
            Authority::new("right").issue(&names),
            right.pem(),
            "certificate signed by unknown authority (possibly because of \"x509: ECDSA \
             verification failure\" while trying to verify candidate authority certificate \
             \"right\")",
        ),
        (
            right.issue_expired(&names),
            right.pem(),
            "is after 2021-01-01T00:00:00Z",
        ),
        (
            right.issue_for_later(&names),
            right.pem(),
            "is before 4000-01-01T00:00:00Z",
        ),
        (
            right.issue(&["a.example", "b.example"]),
            right.pem(),
            "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs",
        ),
        (
            right.issue(&["10.0.0.1", "::1"]),
            wrong.pem(),
            "certificate is valid for 10.0.0.1, ::1, not 127.0.0.1",
        ),
        (
            right.issue_legacy("127.0.0.1"),
            right.pem(),
            "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs",
        ),
        (
            right.issue_for_clients(&names),
            right.pem(),
            "certificate specifies an incompatible key usage",
        ),
    ] {
        let server = WebhookServer::builder()
            .identity(identity, ca_pem)
            .start()
            .await;
        let error = failure(client_of(&server, "/").as_ref(), AMPLE).await;
        assert_eq!((error.phase, error.timed_out), (Phase::Tls, false));
        let start = posting(&server, "10s", "tls: failed to verify certificate: x509: ");
        let cause = error.message.strip_prefix(&start).expect("the prefix");
        if want.starts_with("is ") {
            let expired = "certificate has expired or is not yet valid: current time ";
            assert!(cause.starts_with(expired), "{cause}");
            assert!(cause.ends_with(want), "{cause}");
        } else {
            assert_eq!(cause, want);
        }
        assert!(server.requests().is_empty());
        server.stop().await;
    }
}

#[tokio::test]
async fn wrong_service_name() {
    let authority = Authority::new("right");
    for (identity, want) in [
        (
            authority.issue(&["other.default.svc", "another.default.svc"]),
            "certificate is valid for other.default.svc, another.default.svc, not hook.default.svc",
        ),
        (
            authority.issue(&["10.0.0.1"]),
            "certificate is not valid for any names, but wanted to match hook.default.svc",
        ),
        (
            authority.issue_legacy("hook.default.svc"),
            "certificate relies on legacy Common Name field, use SANs instead",
        ),
        (
            authority.issue_legacy("other.default.svc"),
            "certificate is not valid for any names, but wanted to match hook.default.svc",
        ),
    ] {
        let server = WebhookServer::builder()
            .identity(identity, authority.pem())
            .start()
            .await;
        let address = server.address().to_string();
        let resolver =
            MappedResolver::new(Arc::new(DnsResolver)).map("default", "hook", None, &address);
        let caller = HttpsCaller::new(Settings {
            resolver: Arc::new(resolver),
            ..Settings::default()
        });
        let client = caller
            .client(&service_config("hook", None, authority.pem()))
            .unwrap();
        says(
            &failure(client.as_ref(), AMPLE).await,
            Phase::Tls,
            false,
            &format!(
                "Post \"https://hook.default.svc:443/validate?timeout=10s\": tls: failed to \
                 verify certificate: x509: {want}"
            ),
        );
        server.stop().await;
    }
}

#[tokio::test]
async fn broken_before_the_answer() {
    let broken = "net/http: HTTP/1.x transport connection broken: ";
    for (bytes, want) in [
        ("", String::from("EOF")),
        (
            "hello there\r\n\r\n",
            format!("{broken}malformed HTTP status code \"there\""),
        ),
        (
            "HTTX/1.1 200 OK\r\n\r\n",
            format!("{broken}malformed HTTP version \"HTTX/1.1\""),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-",
            format!("{broken}malformed MIME header: missing colon: \"Content-\""),
        ),
    ] {
        let server = WebhookServer::builder().http1_only().start().await;
        server.script("/", [ScriptedResponse::raw(bytes, Ending::Close)]);
        says(
            &failure(client_of(&server, "/").as_ref(), AMPLE).await,
            Phase::Wait,
            false,
            &posting(&server, "10s", &want),
        );
        assert_eq!(server.requests().len(), 1);
        server.stop().await;
    }
}

#[tokio::test]
async fn reset_before_the_answer() {
    let server = WebhookServer::builder().http1_only().start().await;
    server.script("/", [ScriptedResponse::raw("", Ending::Reset)]);
    let error = failure(client_of(&server, "/").as_ref(), AMPLE).await;
    assert_eq!(error.phase, Phase::Wait);
    let start = posting(&server, "10s", "read tcp 127.0.0.1:");
    assert!(error.message.starts_with(&start), "{error}");
    let end = format!("->{}: read: connection reset by peer", server.address());
    assert!(error.message.ends_with(&end), "{error}");
}

#[tokio::test]
async fn late_answer() {
    for http1 in [true, false] {
        let mut builder = WebhookServer::builder();
        if http1 {
            builder = builder.http1_only();
        }
        let server = builder.start().await;
        let gate = Gate::new();
        server.script(
            "/",
            [
                ScriptedResponse::allow().after(&gate),
                ScriptedResponse::allow(),
            ],
        );
        let client = client_of(&server, "/");
        says(
            &failure(client.as_ref(), SHORT).await,
            Phase::Wait,
            true,
            &posting(&server, "1s", "context deadline exceeded"),
        );
        // A late response is dropped.
        gate.open();
        let posted = post(client.as_ref(), AMPLE).await;
        assert_eq!(posted.result.unwrap().code, 200);
        assert_eq!(server.requests().len(), 2);
        server.stop().await;
    }
}

#[tokio::test]
async fn broken_inside_the_answer() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (bytes, want) in [
        (format!("{head}abc"), "unexpected EOF"),
        (format!("{chunked}5\r\nab"), "unexpected EOF"),
        (format!("{chunked}zz\r\nab"), "invalid byte in chunk length"),
    ] {
        let server = WebhookServer::builder().http1_only().start().await;
        server.script("/", [ScriptedResponse::raw(bytes, Ending::Close)]);
        says(
            &failure(client_of(&server, "/").as_ref(), AMPLE).await,
            Phase::Read,
            false,
            &format!("{UNREADABLE}{want}"),
        );
        server.stop().await;
    }
}

#[tokio::test]
async fn reset_after_the_headers() {
    let server = WebhookServer::builder().http1_only().start().await;
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
    server.script("/", [ScriptedResponse::raw(head, Ending::Reset)]);
    let error = failure(client_of(&server, "/").as_ref(), AMPLE).await;
    // The reset may be received before the headers.
    assert!(
        matches!(error.phase, Phase::Read | Phase::Wait),
        "{error:?}"
    );
    assert!(
        error.message.ends_with("read: connection reset by peer"),
        "{error}"
    );
}

#[tokio::test]
async fn stalled_and_dripping_answers() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc";
    for answer in [
        ScriptedResponse::raw(head, Ending::Hold),
        ScriptedResponse::drip(Duration::from_millis(20)),
    ] {
        let server = WebhookServer::builder().http1_only().start().await;
        server.script("/", [answer]);
        says(
            &failure(client_of(&server, "/").as_ref(), SHORT).await,
            Phase::Read,
            true,
            &format!("{UNREADABLE}context deadline exceeded"),
        );
        // The connection does not leak.
        tokio::time::timeout(AMPLE, server.wait_for_open_connections(0))
            .await
            .expect("the connection is closed");
        server.stop().await;
    }
}

#[tokio::test]
async fn huge_answers() {
    let server = WebhookServer::start().await;
    server.script("/", [ScriptedResponse::huge(1 << 30)]);
    let too_large = format!("{UNREADABLE}response body is larger than {MAX_RESPONSE_BYTES} bytes");
    says(
        &failure(client_of(&server, "/").as_ref(), AMPLE).await,
        Phase::Read,
        false,
        &too_large,
    );
    // A small response that decompresses to a huge one.
    let zeros = vec![0; MAX_RESPONSE_BYTES + 1];
    server.script("/", [ScriptedResponse::gzip(200, &zeros)]);
    says(
        &failure(client_of(&server, "/").as_ref(), AMPLE).await,
        Phase::Read,
        false,
        &too_large,
    );
    server.script("/", [ScriptedResponse::huge(MAX_RESPONSE_BYTES as u64)]);
    let posted = post(client_of(&server, "/").as_ref(), AMPLE).await;
    assert_eq!(posted.result.unwrap().body.len(), MAX_RESPONSE_BYTES);
}

#[tokio::test]
async fn bad_gzip() {
    let server = WebhookServer::start().await;
    let gzip =
        |body: &'static [u8]| ScriptedResponse::http(200, body).header("content-encoding", "gzip");
    for (body, want) in [
        (&b"abcdefghij"[..], "gzip: invalid header"),
        (
            b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff",
            "unexpected EOF",
        ),
    ] {
        server.script("/", [gzip(body)]);
        says(
            &failure(client_of(&server, "/").as_ref(), AMPLE).await,
            Phase::Read,
            false,
            &format!("{UNREADABLE}{want}"),
        );
    }
    server.script("/", [gzip(b"")]);
    let posted = post(client_of(&server, "/").as_ref(), AMPLE).await;
    assert!(posted.result.unwrap().body.is_empty());
}

#[tokio::test]
async fn retries_that_outlast_the_deadline() {
    let server = WebhookServer::start().await;
    for code in [429, 503] {
        server.script(
            "/",
            [ScriptedResponse::http(code, "").header("retry-after", "3600")],
        );
        says(
            &failure(client_of(&server, "/").as_ref(), SHORT).await,
            Phase::Wait,
            true,
            &posting(&server, "1s", "context deadline exceeded"),
        );
    }
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn reviews_that_are_not_taken() {
    for http1 in [true, false] {
        let mut builder = WebhookServer::builder().stall_reading();
        if http1 {
            builder = builder.http1_only();
        }
        let server = builder.start().await;
        let client = client_of(&server, "/");
        // Larger than the kernel's socket buffers.
        let body = vec![b' '; 32 << 20];
        let posted = client.post(Post {
            body: body.into(),
            deadline: Some(Instant::now() + SHORT),
        });
        let posted = tokio::time::timeout(AMPLE, posted).await;
        let error = posted.expect("an end").result.unwrap_err();
        let want = posting(&server, "1s", "context deadline exceeded");
        assert_eq!((error.message, error.timed_out), (want, true));
        // Over HTTP/2 flow control blocks the request body, which cannot be distinguished from waiting for the
        // response.
        if http1 {
            assert_eq!(error.phase, Phase::Write);
        }
        server.stop().await;
    }
}

#[tokio::test]
async fn cancelled_calls_leave_nothing_behind() {
    let server = WebhookServer::builder().http1_only().start().await;
    server.script("/", [ScriptedResponse::allow().after(&Gate::new())]);
    let client = client_of(&server, "/");
    let call = tokio::spawn(async move { post(client.as_ref(), AMPLE).await });
    server.wait_for_requests(1).await;
    server.wait_for_open_connections(1).await;
    call.abort();
    tokio::time::timeout(AMPLE, server.wait_for_open_connections(0))
        .await
        .expect("the connection is closed");
}
