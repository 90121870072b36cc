//! Reads, patches and watches of ten thousand ConfigMaps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;
use hyper::Method;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use serde_json::json;

use crate::client::Client;
use crate::report::Figure;
use crate::side::Running;

const OBJECTS: usize = 10_000;
const NAMESPACE: &str = "reads";
/// The number of connections that fill the namespace and send the small requests.
const CONNECTIONS: usize = 8;
/// The numbers of watchers of one change.
const WATCHERS: [usize; 2] = [100, 500];
const CHANGES: usize = 20;

/// One kind of request.
struct Request {
    name: &'static str,
    method: Method,
    /// The path below the collection.
    path: &'static str,
    headers: &'static [(hyper::header::HeaderName, &'static str)],
    body: &'static str,
    connections: usize,
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

fn requests() -> [Request; 6] {
    let read = |name, path, headers, connections| Request {
        name,
        method: Method::GET,
        path,
        headers,
        body: "",
        connections,
    };
    [
        read("GET one", "/settings-7", &[], CONNECTIONS),
        read("LIST all", "", &[], 1),
        read("LIST a page of 500", "?limit=500", &[], 1),
        read("LIST by label, a tenth", "?labelSelector=group%3D3", &[], 1),
        read("LIST as a Table", "", &[(ACCEPT, TABLE)], 1),
        Request {
            name: "merge PATCH",
            method: Method::PATCH,
            path: "/settings-9",
            headers: &[(CONTENT_TYPE, "application/merge-patch+json")],
            body: r#"{"data":{"LOG_LEVEL":"debug"}}"#,
            connections: CONNECTIONS,
        },
    ]
}

/// Measures all requests on a running server.
pub async fn run(running: &Running, duration: Duration) -> Result<Vec<Figure>> {
    let collection = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    fill(running, &collection).await?;
    let mut figures = Vec::new();
    for request in requests() {
        let cost = cost(running, &collection, &request, duration).await?;
        figures.push(Figure::cost(
            format!("CPU per {}, µs", request.name),
            cost * 1e6,
        ));
    }
    for watchers in WATCHERS {
        let cost = deliver(running, &collection, watchers).await?;
        let name = format!("CPU per event and watcher, {watchers} watchers, µs");
        figures.push(Figure::cost(name, cost * 1e6));
    }
    let memory = running.resident_bytes()? as f64 / 1e6;
    figures.push(Figure::cost("memory after all of it, MB", memory));
    Ok(figures)
}

async fn fill(running: &Running, collection: &str) -> Result<()> {
    let mut client = Client::connect(running.port).await?;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    client
        .expect(Method::POST, "/api/v1/namespaces", &namespace)
        .await?;
    let mut senders = tokio::task::JoinSet::new();
    for first in 0..CONNECTIONS {
        let mut client = Client::connect(running.port).await?;
        let collection = collection.to_owned();
        senders.spawn(async move {
            for number in (first..OBJECTS).step_by(CONNECTIONS) {
                client.create(&collection, config_map(number)).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(result) = senders.join_next().await {
        result??;
    }
    Ok(())
}

/// A ConfigMap with a stored size of about 0.6 KB.
fn config_map(number: usize) -> Bytes {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": format!("settings-{number}"),
            "labels": {"group": (number % 10).to_string(), "app.kubernetes.io/name": "shop"},
        },
        "data": {"LOG_LEVEL": "info", "application.yaml": "server:\n  port: 8080\n", "FEATURES": "a,b"},
    })
    .to_string()
    .into()
}

/// The CPU seconds of one request.
async fn cost(
    running: &Running,
    collection: &str,
    request: &Request,
    duration: Duration,
) -> Result<f64> {
    let (stop, count) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..request.connections {
        let mut client = Client::connect(running.port).await?;
        let (stop, count) = (Arc::clone(&stop), Arc::clone(&count));
        let path = format!("{collection}{}", request.path);
        let (method, headers, body) = (request.method.clone(), request.headers, request.body);
        senders.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let (status, answer) = client
                    .send_with(
                        method.clone(),
                        &path,
                        Bytes::from_static(body.as_bytes()),
                        headers,
                    )
                    .await?;
                if !status.is_success() {
                    bail!("{path}: {status} {}", String::from_utf8_lossy(&answer));
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    // The first requests fill caches.
    tokio::time::sleep(duration / 4).await;
    let before = (running.cpu_time()?, count.load(Ordering::Relaxed));
    tokio::time::sleep(duration).await;
    let cpu = running.cpu_time()? - before.0;
    let answered = count.load(Ordering::Relaxed) - before.1;
    stop.store(true, Ordering::Relaxed);
    while let Some(result) = senders.join_next().await {
        result??;
    }
    if answered == 0 {
        bail!("{}: nothing was answered", request.name);
    }
    Ok(cpu.as_secs_f64() / answered as f64)
}

/// The CPU seconds of delivering one event to one watcher.
async fn deliver(running: &Running, collection: &str, watchers: usize) -> Result<f64> {
    let mut client = Client::connect(running.port).await?;
    let (_, list) = client
        .send(Method::GET, &format!("{collection}?limit=1"), Bytes::new())
        .await?;
    let list: serde_json::Value = serde_json::from_slice(&list)?;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or("0");
    let path = format!("{collection}?watch=true&resourceVersion={version}");
    let mut watches = Vec::new();
    for _ in 0..watchers {
        watches.push(Client::connect(running.port).await?.watch(&path).await?);
    }
    let before = running.cpu_time()?;
    for change in 0..CHANGES {
        let body = json!({"data": {"CHANGE": format!("{watchers}-{change}")}}).to_string();
        let path = format!("{collection}/settings-11");
        let headers = [(CONTENT_TYPE, "application/merge-patch+json")];
        let (status, answer) = client
            .send_with(Method::PATCH, &path, body.into(), &headers)
            .await?;
        if !status.is_success() {
            bail!("{status} {}", String::from_utf8_lossy(&answer));
        }
        for watch in &mut watches {
            watch.next().await?;
        }
    }
    let cpu = running.cpu_time()? - before;
    Ok(cpu.as_secs_f64() / (watchers * CHANGES) as f64)
}
