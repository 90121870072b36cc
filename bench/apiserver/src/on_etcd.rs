//! Lockgate and kube-apiserver, each on its own etcd: create latencies, and the cost of many objects and watchers.
//!
//! CPU time and memory are those of the API server alone; etcd is the same on both sides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use hyper::Method;
use serde::Serialize;
use serde_json::Value;

use crate::client::Client;
use crate::load;
use crate::side::{Running, Side};

/// The numbers of connections that create objects sequentially.
const CONNECTIONS: [usize; 2] = [16, 256];
/// The number of connections that fill the store.
const FILLING: usize = 64;
/// The number of events per watcher.
const CHANGES: usize = 20;
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The measurements of a server.
#[derive(Debug, Serialize)]
pub struct Figures {
    side: String,
    creates: Vec<Creates>,
    objects: u64,
    megabytes: f64,
    list_milliseconds: f64,
    list_cpu_milliseconds: f64,
    watchers: usize,
    megabytes_with_watchers: f64,
    cpu_microseconds_per_event: f64,
    restart_milliseconds: f64,
}

#[derive(Debug, Serialize)]
struct Creates {
    connections: usize,
    per_second: f64,
    cpu_microseconds: f64,
    /// The median, the 95th and the 99th percentile.
    milliseconds: [f64; 3],
}

/// Measures a side with this many objects and watchers.
pub async fn measure(
    side: &impl Side,
    objects: u64,
    watchers: usize,
    seconds: u64,
) -> Result<Figures> {
    let mut running = side.start().await?;
    let time = Duration::from_secs(seconds);
    let mut creates = Vec::new();
    let mut made = 0;
    for connections in CONNECTIONS {
        let (figures, count) = create(&running, connections, time).await?;
        eprintln!(
            "  {connections} connections: {:.0} creates/s, p99 {:.2} ms",
            figures.per_second, figures.milliseconds[2]
        );
        creates.push(figures);
        made += count;
    }
    fill(&running, made, objects).await?;
    let megabytes = running.server_bytes()? as f64 / 1e6;
    let mut client = Client::connect(running.port).await?;
    let (started, cpu) = (Instant::now(), running.server_cpu_time()?);
    let (_, list) = client.send(Method::GET, CONFIG_MAPS, "".into()).await?;
    let list_milliseconds = started.elapsed().as_secs_f64() * 1e3;
    let list_cpu = running.server_cpu_time()? - cpu;
    drop(list);
    let (megabytes_with_watchers, per_event) = watch(&running, watchers).await?;
    let restarted = running.restart().await?;
    running.stop().await;
    Ok(Figures {
        side: side.version().await?,
        creates,
        objects: objects.max(made),
        megabytes,
        list_milliseconds,
        list_cpu_milliseconds: list_cpu.as_secs_f64() * 1e3,
        watchers,
        megabytes_with_watchers,
        cpu_microseconds_per_event: per_event,
        restart_milliseconds: restarted.as_secs_f64() * 1e3,
    })
}

async fn create(running: &Running, connections: usize, time: Duration) -> Result<(Creates, u64)> {
    let stop = Arc::new(AtomicBool::new(false));
    let measured = Arc::new(AtomicBool::new(false));
    let mut senders = tokio::task::JoinSet::new();
    for number in 0..connections {
        let mut client = Client::connect(running.port).await?;
        let (stop, measured) = (Arc::clone(&stop), Arc::clone(&measured));
        senders.spawn(async move {
            let mut times = Vec::new();
            let mut count = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                let body = load::config_map(&format!("c-{connections}-{number}-{count}"));
                let started = Instant::now();
                client.create(CONFIG_MAPS, body).await?;
                if measured.load(Ordering::Relaxed) {
                    times.push(started.elapsed());
                }
                count += 1;
            }
            anyhow::Ok((times, count))
        });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    measured.store(true, Ordering::Relaxed);
    let (started, cpu) = (Instant::now(), running.server_cpu_time()?);
    tokio::time::sleep(time).await;
    measured.store(false, Ordering::Relaxed);
    let (took, cpu) = (started.elapsed(), running.server_cpu_time()? - cpu);
    stop.store(true, Ordering::Relaxed);
    let (mut times, mut made) = (Vec::new(), 0);
    while let Some(sent) = senders.join_next().await {
        let (sent, count) = sent??;
        times.extend(sent);
        made += count;
    }
    times.sort_unstable();
    let at = |part: f64| {
        let index = (times.len() as f64 * part) as usize;
        let time = times.get(index.min(times.len().saturating_sub(1)));
        time.map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    let creates = Creates {
        connections,
        per_second: times.len() as f64 / took.as_secs_f64(),
        cpu_microseconds: cpu.as_secs_f64() * 1e6 / times.len().max(1) as f64,
        milliseconds: [at(0.5), at(0.95), at(0.99)],
    };
    Ok((creates, made))
}

async fn fill(running: &Running, made: u64, objects: u64) -> Result<()> {
    let next = Arc::new(AtomicU64::new(made));
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..FILLING {
        let mut client = Client::connect(running.port).await?;
        let next = Arc::clone(&next);
        senders.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= objects {
                    return anyhow::Ok(());
                }
                let body = load::config_map(&format!("settings-{number:07}"));
                client.create(CONFIG_MAPS, body).await?;
            }
        });
    }
    while let Some(sent) = senders.join_next().await {
        sent??;
    }
    Ok(())
}

