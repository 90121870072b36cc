//! The figures, as a table for people, as JSON, and in `docs/performance.md`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use serde::Serialize;

/// Where the table goes in a page.
const BEGIN: &str = "<!-- bench/apiserver/run.sh writes from here -->";
const END: &str = "<!-- to here -->";

/// One figure of one round.
#[derive(Debug)]
pub struct Figure {
    name: String,
    value: f64,
    more_is_better: bool,
}

impl Figure {
    /// A figure of which less is better.
    pub fn cost(name: impl Into<String>, value: f64) -> Self {
        Self {
            name: name.into(),
            value,
            more_is_better: false,
        }
    }

    /// A figure of which more is better.
    pub fn rate(name: impl Into<String>, value: f64) -> Self {
        Self {
            more_is_better: true,
            ..Self::cost(name, value)
        }
    }
}

/// One line: a figure in all rounds of both sides.
#[derive(Debug, Serialize)]
struct Line {
    name: String,
    more_is_better: bool,
    lockgate: Vec<f64>,
    pair: Vec<f64>,
    /// How many times better than the pair, by medians; above 1 is better in every line.
    ratio: Option<f64>,
}

/// All rounds.
#[derive(Debug, Serialize)]
pub struct Report {
    unix_seconds: u64,
    cores: usize,
    seconds_per_load: u64,
    connections: usize,
    lockgate: String,
    pair: Option<String>,
    /// When it began and when it ended: how busy the machine was with everything.
    load_average: [String; 2],
    lines: Vec<Line>,
}

/// How the figures were made.
#[derive(Debug)]
pub struct Conditions {
    pub seconds_per_load: u64,
    pub connections: usize,
    pub lockgate: String,
    pub pair: Option<String>,
    pub load_average: [String; 2],
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// The median, and the range where there were several rounds.
fn shown(values: &[f64]) -> String {
    let Some(median) = median(values) else {
        return String::from("-");
    };
    let number = |value: f64| match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    match values.len() {
        1 => number(median),
        _ => format!("{} ({}–{})", number(median), number(least), number(most)),
    }
}

impl Report {
    /// Puts the rounds of both sides together.
    pub fn new(
        conditions: Conditions,
        lockgate: Vec<Vec<Figure>>,
        pair: Vec<Vec<Figure>>,
    ) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut lines: Vec<Line> = Vec::new();
        let rounds = lockgate.into_iter().map(|round| (false, round));
        for (is_pair, round) in rounds.chain(pair.into_iter().map(|round| (true, round))) {
            for figure in round {
                let known = lines.iter().position(|line| line.name == figure.name);
                let at = known.unwrap_or_else(|| {
                    lines.push(Line {
                        name: figure.name.clone(),
                        more_is_better: figure.more_is_better,
                        lockgate: Vec::new(),
                        pair: Vec::new(),
                        ratio: None,
                    });
                    lines.len() - 1
                });
                let line = &mut lines[at];
                let values = if is_pair { &mut line.pair } else { &mut line.lockgate };
                values.push(figure.value);
            }
        }
        for line in &mut lines {
            if let (Some(ours), Some(theirs)) = (median(&line.lockgate), median(&line.pair)) {
                line.ratio = Some(match line.more_is_better {
                    true => ours / theirs,
                    false => theirs / ours,
                });
            }
        }
        Self {
            unix_seconds: now.map_or(0, |since| since.as_secs()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            seconds_per_load: conditions.seconds_per_load,
            connections: conditions.connections,
            lockgate: conditions.lockgate,
            pair: conditions.pair,
            load_average: conditions.load_average,
            lines,
        }
    }

    fn about(&self) -> String {
        let pair = match &self.pair {
            Some(pair) => format!("; the pair: {pair}"),
            None => String::new(),
        };
        format!(
            "{}{pair}; {} cores, {} connections, {} s per load, load average {} before and {} after",
            self.lockgate,
            self.cores,
            self.connections,
            self.seconds_per_load,
            self.load_average[0],
            self.load_average[1],
        )
    }

    fn rows(&self) -> impl Iterator<Item = [String; 4]> {
        self.lines.iter().map(|line| {
            let ratio = line.ratio.map_or_else(|| String::from("-"), |ratio| format!("{ratio:.1}×"));
            [line.name.clone(), shown(&line.lockgate), shown(&line.pair), ratio]
        })
    }

    /// The table for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let head = ["WHAT", "LOCKGATE", "THE PAIR", "RATIO"].map(str::to_owned);
        for [what, ours, theirs, ratio] in std::iter::once(head).chain(self.rows()) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{what:<52} {ours:>24} {theirs:>24} {ratio:>7}");
        }
        text + "\n" + &self.about() + "\n"
    }

    /// Writes the table into a page, between its two markers.
    pub fn write_into(&self, page: &Path) -> Result<()> {
        let text = std::fs::read_to_string(page)
            .with_context(|| format!("cannot read {}", page.display()))?;
        let markers = text.split_once(BEGIN).and_then(|(before, rest)| {
            let (_, after) = rest.split_once(END)?;
            Some((before, after))
        });
        let (before, after) = markers
            .with_context(|| format!("{} has no place for the table", page.display()))?;
        let mut table = String::from("| What | Lockgate | The pair | Ratio |\n|---|--:|--:|--:|\n");
        for [what, ours, theirs, ratio] in self.rows() {
            let _ = writeln!(table, "| {what} | {ours} | {theirs} | {ratio} |");
        }
        let text = format!("{before}{BEGIN}\n\n{table}\n{}.\n\n{END}{after}", self.about());
        std::fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
    }
}
