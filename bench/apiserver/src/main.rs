//! Measures Lockgate's API server and, if its binaries are given, kube-apiserver with etcd: the startup time, the idle
//! memory, and the CPU time of creating ConfigMaps with no, one, two and ten webhooks, and of reading, patching and
//! watching them.
//!
//! The sides never run at the same time. The load and the webhooks run in this process, so that they are not part of a
//! server's CPU time, and are the same for both.

mod client;
mod curves;
mod hostile;
mod load;
mod on_etcd;
mod policies;
mod process;
mod reads;
mod report;
mod side;
mod storage;
mod webhook;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};

use crate::load::Scenario;
use crate::report::{Conditions, Figure, Report, Rounds};
use crate::side::{Lockgate, Pair, Side};
use crate::webhook::Webhooks;

/// Lockgate's API server beside kube-apiserver with etcd
#[derive(Debug, Parser)]
struct Args {
    /// The binary of Lockgate
    #[arg(long, env = "LOCKGATE", value_name = "FILE")]
    lockgate: PathBuf,
    /// Another build of Lockgate, which is measured in turn with it
    #[arg(long, env = "LOCKGATE_BEFORE", value_name = "FILE")]
    before: Option<PathBuf>,
    /// The binary of kube-apiserver; without it Lockgate runs alone
    #[arg(long, env = "KUBE_APISERVER", value_name = "FILE", requires = "etcd")]
    kube_apiserver: Option<PathBuf>,
    /// The binary of etcd
    #[arg(long, env = "ETCD", value_name = "FILE")]
    etcd: Option<PathBuf>,
    /// Duration of each load in seconds [default: 6]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Number of connections, each sending one request after another
    #[arg(long, default_value_t = 16, value_name = "NUMBER")]
    connections: usize,
    /// Number of alternating measurements of each side
    #[arg(long, default_value_t = 3, value_name = "NUMBER")]
    rounds: usize,
    /// Write the table into this page as well, between the markers it has for it
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Measure storage instead: creates on the disk of this folder, memory with many objects and watchers,
    /// and how long a restart takes
    #[arg(long, value_name = "DIR")]
    storage: Option<PathBuf>,
    /// Measure an honest client beside so many hostile ones instead, for a minute unless --seconds says
    /// otherwise
    #[arg(long, value_name = "CLIENTS")]
    hostile: Option<usize>,
    /// Only these kinds of hostile clients, by their number in the report, from 0
    #[arg(
        long,
        value_name = "NUMBERS",
        value_delimiter = ',',
        requires = "hostile"
    )]
    kinds: Vec<usize>,
    /// Measure admission policies instead; 100 for all of them, less for a quick look
    #[arg(long, value_name = "PERCENT")]
    policies: Option<usize>,
    /// Measure how the cost of a create grows instead: with webhooks, policies, match conditions, size, connections
    #[arg(long)]
    curves: bool,
    /// Measure both on an etcd each instead, with so many objects: latencies, memory, LIST, watchers, start
    #[arg(long, value_name = "OBJECTS", requires = "etcd")]
    on_etcd: Option<u64>,
    /// Watchers of --on-etcd
    #[arg(long, default_value_t = 1000, value_name = "NUMBER")]
    watchers: usize,
    /// Measure --storage up to 1,000,000 objects and 10,000 watchers
    #[arg(long, requires = "storage")]
    growth: bool,
    /// Output format
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
    // Returning from this function stops the servers, also on an interrupt.
    if let Some(folder) = &args.storage {
        let report = tokio::select! {
            report = storage::measure(&args.lockgate, folder, args.seconds(), args.growth) => report?,
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
            report = hostile::measure(&args.lockgate, clients, &args.kinds, seconds) => report?,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        };
        match args.output {
            Output::Table => print!("{}", report.table()),
            Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
        }
        return Ok(());
    }
    if args.curves {
        let sides = tokio::select! {
            sides = measure_curves(&args) => sides?,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        };
        match args.output {
            Output::Table => print!("{}", curves::tables(&sides)),
            Output::Json => println!("{}", serde_json::to_string_pretty(&sides)?),
        }
        return Ok(());
    }
    if let Some(objects) = args.on_etcd {
        let sides = tokio::select! {
            sides = measure_on_etcd(&args, objects) => sides?,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        };
        match args.output {
            Output::Table => print!("{}", on_etcd::table(&sides)),
            Output::Json => println!("{}", serde_json::to_string_pretty(&sides)?),
        }
        return Ok(());
    }
    if let Some(percent) = args.policies {
        let size = policies::Size::of(percent, args.seconds.unwrap_or(20));
        let sides = tokio::select! {
            sides = measure_policies(&args, size) => sides?,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        };
        match args.output {
            Output::Table => print!("{}", policies::table(&sides)),
            Output::Json => println!("{}", serde_json::to_string_pretty(&sides)?),
        }
        return Ok(());
    }
    let report = tokio::select! {
        report = measure_all(&args) => report?,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
    };
    if let Some(page) = &args.page {
        report.write_into(page)?;
    }
    match args.output {
        Output::Table => print!("{}", report.table()),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    Ok(())
}

