//! Results recorded from Go 1.26 and cel-go v0.26.0.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

fn duration(text: &str) -> Duration {
    Duration::parse(text).unwrap()
}

fn timestamp(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

#[test]
fn reads_and_prints_durations() {
    for (text, seconds, go) in [
        ("0", "0s", "0s"),
        ("-0", "0s", "0s"),
        (
            "1h15m30.918273645s",
            "4530.918273645s",
            "1h15m30.918273645s",
        ),
        ("-1.5h", "-5400s", "-1h30m0s"),
        (".5s", "0.5s", "500ms"),
        ("1.s", "1s", "1s"),
        ("1µs", "0.000001s", "1µs"),
        ("1μs", "0.000001s", "1µs"),
        ("1234us", "0.001234s", "1.234ms"),
        ("7ns", "0.000000007s", "7ns"),
        (
            "2562047h47m16.854775807s",
            "9223372036.854776s",
            "2562047h47m16.854775807s",
        ),
        (
            "-9223372036854775808ns",
            "-9223372036.854776s",
            "-2562047h47m16.854775808s",
        ),
        ("0.100000000000000000000h", "360s", "6m0s"),
    ] {
        assert_eq!(duration(text).to_string(), seconds, "{text}");
        assert_eq!(duration(text).go_string(), go, "{text}");
    }
}

#[test]
fn refuses_what_is_no_duration() {
    for text in [
        "",
        "-",
        "1",
        "1d",
        ".s",
        "s",
        "1h 1m",
        "1S",
        "00",
        "9223372036854775808ns",
        "2562048h",
        "1e3s",
        "--1s",
        "1é",
    ] {
        assert!(Duration::parse(text).is_err(), "{text}");
    }
}

#[test]
fn explains_what_is_no_duration() {
    for (text, want) in [
        ("", "invalid duration \"\""),
        ("-", "invalid duration \"-\""),
        ("x", "invalid duration \"x\""),
        (".s", "invalid duration \".s\""),
        ("10", "missing unit in duration \"10\""),
        ("1m1", "missing unit in duration \"1m1\""),
        ("1.5", "missing unit in duration \"1.5\""),
        ("1d", "unknown unit \"d\" in duration \"1d\""),
        ("-1h 1m", "unknown unit \"h \" in duration \"-1h 1m\""),
        (
            "1é",
            "unknown unit \"\\xc3\\xa9\" in duration \"1\\xc3\\xa9\"",
        ),
        ("9999999h", "invalid duration \"9999999h\""),
        (
            "9223372036854775808ns",
            "invalid duration \"9223372036854775808ns\"",
        ),
    ] {
        let error = Duration::parse(text).unwrap_err().to_string();
        assert_eq!(error, format!("time: {want}"));
    }
}

#[test]
fn becomes_a_standard_duration_unless_negative() {
    let millis = |text| duration(text).to_std().map(|d| d.as_millis());
    assert_eq!(millis("1m30s"), Some(90_000));
    assert_eq!(millis("0"), Some(0));
    assert_eq!(millis("-1ns"), None);
}

#[test]
fn rounds_durations_as_doubles_do() {
    // A nanosecond less than a whole hour, which a double cannot represent at this magnitude.
    assert_eq!(duration("2562046h59m59.999999999s").hours(), 2_562_047);
    assert_eq!(duration("59m59.999999999s").hours(), 0);
    assert_eq!(duration("-90s").minutes(), -1);
    assert_eq!(duration("1h0.5s").seconds(), 3600);
    assert_eq!(duration("-1.9999ms").milliseconds(), -1);
}

#[test]
fn checks_duration_arithmetic() {
    let (min, one) = (Duration::from_nanos(i64::MIN), Duration::from_nanos(1));
    assert_eq!(min.minus(one), Err(OverflowError::Integer));
    assert_eq!(min.negated(), Err(OverflowError::Integer));
    assert_eq!(min.plus(one).map(Duration::nanos), Ok(i64::MIN + 1));
}

#[test]
fn reads_and_prints_timestamps() {
    for (text, want) in [
        ("2024-02-29T12:34:56.789Z", "2024-02-29T12:34:56.789Z"),
        ("2024-01-01T1:00:00Z", "2024-01-01T01:00:00Z"),
        ("2024-01-01T00:00:00,5Z", "2024-01-01T00:00:00.5Z"),
        (
            "2024-01-01T00:00:00.1234567891234Z",
            "2024-01-01T00:00:00.123456789Z",
        ),
        ("2024-01-01T00:00:00+00:00", "2024-01-01T00:00:00Z"),
        ("2024-01-01T00:00:00-08:30", "2024-01-01T00:00:00-08:30"),
        ("2024-01-01T00:00:00+24:60", "2024-01-01T00:00:00+25:00"),
        ("0000-12-31T23:00:00-01:00", "0000-12-31T23:00:00-01:00"),
        (
            "9999-12-31T23:59:59.999999999Z",
            "9999-12-31T23:59:59.999999999Z",
        ),
    ] {
        assert_eq!(timestamp(text).to_string(), want, "{text}");
    }
}

#[test]
fn refuses_what_is_no_timestamp() {
    for text in [
        "",
        "2024-01-01",
        "2024-01-01T00:00:00",
        "2024-01-01t00:00:00Z",
        "2024-01-01T00:00:00z",
        "2023-02-29T00:00:00Z",
        "2024-13-01T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:00:60Z",
        "2024-01-01T00:00:00.Z",
        "2024-01-01T00:00:00+25:00",
        "2024-01-01T00:00:00Z ",
        "24-01-01T00:00:00Z",
    ] {
        assert!(
            matches!(Timestamp::parse(text), Err(ParseTimestampError::Form(_))),
            "{text}"
        );
    }
    for text in ["0000-12-31T23:59:59Z", "9999-12-31T23:59:59-00:01"] {
        let overflow = ParseTimestampError::Range(OverflowError::Timestamp);
        assert_eq!(Timestamp::parse(text), Err(overflow), "{text}");
    }
}

#[test]
fn keeps_the_offset_through_arithmetic() {
    let late = timestamp("9999-12-31T23:59:59+01:00");
    assert_eq!(
        late.plus(duration("1h")).unwrap().to_string(),
        "10000-01-01T00:59:59+01:00"
    );
    assert_eq!(late.plus(duration("1h1s")), Err(OverflowError::Timestamp));
    let min = Duration::from_nanos(i64::MIN);
    assert_eq!(late.minus(min), Err(OverflowError::Integer));
    assert_eq!(late, timestamp("9999-12-31T22:59:59Z"));
}

#[test]
fn measures_between_timestamps() {
    let (a, b) = (
        timestamp("2024-01-01T00:00:00.5Z"),
        timestamp("2024-01-01T00:00:01Z"),
    );
    assert_eq!(a.since(b).unwrap().to_string(), "-0.5s");
    let early = timestamp("0001-01-01T00:00:00Z");
    assert!(early.is_zero());
    assert_eq!(a.since(early), Err(OverflowError::Integer));
    assert_eq!(
        Timestamp::from_unix(253_402_300_800),
        Err(OverflowError::Timestamp)
    );
}

#[test]
fn reads_fields_in_a_zone() {
    let at = timestamp("2009-02-13T23:31:30.123Z");
    let fields = |zone: &str| {
        let zone = Zone::parse(zone).unwrap();
        [
            at.full_year(&zone),
            at.month(&zone),
            at.day_of_month(&zone),
            at.day_of_month_from_zero(&zone),
            at.day_of_year(&zone),
            at.day_of_week(&zone),
            at.hours(&zone),
            at.minutes(&zone),
            at.seconds(&zone),
            at.milliseconds(),
        ]
    };
    assert_eq!(fields(""), [2009, 1, 13, 12, 43, 5, 23, 31, 30, 123]);
    assert_eq!(fields("UTC"), fields("Local"));
    assert_eq!(
        fields("Australia/Sydney"),
        [2009, 1, 14, 13, 44, 6, 10, 31, 30, 123]
    );
    assert_eq!(
        fields("America/St_Johns"),
        [2009, 1, 13, 12, 43, 5, 20, 1, 30, 123]
    );
    assert_eq!(fields("-02:30"), [2009, 1, 13, 12, 43, 5, 21, 1, 30, 123]);
    assert_eq!(fields("02:30"), [2009, 1, 14, 13, 44, 6, 2, 1, 30, 123]);
    assert_eq!(
        fields("100000:0"),
        [2020, 6, 12, 11, 193, 0, 15, 31, 30, 123]
    );
    let end = timestamp("9999-12-31T23:59:59Z");
    assert_eq!(end.full_year(&Zone::parse("Asia/Tokyo").unwrap()), 10_000);
}

#[test]
fn explains_bad_zones() {
    for (text, want) in [
        ("Nope/Zone", "unknown time zone Nope/Zone"),
        ("utc", "unknown time zone utc"),
        ("america/new_york", "unknown time zone america/new_york"),
        ("Etc/Unknown", "unknown time zone Etc/Unknown"),
        ("America", "is a directory"),
        ("../etc/passwd", "time: invalid location name"),
        ("/etc", "time: invalid location name"),
        (":30", "strconv.Atoi: parsing \"\": invalid syntax"),
        ("1:b", "strconv.Atoi: parsing \"b\": invalid syntax"),
        ("1:2:3", "strconv.Atoi: parsing \"2:3\": invalid syntax"),
    ] {
        assert_eq!(Zone::parse(text).unwrap_err().to_string(), want, "{text}");
    }
}
