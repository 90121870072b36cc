//! The standard process metrics of Prometheus clients, and build information.
//!
//! UPSTREAM: client_golang prometheus/process_collector_other.go, component-base pkg/metrics/version.go

use std::fmt::Write as _;

use lockgate_api::kube_version::KubeVersion;
use serde_json::Value;

use crate::version;

/// Ticks per second in `/proc`, on every supported Linux architecture.
const TICKS: f64 = 100.0;

/// A field of `/proc/self/stat` by its number, in seconds.
fn seconds(stat: &str, number: usize) -> Option<f64> {
    // The name may contain spaces; the state after it is the third field.
    let (_, rest) = stat.rsplit_once(')')?;
    let field = rest.split_whitespace().nth(number.checked_sub(3)?)?;
    Some(field.parse::<f64>().ok()? / TICKS)
}

/// Writes the start time of the process, if known.
pub(crate) fn start_time(out: &mut String) {
    const NAME: &str = "process_start_time_seconds";
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (stat, booted) = (read("/proc/self/stat"), read("/proc/stat"));
    let booted = booted.lines().find_map(|line| line.strip_prefix("btime "));
    let booted = booted.and_then(|text| text.trim().parse::<f64>().ok());
    if let Some((booted, after)) = booted.zip(seconds(&stat, 22)) {
        let _ = writeln!(
            out,
            "# HELP {NAME} Start of the process, since the epoch.\n# TYPE {NAME} gauge\n{NAME} {}",
            booted + after
        );
    }
}

/// Writes the available metrics: all of them on Linux, the build information alone elsewhere.
pub(crate) fn render(out: &mut String, version: KubeVersion) {
    build(out, version);
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mut gauge = |name: &str, kind: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            let _ = writeln!(
                out,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
            );
        }
    };
    let (status, stat) = (read("/proc/self/status"), read("/proc/self/stat"));
    let kilobytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let number = line.trim_start_matches(':').trim().strip_suffix("kB")?;
        Some(number.trim().parse::<f64>().ok()? * 1024.0)
    };
    let ticks = |number: usize| seconds(&stat, number);
    let open = std::fs::read_dir("/proc/self/fd").map(|entries| entries.count());
    gauge(
        "process_cpu_seconds_total",
        "counter",
        "User and system time of the process.",
        ticks(14).zip(ticks(15)).map(|(user, system)| user + system),
    );
    gauge(
        "process_resident_memory_bytes",
        "gauge",
        "Resident memory of the process.",
        kilobytes("VmRSS"),
    );
    gauge(
        "process_virtual_memory_bytes",
        "gauge",
        "Virtual memory of the process.",
        kilobytes("VmSize"),
    );
    gauge(
        "process_open_fds",
        "gauge",
        "Open file descriptors of the process.",
        open.ok()
            .and_then(|count| u32::try_from(count).ok())
            .map(f64::from),
    );
    start_time(out);
}

fn build(out: &mut String, version: KubeVersion) {
    let document = version::document(version);
    let labels = [
        ("build_date", "buildDate"),
        ("compiler", "compiler"),
        ("git_commit", "gitCommit"),
        ("git_tree_state", "gitTreeState"),
        ("git_version", "gitVersion"),
        ("go_version", "goVersion"),
        ("major", "major"),
        ("minor", "minor"),
        ("platform", "platform"),
    ];
    let labels = labels.map(|(label, member)| {
        let value = document.get(member).and_then(Value::as_str);
        format!("{label}=\"{}\"", value.unwrap_or_default())
    });
    let _ = writeln!(
        out,
        "# HELP kubernetes_build_info The version of the API and of this program.\n\
         # TYPE kubernetes_build_info gauge\nkubernetes_build_info{{{}}} 1",
        labels.join(",")
    );
}
