//! Graceful shutdown without a failed call.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lockgate_webhook::server::{Certificates, ProbePaths, Running, Server};
use lockgate_webhook::testing::Authority;

use crate::support::{
    Client, Connection, TIMEOUT, gated, get, metric, post, review, send, until, webhooks,
};

fn server(authority: &Authority, server: Server) -> Server {
    let (certificate, key) = authority.issue(&["127.0.0.1"]);
    server
        .listen(([127, 0, 0, 1], 0))
        .certificates(Certificates::pem(certificate, key))
}

#[tokio::test]
async fn a_request_under_way_is_answered() {
    let authority = Authority::new();
    let (webhooks, gate) = gated();
    let running = server(&authority, Server::new(webhooks)).shutdown_delay(Duration::ZERO);
    let running = running.start().await.unwrap();
    let address = running.address();
    let client = Client::trusting(authority.pem());
    let mut idle = client.connect(address).await.unwrap();
    let mut beginning = client.connect(address).await.unwrap();
    let mut connection = client.connect(address).await.unwrap();
    let answered = send(&mut idle, post("/nowhere", review())).await;
    assert_eq!(answered.unwrap().code, 404);
    let asking = tokio::spawn(async move { send(&mut connection, post("/gated", review())).await });
    let in_flight = "controller_runtime_webhook_requests_in_flight{webhook=\"/gated\"}";
    until("it is under way", || async {
        metric(&running.metrics_text(), in_flight) == Some(1.0)
    })
    .await;
    let stopping = tokio::spawn(running.stop());
    // No new connections are accepted, and idle ones are closed.
    until("it is closed", || async {
        tokio::net::TcpStream::connect(address).await.is_err()
    })
    .await;
    until("idle connections end", || async { idle.is_closed() }).await;
    assert!(!stopping.is_finished());
    // A connection that was accepted before is served one request.
    let late = send(&mut beginning, post("/nowhere", review()))
        .await
        .unwrap();
    assert_eq!((late.code, late.header("connection")), (404, "close"));
    gate.open();
    let reply = asking.await.unwrap().unwrap();
    assert_eq!((reply.code, reply.header("connection")), (200, "close"));
    stopping.await.unwrap();
}

#[tokio::test]
async fn a_request_that_never_ends_is_cut_off() {
    let authority = Authority::new();
    let (webhooks, _gate) = gated();
    let running = server(&authority, Server::new(webhooks))
        .shutdown_delay(Duration::ZERO)
        .drain_timeout(Duration::from_millis(50))
        .start()
        .await
        .unwrap();
    let mut connection = Client::trusting(authority.pem())
        .connect(running.address())
        .await
        .unwrap();
    let asking = tokio::spawn(async move { send(&mut connection, post("/gated", review())).await });
    let in_flight = "controller_runtime_webhook_requests_in_flight{webhook=\"/gated\"}";
    until("it is under way", || async {
        metric(&running.metrics_text(), in_flight) == Some(1.0)
    })
    .await;
    tokio::time::timeout(TIMEOUT, running.stop())
        .await
        .expect("an end");
    assert!(asking.await.unwrap().is_err());
}

#[tokio::test]
async fn it_serves_on_while_others_hear_that_it_is_not_ready() {
    let authority = Authority::new();
    let running = server(&authority, Server::new(webhooks()))
        .probes(([127, 0, 0, 1], 0), ProbePaths::default())
        .shutdown_delay(Duration::from_secs(600))
        .start()
        .await
        .unwrap();
    let (address, probes) = (running.address(), running.probes_address().unwrap());
    assert_eq!(get(probes, "/readyz").await.code, 200);
    let client = Client::trusting(authority.pem());
    let mut kept = client.connect(address).await.unwrap();
    assert_eq!(
        send(&mut kept, post("/validate", review()))
            .await
            .unwrap()
            .header("connection"),
        ""
    );
    let stopping = tokio::spawn(running.stop());
    until("not ready", || async {
        get(probes, "/readyz").await.code == 503
    })
    .await;
    let reply = get(probes, "/readyz").await;
    assert!(
        reply
            .body
            .contains("[-]shutdown failed: the server is stopping"),
        "{}",
        reply.body
    );
    assert_eq!(get(probes, "/healthz").await.code, 200);
    // Served with `Connection: close`.
    let reply = send(&mut kept, post("/validate", review())).await.unwrap();
    assert_eq!((reply.code, reply.header("connection")), (200, "close"));
    let reply = client.review(address, "/validate").await.unwrap();
    assert_eq!((reply.code, reply.header("connection")), (200, "close"));
    stopping.abort();
}

/// The endpoints of a Service, as a proxy has them.
type Endpoints = Arc<std::sync::Mutex<Vec<SocketAddr>>>;

/// Calls through a Service as the API server does: reuses a connection, tries another endpoint when connecting fails,
/// and retries only when a reused connection was closed before any response.
async fn call(client: &Client, endpoints: &Endpoints, kept: &mut Option<Connection>) -> u16 {
    loop {
        if let Some(connection) = kept {
            if let Ok(reply) = send(connection, post("/mutate", review())).await {
                if reply.header("connection") == "close" {
                    *kept = None;
                }
                return reply.code;
            }
            *kept = None;
        }
        let addresses = endpoints.lock().unwrap().clone();
        for address in addresses {
            if let Ok(mut connection) = client.connect(address).await {
                let reply = send(&mut connection, post("/mutate", review())).await;
                let reply = reply.expect("a new connection answers");
                if reply.header("connection") != "close" {
                    *kept = Some(connection);
                }
                return reply.code;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_under_load_fails_no_call() {
    let authority = Arc::new(Authority::new());
    let start = || {
        let authority = Arc::clone(&authority);
        async move {
            let server = server(&authority, Server::new(webhooks()));
            server
                .shutdown_delay(Duration::from_millis(100))
                .start()
                .await
                .unwrap()
        }
    };
    let mut replicas: Vec<Running> = vec![start().await, start().await];
    let addresses =
        |replicas: &[Running]| replicas.iter().map(Running::address).collect::<Vec<_>>();
    let endpoints: Endpoints = Arc::default();
    *endpoints.lock().unwrap() = addresses(&replicas);
    let (stop, calls) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (stop, calls, endpoints) = (
                Arc::clone(&stop),
                Arc::clone(&calls),
                Arc::clone(&endpoints),
            );
            let client = Client::trusting(authority.pem());
            tokio::spawn(async move {
                let mut kept = None;
                while !stop.load(Ordering::Acquire) {
                    assert_eq!(call(&client, &endpoints, &mut kept).await, 200);
                    calls.fetch_add(1, Ordering::AcqRel);
                }
            })
        })
        .collect();
    for _ in 0..4 {
        let before = calls.load(Ordering::Acquire);
        until("calls are made", || async {
            calls.load(Ordering::Acquire) > before + 20
        })
        .await;
        // A new replica starts, the oldest stops.
        replicas.push(start().await);
        let oldest = replicas.remove(0);
        let stopping = tokio::spawn(oldest.stop());
        *endpoints.lock().unwrap() = addresses(&replicas);
        stopping.await.unwrap();
    }
    stop.store(true, Ordering::Release);
    for caller in callers {
        caller.await.expect("no call fails");
    }
}
