//! `lockgate store`: copies stored objects between data directories and etcd clusters.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use lockgate_apiserver::{KubernetesLayout, store_options, time_to_live};
use lockgate_store::{
    DiskStore, EtcdError, EtcdOptions, EtcdStore, List, OpenError, RestoreError, RestoreOptions,
    Revision, Snapshot, SnapshotEntry, SnapshotReader, Store, WriteError,
};

use super::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::output::{Printer, Progress};

/// The number of concurrent writes.
const AT_ONCE: usize = 64;
/// The page size of a list.
const PAGE: usize = 1000;
/// CustomResourceDefinitions, which contain the kinds of custom objects.
const DEFINITIONS: &str = "/apiextensions.k8s.io/customresourcedefinitions/";

/// Copy stored objects between data directories and etcd clusters
#[derive(Debug, Args)]
pub struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Copy all objects to another directory or etcd cluster
    Copy(Box<CopyArgs>),
}

/// Copy all objects to another directory or etcd cluster
#[derive(Debug, Args)]
#[command(after_help = "\
Objects keep their uids. In a data directory they also keep their resourceVersions; etcd assigns new, higher ones,
so that clients relist. Certificates and token keys are not copied: start the new servers with the same --cert-dir.

Stop the servers first: writes during the copy are not copied.

Examples:
  lockgate store copy --from /var/lib/lockgate --to https://a:2379,https://b:2379 \\
    --etcd-cafile ca.crt --etcd-certfile client.crt --etcd-keyfile client.key
  lockgate store copy --from http://127.0.0.1:2379 --to /var/lib/lockgate")]
struct CopyArgs {
    /// Data directory, or comma-separated URLs of etcd members
    #[arg(long, value_name = "DIR|URLS")]
    from: StoreLocation,
    /// Data directory, or comma-separated URLs of etcd members
    #[arg(long, value_name = "DIR|URLS")]
    to: StoreLocation,
    /// Replace existing objects
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    etcd: EtcdArgs,
}

/// Flags of the etcd client.
#[derive(Debug, Clone, Args)]
pub(super) struct EtcdArgs {
    /// CA bundle that verifies the etcd servers
    #[arg(long, value_name = "FILE", help_heading = "Etcd")]
    etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd
    #[arg(
        long,
        value_name = "FILE",
        requires = "etcd_keyfile",
        help_heading = "Etcd"
    )]
    etcd_certfile: Option<PathBuf>,
    /// Key of --etcd-certfile
    #[arg(
        long,
        value_name = "FILE",
        requires = "etcd_certfile",
        help_heading = "Etcd"
    )]
    etcd_keyfile: Option<PathBuf>,
    /// Prefix of all keys in etcd
    #[arg(
        long,
        default_value = "/registry",
        value_name = "PATH",
        help_heading = "Etcd"
    )]
    etcd_prefix: String,
    /// Write below --etcd-prefix even if another program, such as kube-apiserver, has written there
    #[arg(long, help_heading = "Etcd")]
    etcd_adopt_prefix: bool,
}

impl EtcdArgs {
    /// The options of a store on these servers.
    pub(super) fn options(
        &self,
        servers: &[String],
        compaction_interval: Duration,
    ) -> Result<EtcdOptions, CommandError> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|error| {
                CommandError::failed(format!("cannot read `{}`: {error}", path.display()))
            })
        };
        let identity_pem = match (&self.etcd_certfile, &self.etcd_keyfile) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            _ => None,
        };
        Ok(EtcdOptions {
            servers: servers.to_vec(),
            ca_pem: self.etcd_cafile.as_ref().map(read).transpose()?,
            identity_pem,
            prefix: self.etcd_prefix.clone(),
            layout: Arc::new(KubernetesLayout::new()),
            adopt_prefix: self.etcd_adopt_prefix,
            compaction_interval,
            history: store_options(),
        })
    }
}

/// A data directory or an etcd cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StoreLocation {
    Folder(PathBuf),
    Etcd(Vec<String>),
}

