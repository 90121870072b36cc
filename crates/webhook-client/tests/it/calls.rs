//! Successful calls: the request, connection reuse, and the response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Version;
use lockgate_testkit::certs::Identity;
use lockgate_testkit::{Gate, ScriptedResponse, WebhookServer};
use lockgate_webhook_client::call::{Caller as _, Phase, Post};
use lockgate_webhook_client::{
    DnsResolver, HttpsCaller, MappedResolver, Redirects, ResolveError, Settings,
};

use crate::support::{
    AMPLE, REVIEW, answer, caller, client_of, failure, post, service_config, url_config,
};

fn mapped(server: &WebhookServer) -> Settings {
    let address = server.address().to_string();
    let resolver =
        MappedResolver::new(Arc::new(DnsResolver)).map("default", "hook", None, &address);
    Settings {
        resolver: Arc::new(resolver),
        ..Settings::default()
    }
}

#[tokio::test]
async fn sends_what_upstream_sends() {
    let server = WebhookServer::builder().http1_only().start().await;
    let client = client_of(&server, "/a/../validate/?ignored=1#x");
    let posted = post(client.as_ref(), Duration::from_millis(2500)).await;
    assert_eq!(posted.result.unwrap().code, 200);
    let phases: Vec<Phase> = posted.phases.iter().map(|(phase, _)| *phase).collect();
    assert_eq!(
        phases,
        [
            Phase::Resolve,
            Phase::Connect,
            Phase::Tls,
            Phase::Write,
            Phase::Wait,
            Phase::Read
        ]
    );

    let request = &server.requests()[0];
    assert_eq!(request.method, "POST");
    assert_eq!(request.path, "/validate");
    assert_eq!(request.query, "timeout=3s");
    assert_eq!(request.body, REVIEW);
    assert_eq!(request.version, Version::HTTP_11);
    assert_eq!(request.server_name, None);
    let mut headers = request.headers.clone();
    headers.sort();
    let host = server.address().to_string();
    let length = REVIEW.len().to_string();
    let want = [
        ("accept", "application/json, */*"),
        ("accept-encoding", "gzip"),
        ("content-length", &length),
        ("content-type", "application/json"),
        ("host", &host),
        ("user-agent", "kube-apiserver-admission"),
    ];
    let want = want.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(headers, want);
    server.stop().await;
}

#[tokio::test]
async fn names_thirty_seconds_without_a_deadline() {
    let server = WebhookServer::start().await;
    let client = client_of(&server, "/");
    let post = Post {
        body: REVIEW.into(),
        deadline: None,
    };
    let posted = client.post(post).await;
    assert_eq!(posted.result.unwrap().code, 200);
    assert_eq!(server.requests()[0].query, "timeout=30s");
}

#[tokio::test]
async fn reaches_services_by_their_name() {
    let server = WebhookServer::start().await;
    let caller = HttpsCaller::new(mapped(&server));
    let client = caller
        .client(&service_config("hook", Some(8443), server.ca_pem()))
        .unwrap();
    assert_eq!(answer(client.as_ref()).await.code, 200);
    let request = &server.requests()[0];
    assert_eq!(request.version, Version::HTTP_11);
    assert_eq!(request.server_name.as_deref(), Some("hook.default.svc"));
    assert_eq!(request.header("host"), Some("hook.default.svc:8443"));
}

#[tokio::test]
async fn trusts_a_certificate_that_is_its_own_authority() {
    let identity = Identity::self_signed(&["127.0.0.1"]);
    let bundle = identity.certificate_pem.clone();
    let server = WebhookServer::builder()
        .identity(identity, &bundle)
        .start()
        .await;
    assert_eq!(answer(client_of(&server, "/").as_ref()).await.code, 200);
}

#[tokio::test]
async fn keeps_connections_and_shares_them_between_equal_clients() {
    let server = WebhookServer::builder().http1_only().start().await;
    let caller = caller();
    let config = url_config(&server.url("/a"), server.ca_pem());
    let first = caller.client(&config).unwrap();
    let second = caller.client(&config).unwrap();
    let other = caller
        .client(&url_config(&server.url("/b"), server.ca_pem()))
        .unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert!(!Arc::ptr_eq(&first, &other));
    for client in [&first, &second, &other, &first] {
        assert_eq!(answer(client.as_ref()).await.code, 200);
    }
    assert_eq!(server.connections(), 1);

    // The connections are closed with the last client.
    server.wait_for_open_connections(1).await;
    drop((first, second, other));
    tokio::time::timeout(AMPLE, server.wait_for_open_connections(0))
        .await
        .expect("idle connections are closed");
}

