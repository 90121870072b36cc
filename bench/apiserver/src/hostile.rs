//! An honest client beside many hostile ones: its latency, and the server's memory.
//!
//! The honest client runs on a separate thread, and the threads of the hostile clients yield to it and to the server:
//! in practice hostile clients run on other machines, and what is measured is the latency of the server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use hyper::Method;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;

use crate::client::{self, Client};
use crate::process;
use crate::side::{HOSTILE_TOKEN, Lockgate, Running, Side as _};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CUSTOM: &str = "/apis/example.com/v1/namespaces/default/widgets";
/// The pause of a hostile client between rounds.
const PAUSE: Duration = Duration::from_millis(100);
/// The time for which a hostile client holds its resources.
const HOLD: Duration = Duration::from_secs(20);

/// The kinds of hostile clients.
const KINDS: [&str; 8] = [
    "connect and say nothing",
    "send 100 kB of a head and stop",
    "create with 20,000 owners, dry run",
    "send 2.9 MB of a body and stop",
    "list 12 MB and do not read",
    "patch one member of an object of 1 MB",
    "shake hands and leave",
    "create with 1,000 patterns to match",
];

/// The figures of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    clients: usize,
    seconds: u64,
    load_average: String,
    quiet: Honest,
    beside: Honest,
    idle_bytes: u64,
    most_bytes: u64,
    /// The number of completed rounds per kind of hostile client.
    hostile: Vec<(&'static str, u64)>,
}

/// The latencies of the honest client.
#[derive(Debug, Clone, Default, Serialize)]
struct Honest {
    requests: usize,
    failed: usize,
    median_micros: u128,
    p99_micros: u128,
    slowest_micros: u128,
    /// The p99 of each kind of request.
    p99_micros_by_request: [u128; 4],
}

/// The requests of the honest client, in rotation.
const REQUESTS: [&str; 4] = ["/livez", "create", "read", "delete"];

impl Report {
    /// The figures as a Markdown table.
    pub fn table(&self) -> String {
        let Self { quiet, beside, .. } = self;
        let ms = |micros: u128| micros as f64 / 1000.0;
        let mb = |bytes: u64| bytes / 1_000_000;
        let mut text = format!(
            "{} hostile clients for {} s; load average before {}\n\n| | quiet | beside them |\n|---|--:|--:|\n",
            self.clients, self.seconds, self.load_average
        );
        for (name, one, other) in [
            ("median", quiet.median_micros, beside.median_micros),
            ("p99", quiet.p99_micros, beside.p99_micros),
            ("slowest", quiet.slowest_micros, beside.slowest_micros),
        ] {
            text += &format!(
                "| honest client, {name} | {:.2} ms | {:.2} ms |\n",
                ms(one),
                ms(other)
            );
        }
        for (number, name) in REQUESTS.iter().enumerate() {
            text += &format!(
                "| p99 of {name} | {:.2} ms | {:.2} ms |\n",
                ms(quiet.p99_micros_by_request[number]),
                ms(beside.p99_micros_by_request[number])
            );
        }
        text += &format!(
            "| its requests, failed | {}, {} | {}, {} |\n",
            quiet.requests, quiet.failed, beside.requests, beside.failed
        );
        text += &format!(
            "| memory, at most | {} MB | {} MB |\n",
            mb(self.idle_bytes),
            mb(self.most_bytes)
        );
        text += &format!(
            "\np99 beside them / quiet: {:.1}\n\n",
            beside.p99_micros as f64 / quiet.p99_micros.max(1) as f64
        );
        for (kind, count) in &self.hostile {
            text += &format!("- {kind}: {count} times\n");
        }
        text
    }
}

