//! `lockgate demo`

use super::Stop;
use crate::exit_code::ExitCode;
use crate::lint::render::{human, summary};
use crate::lint::{MatchConditions, check};
use crate::output::Printer;
use crate::text::Source;

const SAMPLES: [(&str, &str, &str); 2] = [
    (
        "a configuration that a server accepts",
        "good.yaml",
        include_str!("../../samples/good.yaml"),
    ),
    (
        "one that it refuses, and why",
        "bad.yaml",
        include_str!("../../samples/bad.yaml"),
    ),
];

/// Lints two samples and shows what comes of it.
///
/// # Errors
///
/// Standard output cannot be written.
pub fn run(printer: &mut Printer) -> Result<ExitCode, Stop> {
    for (what, name, text) in SAMPLES {
        printer.line(&format!("── lockgate lint -f {name}: {what}\n"))?;
        let report = check::check(vec![Source::new(name, text)], &MatchConditions);
        let options = human::Options {
            color: printer.color(),
            max_findings: 100,
            defaults: true,
        };
        printer.text(&human::render(&report, &options))?;
        printer.line(&format!("\n{}\n", summary(&report)))?;
    }
    Ok(ExitCode::Done)
}