impl FromStr for StoreLocation {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.contains("://") {
            true => Self::Etcd(text.split(',').map(str::to_owned).collect()),
            false => Self::Folder(PathBuf::from(text)),
        })
    }
}

impl StoreLocation {
    /// Takes a snapshot of the store. The store is closed when the snapshot is dropped.
    pub(super) async fn snapshot(&self, etcd: &EtcdArgs) -> Result<Snapshot, CommandError> {
        let failed = |error: lockgate_store::ReadError| CommandError::failed(error.to_string());
        let snapshot = match self {
            Self::Folder(folder) => {
                // Opening creates a missing store.
                if !folder.join("store.redb").is_file() {
                    let message = format!("`{}` contains no store", folder.display());
                    return Err(CommandError::failed(message));
                }
                let store = DiskStore::open_with(folder, store_options()).map_err(explain_open)?;
                let snapshot = store.snapshot().await.map_err(failed)?;
                store.close().await;
                snapshot
            }
            Self::Etcd(servers) => {
                let store = open(servers, etcd).await?;
                store.snapshot().await.map_err(failed)?
            }
        };
        Ok(with_deadlines(snapshot))
    }

    /// Restores a snapshot. Returns the first revision of the store.
    pub(super) async fn fill(
        &self,
        snapshot: SnapshotReader<impl std::io::Read + Send + 'static>,
        options: RestoreOptions,
        etcd: &EtcdArgs,
    ) -> Result<Revision, CommandError> {
        let progress = Progress::new(usize::try_from(snapshot.total()).unwrap_or(usize::MAX));
        let filled = match self {
            Self::Folder(folder) => {
                let mut told = 0;
                let mut tell = |written: u64| {
                    for _ in told..written {
                        progress.step();
                    }
                    told = written;
                };
                DiskStore::restore(folder, snapshot, options, &mut tell).map_err(explain_restore)
            }
            Self::Etcd(servers) => {
                let store = open(servers, etcd).await?;
                fill_etcd(&store, snapshot, options, &progress).await
            }
        };
        progress.end();
        filled
    }
}

