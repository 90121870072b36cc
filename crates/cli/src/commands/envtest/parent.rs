//! Detects the exit of the parent process: a killed test cannot stop its servers.

use std::time::Duration;

/// The polling interval. A parent-death signal would come too early if the thread that started this process
/// exits before its process, as in Go.
const POLL: Duration = Duration::from_millis(200);

/// Returns when the parent process exits; never if the parent is PID 1.
pub(super) async fn exited() {
    let parent = rustix::process::getppid();
    if parent.is_none_or(rustix::process::Pid::is_init) {
        return std::future::pending().await;
    }
    let mut clock = tokio::time::interval(POLL);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while rustix::process::getppid() == parent {
        clock.tick().await;
    }
}
