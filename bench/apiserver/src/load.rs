//! Creates ConfigMaps at the maximum rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use crate::client::Client;
use crate::side::Running;
use crate::webhook::Webhooks;

/// The warm-up time.
const WARM_UP: Duration = Duration::from_secs(1);
/// The time for a server to observe a configuration.
const NOTICE: Duration = Duration::from_secs(30);
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const CONFIGURATION: &str = "bench";

/// The webhooks of a load: the number called per ConfigMap.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    mutating: usize,
    validating: usize,
}

impl Scenario {
    pub const ALL: [Self; 4] = [
        Self::new("no hooks", 0, 0),
        Self::new("1 hook (mutating)", 1, 0),
        Self::new("2 hooks (1 mutating, 1 validating)", 1, 1),
        Self::new("10 hooks (5 mutating, 5 validating)", 5, 5),
    ];

    const fn new(name: &'static str, mutating: usize, validating: usize) -> Self {
        Self {
            name,
            mutating,
            validating,
        }
    }

    fn hooks(self) -> usize {
        self.mutating + self.validating
    }
}

/// The result of one load.
#[derive(Debug)]
pub struct Load {
    pub creates_per_second: f64,
    /// The CPU time of all processes of the side, per create.
    pub cpu_microseconds: f64,
}

/// Registers the webhooks of a scenario, measures, and removes them.
pub async fn run(
    running: &Running,
    webhooks: &Webhooks,
    scenario: Scenario,
    connections: usize,
    duration: Duration,
) -> Result<Load> {
    let mut client = Client::connect(running.port).await?;
    let namespace = format!("bench-{}-{}", scenario.mutating, scenario.validating);
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    client
        .expect(Method::POST, "/api/v1/namespaces", &body)
        .await?;
    let configurations = [
        (
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            scenario.mutating,
        ),
        (
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            scenario.validating,
        ),
    ];
    let wanted = || configurations.iter().filter(|(_, _, hooks)| *hooks > 0);
    for (kind, plural, hooks) in wanted() {
        let body = webhooks.configuration(kind, CONFIGURATION, *hooks);
        client
            .expect(Method::POST, &format!("{REGISTRATION}/{plural}"), &body)
            .await?;
    }
    notice(&mut client, webhooks, &namespace, scenario.hooks()).await?;
    let load = measure(
        running,
        webhooks,
        scenario,
        &namespace,
        connections,
        duration,
    )
    .await?;
    for (_, plural, _) in wanted() {
        let path = format!("{REGISTRATION}/{plural}/{CONFIGURATION}");
        client.expect(Method::DELETE, &path, &Value::Null).await?;
    }
    notice(&mut client, webhooks, &namespace, 0).await?;
    Ok(load)
}

/// Waits until exactly this many webhooks are called.
async fn notice(
    client: &mut Client,
    webhooks: &Webhooks,
    namespace: &str,
    hooks: usize,
) -> Result<()> {
    let started = Instant::now();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps?dryRun=All");
    loop {
        let before = webhooks.calls();
        client.create(&path, config_map("probe")).await?;
        if webhooks.calls() - before == hooks as u64 {
            return Ok(());
        }
        if started.elapsed() > NOTICE {
            bail!("the server does not call {hooks} webhooks");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn measure(
    running: &Running,
    webhooks: &Webhooks,
    scenario: Scenario,
    namespace: &str,
    connections: usize,
    duration: Duration,
) -> Result<Load> {
    let stop = Arc::new(AtomicBool::new(false));
    let created = Arc::new(AtomicU64::new(0));
    let mut senders = tokio::task::JoinSet::new();
    for number in 0..connections {
        let client = Client::connect(running.port).await?;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        senders.spawn(create(
            client,
            path,
            number,
            Arc::clone(&stop),
            Arc::clone(&created),
        ));
    }
    tokio::time::sleep(WARM_UP).await;
    let before = (
        Instant::now(),
        running.cpu_time()?,
        created.load(Ordering::Relaxed),
        webhooks.calls(),
    );
    tokio::time::sleep(duration).await;
    let (took, cpu) = (before.0.elapsed(), running.cpu_time()? - before.1);
    let creates = created.load(Ordering::Relaxed) - before.2;
    let calls = webhooks.calls() - before.3;
    stop.store(true, Ordering::Relaxed);
    while let Some(result) = senders.join_next().await {
        result??;
    }
    if creates == 0 {
        bail!("nothing was created");
    }
    // Creates in progress at either end are counted on one side only.
    let expected = creates * scenario.hooks() as u64;
    let under_way = (connections * scenario.hooks()) as u64;
    if calls.abs_diff(expected) > under_way {
        bail!("{calls} calls for {creates} creates");
    }
    Ok(Load {
        creates_per_second: creates as f64 / took.as_secs_f64(),
        cpu_microseconds: cpu.as_secs_f64() * 1e6 / creates as f64,
    })
}

/// One connection: each create is sent after the previous response.
pub async fn create(
    mut client: Client,
    path: String,
    number: usize,
    stop: Arc<AtomicBool>,
    created: Arc<AtomicU64>,
) -> Result<()> {
    let mut count = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        client
            .create(&path, config_map(&format!("settings-{number}-{count}")))
            .await?;
        count += 1;
        created.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// A small ConfigMap, as common in applications.
pub fn config_map(name: &str) -> Bytes {
    let text = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","labels":{{"app.kubernetes.io/name":"shop","app.kubernetes.io/component":"web"}},"annotations":{{"example.com/owner":"team-shop"}}}},"data":{{"LOG_LEVEL":"info","application.yaml":"server:\n  port: 8080\n  timeout: 30s\n","FEATURES":"checkout,search"}}}}"#
    );
    text.into()
}
