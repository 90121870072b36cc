//! `lockgate snapshot`: backups of all stored objects.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use http_body_util::BodyExt as _;
use lockgate_apiserver::private_file::NewFile;
use lockgate_store::{RestoreOptions, SnapshotError, SnapshotReader};

use super::store::{EtcdArgs, place};
use super::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::live::LiveArgs;
use crate::output::{Printer, table};

/// The path at which servers serve snapshots.
const PATH: &str = "/lockgate/snapshot";
/// The chunk size for snapshots of a store opened by this process.
const CHUNK_BYTES: usize = 1 << 20;

/// Save, verify and restore backups of all stored objects
#[derive(Debug, Args)]
#[command(after_help = "\
A snapshot contains all objects at one resourceVersion, Secrets in clear text: protect it like the Secrets. A running
server gives a snapshot to users who are allowed to `get` the non-resource URL /lockgate/snapshot: members of
system:masters, and users with an RBAC rule for it.

Examples:
  lockgate snapshot save --kubeconfig lockgate.kubeconfig backup.snapshot
  lockgate snapshot verify backup.snapshot
  lockgate snapshot restore backup.snapshot --data-dir /var/lib/lockgate")]
pub struct SnapshotArgs {
    #[command(subcommand)]
    command: SnapshotCommand,
}

#[derive(Debug, Subcommand)]
enum SnapshotCommand {
    /// Save a snapshot of a server, a data directory or an etcd cluster
    Save(Box<SaveArgs>),
    /// Verify a snapshot and count its objects
    Verify(VerifyArgs),
    /// Restore a snapshot to a data directory or an etcd cluster
    Restore(Box<RestoreArgs>),
}

#[derive(Debug, Args)]
struct SaveArgs {
    /// File to write; only its owner can read it
    file: PathBuf,
    #[command(flatten)]
    server: LiveArgs,
    /// Data directory of a stopped server
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "context"])]
    data_dir: Option<PathBuf>,
    /// URLs of etcd members
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "URLS",
        conflicts_with_all = ["kubeconfig", "context", "data_dir"],
        help_heading = "Etcd"
    )]
    etcd_servers: Vec<String>,
    /// Overwrite an existing file
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    etcd: EtcdArgs,
}

#[derive(Debug, Args)]
struct VerifyArgs {
    /// Snapshot file
    file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Stop the servers first. The restored store starts --bump-revision resourceVersions after the snapshot, so that clients
that saw newer objects relist. Set it above the number of writes since the snapshot.

Examples:
  lockgate snapshot restore backup.snapshot --data-dir /var/lib/lockgate
  lockgate snapshot restore backup.snapshot --etcd-servers http://127.0.0.1:2379 --bump-revision 10000")]
struct RestoreArgs {
    /// Snapshot file
    file: PathBuf,
    /// Data directory to restore to
    #[arg(long, value_name = "DIR", required_unless_present = "etcd_servers")]
    data_dir: Option<PathBuf>,
    /// URLs of etcd members to restore to
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "URLS",
        conflicts_with = "data_dir",
        help_heading = "Etcd"
    )]
    etcd_servers: Vec<String>,
    /// Replace existing objects
    #[arg(long)]
    overwrite: bool,
    /// Number of resourceVersions to skip; in etcd each takes a write [default: 1000000, in etcd 10000]
    #[arg(long, value_name = "COUNT")]
    bump_revision: Option<u64>,
    #[command(flatten)]
    etcd: EtcdArgs,
}

/// Runs the command.
///
/// # Errors
///
/// A snapshot or a store cannot be read or written.
pub fn run(args: &SnapshotArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    match &args.command {
        SnapshotCommand::Save(args) => super::run_async(save(args, printer)),
        SnapshotCommand::Verify(args) => verify(args, printer),
        SnapshotCommand::Restore(args) => super::run_async(restore(args, printer)),
    }
}

