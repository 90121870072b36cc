//! The cost of admission policies: memory of many policies, latency of a request with many bindings, CPU of a few under
//! a steady load, and one policy among thousands of unrelated ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use crate::client::Client;
use crate::side::{Running, Side};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps?dryRun=All";
/// The number of connections that create policies and bindings.
const CONNECTIONS: usize = 16;
/// The steady load, in requests per second.
const RATE: u32 = 200;
/// The time until a policy is in effect.
const IN_FORCE: Duration = Duration::from_secs(120);

/// The size of a run: complete, or reduced for a quick check.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub policies: usize,
    pub bindings: usize,
    pub others: usize,
    pub seconds: u64,
}

impl Size {
    pub fn of(percent: usize, seconds: u64) -> Self {
        let part = |whole: usize| (whole * percent / 100).max(1);
        Self {
            policies: part(1000),
            bindings: 300,
            others: part(9999),
            seconds,
        }
    }
}

/// The figures of one side.
#[derive(Debug, Serialize)]
pub struct Figures {
    side: String,
    policies: usize,
    bindings: usize,
    memory_megabytes: f64,
    millis_with_1024_bindings: f64,
    cores_without_policies: f64,
    cores_with_5_policies: f64,
    others: usize,
    micros_one_of_one: f64,
    micros_one_of_many: f64,
}

/// The figures of the sides as a Markdown table.
pub fn table(sides: &[Figures]) -> String {
    let Some(first) = sides.first() else {
        return String::new();
    };
    let row = |name: String, figure: &dyn Fn(&Figures) -> String| {
        let figures: Vec<String> = sides.iter().map(figure).collect();
        format!("| {name} | {} |\n", figures.join(" | "))
    };
    let mut text = row(String::new(), &|side| side.side.clone());
    text += &format!("|---|{}\n", "--:|".repeat(sides.len()));
    let (policies, bindings) = (first.policies, first.bindings);
    text += &row(
        format!("memory of {policies} policies × {bindings} bindings"),
        &|side| format!("{:.0} MB", side.memory_megabytes),
    );
    text += &row(
        String::from("a request that 1,024 bindings concern"),
        &|side| format!("{:.2} ms", side.millis_with_1024_bindings),
    );
    text += &row(format!("CPU of 5 policies at {RATE} requests/s"), &|side| {
        let more = side.cores_with_5_policies - side.cores_without_policies;
        format!("{:.3} cores ({more:+.3})", side.cores_with_5_policies)
    });
    text += &row(
        format!(
            "a request that one policy of {} concerns, to one of one",
            first.others + 1
        ),
        &|side| {
            let ratio = side.micros_one_of_many / side.micros_one_of_one.max(1.0);
            format!("{:.0} µs, {ratio:.2}×", side.micros_one_of_many)
        },
    );
    text
}

/// Measures one side.
pub async fn measure(side: &impl Side, size: Size) -> Result<Figures> {
    let version = side.version().await?;
    eprintln!("  {version}");
    let running = side.start().await?;
    let memory = memory(&running, size).await?;
    running.stop().await;
    eprintln!("    memory: {memory:.0} MB");

    let running = side.start().await?;
    make(running.port, "policies", 1, |_| {
        policy("wide", "configmaps")
    })
    .await?;
    make(running.port, "policybindings", 1024, |number| {
        binding(&format!("b{number}"), "wide")
    })
    .await?;
    let mut client = Client::connect(running.port).await?;
    in_force(&mut client).await?;
    // Until the server has observed all of them.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let [wide] = medians(std::array::from_mut(&mut client), 20).await?;
    running.stop().await;
    eprintln!("    1,024 bindings: {:.2} ms", wide / 1000.0);

    let running = side.start().await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let without = cores(&running, size.seconds).await?;
    make(running.port, "policies", 5, |number| {
        policy(&format!("p{number}"), "configmaps")
    })
    .await?;
    make(running.port, "policybindings", 5, |number| {
        binding(&format!("p{number}"), &format!("p{number}"))
    })
    .await?;
    let mut client = Client::connect(running.port).await?;
    in_force(&mut client).await?;
    let with = cores(&running, size.seconds).await?;
    running.stop().await;
    eprintln!("    at {RATE} requests/s: {without:.3} cores, with 5 policies {with:.3}");

    // Both servers run, and requests alternate: other load on the machine affects both.
    let alone = side.start().await?;
    let among = side.start().await?;
    for running in [&alone, &among] {
        make(running.port, "policies", 1, |_| policy("one", "configmaps")).await?;
        make(running.port, "policybindings", 1, |_| binding("one", "one")).await?;
    }
    make(among.port, "policies", size.others, |number| {
        policy(&format!("other-{number}"), &format!("things{number}"))
    })
    .await?;
    make(among.port, "policybindings", size.others, |number| {
        binding(&format!("other-{number}"), &format!("other-{number}"))
    })
    .await?;
    let mut clients = [
        Client::connect(alone.port).await?,
        Client::connect(among.port).await?,
    ];
    for client in &mut clients {
        in_force(client).await?;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let [of_one, of_many] = medians(&mut clients, 2_000).await?;
    alone.stop().await;
    among.stop().await;
    eprintln!(
        "    one of one: {of_one:.0} µs, of {}: {of_many:.0} µs",
        size.others + 1
    );

    Ok(Figures {
        side: version,
        policies: size.policies,
        bindings: size.bindings,
        memory_megabytes: memory,
        millis_with_1024_bindings: wide / 1000.0,
        cores_without_policies: without,
        cores_with_5_policies: with,
        others: size.others,
        micros_one_of_one: of_one,
        micros_one_of_many: of_many,
    })
}

/// The memory of policies and bindings, in megabytes: that of the server alone, without etcd.
async fn memory(running: &Running, size: Size) -> Result<f64> {
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = running.server_bytes()?;
    make(running.port, "policies", size.policies, |number| {
        policy(&format!("p{number}"), &format!("things{number}"))
    })
    .await?;
    make(
        running.port,
        "policybindings",
        size.policies * size.bindings,
        |number| {
            let policy = number / size.bindings;
            let mut object = binding(&format!("b{number}"), &format!("p{policy}"));
            let shard = (number % 10).to_string();
            object["spec"]["matchResources"] =
                json!({"namespaceSelector": {"matchLabels": {"shard": shard}}});
            object
        },
    )
    .await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    Ok(running.server_bytes()?.saturating_sub(before) as f64 / 1e6)
}

/// A policy that denies ConfigMaps named `denied`, with other typical expressions.
fn policy(name: &str, plural: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [plural],
            }]},
            "matchConditions": [{"name": "c", "expression": format!("request.userInfo.username != 'system:{name}'")}],
            "variables": [{
                "name": "team",
                "expression": "has(object.metadata.labels) && 'team' in object.metadata.labels ? object.metadata.labels['team'] : ''",
            }],
            "validations": [
                {"expression": "object.metadata.name != 'denied'", "message": "by name"},
                {"expression": format!("variables.team != '{name}'"), "message": "by team"},
                {"expression": "!has(object.data) || object.data.all(k, size(k) < 64)",
                 "messageExpression": "'long keys in ' + string(object.metadata.name)"},
            ],
        },
    })
}

