//! Logging of long-running commands to standard error.

use clap::{Args, ValueEnum};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

#[cfg(feature = "otel")]
use crate::telemetry::{self, Endpoint};

/// An error of the logging flags.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// `RUST_LOG` is invalid.
    #[error("cannot parse RUST_LOG `{0}`: expected a list of TARGET=LEVEL")]
    Filter(String),
    /// The URL of the collector is invalid.
    #[cfg(feature = "otel")]
    #[error("OTEL_EXPORTER_OTLP_ENDPOINT: {0}")]
    Endpoint(#[from] telemetry::EndpointError),
    /// The export thread did not start.
    #[cfg(feature = "otel")]
    #[error("cannot start the span exporter: {0}")]
    Export(#[from] std::io::Error),
}

/// Flags of logging.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogArgs {
    /// Log verbosely: -v logs at level debug, -vv at level trace
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Lowest level to log [default: info]
    #[arg(long, value_enum, value_name = "LEVEL", conflicts_with = "verbose")]
    log_level: Option<Level>,
    /// Format of log lines
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    log_format: Format,
    /// OpenTelemetry collector to export spans to, such as http://localhost:4318 [env: OTEL_EXPORTER_OTLP_ENDPOINT]
    #[cfg(feature = "otel")]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<Endpoint>,
    /// Traces to export per million; traces sampled by the client are always exported
    #[cfg(feature = "otel")]
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    otlp_sampling_rate_per_million: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One line of text per event
    #[default]
    Text,
    /// One JSON object per event
    Json,
}

impl LogArgs {
    /// The level for this many `-v`.
    #[must_use]
    pub fn with_verbosity(verbose: u8) -> Self {
        Self {
            verbose,
            #[cfg(feature = "otel")]
            otlp_sampling_rate_per_million: 1_000_000,
            ..Self::default()
        }
    }

    /// Installs the subscriber of the process. `RUST_LOG` takes precedence over the flags.
    ///
    /// # Errors
    ///
    /// Fails if `RUST_LOG` is invalid.
    pub fn start(&self) -> Result<(), LoggingError> {
        let filter = self.filter(std::env::var("RUST_LOG").ok())?;
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let lines = match self.log_format {
            Format::Text => lines.with_ansi(false).boxed(),
            Format::Json => lines
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .boxed(),
        };
        let registry = tracing_subscriber::registry().with(lines.with_filter(filter));
        #[cfg(feature = "otel")]
        let registry = registry.with(self.spans()?);
        // A process with a subscriber, such as a test, keeps it.
        let _ = registry.try_init();
        Ok(())
    }

    /// The layer that exports spans, if a collector is set.
    #[cfg(feature = "otel")]
    fn spans<S>(
        &self,
    ) -> Result<Option<impl tracing_subscriber::Layer<S> + Send + Sync>, LoggingError>
    where
        S: tracing::Subscriber + for<'s> tracing_subscriber::registry::LookupSpan<'s>,
    {
        let variable = std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok();
        let endpoint = match (
            &self.otlp_endpoint,
            variable.filter(|text| !text.is_empty()),
        ) {
            (Some(endpoint), _) => endpoint.clone(),
            (None, Some(text)) => text.parse()?,
            (None, None) => return Ok(None),
        };
        let layer = telemetry::layer(endpoint, self.otlp_sampling_rate_per_million)?;
        Ok(Some(layer))
    }

    fn filter(&self, variable: Option<String>) -> Result<Targets, LoggingError> {
        if let Some(text) = variable.filter(|text| !text.trim().is_empty()) {
            return text.parse().map_err(|_| LoggingError::Filter(text));
        }
        let level = match (self.log_level, self.verbose) {
            (Some(Level::Error), _) => LevelFilter::ERROR,
            (Some(Level::Warn), _) => LevelFilter::WARN,
            (Some(Level::Info), _) | (None, 0) => LevelFilter::INFO,
            (Some(Level::Debug), _) | (None, 1) => LevelFilter::DEBUG,
            (Some(Level::Trace), _) | (None, _) => LevelFilter::TRACE,
        };
        // Other crates log only warnings and errors: at debug they log the bytes of connections.
        Ok(Targets::new()
            .with_default(level.min(LevelFilter::WARN))
            .with_target("lockgate", level))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level as Severity;

    #[test]
    fn rust_log_comes_before_the_flags() {
        let args = LogArgs {
            verbose: 2,
            ..LogArgs::default()
        };
        let ours = "lockgate_apiserver::pipeline";
        let filter = args.filter(None).unwrap();
        assert!(filter.would_enable(ours, &Severity::TRACE));
        assert!(!filter.would_enable("hyper", &Severity::INFO));
        let filter = args.filter(Some(String::from("warn,hyper=debug"))).unwrap();
        assert!(!filter.would_enable(ours, &Severity::INFO));
        assert!(filter.would_enable("hyper::proto", &Severity::DEBUG));
        let wrong = args.filter(Some(String::from("lockgate=loud")));
        assert_eq!(
            wrong.unwrap_err().to_string(),
            "cannot parse RUST_LOG `lockgate=loud`: expected a list of TARGET=LEVEL"
        );
    }

    #[test]
    fn logs_info_unless_told_otherwise() {
        let quiet = LogArgs::default().filter(Some(String::from("  "))).unwrap();
        assert!(quiet.would_enable("lockgate_store", &Severity::INFO));
        assert!(!quiet.would_enable("lockgate_store", &Severity::DEBUG));
    }
}
