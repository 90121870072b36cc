//! The webhook's process.

use std::ffi::OsStr;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use crate::commands::CommandError;

/// The grace period after SIGTERM. It is short: no load balancer has to drain here.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// A child process that is killed on drop.
pub(super) struct Process(Child);

impl Process {
    pub(super) fn start(
        command: &[String],
        variables: &[(&str, &OsStr)],
    ) -> Result<Self, CommandError> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| CommandError::usage("no webhook command given"))?;
        let child = Command::new(program)
            .args(arguments)
            .envs(variables.iter().copied())
            // A separate process group, so that children of a script are stopped too.
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let child = child.map_err(|error| {
            CommandError::failed(format!("cannot run `{program}`: {error}"))
                .with_help("pass the webhook's program and its arguments after --")
        })?;
        Ok(Self(child))
    }

    /// Waits for the exit, and returns the exit status as text.
    pub(super) async fn ended(&mut self) -> String {
        match self.0.wait().await {
            Err(error) => error.to_string(),
            Ok(status) => match status.code() {
                Some(code) => format!("status {code}"),
                None => status.to_string(),
            },
        }
    }

    /// Sends SIGTERM, waits for the grace period, and then sends SIGKILL.
    pub(super) async fn stop(mut self) {
        let id = self.0.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(id) = id {
            // The process may have exited in the meantime.
            let _ = kill_process_group(id, Signal::TERM);
        }
        if tokio::time::timeout(STOP_TIMEOUT, self.0.wait())
            .await
            .is_err()
        {
            if let Some(id) = id {
                let _ = kill_process_group(id, Signal::KILL);
            }
            let _ = self.0.kill().await;
        }
    }
}
