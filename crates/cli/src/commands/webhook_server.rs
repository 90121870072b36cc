//! The webhook servers of `lockgate plugins serve` and `lockgate capture webhook`: their flags, and running one.

use std::error::Error;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lockgate_certs::{Authority, Leaf};
use lockgate_webhook::Webhooks;
use lockgate_webhook::server::{Certificates, Server};

use super::serve::parse_interval;
use super::{CommandError, Stop};
use crate::output::Printer;

/// Flags of a webhook server.
#[derive(Debug, Args)]
pub(super) struct WebhookServerArgs {
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind_address: IpAddr,

    /// Port to listen on; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value_t = 9443)]
    secure_port: u16,

    /// Directory with tls.crt and tls.key, which are reloaded when they change
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present = "self_signed",
        conflicts_with = "self_signed"
    )]
    cert_dir: Option<PathBuf>,

    /// Generate a certificate for these DNS names and IP addresses, with a new CA per process
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    self_signed: Vec<String>,

    /// Write the CA certificate of --self-signed to this file, for caBundle
    #[arg(long, value_name = "FILE", requires = "self_signed")]
    ca_out: Option<PathBuf>,

    /// Time to keep serving after SIGTERM while readiness fails, so that API servers use other replicas
    #[arg(long, default_value = "10s", value_parser = parse_interval, value_name = "DURATION")]
    shutdown_delay_duration: Duration,
}

impl WebhookServerArgs {
    /// The server of these webhooks.
    pub(super) fn server(&self, webhooks: Webhooks, certificates: Certificates) -> Server {
        Server::new(webhooks)
            .listen((self.bind_address, self.secure_port))
            .certificates(certificates)
            .shutdown_delay(self.shutdown_delay_duration)
    }

    /// The certificates to serve with; `name` is the common name of a generated one.
    pub(super) fn certificates(&self, name: &str) -> Result<Certificates, CommandError> {
        if let Some(directory) = &self.cert_dir {
            return Ok(Certificates::folder(directory));
        }
        let failed = |error: lockgate_certs::Error| {
            CommandError::usage(format!("cannot generate a certificate: {error}"))
        };
        let authority = Authority::new(&format!("{name}-ca")).map_err(failed)?;
        let leaf = Leaf::server(name, self.self_signed.iter().cloned());
        let pair = authority.issue(&leaf).map_err(failed)?;
        match &self.ca_out {
            Some(file) => std::fs::write(file, authority.pem()).map_err(|error| {
                CommandError::failed(format!("cannot write `{}`: {error}", file.display()))
            })?,
            None => {
                Printer::note("the generated CA is not stored: set --ca-out to get the caBundle")
            }
        }
        Ok(Certificates::pem(pair.certificate_pem, pair.key_pem))
    }
}

/// Serves until SIGTERM or SIGINT. Prints the URL with this path when the server is ready.
pub(super) async fn run(
    server: Server,
    path: &str,
    printer: &mut Printer,
    started: impl FnOnce(SocketAddr),
) -> Result<(), Stop> {
    let running = server
        .start()
        .await
        .map_err(|error| failed("cannot serve", &error))?;
    let address = running.address();
    // Whoever reads the URL may send a signal at once.
    let terminated = running.until_terminated();
    started(address);
    printer.line(&format!("https://{address}{path}"))?;
    printer.flush()?;
    terminated
        .await
        .map_err(|error| failed("cannot wait for signals", &error))?;
    Ok(())
}

fn failed(what: &str, error: &(dyn Error + 'static)) -> CommandError {
    let chain = iter::successors(Some(error), |&error| error.source());
    let message = chain.fold(what.to_owned(), |message, error| {
        format!("{message}: {error}")
    });
    CommandError::failed(message)
}