async fn measure_on_etcd(args: &Args, objects: u64) -> Result<Vec<on_etcd::Figures>> {
    let Some(etcd) = &args.etcd else {
        bail!("ETCD names no binary");
    };
    let (watchers, seconds) = (args.watchers, args.seconds());
    let lockgate = Lockgate::on_etcd(&args.lockgate, etcd);
    let mut sides = vec![on_etcd::measure(&lockgate, objects, watchers, seconds).await?];
    if let Some(kube_apiserver) = &args.kube_apiserver {
        let pair = Pair::new(kube_apiserver, etcd);
        sides.push(on_etcd::measure(&pair, objects, watchers, seconds).await?);
    }
    Ok(sides)
}

async fn measure_curves(args: &Args) -> Result<Vec<curves::Figures>> {
    let seconds = args.seconds.unwrap_or(2);
    let mut sides = vec![curves::measure(&Lockgate::new(&args.lockgate), seconds).await?];
    if let (Some(kube_apiserver), Some(etcd)) = (&args.kube_apiserver, &args.etcd) {
        let pair = Pair::new(kube_apiserver, etcd);
        sides.push(curves::measure(&pair, seconds).await?);
    }
    Ok(sides)
}

async fn measure_policies(args: &Args, size: policies::Size) -> Result<Vec<policies::Figures>> {
    let mut sides = vec![policies::measure(&Lockgate::new(&args.lockgate), size).await?];
    if let (Some(kube_apiserver), Some(etcd)) = (&args.kube_apiserver, &args.etcd) {
        let pair = Pair::new(kube_apiserver, etcd);
        sides.push(policies::measure(&pair, size).await?);
    }
    Ok(sides)
}

async fn measure_all(args: &Args) -> Result<Report> {
    let webhooks = Webhooks::start().await?;
    let lockgate = Lockgate::new(&args.lockgate);
    let pair = match (&args.kube_apiserver, &args.etcd) {
        (Some(kube_apiserver), Some(etcd)) => Some(Pair::new(kube_apiserver, etcd)),
        _ => {
            eprintln!("KUBE_APISERVER and ETCD name no binaries: the pair is left out");
            None
        }
    };
    let other_build = args.before.as_deref().map(Lockgate::new);
    let load_before = process::load_average();
    let mut rounds = Rounds::default();
    // The sides alternate, so that other load on the machine affects both.
    for round in 1..=args.rounds.max(1) {
        eprintln!("round {round} of {}", args.rounds.max(1));
        rounds
            .lockgate
            .push(measure(&lockgate, &webhooks, args).await?);
        if let Some(other_build) = &other_build {
            rounds
                .before
                .push(measure(other_build, &webhooks, args).await?);
        }
        if let Some(pair) = &pair {
            rounds.pair.push(measure(pair, &webhooks, args).await?);
        }
    }
    let conditions = Conditions {
        seconds_per_load: args.seconds(),
        connections: args.connections,
        lockgate: lockgate.version().await?,
        before: args.before.as_ref().map(|file| file.display().to_string()),
        pair: match &pair {
            Some(pair) => Some(pair.version().await?),
            None => None,
        },
        load_average: [load_before, process::load_average()],
    };
    Ok(Report::new(conditions, rounds))
}

/// Measures one side in one round.
async fn measure(side: &impl Side, webhooks: &Webhooks, args: &Args) -> Result<Vec<Figure>> {
    let running = side.start().await?;
    let start = running.took.as_secs_f64() * 1000.0;
    eprintln!("  {}: started in {start:.1} ms", side.version().await?);
    // Until background work after readiness is complete.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let idle = running.resident_bytes()? as f64 / 1e6;
    let mut figures = vec![
        Figure::cost("start to ready, ms", start),
        Figure::cost("memory, idle, MB", idle),
    ];
    let duration = Duration::from_secs(args.seconds());
    let mut rates = Vec::new();
    for scenario in Scenario::ALL {
        let load = load::run(&running, webhooks, scenario, args.connections, duration).await?;
        eprintln!(
            "    {}: {:.0} creates/s, {:.1} µs of CPU each",
            scenario.name, load.creates_per_second, load.cpu_microseconds
        );
        let name = scenario.name;
        figures.push(Figure::cost(
            format!("CPU per create, {name}, µs"),
            load.cpu_microseconds,
        ));
        rates.push(Figure::rate(
            format!("creates per second, {name}"),
            load.creates_per_second,
        ));
    }
    figures.extend(rates);
    running.stop().await;
    // Reads use a server without previous load.
    let running = side.start().await?;
    figures.extend(reads::run(&running, duration).await?);
    running.stop().await;
    Ok(figures)
}
