//! Schedules in cron format, parsed as the controller parses them.
//!
//! UPSTREAM: github.com/robfig/cron/v3 parser.go

use crate::upstream_error::UpstreamError;
use lockgate_go::quote::quote;
use lockgate_go::time::{Zone, ZoneError};

/// The allowed values of a field.
struct Field {
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Field; 5] = [
    Field {
        least: 0,
        most: 59,
        names: &[],
    },
    Field {
        least: 0,
        most: 23,
        names: &[],
    },
    Field {
        least: 1,
        most: 31,
        names: &[],
    },
    Field {
        least: 1,
        most: 12,
        names: &MONTHS,
    },
    Field {
        least: 0,
        most: 6,
        names: &DAYS,
    },
];
const DESCRIPTORS: [&str; 7] = [
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];

/// Validates a schedule.
pub(super) fn parse(schedule: &str) -> Result<(), UpstreamError> {
    let mut rest = schedule;
    for prefix in ["TZ=", "CRON_TZ="] {
        if let Some(zoned) = schedule.strip_prefix(prefix) {
            let (zone, fields) = zoned.split_once(' ').unwrap_or((zoned, ""));
            self::zone(zone).map_err(|error| format!("provided bad location {zone}: {error}"))?;
            rest = fields.trim();
        }
    }
    if rest.starts_with('@') {
        return descriptor(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly {} fields, found {}: [{}]",
            FIELDS.len(),
            fields.len(),
            fields.join(" ")
        )
        .into());
    }
    for (text, field) in fields.iter().zip(&FIELDS) {
        for range in text.split(',').filter(|range| !range.is_empty()) {
            check_range(range, field)?;
        }
    }
    Ok(())
}

fn descriptor(text: &str) -> Result<(), UpstreamError> {
    if DESCRIPTORS.contains(&text) {
        return Ok(());
    }
    if let Some(duration) = text.strip_prefix("@every ") {
        let is_duration = lockgate_go::time::Duration::parse(duration).is_ok();
        return if is_duration {
            Ok(())
        } else {
            Err(format!(
                "failed to parse duration {text}: time: invalid duration {}",
                quote(duration)
            )
            .into())
        };
    }
    Err(format!("unrecognized descriptor: {text}").into())
}

fn check_range(text: &str, field: &Field) -> Result<(), UpstreamError> {
    let parts: Vec<&str> = text.split('/').collect();
    let range = parts.first().copied().unwrap_or_default();
    let bounds: Vec<&str> = range.split('-').collect();
    let (first, mut last) = match bounds[..] {
        ["*" | "?", ..] => (field.least, field.most),
        [only] => {
            let only = number_or_name(only, field)?;
            (only, only)
        }
        [first, last] => (number_or_name(first, field)?, number_or_name(last, field)?),
        [first, ..] => {
            number_or_name(first, field)?;
            return Err(format!("too many hyphens: {text}").into());
        }
        [] => return Ok(()),
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            let step = number(step)?;
            if bounds.len() == 1 {
                last = field.most;
            }
            step
        }
        _ => return Err(format!("too many slashes: {text}").into()),
    };
    if first < field.least {
        return Err(format!(
            "beginning of range ({first}) below minimum ({}): {text}",
            field.least
        )
        .into());
    }
    if last > field.most {
        return Err(format!(
            "end of range ({last}) above maximum ({}): {text}",
            field.most
        )
        .into());
    }
    if first > last {
        return Err(
            format!("beginning of range ({first}) beyond end of range ({last}): {text}").into(),
        );
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}").into());
    }
    Ok(())
}

fn number_or_name(text: &str, field: &Field) -> Result<u32, UpstreamError> {
    let lower = text.to_lowercase();
    let named = field.names.iter().position(|name| *name == lower);
    match named.and_then(|at| u32::try_from(at).ok()) {
        Some(at) => Ok(at + field.least),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u32, UpstreamError> {
    let parsed: i64 = text.parse().map_err(|_| {
        format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {}: invalid syntax",
            quote(text)
        )
    })?;
    u32::try_from(parsed)
        .map_err(|_| format!("negative number ({parsed}) not allowed: {text}").into())
}

/// Loads a time zone as Go does.
pub(super) fn zone(name: &str) -> Result<(), ZoneError> {
    // No zone name contains a colon, which `Zone::parse` would accept in an offset.
    if name.contains(':') {
        return Err(ZoneError::Unknown(name.to_owned()));
    }
    Zone::parse(name).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_controller_reads() {
        for good in [
            "*/5 * * * *",
            "0 0 1,15 jan-mar mon",
            "@daily",
            "@every 1h30m",
            "0/10 2 ? * *",
        ] {
            assert_eq!(parse(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn refuses_the_rest_in_the_words_of_the_library() {
        for (bad, reason) in [
            ("bad", "expected exactly 5 fields, found 1: [bad]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            (
                "5-1 * * * *",
                "beginning of range (5) beyond end of range (1): 5-1",
            ),
            (
                "*/0 * * * *",
                "step of range should be a positive number: */0",
            ),
            ("@never", "unrecognized descriptor: @never"),
            (
                "x * * * *",
                "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax",
            ),
        ] {
            assert_eq!(parse(bad), Err(reason.into()), "{bad}");
        }
    }
}
