//! Results recorded from k8s.io/apimachinery v0.36.4.

use super::*;

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap()
}

#[test]
fn reads_and_prints() {
    for (text, want, integer) in [
        ("0", "0", Some(0)),
        ("+", "0", Some(0)),
        ("-", "0", Some(0)),
        ("100m", "100m", None),
        ("1000m", "1", None),
        ("+5", "+5", Some(5)),
        ("007", "007", Some(7)),
        ("1.5Gi", "1536Mi", None),
        ("8Ki", "8Ki", Some(8192)),
        ("1024Ki", "1Mi", Some(1 << 20)),
        ("1023", "1023", Some(1023)),
        ("1Pi", "1Pi", None),
        ("0.1Ki", "102400m", None),
        ("0.0001Ki", "102400u", None),
        ("12e6", "12e6", Some(12_000_000)),
        ("12E6", "12E6", Some(12_000_000)),
        ("1e1", "10", Some(10)),
        (".5", "500m", None),
        ("5.", "5.", Some(5)),
        ("-1.5", "-1500m", None),
        ("0.0000000001", "1n", None),
        ("-0.0000000001", "-1n", None),
        ("5.e-20", "1e-9", None),
        ("9Ei", "9223372036854775807", None),
        ("-9Ei", "-9223372036854775807", None),
        ("9223372036854775808", "9223372036854775808", None),
        ("999999999999999999E", "999999999999999999E", None),
        ("1e4294967297", "10", Some(10)),
        ("1e2147483647", "10e2147483646", None),
    ] {
        let parsed = quantity(text);
        assert_eq!(parsed.to_string(), want, "{text}");
        assert_eq!(parsed.as_integer().ok(), integer, "{text}");
    }
}

#[test]
fn explains_what_is_no_quantity() {
    use QuantityError::{FormatWrong, Numeric, Suffix};
    for (text, want) in [
        ("", FormatWrong),
        ("abc", FormatWrong),
        ("1 Gi", FormatWrong),
        ("1.2.3", FormatWrong),
        ("1é", FormatWrong),
        ("0x10", FormatWrong),
        ("1K", Suffix),
        ("1ki", Suffix),
        ("1e", Suffix),
        ("1Mi3", Suffix),
        ("1e99999999999999999999", Suffix),
        (".e-20", Numeric),
    ] {
        assert_eq!(Quantity::parse(text).unwrap_err(), want, "{text}");
        assert!(!Quantity::is_valid(text));
    }
}

#[test]
fn compares_across_forms() {
    for (a, b, want) in [
        ("200M", "0.2G", Ordering::Equal),
        ("50M", "50Mi", Ordering::Less),
        ("1", "1000m", Ordering::Equal),
        ("1e2000000000", "1e1999999999", Ordering::Greater),
        ("-1e2000000000", "1Ki", Ordering::Less),
        ("1Pi", "1125899906842624", Ordering::Equal),
        ("0", "0Ki", Ordering::Equal),
    ] {
        assert_eq!(quantity(a).compare(&quantity(b)), want, "{a} {b}");
    }
}

#[test]
fn adds_and_subtracts() {
    for (a, b, sum, difference) in [
        ("1", "1Ki", "1025", "-1023"),
        ("1Ki", "1", "1025", "1023"),
        ("0", "1Ki", "1Ki", "-1Ki"),
        ("500m", "500m", "1", "0"),
        ("1k", "1", "1001", "999"),
        ("1Pi", "1", "1125899906842625", "1125899906842623"),
        (
            "9223372036854775807",
            "1",
            "9223372036854775808",
            "9223372036854775806",
        ),
        (
            "1e30",
            "1",
            "1000000000000000000000000000001",
            "999999999999999999999999999999",
        ),
        ("8Ei", "8Ei", "18446744073709551614", "0"),
    ] {
        assert_eq!(
            quantity(a).add(&quantity(b)).unwrap().to_string(),
            sum,
            "{a} + {b}"
        );
        assert_eq!(
            quantity(a).sub(&quantity(b)).unwrap().to_string(),
            difference,
            "{a} - {b}"
        );
    }
    assert!(
        !quantity("500m")
            .add(&quantity("500m"))
            .unwrap()
            .is_integer()
    );
    assert_eq!(quantity("1k").add_int(24).unwrap().as_integer(), Ok(1024));
    assert_eq!(quantity("0").sub_int(-1000).unwrap().to_string(), "1e3");
    assert!(quantity("1").add_int(1).unwrap().is_computed());
    assert!(!quantity("1").is_computed());
}

#[test]
fn refuses_sums_beyond_memory() {
    let huge = quantity("1e2000000000");
    assert_eq!(huge.add_int(1).unwrap_err(), QuantityError::TooManyDigits);
    assert_eq!(huge.add_int(0).unwrap().to_string(), "100e1999999998");
    assert_eq!(
        Quantity::parse("1234567890123456789e2000000000").unwrap_err(),
        QuantityError::Numeric
    );
}

#[test]
fn approximates_as_a_double() {
    for (text, want) in [
        ("1.5Gi", 1_610_612_736.0),
        ("100m", 0.1),
        ("-3u", -3e-6),
        ("1e400", f64::INFINITY),
        ("123456789012345678901234567890", 1.234567890123457e29),
    ] {
        assert_eq!(quantity(text).as_approximate_float(), want, "{text}");
    }
    assert!(quantity("0e400").as_approximate_float().is_nan());
    assert_eq!(quantity("-1n").sign(), -1);
}

#[test]
fn rounds_away_from_zero() {
    for (text, whole, milli) in [
        ("0", 0, 0),
        ("1", 1, 1_000),
        ("1500m", 2, 1_500),
        ("1m", 1, 1),
        ("100u", 1, 1),
        ("1000100u", 2, 1_001),
        ("-1500m", -2, -1_500),
        ("1Gi", 1 << 30, 1000 << 30),
        ("1.5Ki", 1536, 1_536_000),
        ("12e6", 12_000_000, 12_000_000_000),
        ("1.0000000000000000001", 2, 1_001),
        ("-1.5e-10", 1, 1),
        // Overflow: the low 64 bits.
        ("9223372036854775807", i64::MAX, -1_000),
        ("9223372036854775808", i64::MIN, 0),
        ("16Ei", i64::MAX, -1_000),
        (
            "12345678901234567890",
            -6_101_065_172_474_983_726,
            4_807_115_922_877_858_896,
        ),
        ("-12345678901234567890", -5_097_733_591, -5_097_733_592_001),
        (
            "123456789012345678901234",
            -7_269_072_992_350_064_654,
            -1_055_827_308_501_317_296,
        ),
        (
            "123456789012345678901234m",
            -5_670_419_503_621_182_410,
            -7_269_072_992_350_064_654,
        ),
        (
            "-123456789012345678901234m",
            4_362_896_300,
            4_362_896_299_873,
        ),
        // A 64-bit amount that overflows is zero in Go.
        ("9E", 9_000_000_000_000_000_000, 0),
        ("10E", 0, 0),
        ("1e30", 0, 0),
        ("-1e30", 0, 0),
    ] {
        let quantity = Quantity::parse(text).unwrap();
        let got = (quantity.rounded_up(0), quantity.rounded_up(3));
        assert_eq!(got, (whole, milli), "{text}");
    }
}
