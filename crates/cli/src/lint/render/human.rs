//! For people: each finding with its place underlined, then a table of the configurations.

use std::fmt;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError,
    MietteSpanContents, SourceCode, SourceSpan, SpanContents,
};

use crate::lint::Report;
use crate::lint::check::describe_differences;
use crate::lint::finding::{Finding, Severity};
use crate::lint::source::Source;
use crate::output::table;

/// Lines longer than this are shown around the place only.
const MAX_LINE_BYTES: usize = 400;
const CLIP_BYTES: usize = 100;

/// How to render.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether to use colour.
    pub color: bool,
    /// Show this many findings at most.
    pub max_findings: usize,
    /// Also say which defaults depend on the version.
    pub defaults: bool,
}

/// Renders the report.
#[must_use]
pub fn render(report: &Report, options: &Options) -> String {
    let theme = if options.color {
        GraphicalTheme::unicode()
    } else {
        GraphicalTheme::unicode_nocolor()
    };
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_links(false)
        .with_context_lines(1)
        .with_width(100);
    let mut out = String::new();
    for finding in report.findings.iter().take(options.max_findings) {
        let source = IndexedSource(&report.sources[finding.source]);
        // Writing to a String cannot fail.
        let _ = handler.render_report(&mut out, &Shown { finding, source });
        out.push('\n');
    }
    let hidden = report.findings.len().saturating_sub(options.max_findings);
    if hidden > 0 {
        out.push_str(&format!(
            "… and {hidden} more; --max-findings shows more of them\n\n"
        ));
    }
    if !report.objects.is_empty() {
        out.push_str(&objects(report, options));
    }
    out
}

fn objects(report: &Report, options: &Options) -> String {
    let mut counts = vec![[0_usize; 2]; report.objects.len()];
    for finding in &report.findings {
        if let Some(index) = finding.object {
            match finding.severity {
                Severity::Error => counts[index][0] += 1,
                Severity::Warning => counts[index][1] += 1,
                Severity::Note => {}
            }
        }
    }
    let rows: Vec<Vec<String>> = report
        .objects
        .iter()
        .zip(&counts)
        .map(|(object, [errors, warnings])| {
            let status = if *errors > 0 { "refused" } else { "ok" };
            vec![
                report.sources[object.source].name.clone(),
                object.title(),
                object
                    .api_version
                    .rsplit('/')
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
                status.to_owned(),
                errors.to_string(),
                warnings.to_string(),
            ]
        })
        .collect();
    let mut out = table::render(
        &[
            "FILE",
            "CONFIGURATION",
            "VERSION",
            "STATUS",
            "ERRORS",
            "WARNINGS",
        ],
        &rows,
    );
    if options.defaults {
        let rows: Vec<Vec<String>> = report
            .objects
            .iter()
            .flat_map(|object| {
                let texts = describe_differences(&object.default_differences);
                texts.into_iter().map(|text| vec![object.title(), text])
            })
            .collect();
        out.push('\n');
        out.push_str(&table::render(
            &["CONFIGURATION", "DEFAULT THAT DEPENDS ON THE VERSION"],
            &rows,
        ));
    }
    out
}

/// A finding as miette draws it.
#[derive(Debug)]
struct Shown<'r> {
    finding: &'r Finding,
    source: IndexedSource<'r>,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.finding.message)
    }
}

impl std::error::Error for Shown<'_> {}

impl Diagnostic for Shown<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let Finding { severity, rule, .. } = self.finding;
        Some(Box::new(format!("{}[{}]", severity.name(), rule.name())))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.finding.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
            Severity::Note => miette::Severity::Advice,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.finding
            .help
            .as_ref()
            .map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let range = self.finding.span.range();
        let text_len = self.source.0.text.len();
        let (start, end) = (range.start.min(text_len), range.end.min(text_len));
        let label = (!self.finding.path.is_empty()).then(|| self.finding.path.clone());
        let span = LabeledSpan::new_primary_with_span(label, (start, end - start));
        Some(Box::new(std::iter::once(span)))
    }
}

/// A source that finds lines by its index. miette's own sources scan the text from its start for
/// every report, which takes minutes on large files with many findings.
#[derive(Debug)]
struct IndexedSource<'r>(&'r Source);

impl SourceCode for IndexedSource<'_> {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        lines_before: usize,
        lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let source = self.0;
        let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let last_byte = (span.offset() + span.len())
            .saturating_sub(1)
            .max(span.offset());
        let first_line = source
            .line_of(offset(span.offset()))
            .saturating_sub(lines_before);
        let last_line = source.line_of(offset(last_byte)) + lines_after;
        let mut start = source.line_start(first_line);
        let mut end = source.line_start(last_line + 1);
        let mut line = first_line;
        let mut column = 0;
        if end - start > MAX_LINE_BYTES * (last_line + 1 - first_line) {
            line = source.line_of(offset(span.offset()));
            let line_start = source.line_start(line);
            let window = span.offset().saturating_sub(CLIP_BYTES).max(line_start);
            start = source.text.ceil_char_boundary(window);
            let window = last_byte.min(span.offset() + CLIP_BYTES) + CLIP_BYTES;
            end = source
                .text
                .floor_char_boundary(window.min(source.line_start(line + 1)));
            column = start - line_start;
        }
        if lines_before == 0 {
            // miette asks so for the place in the header, and takes the column from the contents.
            let position = source.position(offset(span.offset()));
            (start, line, column) = (span.offset(), position.line - 1, position.column - 1);
        }
        let text = source
            .text
            .get(start..end)
            .ok_or(MietteError::OutOfBounds)?;
        Ok(Box::new(MietteSpanContents::new_named(
            source.name.clone(),
            text.as_bytes(),
            (start, text.len()).into(),
            line,
            column,
            source.lines(),
        )))
    }
}