/// The memory with watchers, and the CPU time per event and watcher.
async fn watch(running: &Running, watchers: usize) -> Result<(f64, f64)> {
    let mut client = Client::connect(running.port).await?;
    let (_, list) = client
        .send(Method::GET, &format!("{CONFIG_MAPS}?limit=1"), "".into())
        .await?;
    let list: Value = serde_json::from_slice(&list)?;
    let version = list["metadata"]["resourceVersion"].as_str();
    let version = version.context("a list without a version")?;
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}");
    let mut watches = tokio::task::JoinSet::new();
    for _ in 0..watchers {
        let mut events = Client::connect(running.port).await?.watch(&path).await?;
        watches.spawn(async move {
            for _ in 0..CHANGES {
                events.next().await?;
            }
            anyhow::Ok(())
        });
    }
    let megabytes = running.server_bytes()? as f64 / 1e6;
    let cpu = running.server_cpu_time()?;
    for number in 0..CHANGES {
        let body = load::config_map(&format!("watched-{number}"));
        client.create(CONFIG_MAPS, body).await?;
    }
    while let Some(ended) = watches.join_next().await {
        ended??;
    }
    let cpu = running.server_cpu_time()? - cpu;
    let events = (CHANGES * watchers.max(1)) as f64;
    Ok((megabytes, cpu.as_secs_f64() * 1e6 / events))
}

/// The sides as columns of a table.
pub fn table(sides: &[Figures]) -> String {
    let mut text = String::from("| What |");
    for side in sides {
        text.push_str(&format!(" {} |", side.side));
    }
    text.push_str("\n|---|");
    text.push_str(&"--:|".repeat(sides.len()));
    let mut row = |name: String, value: &dyn Fn(&Figures) -> String| {
        text.push_str(&format!("\n| {name} |"));
        for side in sides {
            text.push_str(&format!(" {} |", value(side)));
        }
    };
    for (index, connections) in CONNECTIONS.iter().enumerate() {
        row(
            format!("creates per second, {connections} connections"),
            &|side| format!("{:.0}", side.creates[index].per_second),
        );
        row(
            format!("CPU of the server per create, {connections} connections, µs"),
            &|side| format!("{:.0}", side.creates[index].cpu_microseconds),
        );
        row(
            format!("create p50, p95, p99, {connections} connections, ms"),
            &|side| {
                let [median, high, highest] = side.creates[index].milliseconds;
                format!("{median:.2}, {high:.2}, {highest:.2}")
            },
        );
    }
    row(String::from("objects"), &|side| side.objects.to_string());
    row(
        String::from("memory of the server with them, MB"),
        &|side| format!("{:.0}", side.megabytes),
    );
    row(String::from("LIST of all, ms; CPU, ms"), &|side| {
        format!(
            "{:.0}; {:.0}",
            side.list_milliseconds, side.list_cpu_milliseconds
        )
    });
    row(String::from("watchers"), &|side| side.watchers.to_string());
    row(String::from("memory with them, MB"), &|side| {
        format!("{:.0}", side.megabytes_with_watchers)
    });
    row(String::from("CPU per event and watcher, µs"), &|side| {
        format!("{:.1}", side.cpu_microseconds_per_event)
    });
    row(String::from("start with all objects, ms"), &|side| {
        format!("{:.0}", side.restart_milliseconds)
    });
    text.push('\n');
    text
}
