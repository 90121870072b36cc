//! The program `shaper-webhooks`.

use std::process::ExitCode;

use clap::Parser;
use shaper_webhooks::config::{Config, Loaded, Logging, PATH_VARIABLE};
use shaper_webhooks::{log, serve};

/// Build information; `n/a` if not set at build time.
const COMMIT: &str = match option_env!("SHAPER_WEBHOOK_COMMIT") {
    Some(commit) => commit,
    None => "n/a",
};
const BUILT: &str = match option_env!("SHAPER_WEBHOOK_BUILT") {
    Some(built) => built,
    None => "n/a",
};

/// The admission webhooks of shaper
///
/// Serves the mutating and validating webhooks of Assignment and Profile over HTTPS, probes and metrics
/// over HTTP, until SIGTERM or SIGINT.
#[derive(Debug, Parser)]
#[command(
    name = "shaper-webhooks",
    version,
    after_help = "\
Environment:
  SHAPER_WEBHOOK_CONFIG_PATH  the YAML configuration file; required

Exit codes: 0 stopped on request, 1 could not start, 2 usage"
)]
struct Args {
    /// Read the configuration, say whether it is right, and end
    #[arg(long)]
    check_config: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let loaded = Config::load(std::env::var_os(PATH_VARIABLE));
    let logging = loaded.as_ref().map_or_else(
        |_| Logging::default(),
        |loaded| loaded.config.logging.clone(),
    );
    log::start(&logging);
    if !args.check_config {
        println!(
            "Starting shaper-webhook version {} ({COMMIT}) {BUILT}",
            env!("CARGO_PKG_VERSION")
        );
    }
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            tracing::error!(
                error = serve::chain(&error),
                "cannot load the configuration"
            );
            return ExitCode::FAILURE;
        }
    };
    for key in &loaded.unknown_keys {
        tracing::warn!(key, "unknown configuration key");
    }
    if args.check_config {
        println!("the configuration is valid");
        return ExitCode::SUCCESS;
    }
    run(&loaded)
}

fn run(loaded: &Loaded) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let served = runtime
        .map_err(|error| serve::chain(&error))
        .and_then(|runtime| {
            runtime.block_on(async {
                let running = serve::start(&loaded.config)
                    .await
                    .map_err(|error| serve::chain(&error))?;
                let webhooks = running.address();
                let probes = running.probes_address();
                let metrics = running.metrics_address();
                // Registered before the addresses are printed, as the process may be stopped from then on.
                let terminated = running.until_terminated();
                tracing::info!(
                    %webhooks,
                    probes = probes.map(tracing::field::display),
                    metrics = metrics.map(tracing::field::display),
                    "serving"
                );
                terminated.await.map_err(|error| serve::chain(&error))
            })
        });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error, "server failed");
            ExitCode::FAILURE
        }
    }
}