/// Events expire, in either store.
fn with_deadlines(snapshot: Snapshot) -> Snapshot {
    let now = now();
    snapshot.expiring(move |key| {
        time_to_live(key).map_or(0, |ttl| {
            now.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
        })
    })
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

async fn open(servers: &[String], etcd: &EtcdArgs) -> Result<EtcdStore, CommandError> {
    let options = etcd.options(servers, Duration::ZERO)?;
    EtcdStore::open(options).await.map_err(explain_etcd)
}

async fn fill_etcd(
    store: &EtcdStore,
    snapshot: SnapshotReader<impl std::io::Read>,
    options: RestoreOptions,
    progress: &Progress,
) -> Result<Revision, CommandError> {
    let revision = Revision(snapshot.revision().0.saturating_add(options.bump));
    // The whole snapshot is verified before the first write.
    let entries = snapshot.collect::<Result<Vec<_>, _>>();
    let entries = entries.map_err(|error| CommandError::invalid_input(error.to_string()))?;
    clear(store, options.overwrite).await?;
    let (definitions, others): (Vec<_>, Vec<_>) = entries
        .into_iter()
        .partition(|it| it.entry.key.starts_with(DEFINITIONS));
    let now = now();
    for entries in [definitions, others] {
        let writes = stream::iter(entries).map(|it| create(store, it, now));
        let mut writes = writes.buffer_unordered(AT_ONCE);
        while let Some(written) = writes.next().await {
            written.map_err(|error| CommandError::failed(error.to_string()))?;
            progress.step();
        }
    }
    let failed = |error: lockgate_store::Unavailable| CommandError::failed(error.to_string());
    store.advance_revision(revision).await.map_err(failed)?;
    store.revision().await.map_err(failed)
}

async fn create(store: &EtcdStore, it: SnapshotEntry, now: u64) -> Result<(), WriteError> {
    let SnapshotEntry { entry, deadline } = it;
    let ttl = match deadline {
        0 => None,
        deadline if deadline <= now => return Ok(()),
        deadline => Some(Duration::from_millis(deadline - now)),
    };
    store.create(&entry.key, entry.value, ttl).await.map(|_| ())
}

/// Rejects a store that has objects.
async fn clear(store: &EtcdStore, overwrite: bool) -> Result<(), CommandError> {
    let failed = |error: &dyn std::fmt::Display| CommandError::failed(error.to_string());
    loop {
        let list = List {
            limit: Some(PAGE),
            ..List::all("")
        };
        let page = store.list(list).await.map_err(|error| failed(&error))?;
        let Some(first) = page.entries.first() else {
            return Ok(());
        };
        if !overwrite {
            let message = format!("etcd already has objects, for example `{}`", first.key);
            return Err(CommandError::failed(message)
                .with_help("set --overwrite to replace them, or another --etcd-prefix"));
        }
        let removals = stream::iter(page.entries).map(|entry| async move {
            match store.delete(&entry.key, entry.revision).await {
                Ok(_) | Err(WriteError::NotFound) => Ok(()),
                Err(error) => Err(error),
            }
        });
        let removed = removals.buffer_unordered(AT_ONCE).try_collect::<()>().await;
        removed.map_err(|error| failed(&error))?;
    }
}

/// Runs the command.
///
/// # Errors
///
/// A store cannot be read or written.
pub fn run(args: &StoreArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let StoreCommand::Copy(args) = &args.command;
    super::run_async(copy(args, printer))
}

async fn copy(args: &CopyArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    if args.from == args.to {
        return Err(CommandError::usage("--from and --to are the same store").into());
    }
    let snapshot = args.from.snapshot(&args.etcd).await?;
    let count = snapshot.count();
    let snapshot = SnapshotReader::open(snapshot.bytes());
    let snapshot = snapshot.map_err(|error| CommandError::failed(error.to_string()))?;
    let options = RestoreOptions {
        overwrite: args.overwrite,
        bump: 0,
    };
    let revision = args.to.fill(snapshot, options, &args.etcd).await?;
    printer.line(&format!(
        "Copied {count} objects; resourceVersion {revision}"
    ))?;
    Ok(ExitCode::Done)
}

/// Adds advice to an error of a data directory.
pub(super) fn explain_open(error: OpenError) -> CommandError {
    let failed = CommandError::failed(match std::error::Error::source(&error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    });
    match error {
        OpenError::InUse { .. } => failed.with_help("stop that process, or set another --data-dir"),
        OpenError::Newer { .. } => {
            failed.with_help("use the version that wrote it, or set another --data-dir")
        }
        OpenError::Damaged { .. } => {
            failed.with_help("restore a snapshot, or set another --data-dir; see docs/storage.md")
        }
        _ => failed,
    }
}

fn explain_restore(error: RestoreError) -> CommandError {
    match error {
        RestoreError::DataDir(error) => explain_open(error),
        RestoreError::Snapshot(error) => CommandError::invalid_input(error.to_string()),
        RestoreError::Exists(_) => CommandError::failed(error.to_string())
            .with_help("set --overwrite to replace it, or name another directory"),
        error => CommandError::failed(error.to_string()),
    }
}

/// Adds advice to an error of etcd.
pub(super) fn explain_etcd(error: EtcdError) -> CommandError {
    let failed = CommandError::failed(error.to_string());
    match error {
        EtcdError::ForeignPrefix { .. } => failed.with_help(
            "set another --etcd-prefix, or --etcd-adopt-prefix to read and write those objects",
        ),
        EtcdError::Unavailable(_) => failed.with_help(
            "check --etcd-servers; etcd 3.5.13 or newer is required, see docs/storage.md",
        ),
        _ => failed,
    }
}

/// The store that the flags select, if any.
pub(super) fn place(data_dir: Option<&Path>, etcd_servers: &[String]) -> Option<StoreLocation> {
    match (data_dir, etcd_servers) {
        (Some(folder), _) => Some(StoreLocation::Folder(folder.to_owned())),
        (None, []) => None,
        (None, servers) => Some(StoreLocation::Etcd(servers.to_vec())),
    }
}
