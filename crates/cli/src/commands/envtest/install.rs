//! Installs the binaries that test libraries look for.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lockgate_apiserver::private_file;
use sha2::{Digest as _, Sha256};

use super::{InstallArgs, kubectl};
use crate::commands::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::output::Printer;

/// Records the digests of installed files: a file with another digest is not overwritten.
const RECORD: &str = "lockgate-envtest.json";

const KUBECTL: &str = "kubectl";

/// A file to install.
struct Entry {
    name: &'static str,
    from: PathBuf,
    digest: String,
}

/// Writes `kube-apiserver`, `etcd` and `kubectl` into a directory.
pub(super) fn run(args: &InstallArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let program = std::env::current_exe()
        .map_err(|error| CommandError::failed(format!("cannot find this program: {error}")))?;
    let folder = &args.directory;
    std::fs::create_dir_all(folder).map_err(|error| io_error("create", folder, &error))?;
    let found = find_kubectl(args, &program)?;
    let entries = [
        ("etcd", &program),
        ("kube-apiserver", &program),
        (KUBECTL, found.as_ref().unwrap_or(&program)),
    ];
    let mut digests = BTreeMap::new();
    let mut install = Vec::new();
    for (name, from) in entries {
        let digest = match digests.get(from) {
            Some(known) => String::clone(known),
            None => digest(from).map_err(|error| io_error("read", from, &error))?,
        };
        digests.insert(from.clone(), digest.clone());
        install.push(Entry {
            name,
            from: from.clone(),
            digest,
        });
    }
    let record = folder.join(RECORD);
    let installed = recorded(&record)?;
    if !args.force {
        refuse_foreign(folder, &install, &installed)?;
    }
    for entry in &install {
        place(folder, entry)?;
    }
    let made: BTreeMap<&str, &str> = install
        .iter()
        .map(|entry| (entry.name, entry.digest.as_str()))
        .collect();
    let text = serde_json::json!({"lockgate": env!("CARGO_PKG_VERSION"), "sha256": made});
    private_file::write(&record, &format!("{text}\n"))
        .map_err(|error| io_error("write", &record, &error))?;
    let shown = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
    match &found {
        Some(path) => Printer::note(&format!("kubectl is a copy of {}", path.display())),
        None => Printer::note(
            "warning: no kubectl was copied: none on PATH works as a copy. The entry \
             `kubectl` runs the one that is on PATH then; pass --kubectl FILE to install one",
        ),
    }
    printer.line(&format!("export KUBEBUILDER_ASSETS={}", shown.display()))?;
    Ok(ExitCode::Done)
}

fn io_error(what: &str, path: &Path, error: &io::Error) -> CommandError {
    CommandError::failed(format!("cannot {what} `{}`: {error}", path.display()))
}

/// The kubectl to copy: the one of `--kubectl`, or the first on PATH that works as a copy.
fn find_kubectl(args: &InstallArgs, program: &Path) -> Result<Option<PathBuf>, CommandError> {
    let works = |path: &Path| {
        let Ok(folder) = tempfile::tempdir_in(&args.directory) else {
            return false;
        };
        let copy = folder.path().join(KUBECTL);
        // Some are launchers that need other files next to them.
        std::fs::copy(path, &copy).is_ok()
            && Command::new(&copy)
                .args(["version", "--client"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
    };
    if let Some(path) = &args.kubectl {
        return match works(path) {
            true => Ok(Some(path.clone())),
            false => Err(CommandError::failed(format!(
                "`{}` cannot be installed as kubectl: a copy of it fails to run `kubectl version --client`",
                path.display()
            ))),
        };
    }
    let installed = args.directory.join(KUBECTL);
    let found = kubectl::on_path(&[program, &installed]);
    let found = found.and_then(|path| path.canonicalize().ok());
    Ok(found.filter(|path| works(path)))
}

/// The digests of files written by an earlier install.
fn recorded(record: &Path) -> Result<BTreeMap<String, String>, CommandError> {
    let text = match std::fs::read_to_string(record) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(io_error("read", record, &error)),
    };
    // An unreadable record counts as empty.
    let mut record: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    Ok(serde_json::from_value(record["sha256"].take()).unwrap_or_default())
}

/// Rejects replacing files that no install wrote.
fn refuse_foreign(
    folder: &Path,
    install: &[Entry],
    installed: &BTreeMap<String, String>,
) -> Result<(), CommandError> {
    let mut foreign = Vec::new();
    for entry in install {
        let path = folder.join(entry.name);
        let is_ours = match std::fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(io_error("read", &path, &error)),
            Ok(found) if !found.is_file() => false,
            Ok(_) => {
                let found = digest(&path).map_err(|error| io_error("read", &path, &error))?;
                found == entry.digest || installed.get(entry.name) == Some(&found)
            }
        };
        if !is_ours {
            foreign.push(format!("`{}`", path.display()));
        }
    }
    match foreign.as_slice() {
        [] => Ok(()),
        _ => Err(
            CommandError::failed(format!("{} already exists", foreign.join(", ")))
                .with_help("pass --force to replace it, or install into another directory"),
        ),
    }
}

/// Installs a file atomically.
fn place(folder: &Path, entry: &Entry) -> Result<(), CommandError> {
    let path = folder.join(entry.name);
    let new = folder.join(format!(".{}.{}.new", entry.name, std::process::id()));
    let copied = || {
        let mut from = File::open(&entry.from)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o755);
        let mut to = options.open(&new)?;
        io::copy(&mut from, &mut to)?;
        // Independent of the umask.
        to.set_permissions(Permissions::from_mode(0o755))?;
        to.sync_all()?;
        std::fs::rename(&new, &path)
    };
    copied().map_err(|error| {
        let _ = std::fs::remove_file(&new);
        io_error("write", &path, &error)
    })
}

fn digest(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
    }
    let bytes = hash.finalize();
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
