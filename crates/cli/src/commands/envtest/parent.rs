//! Ending with the process that started this one: a test that is killed cannot stop its servers.

use std::time::Duration;

/// How often the parent is looked for. A signal at its death would come too early where the thread that
/// started this process ends before the process that it belongs to, as in Go.
const POLL: Duration = Duration::from_millis(200);

/// Returns when the process that started this one is gone; never if that was the first of all.
pub(super) async fn gone() {
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
