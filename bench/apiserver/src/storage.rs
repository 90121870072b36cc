//! The cost of storage on disk compared with memory.
//!
//! The fsync rate of the disk is reported beside the creates, since every batch of them waits for one.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use hyper::Method;
use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::client::{Client, TOKEN};
use crate::{load, process};

/// The numbers of objects for memory measurements.
const OBJECTS: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// The numbers of watchers.
const WATCHERS: [usize; 4] = [1, 100, 1_000, 10_000];
/// The number of events per watcher.
const CHANGES: usize = 100;
/// The numbers of connections that create objects.
const CONNECTIONS: [usize; 4] = [1, 16, 128, 1_000];
/// The number of starts for the startup time.
const STARTS: usize = 3;
/// The number of objects that are created and deleted again, to measure the cost of a create at each size.
const EXTRA: u64 = 5_000;
/// The number of pages that are read, to measure the cost of a read at each size.
const PAGES: u32 = 100;
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The measurements.
#[derive(Debug, Serialize)]
pub struct Report {
    syncs_per_second: f64,
    disk: Measured,
    memory: Measured,
    load_average: String,
}

#[derive(Debug, Default, Serialize)]
struct Measured {
    creates: Vec<Creates>,
    sizes: Vec<Size>,
    watches: Vec<Watches>,
    /// Milliseconds until ready, after a kill.
    restart_after_kill: Option<f64>,
    /// The size of the data file, with all objects.
    file_megabytes: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Creates {
    connections: usize,
    per_second: f64,
    cpu_microseconds: f64,
}

#[derive(Debug, Serialize)]
struct Size {
    objects: u64,
    megabytes: f64,
    /// The CPU use in percent of one core, when idle.
    idle_cpu_percent: f64,
    /// The cost of a create, with 16 connections.
    create: Cost,
    /// The cost of a page of 500 objects, with one connection.
    page: Cost,
    /// Milliseconds until ready.
    start: Option<f64>,
}

/// The cost of a request.
#[derive(Debug, Serialize)]
struct Cost {
    per_second: f64,
    cpu_microseconds: f64,
}

impl Cost {
    fn of(requests: f64, took: Duration, cpu: Duration) -> Self {
        Self {
            per_second: requests / took.as_secs_f64(),
            cpu_microseconds: cpu.as_secs_f64() * 1e6 / requests,
        }
    }
}

#[derive(Debug, Serialize)]
struct Watches {
    watchers: usize,
    megabytes: f64,
    cpu_microseconds_per_event: f64,
    events_per_second: f64,
}

/// Measures both. `folder` is on the disk to be measured.
pub async fn measure(binary: &Path, folder: &Path, seconds: u64, growth: bool) -> Result<Report> {
    // All sizes, or all but the largest.
    let steps = if growth { 4 } else { 3 };
    let seconds = Duration::from_secs(seconds);
    let syncs_per_second = syncs(folder, seconds)?;
    eprintln!("{syncs_per_second:.0} syncs/s");
    let disk = one(binary, Some(folder), seconds, steps).await?;
    let memory = one(binary, None, seconds, steps).await?;
    Ok(Report {
        syncs_per_second,
        disk,
        memory,
        load_average: process::load_average(),
    })
}

/// The number of synced page writes per second.
fn syncs(folder: &Path, time: Duration) -> Result<f64> {
    let file = tempfile::tempfile_in(folder)?;
    let page = [7; 4096];
    let pages = 256;
    for number in 0..pages {
        file.write_all_at(&page, number * 4096)?;
    }
    File::sync_all(&file)?;
    let started = Instant::now();
    let mut count = 0;
    while started.elapsed() < time {
        file.write_all_at(&page, count % pages * 4096)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

async fn one(
    binary: &Path,
    disk: Option<&Path>,
    seconds: Duration,
    steps: usize,
) -> Result<Measured> {
    eprintln!(
        "{}",
        if disk.is_some() {
            "on disk"
        } else {
            "in memory"
        }
    );
    let mut measured = Measured::default();
    // The growth measurement has its own creates.
    let connections: &[usize] = if steps < OBJECTS.len() {
        &CONNECTIONS
    } else {
        &[]
    };
    for &connections in connections {
        let home = Home::new(disk)?;
        let server = Server::start(binary, &home).await?;
        let creates = create_for(&server, connections, seconds).await?;
        eprintln!(
            "  {connections} connections: {:.0} creates/s",
            creates.per_second
        );
        measured.creates.push(creates);
        server.stop().await?;
    }
    let home = Home::new(disk)?;
    let mut server = Server::start(binary, &home).await?;
    let mut made = 0;
    for objects in OBJECTS.into_iter().take(steps) {
        fill(&server, made..objects).await?;
        made = objects;
        let (cpu, time) = (server.cpu()?, Duration::from_secs(3));
        tokio::time::sleep(time).await;
        let mut size = Size {
            objects,
            megabytes: server.megabytes()?,
            idle_cpu_percent: (server.cpu()? - cpu).as_secs_f64() / time.as_secs_f64() * 100.0,
            create: create_extra(&server).await?,
            page: read_pages(&server).await?,
            start: None,
        };
        if disk.is_some() {
            let mut times = Vec::new();
            for _ in 0..STARTS {
                server.stop().await?;
                server = Server::start(binary, &home).await?;
                times.push(server.took);
            }
            size.start = Some(median(times));
        }
        eprintln!("  {size:?}");
        measured.sizes.push(size);
    }
    for watchers in WATCHERS.into_iter().take(steps) {
        let watches = watch(&server, watchers).await?;
        eprintln!("  {watchers} watchers: {:.1} MB", watches.megabytes);
        measured.watches.push(watches);
    }
    if disk.is_some() {
        let file = std::fs::metadata(home.0.path().join("data/store.redb"))?;
        measured.file_megabytes = Some(file.len() as f64 / 1e6);
        let mut times = Vec::new();
        for _ in 0..STARTS {
            server.process.kill().await?;
            server = Server::start(binary, &home).await?;
            times.push(server.took);
        }
        measured.restart_after_kill = Some(median(times));
    }
    server.stop().await?;
    Ok(measured)
}

/// The median, in milliseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times
        .get(times.len() / 2)
        .map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}

/// The folder of a server. For a store in memory it contains only tokens.
struct Home(TempDir, bool);

impl Home {
    fn new(disk: Option<&Path>) -> Result<Self> {
        let folder = match disk {
            Some(disk) => tempfile::tempdir_in(disk)?,
            None => tempfile::tempdir()?,
        };
        let tokens = format!("{TOKEN},admin,1,\"system:masters\"\n");
        std::fs::write(folder.path().join("tokens.csv"), tokens)?;
        Ok(Self(folder, disk.is_some()))
    }
}

struct Server {
    process: Child,
    pid: u32,
    port: u16,
    /// The time from the start of the process until it is ready.
    took: Duration,
}

impl Server {
    async fn start(binary: &Path, home: &Home) -> Result<Self> {
        let file = |name: &str| home.0.path().join(name).display().to_string();
        let mut command = Command::new(binary);
        command.args(["serve", "--secure-port=0"]);
        command.arg(format!("--token-auth-file={}", file("tokens.csv")));
        command.arg(format!("--kubeconfig-out={}", file("kubeconfig")));
        if let Ok(arguments) = std::env::var("LOCKGATE_ARGUMENTS") {
            command.args(arguments.split_whitespace());
        }
        if home.1 {
            command.arg(format!("--data-dir={}", file("data")));
        }
        let started = Instant::now();
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let stdout = process.stdout.take().context("no output")?;
        let line = BufReader::new(stdout).lines().next_line().await?;
        let took = started.elapsed();
        let line = line.context("the server does not start")?;
        let port = line
            .strip_prefix("Listening on https://127.0.0.1:")
            .and_then(|rest| rest.split(' ').next());
        Ok(Self {
            pid: process.id().context("the server is gone")?,
            port: port.context("an unusual line")?.parse()?,
            process,
            took,
        })
    }

    fn cpu(&self) -> Result<Duration> {
        process::cpu_time(self.pid)
    }

    fn megabytes(&self) -> Result<f64> {
        Ok(process::resident_bytes(self.pid)? as f64 / 1e6)
    }

    async fn stop(mut self) -> Result<()> {
        let told = Command::new("kill")
            .arg(self.pid.to_string())
            .status()
            .await?;
        if !told.success() || !self.process.wait().await?.success() {
            bail!("the server does not stop");
        }
        Ok(())
    }
}

async fn create_for(server: &Server, connections: usize, time: Duration) -> Result<Creates> {
    let stop = Arc::new(AtomicBool::new(false));
    let created = Arc::new(AtomicU64::new(0));
    let mut senders = tokio::task::JoinSet::new();
    for number in 0..connections {
        let client = Client::connect(server.port).await?;
        let (stop, created) = (Arc::clone(&stop), Arc::clone(&created));
        let path = String::from(CONFIG_MAPS);
        senders.spawn(load::create(client, path, number, stop, created));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = (created.load(Ordering::Relaxed), server.cpu()?);
    let started = Instant::now();
    tokio::time::sleep(time).await;
    let creates = (created.load(Ordering::Relaxed) - before.0) as f64;
    let (took, cpu) = (started.elapsed(), server.cpu()? - before.1);
    stop.store(true, Ordering::Relaxed);
    while let Some(result) = senders.join_next().await {
        result??;
    }
    Ok(Creates {
        connections,
        per_second: creates / took.as_secs_f64(),
        cpu_microseconds: cpu.as_secs_f64() * 1e6 / creates,
    })
}

/// Creates objects with these numbers in their names.
async fn fill(server: &Server, numbers: std::ops::Range<u64>) -> Result<()> {
    for_each(server, 128, numbers, Change::Create("settings")).await
}

/// Creates some more objects, and deletes them again.
async fn create_extra(server: &Server) -> Result<Cost> {
    let (started, cpu) = (Instant::now(), server.cpu()?);
    for_each(server, 16, 0..EXTRA, Change::Create("extra")).await?;
    let cost = Cost::of(EXTRA as f64, started.elapsed(), server.cpu()? - cpu);
    for_each(server, 16, 0..EXTRA, Change::Delete("extra")).await?;
    Ok(cost)
}

/// A change to objects with a name prefix.
#[derive(Debug, Clone, Copy)]
enum Change {
    Create(&'static str),
    Delete(&'static str),
}

impl Change {
    async fn make(self, client: &mut Client, number: u64) -> Result<()> {
        match self {
            Self::Create(prefix) => {
                let body = load::config_map(&format!("{prefix}-{number:07}"));
                client.create(CONFIG_MAPS, body).await
            }
            Self::Delete(prefix) => {
                let path = format!("{CONFIG_MAPS}/{prefix}-{number:07}");
                let (status, _) = client.send(Method::DELETE, &path, "".into()).await?;
                if !status.is_success() {
                    bail!("{path}: {status}");
                }
                Ok(())
            }
        }
    }
}

/// Reads the first page repeatedly.
async fn read_pages(server: &Server) -> Result<Cost> {
    let mut client = Client::connect(server.port).await?;
    let path = format!("{CONFIG_MAPS}?limit=500");
    let (started, cpu) = (Instant::now(), server.cpu()?);
    for _ in 0..PAGES {
        let (status, _) = client.send(Method::GET, &path, "".into()).await?;
        if !status.is_success() {
            bail!("{path}: {status}");
        }
    }
    Ok(Cost::of(
        f64::from(PAGES),
        started.elapsed(),
        server.cpu()? - cpu,
    ))
}

/// Applies a change for every number, with this many connections.
async fn for_each(
    server: &Server,
    connections: usize,
    numbers: std::ops::Range<u64>,
    change: Change,
) -> Result<()> {
    let next = Arc::new(AtomicU64::new(numbers.start));
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let mut client = Client::connect(server.port).await?;
        let next = Arc::clone(&next);
        senders.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= numbers.end {
                    return anyhow::Ok(());
                }
                change.make(&mut client, number).await?;
            }
        });
    }
    while let Some(result) = senders.join_next().await {
        result??;
    }
    Ok(())
}

/// Starts watchers, and changes objects.
async fn watch(server: &Server, watchers: usize) -> Result<Watches> {
    let mut client = Client::connect(server.port).await?;
    let list = format!("{CONFIG_MAPS}?limit=1");
    let (_, list) = client.send(Method::GET, &list, "".into()).await?;
    let list: Value = serde_json::from_slice(&list)?;
    let version = list["metadata"]["resourceVersion"].as_str();
    let path = format!(
        "{CONFIG_MAPS}?watch=true&resourceVersion={}",
        version.context("a list without a version")?
    );
    let mut watches = tokio::task::JoinSet::new();
    for number in 0..watchers {
        let connecting = async { Client::connect(server.port).await?.watch(&path).await };
        let Ok(mut events) = connecting.await else {
            eprintln!("  no more than {number} can connect");
            break;
        };
        watches.spawn(async move {
            for _ in 0..CHANGES {
                events.next().await?;
            }
            anyhow::Ok(())
        });
    }
    let watchers = watches.len();
    let megabytes = server.megabytes()?;
    let (started, cpu) = (Instant::now(), server.cpu()?);
    for number in 0..CHANGES {
        let body = load::config_map(&format!("watched-{watchers}-{number}"));
        client.create(CONFIG_MAPS, body).await?;
    }
    while let Some(result) = watches.join_next().await {
        result??;
    }
    let events = (watchers * CHANGES) as f64;
    Ok(Watches {
        watchers,
        megabytes,
        cpu_microseconds_per_event: (server.cpu()? - cpu).as_secs_f64() * 1e6 / events,
        events_per_second: events / started.elapsed().as_secs_f64(),
    })
}

impl Report {
    /// The human-readable figures.
    pub fn table(&self) -> String {
        let mut text = format!(
            "The disk syncs {:.0} times a second. Load average {}.\n\n\
             | | On disk | In memory |\n|---|--:|--:|\n",
            self.syncs_per_second, self.load_average
        );
        let mut row = |name: String, disk: String, memory: String| {
            text.push_str(&format!("| {name} | {disk} | {memory} |\n"));
        };
        for (disk, memory) in self.disk.creates.iter().zip(&self.memory.creates) {
            let show = |creates: &Creates| {
                format!(
                    "{:.0}/s, {:.0} µs of CPU",
                    creates.per_second, creates.cpu_microseconds
                )
            };
            let name = format!("creates, {} connections", disk.connections);
            row(name, show(disk), show(memory));
        }
        for (disk, memory) in self.disk.sizes.iter().zip(&self.memory.sizes) {
            let show = |size: &Size| {
                let start = size.start.map(|start| format!(", start {start:.0} ms"));
                format!(
                    "{:.1} MB, {:.1} % CPU idle, create {:.0}/s and {:.0} µs of CPU, page {:.0}/s and {:.0} µs of CPU{}",
                    size.megabytes,
                    size.idle_cpu_percent,
                    size.create.per_second,
                    size.create.cpu_microseconds,
                    size.page.per_second,
                    size.page.cpu_microseconds,
                    start.unwrap_or_default(),
                )
            };
            row(
                format!("{} objects", disk.objects),
                show(disk),
                show(memory),
            );
        }
        for (disk, memory) in self.disk.watches.iter().zip(&self.memory.watches) {
            let show = |watches: &Watches| {
                format!(
                    "{:.1} MB, {:.0} events/s, {:.1} µs of CPU each",
                    watches.megabytes,
                    watches.events_per_second,
                    watches.cpu_microseconds_per_event
                )
            };
            row(
                format!("{} watchers", disk.watchers),
                show(disk),
                show(memory),
            );
        }
        let show = |time: Option<f64>, unit: &str| {
            time.map_or_else(String::new, |time| format!("{time:.0} {unit}"))
        };
        let disk = &self.disk;
        row(
            String::from("restart after a kill"),
            show(disk.restart_after_kill, "ms"),
            String::new(),
        );
        row(
            String::from("data file"),
            show(disk.file_megabytes, "MB"),
            String::new(),
        );
        text
    }
}