async fn save(args: &SaveArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let path = &args.file;
    if !args.overwrite && path.exists() {
        let message = format!("`{}` already exists", path.display());
        let help = "set --overwrite to replace it";
        return Err(CommandError::failed(message).with_help(help).into());
    }
    let unwritable =
        |error| CommandError::failed(format!("cannot write `{}`: {error}", path.display()));
    let mut file = NewFile::create(path).map_err(unwritable)?;
    match place(args.data_dir.as_deref(), &args.etcd_servers) {
        Some(place) => {
            let mut bytes = place.snapshot(&args.etcd).await?.bytes();
            while let Some(piece) = bytes.next_piece(CHUNK_BYTES) {
                file.file().write_all(&piece).map_err(unwritable)?;
            }
        }
        None => download(&args.server, &mut file, &unwritable).await?,
    }
    // As stored on disk.
    file.file().rewind().map_err(unwritable)?;
    let reader = SnapshotReader::open(BufReader::new(file.file()));
    let found = reader
        .and_then(count)
        .map_err(|error| unusable(path, &error))?;
    file.place().map_err(unwritable)?;
    printer.line(&found.description(path))?;
    Ok(ExitCode::Done)
}

/// Writes the snapshot of a server to a file.
async fn download(
    server: &LiveArgs,
    file: &mut NewFile,
    unwritable: &impl Fn(std::io::Error) -> CommandError,
) -> Result<(), CommandError> {
    let failed = |error: &dyn std::fmt::Display| {
        CommandError::failed(format!("cannot read the snapshot from the server: {error}"))
    };
    let live = server.connect().await.map_err(|error| {
        CommandError::failed(error.to_string()).with_help(
            "select a server with --kubeconfig, or a store with --data-dir or --etcd-servers",
        )
    })?;
    let mut body = live.stream(PATH).await.map_err(|error| failed(&error))?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| failed(&error))?;
        if let Some(piece) = frame.data_ref() {
            file.file().write_all(piece).map_err(unwritable)?;
        }
    }
    Ok(())
}

fn verify(args: &VerifyArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let found = count(open(&args.file)?).map_err(|error| unusable(&args.file, &error))?;
    printer.line(&found.description(&args.file))?;
    let resources = found.resources.iter();
    let rows = resources.map(|(resource, count)| vec![resource.clone(), count.to_string()]);
    let rows: Vec<Vec<String>> = rows.collect();
    printer.text(&table::render(&["RESOURCE", "OBJECTS"], &rows))?;
    Ok(ExitCode::Done)
}

async fn restore(args: &RestoreArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let Some(place) = place(args.data_dir.as_deref(), &args.etcd_servers) else {
        return Err(CommandError::usage("set --data-dir or --etcd-servers").into());
    };
    let usual = if args.data_dir.is_some() {
        1_000_000
    } else {
        10_000
    };
    let options = RestoreOptions {
        overwrite: args.overwrite,
        bump: args.bump_revision.unwrap_or(usual),
    };
    let snapshot = open(&args.file)?;
    let count = snapshot.total();
    let revision = place.fill(snapshot, options, &args.etcd).await?;
    printer.line(&format!(
        "Restored {count} objects; resourceVersion {revision}"
    ))?;
    Ok(ExitCode::Done)
}

fn open(path: &Path) -> Result<SnapshotReader<BufReader<File>>, CommandError> {
    let file = File::open(path).map_err(|error| {
        CommandError::failed(format!("cannot read `{}`: {error}", path.display()))
    })?;
    SnapshotReader::open(BufReader::new(file)).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, error: &SnapshotError) -> CommandError {
    CommandError::invalid_input(format!("cannot use `{}`: {error}", path.display()))
}

/// The contents of a verified snapshot.
#[derive(Debug)]
struct Found {
    revision: u64,
    count: u64,
    /// Objects by resource.
    resources: BTreeMap<String, u64>,
}

impl Found {
    fn description(&self, path: &Path) -> String {
        let Self {
            revision, count, ..
        } = self;
        format!(
            "{}: {count} objects, resourceVersion {revision}, verified",
            path.display()
        )
    }
}

/// Reads and verifies a snapshot.
fn count(mut reader: SnapshotReader<impl std::io::Read>) -> Result<Found, SnapshotError> {
    let mut found = Found {
        revision: reader.revision().0,
        count: reader.total(),
        resources: BTreeMap::new(),
    };
    while let Some(it) = reader.next_entry()? {
        let mut parts = it.entry.key.split('/').skip(1);
        let (group, plural) = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        let resource = match group.trim_start_matches("custom:") {
            "core" => plural.to_owned(),
            group => format!("{plural}.{group}"),
        };
        *found.resources.entry(resource).or_default() += 1;
    }
    Ok(found)
}
