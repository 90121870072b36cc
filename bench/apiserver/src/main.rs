//! Measures Lockgate's API server and, when its binaries are named, kube-apiserver with etcd: the time to
//! start, the memory when idle, and what creating ConfigMaps costs with no, one, two and ten webhooks.
//!
//! The sides never run at the same time. The load and the webhooks are made by this process, so that the
//! CPU time of a server is its own, and are the same for both.

mod client;
mod hostile;
mod load;
mod process;
mod report;
mod side;
mod storage;
mod webhook;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};

use crate::load::Scenario;
use crate::report::{Measured, Report};
use crate::side::{Lockgate, Pair, Side};
use crate::webhook::Webhooks;

/// Lockgate's API server beside kube-apiserver with etcd
#[derive(Debug, Parser)]
struct Args {
    /// The binary of Lockgate
    #[arg(long, env = "LOCKGATE", value_name = "FILE")]
    lockgate: PathBuf,
    /// The binary of kube-apiserver; without it Lockgate runs alone
    #[arg(long, env = "KUBE_APISERVER", value_name = "FILE", requires = "etcd")]
    kube_apiserver: Option<PathBuf>,
    /// The binary of etcd
    #[arg(long, env = "ETCD", value_name = "FILE")]
    etcd: Option<PathBuf>,
    /// How long each load is measured [default: 6]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// How many connections send requests, each one after the other
    #[arg(long, default_value_t = 16, value_name = "NUMBER")]
    connections: usize,
    /// How often each side is started
    #[arg(long, default_value_t = 5, value_name = "NUMBER")]
    starts: usize,
    /// Measure storage instead: creates on the disk of this folder, memory with many objects and watchers,
    /// and how long a restart takes
    #[arg(long, value_name = "DIR")]
    storage: Option<PathBuf>,
    /// Measure an honest client beside so many hostile ones instead, for a minute unless --seconds says
    /// otherwise
    #[arg(long, value_name = "CLIENTS")]
    hostile: Option<usize>,
    /// How the figures are printed
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Args {
    fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(6)
    }
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Output {
    #[default]
    Table,
    Json,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let args = Args::parse();
    // The servers are stopped by leaving this function, also when a person has seen enough.
    if let Some(folder) = &args.storage {
        let report = tokio::select! {
            report = storage::measure(&args.lockgate, folder, args.seconds()) => report?,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        };
        match args.output {
            Output::Table => print!("{}", report.table()),
            Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
        }
        return Ok(());
    }
    if let Some(clients) = args.hostile {
        let seconds = args.seconds.unwrap_or(60);
        let report = tokio::select! {
            report = hostile::measure(&args.lockgate, clients, seconds) => report?,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        };
        match args.output {
            Output::Table => print!("{}", report.table()),
            Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
        }
        return Ok(());
    }
    let report = tokio::select! {
        report = measure_all(&args) => report?,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
    };
    match args.output {
        Output::Table => print!("{}", report.table()),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    Ok(())
}

async fn measure_all(args: &Args) -> Result<Report> {
    let webhooks = Webhooks::start().await?;
    let ours = measure(&Lockgate::new(&args.lockgate), &webhooks, args).await?;
    let theirs = match (&args.kube_apiserver, &args.etcd) {
        (Some(kube_apiserver), Some(etcd)) => {
            Some(measure(&Pair::new(kube_apiserver, etcd), &webhooks, args).await?)
        }
        _ => {
            eprintln!("KUBE_APISERVER and ETCD name no binaries: the pair is left out");
            None
        }
    };
    Ok(Report::new(ours, theirs, args.seconds(), args.connections))
}

async fn measure(side: &impl Side, webhooks: &Webhooks, args: &Args) -> Result<Measured> {
    let version = side.version().await?;
    eprintln!("{version} (load average {})", process::load_average());
    let mut starts = Vec::new();
    for _ in 1..args.starts.max(1) {
        let running = side.start().await?;
        starts.push(running.took);
        running.stop().await;
    }
    let running = side.start().await?;
    starts.push(running.took);
    starts.sort_unstable();
    let start = starts[starts.len() / 2];
    eprintln!("  started in {:.1} ms", start.as_secs_f64() * 1000.0);
    // Long enough for what a server still does after it said it was ready.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let resident_bytes = running.resident_bytes()?;
    eprintln!("  idle with {:.1} MB", resident_bytes as f64 / 1e6);
    let mut loads = Vec::new();
    for scenario in Scenario::ALL {
        let duration = Duration::from_secs(args.seconds());
        let load = load::run(&running, webhooks, scenario, args.connections, duration).await?;
        eprintln!(
            "  {}: {:.0} creates/s, {:.1} µs of CPU each",
            scenario.name, load.creates_per_second, load.cpu_microseconds
        );
        loads.push(load);
    }
    let loaded_bytes = running.resident_bytes()?;
    running.stop().await;
    Ok(Measured {
        version,
        start_milliseconds: start.as_secs_f64() * 1000.0,
        idle_megabytes: resident_bytes as f64 / 1e6,
        loaded_megabytes: loaded_bytes as f64 / 1e6,
        loads,
    })
}
