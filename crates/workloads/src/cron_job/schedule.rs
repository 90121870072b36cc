//! Cron schedules.
//!
//! The server validates schedules; an invalid one has no next time.
//!
//! UPSTREAM: github.com/robfig/cron/v3 parser.go, spec.go

use lockgate_go::time::{Duration, Timestamp, Zone};

use crate::object::time_text;

const MINUTE: i64 = 60;
/// The search limit in seconds: every satisfiable schedule has a time within five years.
const HORIZON: i64 = 5 * 366 * 86_400;
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A schedule in a time zone.
#[derive(Debug)]
pub(super) struct Schedule {
    times: Times,
    zone: Zone,
}

#[derive(Debug, PartialEq, Eq)]
enum Times {
    /// `@every`, in seconds.
    Every(i64),
    At {
        minutes: u64,
        hours: u64,
        days: u64,
        months: u64,
        weekdays: u64,
        /// The day of month or of week is `*`: a day must match both fields. Otherwise, one is enough.
        any_day: bool,
    },
}

impl Schedule {
    pub(super) fn parse(text: &str, zone: &str) -> Option<Self> {
        let mut rest = text;
        let mut zone = zone;
        for prefix in ["TZ=", "CRON_TZ="] {
            if let Some(zoned) = text.strip_prefix(prefix) {
                let (name, fields) = zoned.split_once(' ')?;
                zone = name;
                rest = fields.trim();
            }
        }
        let zone = match zone {
            "" => Zone::Utc,
            name => Zone::parse(name).ok()?,
        };
        let rest = match rest {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        if let Some(every) = rest.strip_prefix("@every ") {
            let seconds = Duration::parse(every).ok()?.seconds().max(1);
            let times = Times::Every(seconds);
            return Some(Self { times, zone });
        }
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return None;
        };
        let times = Times::At {
            minutes: bits(minutes, 0, 59, &[])?,
            hours: bits(hours, 0, 23, &[])?,
            days: bits(days, 1, 31, &[])?,
            months: bits(months, 1, 12, &MONTHS)?,
            weekdays: bits(weekdays, 0, 6, &DAYS)?,
            any_day: is_star(days) || is_star(weekdays),
        };
        Some(Self { times, zone })
    }

    /// The next scheduled time after `after`, as Unix timestamp.
    pub(super) fn next_after(&self, after: i64) -> Option<i64> {
        match &self.times {
            Times::Every(seconds) => Some(after + seconds),
            Times::At { .. } => {
                let mut at = (after.div_euclid(MINUTE) + 1) * MINUTE;
                let end = after + HORIZON;
                while at < end {
                    match self.distance(at)? {
                        0 => return Some(at),
                        minutes => at += minutes * MINUTE,
                    }
                }
                None
            }
        }
    }

    /// Zero if the minute matches the schedule, or else a number of minutes to skip.
    fn distance(&self, at: i64) -> Option<i64> {
        let Times::At {
            minutes,
            hours,
            days,
            months,
            weekdays,
            any_day,
        } = &self.times
        else {
            return None;
        };
        let time = Timestamp::from_unix(at).ok()?;
        let zone = &self.zone;
        let has = |set: &u64, value: i64| {
            u32::try_from(value).is_ok_and(|value| set.checked_shr(value).unwrap_or(0) & 1 == 1)
        };
        let (hour, minute) = (time.hours(zone), time.minutes(zone));
        let in_month = has(days, time.day_of_month(zone));
        let in_week = has(weekdays, time.day_of_week(zone));
        let is_day = if *any_day {
            in_month && in_week
        } else {
            in_month || in_week
        };
        // Months of this library are zero-based.
        if !is_day || !has(months, time.month(zone) + 1) {
            // Stops an hour before midnight: daylight saving time may begin or end before.
            return Some((24 * 60 - hour * 60 - minute - 60).max(1));
        }
        if !has(hours, hour) {
            return Some((60 - minute).max(1));
        }
        Some(i64::from(!has(minutes, minute)))
    }
}

fn is_star(field: &str) -> bool {
    field.split(',').any(|part| part.starts_with(['*', '?']))
}

