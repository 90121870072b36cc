//! Results recorded from Go 1.26, cel-go v0.26.0 and golang.org/x/text v0.39.0.

use super::*;

#[test]
fn formats_doubles_like_string_of_double() {
    for (value, want) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (123_456.0, "123456"),
        (999_999.5, "999999.5"),
        (1_000_000.0, "1e+06"),
        (1_234_567.0, "1.234567e+06"),
        (1e21, "1e+21"),
        (1e100, "1e+100"),
        (f64::MAX, "1.7976931348623157e+308"),
        (5e-324, "5e-324"),
        // This double is ….125, halfway between two shortest forms.
        (118_065_679_248_791.12, "1.1806567924879112e+14"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "+Inf"),
        (f64::NEG_INFINITY, "-Inf"),
    ] {
        assert_eq!(format_double(value), want, "{value:e}");
    }
}

#[test]
fn formats_decimals_without_exponent() {
    assert_eq!(format_double_decimal(1e21), "1000000000000000000000");
    assert_eq!(format_double_decimal(1e-9), "0.000000001");
    assert_eq!(format_double_decimal(-3600.5), "-3600.5");
    assert_eq!(format_double_six(1234.5), "1234.500000");
    assert_eq!(format_double_six(f64::NEG_INFINITY), "-Inf");
}

#[test]
fn formats_fixed_with_groups() {
    for (value, precision, want) in [
        (1.5, None, "1.500000"),
        (-0.0, None, "0.000000"),
        (-0.000_000_1, None, "-0.000000"),
        (1_234_567.891, Some(2), "1,234,567.89"),
        (999.999, Some(2), "1,000.00"),
        (0.5, Some(0), "0"),
        (1.5, Some(0), "2"),
        (2.5, Some(0), "2"),
        (1e21, Some(0), "1,000,000,000,000,000,000,000"),
        (f64::NAN, None, "NaN"),
        (f64::INFINITY, Some(3), "∞"),
        (f64::NEG_INFINITY, None, "-∞"),
        // The minimum number of decimals is an 8-bit integer, the maximum a 16-bit integer.
        (612.0, Some(256), "612"),
        (0.5, Some(257), "0.5"),
        (0.1, Some(32_768), "0.1"),
        (0.1, Some(99_999_999), "%!(NOVERB)"),
    ] {
        assert_eq!(
            format_fixed(value, precision),
            want,
            "{value:e} {precision:?}"
        );
    }
    assert_eq!(format_fixed(0.1, Some(300)).len(), 57);
    assert_eq!(format_fixed(0.25, Some(10_000_005)).len(), 135);
}

#[test]
fn formats_scientific_with_a_width() {
    for (value, width, want) in [
        (1.5, None, "1.500000×10⁰⁰"),
        (0.0, None, "0.000000×10⁰⁰"),
        (-1_052.032_911_275, Some(3), "-1.052033×10⁰³"),
        (1e-300, None, "1.000000×10⁻³⁰⁰"),
        (1.5, Some(15), "  1.500000×10⁰⁰"),
        (f64::NAN, None, "   NaN"),
        (f64::INFINITY, Some(2), " ∞"),
        (f64::NEG_INFINITY, None, "    -∞"),
        (1.5, Some(65_536), "1.500000×10⁰⁰"),
        (1.5, Some(99_999_999), "%!(NOVERB)"),
    ] {
        assert_eq!(format_scientific(value, width), want, "{value:e} {width:?}");
    }
}

#[test]
fn parses_integers() {
    for (text, int, uint) in [
        ("0", Some(0), Some(0)),
        ("+5", Some(5), None),
        ("-0", Some(0), None),
        ("00012", Some(12), Some(12)),
        (
            "9223372036854775807",
            Some(i64::MAX),
            Some(9_223_372_036_854_775_807),
        ),
        ("9223372036854775808", None, Some(9_223_372_036_854_775_808)),
        ("-9223372036854775808", Some(i64::MIN), None),
        ("18446744073709551615", None, Some(u64::MAX)),
        ("18446744073709551616", None, None),
        ("", None, None),
        ("+", None, None),
        ("1_000", None, None),
        ("0x10", None, None),
        (" 1", None, None),
        ("٣", None, None),
    ] {
        assert_eq!(parse_int(text), int, "{text}");
        assert_eq!(parse_uint(text), uint, "{text}");
    }
}

#[test]
fn parses_doubles() {
    for (text, want) in [
        ("1", 1.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("+.5e1", 5.0),
        ("1_000.5", 1000.5),
        ("1e1_0", 1e10),
        ("0x1.8p1", 3.0),
        ("-0X_1p-2", -0.25),
        ("0x1p-1074", 5e-324),
        ("0x1p-1075", 0.0),
        ("0x1.8p-1075", 5e-324),
        ("0x1.fffffffffffff7p1023", f64::MAX),
        ("1e-999", 0.0),
        ("-iNf", f64::NEG_INFINITY),
        ("Infinity", f64::INFINITY),
    ] {
        assert_eq!(parse_double(text), Some(want), "{text}");
    }
    assert!(parse_double("NaN").is_some_and(f64::is_nan));
    for text in [
        "",
        ".",
        "e5",
        "1e",
        "1e+",
        "1__0",
        "_1",
        "1_",
        "1_.5",
        "1._5",
        "1e_5",
        "0x1",
        "0x",
        "0b1",
        "0x1.fffffffffffff8p1023",
        "1e999",
        "-nan",
        "infin",
        "1 ",
        "１",
        "1.2.3",
    ] {
        assert_eq!(parse_double(text), None, "{text}");
    }
}

#[test]
fn parses_bools() {
    assert_eq!(parse_bool("True"), Some(true));
    assert_eq!(parse_bool("f"), Some(false));
    assert_eq!(parse_bool("tRUE"), None);
    assert_eq!(parse_bool(""), None);
}

#[test]
fn says_why_text_is_no_int() {
    let text = |s| atoi(s).unwrap_err().to_string();
    assert_eq!(
        text("ab\"c"),
        r#"strconv.Atoi: parsing "ab\"c": invalid syntax"#
    );
    assert_eq!(text(""), r#"strconv.Atoi: parsing "": invalid syntax"#);
    let large = "99999999999999999999";
    assert_eq!(
        text(large),
        format!("strconv.Atoi: parsing \"{large}\": value out of range")
    );
}

#[test]
fn refuses_doubles_outside_the_range() {
    assert_eq!(double_to_int(-1.9), Ok(-1));
    assert_eq!(
        double_to_int(9_223_372_036_854_774_784.0),
        Ok(9_223_372_036_854_774_784)
    );
    for value in [f64::NAN, f64::INFINITY, 9.3e18, i64::MIN as f64] {
        assert_eq!(double_to_int(value), Err(RangeError::Int), "{value}");
    }
    assert_eq!(double_to_uint(-0.0), Ok(0));
    for value in [f64::NAN, -0.5, 18_446_744_073_709_551_616.0] {
        assert_eq!(double_to_uint(value), Err(RangeError::Uint), "{value}");
    }
    assert_eq!(
        uint_to_int(u64::MAX).unwrap_err().to_string(),
        "integer overflow"
    );
    assert_eq!(
        int_to_uint(-1).unwrap_err().to_string(),
        "unsigned integer overflow"
    );
}
