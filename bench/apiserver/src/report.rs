//! The figures, as a human-readable table, as JSON, and in `docs/performance.md`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use serde::Serialize;

/// The start marker of the table in a page.
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
    /// A figure where lower is better.
    pub fn cost(name: impl Into<String>, value: f64) -> Self {
        Self {
            name: name.into(),
            value,
            more_is_better: false,
        }
    }

    /// A figure where higher is better.
    pub fn rate(name: impl Into<String>, value: f64) -> Self {
        Self {
            more_is_better: true,
            ..Self::cost(name, value)
        }
    }
}

/// The rounds of all sides.
#[derive(Debug, Default)]
pub struct Rounds {
    pub lockgate: Vec<Vec<Figure>>,
    /// The other build of Lockgate, if any.
    pub before: Vec<Vec<Figure>>,
    pub pair: Vec<Vec<Figure>>,
}

/// One row: a figure in all rounds of all sides.
#[derive(Debug, Serialize)]
struct Line {
    name: String,
    more_is_better: bool,
    lockgate: Vec<f64>,
    before: Vec<f64>,
    pair: Vec<f64>,
    /// The ratio to the other build, by medians.
    of_before: Option<f64>,
    /// The ratio to the reference servers, by medians; above 1 is better.
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
    before: Option<String>,
    pair: Option<String>,
    /// The load average at the start and at the end.
    load_average: [String; 2],
    lines: Vec<Line>,
}

/// The conditions of the measurement.
#[derive(Debug)]
pub struct Conditions {
    pub seconds_per_load: u64,
    pub connections: usize,
    pub lockgate: String,
    pub before: Option<String>,
    pub pair: Option<String>,
    pub load_average: [String; 2],
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// The median, and the range if there were several rounds.
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
    /// Combines the rounds of all sides.
    pub fn new(conditions: Conditions, rounds: Rounds) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut lines: Vec<Line> = Vec::new();
        let sides: [(fn(&mut Line) -> &mut Vec<f64>, _); 3] = [
            (|line| &mut line.lockgate, rounds.lockgate),
            (|line| &mut line.before, rounds.before),
            (|line| &mut line.pair, rounds.pair),
        ];
        for (values, rounds) in sides {
            for figure in rounds.into_iter().flatten() {
                let known = lines.iter().position(|line| line.name == figure.name);
                let at = known.unwrap_or_else(|| {
                    lines.push(Line {
                        name: figure.name.clone(),
                        more_is_better: figure.more_is_better,
                        lockgate: Vec::new(),
                        before: Vec::new(),
                        pair: Vec::new(),
                        of_before: None,
                        ratio: None,
                    });
                    lines.len() - 1
                });
                values(&mut lines[at]).push(figure.value);
            }
        }
        for line in &mut lines {
            let ours = median(&line.lockgate);
            line.of_before = ours
                .zip(median(&line.before))
                .map(|(ours, before)| ours / before);
            line.ratio =
                ours.zip(median(&line.pair))
                    .map(|(ours, theirs)| match line.more_is_better {
                        true => ours / theirs,
                        false => theirs / ours,
                    });
        }
        Self {
            unix_seconds: now.map_or(0, |since| since.as_secs()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            seconds_per_load: conditions.seconds_per_load,
            connections: conditions.connections,
            lockgate: conditions.lockgate,
            before: conditions.before,
            pair: conditions.pair,
            load_average: conditions.load_average,
            lines,
        }
    }

    fn about(&self) -> String {
        let of = |what: &str, side: &Option<String>| match side {
            Some(side) => format!("; {what}: {side}"),
            None => String::new(),
        };
        format!(
            "{}{}{}; {} cores, {} connections, {} s per load, load average {} before and {} after",
            self.lockgate,
            of("before", &self.before),
            of("the pair", &self.pair),
            self.cores,
            self.connections,
            self.seconds_per_load,
            self.load_average[0],
            self.load_average[1],
        )
    }

    /// The header and rows of the table. The other build has columns only if it was measured.
    fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        let has_before = self.before.is_some();
        let mut head = vec!["What", "Lockgate"];
        if has_before {
            head.extend(["Before", "Part of before"]);
        }
        head.extend(["The pair", "Ratio"]);
        let head = head.into_iter().map(str::to_owned).collect();
        let rows = self.lines.iter().map(move |line| {
            let none = || String::from("-");
            let mut row = vec![line.name.clone(), shown(&line.lockgate)];
            if has_before {
                let part = line
                    .of_before
                    .map_or_else(none, |part| format!("{part:.2}"));
                row.extend([shown(&line.before), part]);
            }
            let ratio = line.ratio.map_or_else(none, |ratio| format!("{ratio:.1}×"));
            row.extend([shown(&line.pair), ratio]);
            row
        });
        std::iter::once(head).chain(rows)
    }

    /// The human-readable table.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for row in self.rows() {
            for (at, cell) in row.iter().enumerate() {
                // Writing to a string does not fail.
                let _ = match at {
                    0 => write!(text, "{cell:<52}"),
                    _ => write!(text, " {cell:>22}"),
                };
            }
            text.push('\n');
        }
        text + "\n" + &self.about() + "\n"
    }

    /// Writes the table into a page, between its markers.
    pub fn write_into(&self, page: &Path) -> Result<()> {
        let text = std::fs::read_to_string(page)
            .with_context(|| format!("cannot read {}", page.display()))?;
        let markers = text.split_once(BEGIN).and_then(|(before, rest)| {
            let (_, after) = rest.split_once(END)?;
            Some((before, after))
        });
        let (before, after) =
            markers.with_context(|| format!("{} has no place for the table", page.display()))?;
        let mut table = String::new();
        for (at, row) in self.rows().enumerate() {
            let _ = writeln!(table, "| {} |", row.join(" | "));
            if at == 0 {
                let _ = writeln!(table, "|---|{}", "--:|".repeat(row.len() - 1));
            }
        }
        let text = format!(
            "{before}{BEGIN}\n\n{table}\n{}.\n\n{END}{after}",
            self.about()
        );
        std::fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
    }
}
