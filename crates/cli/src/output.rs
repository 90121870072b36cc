//! Output: the only module that writes to standard output and standard error.

pub mod diagnostic;
pub mod explanation;
pub mod table;
pub mod test_report;
pub mod trace;

use std::io::{self, BufWriter, IsTerminal as _, Write};

use clap::ValueEnum;

/// When to color output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The output of a command.
pub struct Printer {
    out: Box<dyn Write>,
    color: bool,
}

impl std::fmt::Debug for Printer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Printer")
            .field("color", &self.color)
            .finish_non_exhaustive()
    }
}

impl Printer {
    /// Prints to standard output.
    #[must_use]
    pub fn to_stdout(choice: ColorChoice) -> Self {
        let stdout = io::stdout();
        let color = match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
            }
        };
        Self {
            out: Box::new(BufWriter::new(stdout)),
            color,
        }
    }

    /// Returns `true` when output is colored.
    #[must_use]
    pub fn color(&self) -> bool {
        self.color
    }

    /// Prints a text unchanged.
    ///
    /// # Errors
    ///
    /// The text cannot be written.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())
    }

    /// Prints a line.
    ///
    /// # Errors
    ///
    /// The line cannot be written.
    pub fn line(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.out, "{line}")
    }

    /// Flushes the output.
    ///
    /// # Errors
    ///
    /// The output cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Prints a message to standard error.
    pub fn note(message: &str) {
        // A closed standard error cannot be reported.
        let _ = writeln!(io::stderr(), "{message}");
    }

    /// Prints an error and its help line to standard error.
    pub fn print_error(message: &str, help: Option<&str>) {
        Self::note(&format!("error: {message}"));
        if let Some(help) = help {
            Self::note(&format!("help: {help}"));
        }
    }
}

/// A progress bar, shown only on a terminal.
#[derive(Debug)]
pub struct Progress {
    all: usize,
    done: std::sync::atomic::AtomicUsize,
    is_shown: bool,
    started: std::time::Instant,
}

impl Progress {
    /// The width of the bar.
    const WIDTH: usize = 30;
    /// The delay before the bar is shown.
    const AFTER: std::time::Duration = std::time::Duration::from_millis(500);

    /// A bar for this many steps.
    #[must_use]
    pub fn new(all: usize) -> Self {
        Self {
            all,
            done: std::sync::atomic::AtomicUsize::new(0),
            is_shown: io::stderr().is_terminal() && std::env::var_os("CI").is_none(),
            started: std::time::Instant::now(),
        }
    }

    /// Advances the bar by one step.
    pub fn step(&self) {
        let done = self.done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        let every = (self.all / 100).max(1);
        if self.is_shown && self.started.elapsed() > Self::AFTER && done.is_multiple_of(every) {
            let full = done * Self::WIDTH / self.all.max(1);
            let empty = Self::WIDTH.saturating_sub(full);
            let bar = format!("{}{}", "#".repeat(full), "-".repeat(empty));
            // A closed standard error cannot be reported.
            let _ = write!(io::stderr(), "\r[{bar}] {done}/{}", self.all);
        }
    }

    /// Removes the bar.
    pub fn end(&self) {
        if self.is_shown && self.started.elapsed() > Self::AFTER {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}
