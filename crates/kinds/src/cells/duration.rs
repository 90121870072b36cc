//! Human-readable durations.

use lockgate_api::meta::time::Time;

/// A duration in at most two units, with more precision for shorter ones.
///
/// UPSTREAM: apimachinery pkg/util/duration/duration.go
#[must_use]
pub fn human_duration(seconds: i64) -> String {
    // Tolerates small clock skew.
    if seconds < -1 {
        return String::from("<invalid>");
    }
    if seconds < 0 {
        return String::from("0s");
    }
    if seconds < 60 * 2 {
        return format!("{seconds}s");
    }
    let minutes = seconds / 60;
    if minutes < 10 {
        return two((minutes, "m"), (seconds % 60, "s"));
    }
    if minutes < 60 * 3 {
        return format!("{minutes}m");
    }
    let hours = minutes / 60;
    if hours < 8 {
        return two((hours, "h"), (minutes % 60, "m"));
    }
    if hours < 48 {
        return format!("{hours}h");
    }
    let days = hours / 24;
    if hours < 24 * 8 {
        return two((days, "d"), (hours % 24, "h"));
    }
    if hours < 24 * 365 * 2 {
        return format!("{days}d");
    }
    if hours < 24 * 365 * 8 {
        return two((days / 365, "y"), (days % 365, "d"));
    }
    format!("{}y", days / 365)
}

/// Prints two units, or only the first if the second is zero.
fn two(first: (i64, &str), second: (i64, &str)) -> String {
    match second.0 {
        0 => format!("{}{}", first.0, first.1),
        rest => format!("{}{}{rest}{}", first.0, first.1, second.1),
    }
}

/// The age of a timestamp; `<unknown>` if it is invalid.
#[must_use]
pub fn since(text: &str, now: Time) -> String {
    match Time::parse(text) {
        Ok(time) if !time.is_zero() => {
            human_duration(now.unix_seconds().saturating_sub(time.unix_seconds()))
        }
        _ => String::from("<unknown>"),
    }
}
