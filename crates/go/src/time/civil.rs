//! The proleptic Gregorian calendar.

const DAYS_PER_ERA: i64 = 146_097;
/// Days from 0000-03-01, the start of a 400-year era, to the Unix epoch.
const EPOCH: i64 = 719_468;

/// A date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    pub(super) year: i64,
    /// 1 to 12.
    pub(super) month: i64,
    /// 1 to 31.
    pub(super) day: i64,
}

impl Date {
    /// The date of a number of days since 1970-01-01.
    pub(super) fn from_days(days: i64) -> Self {
        let days = days + EPOCH;
        let era = days.div_euclid(DAYS_PER_ERA);
        let day_of_era = days.rem_euclid(DAYS_PER_ERA);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // Months count from March, so that the leap day is the last day of the year.
        let from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Self { year, month, day }
    }

    /// Days since 1970-01-01.
    pub(super) fn days(self) -> i64 {
        let year = self.year - i64::from(self.month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let from_march = (self.month + 9) % 12;
        let day_of_year = (153 * from_march + 2) / 5 + self.day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        era * DAYS_PER_ERA + day_of_era - EPOCH
    }

    /// Days since January 1.
    #[cfg(feature = "zones")]
    pub(super) fn day_of_year(self) -> i64 {
        self.days()
            - Self {
                year: self.year,
                month: 1,
                day: 1,
            }
            .days()
    }
}

pub(super) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}