#[tokio::test]
async fn closes_idle_connections_in_time() {
    let server = WebhookServer::builder().http1_only().start().await;
    let client = client_of(&server, "/");
    answer(client.as_ref()).await;
    server.wait_for_open_connections(1).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(server.connections(), 1);
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    tokio::time::timeout(AMPLE, server.wait_for_open_connections(0))
        .await
        .expect("the idle connection is closed");
}

#[tokio::test]
async fn does_not_share_connections_between_authorities() {
    let server = WebhookServer::builder().http1_only().start().await;
    let caller = caller();
    let twice = format!("{0}{0}", server.ca_pem());
    for ca_pem in [server.ca_pem(), &twice] {
        let client = caller
            .client(&url_config(&server.url("/"), ca_pem))
            .unwrap();
        assert_eq!(answer(client.as_ref()).await.code, 200);
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn follows_a_service_that_moves() {
    #[derive(Debug)]
    struct Moving(std::sync::Mutex<String>);
    impl lockgate_webhook_client::ServiceResolver for Moving {
        fn resolve(&self, _: &str, _: &str, _: i32) -> Result<String, ResolveError> {
            Ok(self.0.lock().unwrap().clone())
        }
    }
    let identity = Identity::self_signed(&["hook.default.svc"]);
    let bundle = identity.certificate_pem.clone();
    let start = || {
        WebhookServer::builder()
            .identity(identity.clone(), &bundle)
            .start()
    };
    let (old, new) = (start().await, start().await);
    let resolver = Arc::new(Moving(old.address().to_string().into()));
    let caller = HttpsCaller::new(Settings {
        resolver: Arc::clone(&resolver) as Arc<_>,
        ..Settings::default()
    });
    let client = caller
        .client(&service_config("hook", None, &bundle))
        .unwrap();
    answer(client.as_ref()).await;
    *resolver.0.lock().unwrap() = new.address().to_string();
    answer(client.as_ref()).await;
    assert_eq!((old.requests().len(), new.requests().len()), (1, 1));
}

#[tokio::test]
async fn opens_a_connection_for_each_parallel_call_to_a_service() {
    let server = WebhookServer::start().await;
    let gate = Gate::new();
    server.script("/validate", [ScriptedResponse::allow().after(&gate)]);
    let caller = HttpsCaller::new(mapped(&server));
    let client = caller
        .client(&service_config("hook", None, server.ca_pem()))
        .unwrap();
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { answer(client.as_ref()).await.code })
        })
        .collect();
    server.wait_for_requests(10).await;
    gate.open();
    for call in calls {
        assert_eq!(call.await.unwrap(), 200);
    }
    assert_eq!(server.connections(), 10);
}

#[tokio::test]
async fn shares_one_connection_with_this_machine() {
    let server = WebhookServer::start().await;
    let gate = Gate::new();
    server.script("/", [ScriptedResponse::allow().after(&gate)]);
    let client = client_of(&server, "/");
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { answer(client.as_ref()).await.code })
        })
        .collect();
    server.wait_for_requests(10).await;
    gate.open();
    for call in calls {
        assert_eq!(call.await.unwrap(), 200);
    }
    assert_eq!(server.connections(), 1);
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.version == Version::HTTP_2)
    );
}

