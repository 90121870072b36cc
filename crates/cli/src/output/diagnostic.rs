//! Renders a diagnostic: an underlined source range with its message.

use std::fmt;

use lockgate_api::document::Span;
use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError,
    MietteSpanContents, SourceCode, SourceSpan, SpanContents,
};

use crate::text::Source;

/// The length above which only a part of a line is shown.
const MAX_LINE_BYTES: usize = 400;
const CLIP_BYTES: usize = 100;

/// The severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// An error.
    Error,
    /// A warning.
    Warning,
    /// A note.
    Note,
}

/// A diagnostic to render.
#[derive(Debug)]
pub struct Drawing<'d> {
    /// The severity.
    pub severity: Level,
    /// The heading, such as `error[syntax]`.
    pub code: String,
    /// The message.
    pub message: &'d str,
    /// The suggested fix.
    pub help: Option<&'d str>,
    /// The source text.
    pub source: &'d Source,
    /// The bytes to underline.
    pub span: Span,
    /// The label below the underlined bytes; may be empty.
    pub label: &'d str,
}

/// The renderer.
#[derive(Debug)]
pub struct Artist {
    handler: GraphicalReportHandler,
}

impl Artist {
    /// A renderer with or without colour.
    #[must_use]
    pub fn new(color: bool) -> Self {
        let theme = if color {
            GraphicalTheme::unicode()
        } else {
            GraphicalTheme::unicode_nocolor()
        };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_links(false)
            .with_context_lines(1)
            .with_width(100);
        Self { handler }
    }

    /// The rendered text.
    #[must_use]
    pub fn draw(&self, drawing: &Drawing<'_>) -> String {
        let mut out = String::new();
        let shown = Shown {
            drawing,
            source: IndexedSource(drawing.source),
        };
        // Writing to a String cannot fail.
        let _ = self.handler.render_report(&mut out, &shown);
        out
    }
}

/// The diagnostic for miette.
#[derive(Debug)]
struct Shown<'d> {
    drawing: &'d Drawing<'d>,
    source: IndexedSource<'d>,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.drawing.message)
    }
}

impl std::error::Error for Shown<'_> {}

impl Diagnostic for Shown<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.drawing.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.drawing.severity {
            Level::Error => miette::Severity::Error,
            Level::Warning => miette::Severity::Warning,
            Level::Note => miette::Severity::Advice,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.drawing
            .help
            .map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let range = self.drawing.span.range();
        let text_len = self.source.0.text.len();
        let (start, end) = (range.start.min(text_len), range.end.min(text_len));
        let label = (!self.drawing.label.is_empty()).then(|| self.drawing.label.to_owned());
        let span = LabeledSpan::new_primary_with_span(label, (start, end - start));
        Some(Box::new(std::iter::once(span)))
    }
}

/// A source with a line index. miette's own sources scan the text from its start for every report, which takes minutes
/// for large files with many findings.
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
            // miette uses this for the position in the header, and takes the column from the contents.
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
