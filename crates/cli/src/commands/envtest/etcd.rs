//! The `etcd` stand-in: answers the health checks of test libraries, and stores nothing.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::parent;
use crate::commands::serve::{shutdown_signal, start_logging};
use crate::commands::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::logging::LogArgs;
use crate::output::{ColorChoice, Printer};

/// The reported version of etcd.
const VERSION: &str = "3.6.8";

/// The maximum number of open connections.
const CONNECTIONS: usize = 256;

/// The timeout for a request head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

const HELP: &str = "\
Lockgate as etcd, for tests: answers health checks and stores nothing. Its kube-apiserver keeps objects
in memory. See docs/envtest.md.

Usage:

  etcd [flags]

Flags:

  --listen-client-urls 'http://localhost:2379'
    Comma-separated list of URLs to answer /health, /readyz, /livez and /version on.
  --data-dir 'default.etcd'
    Directory to create; nothing is written to it.
  --unsafe-no-fsync 'false'
    Accepted: nothing is written.
  --exit-with-parent 'true'
    Exit when the parent process exits.
  --version
    Print the version.

All other etcd flags are accepted and ignored.
";

/// The flags of a command line: one dash or two, and values after `=` or a space.
fn parse(
    arguments: impl IntoIterator<Item = String>,
) -> Result<BTreeMap<String, String>, CommandError> {
    let mut flags = BTreeMap::new();
    let mut arguments = arguments.into_iter().peekable();
    while let Some(argument) = arguments.next() {
        let flag = argument
            .strip_prefix("--")
            .or_else(|| argument.strip_prefix('-'));
        let Some(flag) = flag.filter(|flag| !flag.is_empty()) else {
            return Err(CommandError::failed(format!(
                "`{argument}` is not a valid flag"
            )));
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => {
                let value = arguments.next_if(|next| !next.starts_with('-'));
                (
                    flag.to_owned(),
                    value.unwrap_or_else(|| String::from("true")),
                )
            }
        };
        flags.insert(name, value);
    }
    Ok(flags)
}

/// `host:port` of each URL.
fn addresses(urls: &str) -> Result<Vec<String>, CommandError> {
    let address = |url: &str| {
        let rest = url.trim().strip_prefix("http://").ok_or_else(|| {
            CommandError::failed(format!("cannot listen on `{url}`: expected an http:// URL"))
        })?;
        Ok(rest.split('/').next().unwrap_or(rest).to_owned())
    };
    urls.split(',').map(address).collect()
}

/// Serves until SIGTERM or SIGINT, or until the parent process exits.
pub(super) fn run(arguments: impl IntoIterator<Item = String>) -> Result<ExitCode, Stop> {
    let flags = parse(arguments)?;
    let given = |names: [&str; 2]| names.iter().any(|name| flags.contains_key(*name));
    let mut printer = Printer::to_stdout(ColorChoice::Never);
    if given(["help", "h"]) {
        printer.text(HELP)?;
        printer.flush()?;
        return Ok(ExitCode::Done);
    }
    if given(["version", "version"]) {
        printer.line(&format!("etcd Version: {VERSION}"))?;
        printer.flush()?;
        return Ok(ExitCode::Done);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            CommandError::failed(format!("cannot start the async runtime: {error}"))
        })?;
    Ok(runtime.block_on(serve(&flags))?)
}

async fn serve(flags: &BTreeMap<String, String>) -> Result<ExitCode, CommandError> {
    start_logging(&LogArgs::default())?;
    let shutdown = shutdown_signal()?;
    let folder = flags.get("data-dir").map_or("default.etcd", String::as_str);
    std::fs::create_dir_all(folder)
        .map_err(|error| CommandError::failed(format!("cannot create `{folder}`: {error}")))?;
    let urls = flags.get("listen-client-urls");
    let mut listening = tokio::task::JoinSet::new();
    let limit = Arc::new(Semaphore::new(CONNECTIONS));
    for address in addresses(urls.map_or("http://localhost:2379", String::as_str))? {
        let listener = TcpListener::bind(&address).await.map_err(|error| {
            CommandError::failed(format!("cannot listen on {address}: {error}"))
        })?;
        tracing::info!(
            address,
            "serving health checks only, objects are not stored here"
        );
        listening.spawn(accept(listener, Arc::clone(&limit)));
    }
    let orphaned = async {
        match flags.get("exit-with-parent").map(String::as_str) {
            Some("false") => std::future::pending().await,
            _ => parent::exited().await,
        }
    };
    tokio::select! {
        _ = shutdown => {}
        () = orphaned => tracing::warn!("parent process exited, shutting down"),
    }
    Ok(ExitCode::Done)
}

async fn accept(listener: TcpListener, limit: Arc<Semaphore>) {
    loop {
        let Ok(permit) = Arc::clone(&limit).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((socket, _)) => {
                tokio::spawn(async move {
                    let _permit = permit;
                    connection(socket).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(socket: TcpStream) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(socket), service_fn(answer))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection ended");
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, body) = match request.uri().path() {
        "/health" => (
            StatusCode::OK,
            String::from("{\"health\":\"true\",\"reason\":\"\"}"),
        ),
        "/readyz" | "/livez" => (StatusCode::OK, String::from("ok\n")),
        "/version" => (
            StatusCode::OK,
            format!(
                "{{\"etcdserver\":\"{VERSION}\",\"etcdcluster\":\"3.6.0\",\"storage\":\"3.6.0\"}}"
            ),
        ),
        _ => (StatusCode::NOT_FOUND, String::from("404 page not found\n")),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_flags_as_go_does() {
        let line = "-data-dir X -wal-dir=Y --unsafe-no-fsync --listen-client-urls=http://a:1,http://b:2 --force";
        let flags = parse(line.split(' ').map(str::to_owned)).unwrap();
        assert_eq!(flags["data-dir"], "X");
        assert_eq!(flags["wal-dir"], "Y");
        assert_eq!(flags["unsafe-no-fsync"], "true");
        assert_eq!(flags["force"], "true");
        assert_eq!(
            addresses(&flags["listen-client-urls"]).unwrap(),
            ["a:1", "b:2"]
        );
        assert!(parse([String::from("start")]).is_err());
        assert!(addresses("unix://x").is_err());
        assert_eq!(addresses("http://127.0.0.1:7/").unwrap(), ["127.0.0.1:7"]);
    }

    #[test]
    fn names_the_flags_that_are_looked_for() {
        assert!(
            HELP.lines()
                .any(|line| line.trim_start().starts_with("--unsafe-no-fsync "))
        );
    }
}