/// Measures Lockgate with this many hostile clients; only of the given kinds, by number, unless the list is empty.
pub async fn measure(
    binary: &Path,
    clients: usize,
    kinds: &[usize],
    seconds: u64,
) -> Result<Report> {
    let kinds: Vec<usize> = match kinds {
        [] => (0..KINDS.len()).collect(),
        some => some.iter().map(|kind| kind % KINDS.len()).collect(),
    };
    let running = Lockgate::new(binary).start().await?;
    prepare(running.port).await?;
    let load_average = process::load_average();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let idle_bytes = running.resident_bytes()?;
    let quiet = honest(running.port, Duration::from_secs(seconds.min(15))).await?;

    let counts: Arc<Vec<AtomicU64>> = Arc::new(KINDS.iter().map(|_| AtomicU64::new(0)).collect());
    let bodies = Arc::new(Bodies::new());
    let crowd = tokio::runtime::Builder::new_multi_thread()
        .thread_name("hostile")
        .on_thread_start(run_when_idle)
        .enable_all()
        .build()
        .context("a runtime of hostile clients")?;
    for number in 0..clients {
        let (counts, bodies, port) = (Arc::clone(&counts), Arc::clone(&bodies), running.port);
        let kind = kinds[number % kinds.len()];
        crowd.spawn(async move {
            loop {
                if hostile(kind, number, port, &bodies).await.is_ok() {
                    counts[kind].fetch_add(1, Ordering::Relaxed);
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
    // Until all have connected.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let measuring = honest(running.port, Duration::from_secs(seconds));
    let (beside, most_bytes) = tokio::join!(measuring, most_memory(&running, seconds));
    crowd.shutdown_background();
    let hostile = KINDS.iter().zip(counts.iter());
    let report = Report {
        clients,
        seconds,
        load_average,
        quiet,
        beside: beside?,
        idle_bytes,
        most_bytes: most_bytes?,
        hostile: hostile
            .map(|(kind, count)| (*kind, count.load(Ordering::Relaxed)))
            .collect(),
    };
    running.stop().await;
    Ok(report)
}

/// Schedules the calling thread only when no other thread is runnable: a thread that is merely nice keeps a CPU until
/// the next scheduler tick, which is longer than the measured latencies. Falls back to nice without `chrt`.
fn run_when_idle() {
    let _ = rustix::process::setpriority_process(None, 19);
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let _ = Command::new("chrt")
        .args(["--idle", "--pid", "0", &thread])
        .status();
}

async fn most_memory(running: &Running, seconds: u64) -> Result<u64> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut most = 0;
    while Instant::now() < end {
        most = most.max(running.resident_bytes()?);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(most)
}

/// Creates the objects and permissions that the hostile clients need.
async fn prepare(port: u16) -> Result<()> {
    let mut admin = Client::connect(port).await?;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({
        "metadata": {"name": "eve"},
        "rules": [{"apiGroups": ["", "example.com"], "resources": ["configmaps", "widgets"], "verbs": ["*"]}],
    });
    let binding = json!({
        "metadata": {"name": "eve"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "eve"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}],
    });
    admin
        .expect(Method::POST, &format!("{rbac}/clusterroles"), &role)
        .await?;
    admin
        .expect(
            Method::POST,
            &format!("{rbac}/clusterrolebindings"),
            &binding,
        )
        .await?;
    let pattern = json!({"type": "string", "pattern": "^[a-z\\pL]{1,900}$"});
    let properties: Map<String, Value> = (0..1000)
        .map(|number| (format!("p{number}"), pattern.clone()))
        .collect();
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": properties,
            }}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    admin.expect(Method::POST, definitions, &definition).await?;
    for number in 0..12 {
        let object = json!({
            "metadata": {"name": format!("large-{number}")}, "data": {"text": "x".repeat(1_000_000), "a": "1"},
        });
        admin.expect(Method::POST, CONFIG_MAPS, &object).await?;
    }
    Ok(())
}

/// The bodies of hostile requests.
struct Bodies {
    owners: Bytes,
    patterns: Bytes,
    half: Bytes,
}

impl Bodies {
    fn new() -> Self {
        let owner = |number| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": format!("u{number}")});
        let owners: Vec<Value> = (0..20_000).map(owner).collect();
        let owned = json!({"metadata": {"name": "owned", "ownerReferences": owners}});
        let mut custom: Map<String, Value> = (0..1000)
            .map(|number| (format!("p{number}"), "ü".into()))
            .collect();
        custom.insert(String::from("apiVersion"), "example.com/v1".into());
        custom.insert(String::from("kind"), "Widget".into());
        custom.insert(String::from("metadata"), json!({"name": "w"}));
        Self {
            owners: owned.to_string().into(),
            patterns: Value::from(custom).to_string().into(),
            half: vec![b' '; 2_900_000].into(),
        }
    }
}

/// One round of a hostile client.
async fn hostile(kind: usize, number: usize, port: u16, bodies: &Bodies) -> Result<()> {
    // A few hundred source addresses, none of which is the honest client's.
    let from = Ipv4Addr::new(
        127,
        0,
        u8::try_from(number % 3)?,
        u8::try_from(2 + number % 250)?,
    );
    let mut stream = connect(port, from).await?;
    let head = |method: &str, path: &str, kind: &str, length: usize| {
        format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {HOSTILE_TOKEN}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let json = "application/json";
    match kind {
        0 => hold(&mut stream).await,
        1 => {
            let half = format!(
                "GET /livez HTTP/1.1\r\nhost: x\r\nx: {}",
                "x".repeat(100_000)
            );
            stream.write_all(half.as_bytes()).await?;
            stream.flush().await?;
            hold(&mut stream).await;
        }
        2 | 7 => {
            let (path, body) = match kind {
                2 => (CONFIG_MAPS, &bodies.owners),
                _ => (CUSTOM, &bodies.patterns),
            };
            let head = head("POST", &format!("{path}?dryRun=All"), json, body.len());
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body).await?;
            answered(&mut stream).await?;
        }
        3 => {
            let head = head("POST", CONFIG_MAPS, json, 3_000_000);
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&bodies.half).await?;
            stream.flush().await?;
            hold(&mut stream).await;
        }
        4 => {
            let head = head("GET", CONFIG_MAPS, json, 0);
            stream.write_all(head.as_bytes()).await?;
            stream.flush().await?;
            tokio::time::sleep(HOLD).await;
        }
        5 => {
            let patch = r#"{"data":{"a":"2"}}"#;
            let path = format!("{CONFIG_MAPS}/large-0?dryRun=All");
            let head = head("PATCH", &path, "application/merge-patch+json", patch.len());
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(patch.as_bytes()).await?;
            answered(&mut stream).await?;
        }
        _ => {}
    }
    Ok(())
}

async fn connect(port: u16, from: Ipv4Addr) -> Result<TlsStream<TcpStream>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    let socket = socket
        .connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .await?;
    client::handshake(socket).await
}

