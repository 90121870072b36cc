//! Logging.

use tracing::level_filters::LevelFilter;

use crate::config::{Format, Level, Logging};

/// Starts logging to standard error.
pub fn start(logging: &Logging) {
    let level = match logging.level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr);
    // A second call, as in tests, keeps the first subscriber.
    let started = match logging.format {
        Format::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .try_init(),
        Format::Text => lines.with_ansi(false).try_init(),
    };
    drop(started);
}
