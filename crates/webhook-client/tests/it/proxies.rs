//! Calls through a proxy.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use lockgate_testkit::WebhookServer;
use lockgate_webhook_client::call::{Caller as _, Phase};
use lockgate_webhook_client::{HttpsCaller, Proxies, Settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::support::{AMPLE, answer, failure, says, service_config};

/// A proxy that connects every client to one address, or rejects every client.
struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Proxy {
    async fn start(leads_to: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return,
                    }
                }
                let text = String::from_utf8_lossy(&head).into_owned();
                log.lock().expect("the log").push(text);
                let Some(leads_to) = leads_to else {
                    let refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
                    let _ = stream.write_all(refusal).await;
                    continue;
                };
                let mut there = TcpStream::connect(leads_to).await.expect("the webhook");
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                tokio::spawn(async move {
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut there).await;
                });
            }
        });
        Self {
            address,
            asked,
            task,
        }
    }

    fn settings(&self, no_proxy: &str) -> Settings {
        let values = [
            ("HTTPS_PROXY", format!("http://u:p@{}", self.address)),
            ("NO_PROXY", no_proxy.to_owned()),
        ];
        Settings {
            proxies: Proxies::from_values(values).expect("a proxy"),
            ..Settings::default()
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn reaches_services_through_a_proxy() {
    let server = WebhookServer::start().await;
    let proxy = Proxy::start(Some(server.address())).await;
    // The proxy resolves the service: the resolver, which would use DNS, is not called.
    let caller = HttpsCaller::new(proxy.settings(""));
    let config = service_config("hook", None, server.ca_pem());
    let client = caller.client(&config).unwrap();
    assert_eq!(answer(client.as_ref()).await.code, 200);
    assert_eq!(answer(client.as_ref()).await.code, 200);
    let asked = proxy.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
    let head = asked[0].to_ascii_lowercase();
    assert!(
        head.starts_with("connect hook.default.svc:443 http/1.1\r\n"),
        "{head}"
    );
    assert!(
        head.contains("proxy-authorization: basic dtpw\r\n"),
        "{head}"
    );
}

#[tokio::test]
async fn tells_that_a_proxy_refuses() {
    let proxy = Proxy::start(None).await;
    let caller = HttpsCaller::new(proxy.settings(""));
    let client = caller.client(&service_config("hook", None, "")).unwrap();
    says(
        &failure(client.as_ref(), AMPLE).await,
        Phase::Connect,
        false,
        "Post \"https://hook.default.svc:443/validate?timeout=10s\": Forbidden",
    );
}

#[tokio::test]
async fn leaves_exempt_targets_alone() {
    let proxy = Proxy::start(None).await;
    let caller = HttpsCaller::new(proxy.settings(".svc"));
    let client = caller.client(&service_config("hook", None, "")).unwrap();
    let error = failure(client.as_ref(), AMPLE).await;
    assert_eq!(error.phase, Phase::Resolve);
    assert!(proxy.asked.lock().unwrap().is_empty());
}
