//! The `kubectl` stand-in, installed if no kubectl could be copied: runs the one on PATH.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Access, access};

use crate::commands::{CommandError, Stop};
use crate::exit_code::ExitCode;

/// The first `kubectl` on PATH that is not one of these files.
pub(super) fn on_path(except: &[&Path]) -> Option<PathBuf> {
    let except: Vec<PathBuf> = except
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("kubectl"))
        .find(|path| {
            path.is_file()
                && access(path, Access::EXEC_OK).is_ok()
                && path
                    .canonicalize()
                    .is_ok_and(|real| !except.contains(&real))
        })
}

/// Replaces this process with kubectl.
pub(super) fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<ExitCode, Stop> {
    let own = std::env::current_exe().ok();
    let own: Vec<&Path> = own.iter().map(PathBuf::as_path).collect();
    let Some(kubectl) = on_path(&own) else {
        return Err(CommandError::failed("no kubectl found on PATH")
            .with_help("install kubectl, then run `lockgate envtest install DIR --force`")
            .into());
    };
    let error = Command::new(&kubectl).args(arguments).exec();
    Err(CommandError::failed(format!("cannot run `{}`: {error}", kubectl.display())).into())
}