fn binding(name: &str, policy: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"policyName": policy, "validationActions": ["Deny"]}})
}

/// Creates this many policies or bindings.
async fn make(port: u16, what: &str, count: usize, object: impl Fn(usize) -> Value) -> Result<()> {
    let path = format!("{GROUP}/validatingadmission{what}");
    create_all(port, &path, (0..count).map(object)).await
}

/// Creates objects over several connections.
pub async fn create_all(
    port: u16,
    path: &str,
    objects: impl IntoIterator<Item = Value>,
) -> Result<()> {
    let path: Arc<str> = path.into();
    let mut lanes = vec![Vec::new(); CONNECTIONS];
    for (object, lane) in objects.into_iter().zip((0..CONNECTIONS).cycle()) {
        lanes[lane].push(Bytes::from(object.to_string()));
    }
    let mut tasks = tokio::task::JoinSet::new();
    for lane in lanes.into_iter().filter(|lane| !lane.is_empty()) {
        let path = Arc::clone(&path);
        tasks.spawn(async move {
            let mut client = Client::connect(port).await?;
            for body in lane {
                client.create(&path, body).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.context("a task")??;
    }
    Ok(())
}

fn config_map(name: &str) -> Bytes {
    json!({"metadata": {"name": name, "labels": {"team": "red"}}, "data": {"a": "1", "b": "2"}})
        .to_string()
        .into()
}

/// Waits until a policy is enforced.
async fn in_force(client: &mut Client) -> Result<()> {
    let started = Instant::now();
    while started.elapsed() < IN_FORCE {
        let (status, _) = client
            .send(Method::POST, CONFIG_MAPS, config_map("denied"))
            .await?;
        if status == StatusCode::UNPROCESSABLE_ENTITY {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    bail!("the policy is not in force")
}

/// The median latency of requests that alternate between servers, in microseconds.
async fn medians<const SERVERS: usize>(
    clients: &mut [Client; SERVERS],
    count: usize,
) -> Result<[f64; SERVERS]> {
    let mut times = [const { Vec::new() }; SERVERS];
    for _ in 0..count {
        for (client, times) in clients.iter_mut().zip(&mut times) {
            let started = Instant::now();
            client.create(CONFIG_MAPS, config_map("settings")).await?;
            times.push(started.elapsed());
        }
    }
    Ok(times.map(|mut times| {
        times.sort_unstable();
        let middle = times.get(count / 2).copied().unwrap_or_default();
        middle.as_secs_f64() * 1e6
    }))
}

/// The cores a side uses under the steady load.
async fn cores(running: &Running, seconds: u64) -> Result<f64> {
    let mut client = Client::connect(running.port).await?;
    let mut tick = tokio::time::interval(Duration::from_secs(1) / RATE);
    let (before, started) = (running.cpu_time()?, Instant::now());
    while started.elapsed() < Duration::from_secs(seconds) {
        tick.tick().await;
        client.create(CONFIG_MAPS, config_map("settings")).await?;
    }
    let used = running.cpu_time()?.saturating_sub(before);
    Ok(used.as_secs_f64() / started.elapsed().as_secs_f64())
}
