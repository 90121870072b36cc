//! The growth of the cost of a create: with unrelated webhooks and policies, match conditions, object size, and
//! connections. Creates are dry runs, so that stored data stays the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use hyper::Method;
use serde::Serialize;
use serde_json::{Value, json};

use crate::client::Client;
use crate::policies::create_all;
use crate::side::{Running, Side};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const CREATE: &str = "/api/v1/namespaces/default/configmaps?dryRun=All";
/// The number of connections that create objects, unless that is the variable.
const CONNECTIONS: usize = 16;
/// The time before a load is measured.
const WARM_UP: Duration = Duration::from_millis(500);
/// The time for a server to observe new configurations.
const NOTICE: Duration = Duration::from_secs(10);
/// The number of webhooks per configuration.
const WEBHOOKS: usize = 100;
/// The number of match conditions per webhook, which may have 64.
const CONDITIONS: usize = 50;

const OTHERS: [usize; 5] = [0, 10, 100, 1_000, 10_000];
const MATCH_CONDITIONS: [usize; 4] = [1, 10, 100, 1_000];
const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
const GROWING_CONNECTIONS: [usize; 4] = [1, 10, 100, 1_000];

/// The figures of one side.
#[derive(Debug, Serialize)]
pub struct Figures {
    side: String,
    curves: Vec<Curve>,
}

/// The CPU time of a create, in microseconds, by the value of one variable.
#[derive(Debug, Serialize)]
struct Curve {
    name: &'static str,
    points: Vec<(usize, f64)>,
}

/// The curves of the sides as Markdown tables: microseconds, and the ratio to the first value.
pub fn tables(sides: &[Figures]) -> String {
    let Some(first) = sides.first() else {
        return String::new();
    };
    let mut text = String::new();
    for (at, curve) in first.curves.iter().enumerate() {
        text += &format!("| {}", curve.name);
        text += &curve
            .points
            .iter()
            .map(|(number, _)| format!(" | {number}"))
            .collect::<String>();
        text += &format!(" |\n|---|{}\n", "--:|".repeat(curve.points.len()));
        for side in sides {
            let points = side.curves.get(at).map_or(&[][..], |curve| &curve.points);
            let base = points.first().map_or(1.0, |(_, micros)| *micros);
            let cells = points
                .iter()
                .map(|(_, micros)| format!(" | {micros:.0} ({:.2}×)", micros / base));
            text += &format!("| {}{} |\n", side.side, cells.collect::<String>());
        }
        text.push('\n');
    }
    text
}

/// Measures one side.
pub async fn measure(side: &impl Side, seconds: u64) -> Result<Figures> {
    let version = side.version().await?;
    eprintln!("  {version}");
    let duration = Duration::from_secs(seconds);
    let small = || body(300);

    let running = side.start().await?;
    let mut webhooks = Vec::new();
    let mut made = 0;
    for others in OTHERS {
        let configurations = (made..others).step_by(WEBHOOKS).map(|start| {
            let end = others.min(start + WEBHOOKS);
            other_webhooks(start, end)
        });
        make(
            running.port,
            "validatingwebhookconfigurations",
            configurations.collect(),
        )
        .await?;
        made = others;
        webhooks.push((
            others,
            cost(&running, &small(), CONNECTIONS, duration).await?,
        ));
    }
    running.stop().await;

    let running = side.start().await?;
    let mut policies = Vec::new();
    let mut made = 0;
    for others in OTHERS {
        make(
            running.port,
            "validatingadmissionpolicies",
            (made..others).map(other_policy).collect(),
        )
        .await?;
        let bindings = (made..others).map(|number| {
            let name = format!("p{number}");
            json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}})
        });
        make(
            running.port,
            "validatingadmissionpolicybindings",
            bindings.collect(),
        )
        .await?;
        made = others;
        policies.push((
            others,
            cost(&running, &small(), CONNECTIONS, duration).await?,
        ));
    }
    running.stop().await;

    let running = side.start().await?;
    let mut conditions = Vec::new();
    let mut made = 0;
    for number in MATCH_CONDITIONS {
        // Each configuration replaces the previous one.
        if made > 0 {
            let path = format!("{GROUP}/validatingwebhookconfigurations/conditions-{made}");
            Client::connect(running.port)
                .await?
                .expect(Method::DELETE, &path, &Value::Null)
                .await?;
        }
        make(
            running.port,
            "validatingwebhookconfigurations",
            vec![conditioned(number)],
        )
        .await?;
        made = number;
        conditions.push((
            number,
            cost(&running, &small(), CONNECTIONS, duration).await?,
        ));
    }
    running.stop().await;

    let running = side.start().await?;
    let mut sizes = Vec::new();
    for size in SIZES {
        sizes.push((
            size,
            cost(&running, &body(size), CONNECTIONS, duration).await?,
        ));
    }
    let mut connections = Vec::new();
    for number in GROWING_CONNECTIONS {
        connections.push((number, cost(&running, &small(), number, duration).await?));
    }
    running.stop().await;

    let curve = |name, points| Curve { name, points };
    Ok(Figures {
        side: version,
        curves: vec![
            curve("webhooks about other resources", webhooks),
            curve("policies about other resources, one binding each", policies),
            curve(
                "match conditions, in webhooks that are not called",
                conditions,
            ),
            curve("bytes of the object", sizes),
            curve("connections", connections),
        ],
    })
}

