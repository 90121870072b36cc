//! The five fields of a cron schedule.

/// The fields in order: name, minimum and maximum value, and names of values.
const FIELDS: [(&str, u32, u32, &[&str]); 5] = [
    ("minute", 0, 59, &[]),
    ("hour", 0, 23, &[]),
    ("dayOfMonth", 1, 31, &[]),
    ("month", 1, 12, &MONTHS),
    ("dayOfWeek", 0, 7, &DAYS),
];

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A schedule that cron rejects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleError {
    /// It has the wrong number of fields.
    Fields(usize),
    /// A field is invalid.
    Field {
        /// The name of the field.
        name: &'static str,
        /// The value of the field.
        text: String,
    },
}

impl std::error::Error for ScheduleError {}

impl std::fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fields(count) => write!(
                f,
                "want minute, hour, day of month, month and day of week, got {count} fields"
            ),
            Self::Field { name, text } => write!(f, "{name} cannot be `{text}`"),
        }
    }
}

/// Splits a schedule into its fields.
///
/// # Errors
///
/// Fails unless there are five.
pub fn split(schedule: &str) -> Result<[String; 5], ScheduleError> {
    let fields: Vec<String> = schedule.split_whitespace().map(str::to_owned).collect();
    let count = fields.len();
    fields.try_into().map_err(|_| ScheduleError::Fields(count))
}

/// Checks that cron accepts a schedule.
///
/// # Errors
///
/// Fails if it does not.
pub fn check(schedule: &str) -> Result<(), ScheduleError> {
    for (field, (name, smallest, largest, names)) in split(schedule)?.into_iter().zip(FIELDS) {
        let value = |text: &str| {
            let named = names
                .iter()
                .position(|name| name.eq_ignore_ascii_case(text));
            // Months start at 1, days at 0.
            let named = named
                .and_then(|at| u32::try_from(at).ok())
                .map(|at| at + smallest);
            named
                .or_else(|| text.parse().ok())
                .filter(|value| (smallest..=largest).contains(value))
        };
        let is_range = |text: &str| match text.split_once('-') {
            _ if text == "*" || text == "?" => true,
            None => value(text).is_some(),
            Some((first, last)) => {
                matches!((value(first), value(last)), (Some(first), Some(last)) if first <= last)
            }
        };
        let is_part = |part: &str| match part.split_once('/') {
            None => is_range(part),
            Some((range, step)) => {
                is_range(range) && step.parse::<u32>().is_ok_and(|step| step > 0)
            }
        };
        if !field.split(',').all(is_part) {
            return Err(ScheduleError::Field { name, text: field });
        }
    }
    Ok(())
}