/// The values of a field as a bit set.
fn bits(field: &str, least: u32, most: u32, names: &[&str]) -> Option<u64> {
    let value = |text: &str| -> Option<u32> {
        let lower = text.to_lowercase();
        let named = names.iter().position(|name| *name == lower);
        match named {
            Some(place) => Some(u32::try_from(place).ok()? + least),
            None => text.parse().ok(),
        }
    };
    let mut set = 0_u64;
    for part in field.split(',') {
        let (range, step) = part.split_once('/').unwrap_or((part, ""));
        let (first, last) = match range {
            "*" | "?" => (least, most),
            _ => match range.split_once('-') {
                Some((first, last)) => (value(first)?, value(last)?),
                None => {
                    let first = value(range)?;
                    (first, if step.is_empty() { first } else { most })
                }
            },
        };
        let step = if step.is_empty() {
            1
        } else {
            step.parse().ok()?
        };
        if step == 0 || first < least || last > most {
            return None;
        }
        for value in (first..=last).step_by(step) {
            set |= 1 << value;
        }
    }
    Some(set)
}

/// A time in the format of its zone.
pub(super) fn local_text(seconds: i64, zone: &str) -> String {
    let zone = match zone {
        "" => Some(Zone::Utc),
        name => Zone::parse(name).ok(),
    };
    let time = Timestamp::from_unix(seconds).ok();
    let (Some(zone), Some(time)) = (zone, time) else {
        return time_text(seconds);
    };
    let of_day = time.hours(&zone) * 3600 + time.minutes(&zone) * 60 + time.seconds(&zone);
    // The zone's UTC offset, between -10 and +14 hours.
    let ahead = (of_day - seconds.rem_euclid(86_400)).rem_euclid(86_400);
    let ahead = if ahead > 14 * 3600 {
        ahead - 86_400
    } else {
        ahead
    };
    if ahead == 0 {
        return time_text(seconds);
    }
    let local = time_text(seconds + ahead);
    let sign = if ahead < 0 { '-' } else { '+' };
    let minutes = ahead.abs() / 60;
    format!(
        "{}{sign}{:02}:{:02}",
        local.trim_end_matches('Z'),
        minutes / 60,
        minutes % 60
    )
}

#[cfg(test)]
mod tests {
    use lockgate_api::meta::time::Time;

    use super::*;

    fn next(schedule: &str, zone: &str, after: &str) -> String {
        let after = Time::parse(after).unwrap().unix_seconds();
        let schedule = Schedule::parse(schedule, zone).unwrap();
        schedule
            .next_after(after)
            .map_or_else(String::new, time_text)
    }

    #[test]
    fn finds_the_next_time() {
        let from = "2026-03-10T10:07:30Z";
        for (schedule, want) in [
            ("* * * * *", "2026-03-10T10:08:00Z"),
            ("*/5 * * * *", "2026-03-10T10:10:00Z"),
            ("7 * * * *", "2026-03-10T11:07:00Z"),
            ("0 3 * * *", "2026-03-11T03:00:00Z"),
            ("0 0 1 * *", "2026-04-01T00:00:00Z"),
            ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
            ("30 4 * * mon-fri", "2026-03-11T04:30:00Z"),
            ("0 12 * * 0", "2026-03-15T12:00:00Z"),
            ("0 0 13 * 5", "2026-03-13T00:00:00Z"),
            ("@hourly", "2026-03-10T11:00:00Z"),
            ("@every 90s", "2026-03-10T10:09:00Z"),
            ("0 0 31 2 *", ""),
        ] {
            assert_eq!(next(schedule, "", from), want, "{schedule}");
        }
    }

    #[test]
    fn follows_the_clock_of_the_zone() {
        let berlin = "Europe/Berlin";
        assert_eq!(
            next("0 9 * * *", berlin, "2026-03-10T10:00:00Z"),
            "2026-03-11T08:00:00Z"
        );
        assert_eq!(
            next("0 9 * * *", berlin, "2026-07-10T10:00:00Z"),
            "2026-07-11T07:00:00Z"
        );
        assert_eq!(
            next("CRON_TZ=Asia/Tokyo 0 9 * * *", "", "2026-03-10T10:00:00Z"),
            "2026-03-11T00:00:00Z"
        );
        let noon = Time::parse("2026-07-10T10:00:00Z").unwrap().unix_seconds();
        assert_eq!(local_text(noon, berlin), "2026-07-10T12:00:00+02:00");
        assert_eq!(
            local_text(noon, "America/New_York"),
            "2026-07-10T06:00:00-04:00"
        );
        assert_eq!(local_text(noon, ""), "2026-07-10T10:00:00Z");
    }

    #[test]
    fn what_is_no_schedule_has_no_times() {
        for schedule in ["", "* * * *", "61 * * * *", "*/0 * * * *", "@sometimes"] {
            assert!(Schedule::parse(schedule, "").is_none(), "{schedule}");
        }
        assert!(Schedule::parse("* * * * *", "Nowhere/Land").is_none());
    }
}
