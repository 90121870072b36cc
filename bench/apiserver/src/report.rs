//! The figures, as a table for people and as JSON.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::load::Load;

/// What one side needs.
#[derive(Debug, Serialize)]
pub struct Measured {
    pub version: String,
    /// The median of all starts.
    pub start_milliseconds: f64,
    pub idle_megabytes: f64,
    /// After all loads, with everything they created.
    pub loaded_megabytes: f64,
    pub loads: Vec<Load>,
}

/// Both sides.
#[derive(Debug, Serialize)]
pub struct Report {
    unix_seconds: u64,
    cores: usize,
    seconds_per_load: u64,
    connections: usize,
    lockgate: Measured,
    pair: Option<Measured>,
    /// How many times better than the pair; above 1 is better in every line.
    ratios: Vec<(String, f64)>,
}

/// One line of the table.
struct Line<'l> {
    what: String,
    decimals: usize,
    figure: Box<dyn Fn(&Measured) -> f64 + 'l>,
    more_is_better: bool,
}

fn lines(ours: &Measured) -> Vec<Line<'_>> {
    let line = |what: &str, decimals, figure: Box<dyn Fn(&Measured) -> f64>| Line {
        what: what.to_owned(),
        decimals,
        figure,
        more_is_better: false,
    };
    let mut lines = vec![
        line(
            "start to ready, ms",
            1,
            Box::new(|side| side.start_milliseconds),
        ),
        line("memory, idle, MB", 1, Box::new(|side| side.idle_megabytes)),
    ];
    for (index, load) in ours.loads.iter().enumerate() {
        let what = format!("CPU per create, {}, µs", load.name);
        lines.push(line(
            &what,
            1,
            Box::new(move |side| side.loads[index].cpu_microseconds),
        ));
    }
    for (index, load) in ours.loads.iter().enumerate() {
        let what = format!("creates per second, {}", load.name);
        let figure = Box::new(move |side: &Measured| side.loads[index].creates_per_second);
        lines.push(Line {
            more_is_better: true,
            ..line(&what, 0, figure)
        });
    }
    lines
}

impl Line<'_> {
    fn ratio(&self, ours: &Measured, theirs: &Measured) -> f64 {
        let (ours, theirs) = ((self.figure)(ours), (self.figure)(theirs));
        if self.more_is_better {
            ours / theirs
        } else {
            theirs / ours
        }
    }
}

impl Report {
    pub fn new(
        lockgate: Measured,
        pair: Option<Measured>,
        seconds_per_load: u64,
        connections: usize,
    ) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let ratios = pair.iter().flat_map(|pair| {
            let lines = lines(&lockgate).into_iter();
            lines.map(|line| (line.what.clone(), line.ratio(&lockgate, pair)))
        });
        Self {
            unix_seconds: now.map_or(0, |since| since.as_secs()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            seconds_per_load,
            connections,
            ratios: ratios.collect(),
            lockgate,
            pair,
        }
    }

    /// The table.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<58} {:>10} {:>10} {:>7}\n",
            "WHAT", "LOCKGATE", "THE PAIR", "RATIO"
        );
        for line in lines(&self.lockgate) {
            let cell = |side: &Measured| format!("{:.*}", line.decimals, (line.figure)(side));
            let theirs = self.pair.as_ref().map_or_else(|| String::from("-"), cell);
            let ratio = self.pair.as_ref().map_or_else(
                || String::from("-"),
                |pair| format!("{:.1}x", line.ratio(&self.lockgate, pair)),
            );
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{:<58} {:>10} {theirs:>10} {ratio:>7}",
                line.what,
                cell(&self.lockgate)
            );
        }
        let pair = self.pair.as_ref().map_or("", |pair| &pair.version);
        let _ = writeln!(
            text,
            "\n{}{}{pair}; {} cores, {} connections, {} s per load",
            self.lockgate.version,
            if pair.is_empty() { "" } else { "; the pair: " },
            self.cores,
            self.connections,
            self.seconds_per_load
        );
        text
    }
}