#[tokio::test]
async fn takes_another_connection_when_a_kept_one_was_closed() {
    let server = WebhookServer::builder().http1_only().start().await;
    server.script(
        "/",
        [
            ScriptedResponse::allow().header("connection", "close"),
            ScriptedResponse::allow(),
        ],
    );
    let client = client_of(&server, "/");
    for _ in 0..3 {
        assert_eq!(answer(client.as_ref()).await.code, 200);
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn survives_a_webhook_that_restarts() {
    for http1 in [true, false] {
        let identity = Identity::self_signed(&["hook.default.svc", "127.0.0.1"]);
        let bundle = identity.certificate_pem.clone();
        let start = || {
            let builder = WebhookServer::builder().identity(identity.clone(), &bundle);
            if http1 { builder.http1_only() } else { builder }.start()
        };
        let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", proxy.local_addr().unwrap());
        let client = caller().client(&url_config(&url, &bundle)).unwrap();
        for _ in 0..3 {
            let server = start().await;
            let address = server.address();
            let forward = async {
                let (mut stream, _) = proxy.accept().await.unwrap();
                let mut there = tokio::net::TcpStream::connect(address).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut there).await;
            };
            let calls = async {
                assert_eq!(answer(client.as_ref()).await.code, 200);
                assert_eq!(answer(client.as_ref()).await.code, 200);
                assert_eq!(server.connections(), 1);
                server.stop().await;
            };
            tokio::join!(forward, calls);
        }
    }
}

#[tokio::test]
async fn unzips_answers() {
    let server = WebhookServer::start().await;
    server.script(
        "/",
        [ScriptedResponse::gzip(200, b"{\"a\": 1}").header("content-type", "text/x")],
    );
    let answer = answer(client_of(&server, "/").as_ref()).await;
    assert_eq!(answer.body, "{\"a\": 1}");
    assert_eq!(answer.content_type.as_deref(), Some("text/x"));
}

#[tokio::test]
async fn hands_over_every_status() {
    let server = WebhookServer::start().await;
    for code in [200, 201, 204, 299, 400, 404, 429, 500, 503] {
        let path = format!("/{code}");
        server.script(&path, [ScriptedResponse::http(code, "text")]);
        let answer = answer(client_of(&server, &path).as_ref()).await;
        assert_eq!((answer.code, answer.content_type), (code, None));
    }
    assert_eq!(server.requests().len(), 9);
}

#[tokio::test]
async fn tries_again_when_asked_to() {
    let server = WebhookServer::start().await;
    let busy = |code| ScriptedResponse::http(code, "").header("retry-after", "0");
    server.script(
        "/",
        [busy(429), busy(500), busy(503), ScriptedResponse::allow()],
    );
    assert_eq!(answer(client_of(&server, "/").as_ref()).await.code, 200);
    let requests = server.requests();
    assert_eq!(requests.len(), 4);
    assert!(
        requests
            .iter()
            .all(|request| request.query == "timeout=10s")
    );
    assert!(requests.iter().all(|request| request.body == REVIEW));
}

#[tokio::test]
async fn gives_up_after_ten_retries() {
    let server = WebhookServer::start().await;
    server.script(
        "/",
        [ScriptedResponse::http(503, "").header("retry-after", "0")],
    );
    assert_eq!(answer(client_of(&server, "/").as_ref()).await.code, 503);
    assert_eq!(server.requests().len(), 11);
}

#[tokio::test]
async fn does_not_try_again_without_being_asked_properly() {
    let server = WebhookServer::start().await;
    for (path, code, pause) in [("/a", 503, "soon"), ("/b", 404, "0"), ("/c", 503, "1.5")] {
        server.script(
            path,
            [ScriptedResponse::http(code, "").header("retry-after", pause)],
        );
        assert_eq!(answer(client_of(&server, path).as_ref()).await.code, code);
    }
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn hands_over_redirects() {
    let server = WebhookServer::start().await;
    server.script("/", [ScriptedResponse::redirect(307, "/elsewhere")]);
    assert_eq!(answer(client_of(&server, "/").as_ref()).await.code, 307);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn follows_redirects_when_told_to() {
    let server = WebhookServer::start().await;
    let caller = HttpsCaller::new(Settings {
        redirects: Redirects::Follow,
        ..Settings::default()
    });
    let client = |path: &str| {
        caller
            .client(&url_config(&server.url(path), server.ca_pem()))
            .unwrap()
    };
    server.script("/post", [ScriptedResponse::redirect(307, "/there?q=1")]);
    assert_eq!(answer(client("/post").as_ref()).await.code, 200);
    let there = server.requests().pop().unwrap();
    assert_eq!(
        (there.method.as_str(), there.query.as_str()),
        ("POST", "q=1")
    );
    assert_eq!(there.body, REVIEW);

    server.script(
        "/get",
        [ScriptedResponse::redirect(302, &server.url("/there"))],
    );
    assert_eq!(answer(client("/get").as_ref()).await.code, 200);
    let there = server.requests().pop().unwrap();
    assert_eq!((there.method.as_str(), there.body.len()), ("GET", 0));

    server.script("/loop", [ScriptedResponse::redirect(307, "/loop")]);
    let before = server.requests().len();
    let error = failure(client("/loop").as_ref(), AMPLE).await;
    let want = format!(
        "Post \"{}\": stopped after 10 redirects",
        server.url("/loop")
    );
    assert_eq!(error.message, want);
    assert_eq!(server.requests().len() - before, 10);
}

#[tokio::test]
async fn ends_at_once_when_the_deadline_has_passed() {
    let server = WebhookServer::start().await;
    let client = client_of(&server, "/");
    let post = Post {
        body: REVIEW.into(),
        deadline: Some(Instant::now()),
    };
    let error = client.post(post).await.result.unwrap_err();
    assert_eq!(error.message, "context deadline exceeded");
    assert!(error.timed_out);
    assert!(server.requests().is_empty());
}