/// Keeps the connection until the server closes it, or the hold time is over.
async fn hold(stream: &mut TlsStream<TcpStream>) {
    let mut rest = [0; 1024];
    let ended = async { while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {} };
    let _ = tokio::time::timeout(HOLD, ended).await;
}

/// Reads the first line of a response.
async fn answered(stream: &mut TlsStream<TcpStream>) -> Result<()> {
    stream.flush().await?;
    let mut line = [0; 12];
    tokio::time::timeout(HOLD * 3, stream.read_exact(&mut line)).await??;
    Ok(())
}

/// Sends requests in sequence for a duration, from a separate thread.
async fn honest(port: u16, time: Duration) -> Result<Honest> {
    let (send, receive) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let measured = runtime
            .context("a runtime")
            .and_then(|runtime| runtime.block_on(requests(port, time)));
        let _ = send.send(measured);
    });
    receive.await?
}

async fn requests(port: u16, time: Duration) -> Result<Honest> {
    let mut client = Client::connect(port).await?;
    let object = json!({"metadata": {"name": "honest"}, "data": {"a": "1"}});
    let body: Bytes = object.to_string().into();
    let path = format!("{CONFIG_MAPS}/honest");
    let mut times: [Vec<Duration>; 4] = Default::default();
    let mut failed = 0;
    let end = Instant::now() + time;
    while Instant::now() < end {
        let requests = [
            (Method::GET, "/livez", Bytes::new()),
            (Method::POST, CONFIG_MAPS, body.clone()),
            (Method::GET, path.as_str(), Bytes::new()),
            (Method::DELETE, path.as_str(), Bytes::new()),
        ];
        for ((method, path, body), times) in requests.into_iter().zip(&mut times) {
            let started = Instant::now();
            match client.send(method, path, body).await {
                Ok((status, _)) => failed += usize::from(!status.is_success()),
                Err(_) => {
                    failed += 1;
                    client = Client::connect(port).await?;
                }
            }
            times.push(started.elapsed());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    let p99_micros_by_request = times.each_mut().map(|times| {
        times.sort_unstable();
        part_of(times, 990)
    });
    let mut times = times.concat();
    times.sort_unstable();
    Ok(Honest {
        requests: times.len(),
        failed,
        median_micros: part_of(&times, 500),
        p99_micros: part_of(&times, 990),
        slowest_micros: times.last().map_or(0, Duration::as_micros),
        p99_micros_by_request,
    })
}

/// The latency percentile, per mille.
fn part_of(sorted: &[Duration], per_mille: usize) -> u128 {
    let found = sorted.get(sorted.len() * per_mille / 1000);
    found.map_or(0, Duration::as_micros)
}
