//! Serves the webhook of the upstream end-to-end tests.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use lockgate_webhook::server::{Certificates, ProbePaths, Server};

/// Starts an HTTPS server, useful for testing mutating and validating webhooks.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// File with the certificate for HTTPS, and those of its issuers after it.
    #[arg(long)]
    tls_cert_file: PathBuf,
    /// File with the private key of the certificate.
    #[arg(long)]
    tls_private_key_file: PathBuf,
    /// Port that the webhook listens on.
    #[arg(long, default_value_t = 443)]
    port: u16,
    /// Image of the sidecar that is injected.
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    sidecar_image: Option<String>,
    /// Port where `/readyz` is answered without TLS.
    #[arg(long, default_value_t = 8081)]
    probe_port: u16,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let certificate = std::fs::read(&arguments.tls_cert_file)?;
    let key = std::fs::read(&arguments.tls_private_key_file)?;
    let everywhere = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let running = Server::new(e2e_webhook::webhooks(arguments.sidecar_image))
        .listen(everywhere(arguments.port))
        .certificates(Certificates::pem(certificate, key))
        .probes(everywhere(arguments.probe_port), ProbePaths::default())
        .shutdown_delay(Duration::ZERO)
        .start()
        .await?;
    eprintln!("listening at {}", running.address());
    running.until_terminated().await?;
    Ok(())
}