/// A ConfigMap of about this many bytes.
fn body(size: usize) -> Bytes {
    let line = "a line of an application's settings\n";
    let text = line.repeat(size.div_ceil(line.len()));
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "settings", "labels": {"app.kubernetes.io/name": "shop"}}, "data": {"text": text},
    })
    .to_string()
    .into()
}

/// A configuration with webhooks for resources that are never created.
fn other_webhooks(start: usize, end: usize) -> Value {
    let webhooks = (start..end).map(|number| webhook(number, &format!("things{number}"), &[]));
    json!({"metadata": {"name": format!("others-{start}")}, "webhooks": webhooks.collect::<Vec<_>>()})
}

fn webhook(number: usize, resource: &str, conditions: &[Value]) -> Value {
    json!({
        "name": format!("hook-{number}.bench.example.com"),
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}],
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "matchConditions": conditions,
    })
}

/// A configuration with this many match conditions, of which the last of each webhook is false: all are evaluated and
/// no webhook is called.
fn conditioned(count: usize) -> Value {
    let webhooks = (0..count).step_by(CONDITIONS).map(|start| {
        let end = count.min(start + CONDITIONS);
        let conditions: Vec<Value> = (start..end)
            .map(|number| {
                let operator = if number + 1 == end { "==" } else { "!=" };
                json!({
                    "name": format!("c{number}"),
                    "expression": format!("request.userInfo.username {operator} 'nobody-{number}'"),
                })
            })
            .collect();
        webhook(start, "configmaps", &conditions)
    });
    json!({"metadata": {"name": format!("conditions-{count}")}, "webhooks": webhooks.collect::<Vec<_>>()})
}

fn other_policy(number: usize) -> Value {
    json!({
        "metadata": {"name": format!("p{number}")},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [format!("things{number}")],
            }]},
            "validations": [{"expression": format!("object.metadata.name != 'denied-{number}'")}],
        },
    })
}

/// Creates objects and waits until they are in effect.
async fn make(port: u16, plural: &str, objects: Vec<Value>) -> Result<()> {
    if objects.is_empty() {
        return Ok(());
    }
    create_all(port, &format!("{GROUP}/{plural}"), objects).await?;
    tokio::time::sleep(NOTICE).await;
    Ok(())
}

/// The CPU time of a create, in microseconds.
async fn cost(
    running: &Running,
    body: &Bytes,
    connections: usize,
    duration: Duration,
) -> Result<f64> {
    let stop = Arc::new(AtomicBool::new(false));
    let created = Arc::new(AtomicU64::new(0));
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let mut client = Client::connect(running.port).await?;
        let (body, stop, created) = (body.clone(), Arc::clone(&stop), Arc::clone(&created));
        senders.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                client.create(CREATE, body.clone()).await?;
                created.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    tokio::time::sleep(WARM_UP).await;
    let before = (
        running.cpu_time()?,
        created.load(Ordering::Relaxed),
        Instant::now(),
    );
    tokio::time::sleep(duration).await;
    let cpu = running.cpu_time()?.saturating_sub(before.0);
    let creates = created.load(Ordering::Relaxed) - before.1;
    stop.store(true, Ordering::Relaxed);
    while let Some(result) = senders.join_next().await {
        result??;
    }
    if creates == 0 {
        bail!("nothing was created in {:?}", before.2.elapsed());
    }
    let micros = cpu.as_secs_f64() * 1e6 / creates as f64;
    eprintln!(
        "    {connections} connections, {} bytes: {micros:.1} µs of CPU, {creates} creates",
        body.len()
    );
    Ok(micros)
}
