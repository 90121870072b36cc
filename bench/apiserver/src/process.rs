//! Stops processes, and reads their statistics from the kernel.

use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::process::{Child, Command};

/// The kernel reports CPU time to user space in hundredths of a second on every platform with `/proc`.
const TICK: Duration = Duration::from_millis(10);

/// The time for a process to exit before it is killed.
const END: Duration = Duration::from_secs(10);

/// Stops a process with SIGTERM, so that an instrumented server writes its profile, and kills it after a timeout.
pub async fn end(process: &mut Child) -> Result<()> {
    if let Some(pid) = process.id() {
        Command::new("kill").arg(pid.to_string()).status().await?;
    }
    if tokio::time::timeout(END, process.wait()).await.is_err() {
        process.kill().await?;
    }
    Ok(())
}

/// The CPU time of a process with all its threads.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may contain any character; the fields after it are fixed.
    let (_, rest) = text.rsplit_once(')').context("an unusual /proc/PID/stat")?;
    let field = |index: usize| -> Result<u32> {
        let text = rest.split_whitespace().nth(index);
        Ok(text.context("a short /proc/PID/stat")?.parse()?)
    };
    Ok(TICK * (field(11)? + field(12)?))
}

/// The resident memory of a process.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    let kilobytes: u64 = kilobytes.context("no VmRSS in /proc/PID/status")?.parse()?;
    Ok(kilobytes * 1024)
}

/// The one-minute load average.
pub fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// An unused port.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
