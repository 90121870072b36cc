//! Results recorded from Go 1.26 and k8s.io/apiserver v0.36.4.

use super::*;

#[test]
fn prints_the_canonical_form() {
    for (text, want) in [
        ("127.0.0.1", "127.0.0.1"),
        ("::", "::"),
        ("2001:DB8:0:0:1:0:0:1", "2001:db8::1:0:0:1"),
        ("1:0:2:0:3:0:4:0", "1:0:2:0:3:0:4:0"),
        ("::1.2.3.4", "::102:304"),
        ("64:ff9b::192.0.2.33", "64:ff9b::c000:221"),
        ("1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"),
    ] {
        let ip = Ip::parse(text).unwrap();
        assert_eq!(ip.to_string(), want, "{text}");
        assert_eq!(Ip::is_canonical(text), Ok(text == want), "{text}");
    }
    assert_eq!(Ip::parse("::1").unwrap().family(), 6);
    assert_eq!(Ip::parse("1.1.1.1").unwrap().size(), 4);
}

#[test]
fn explains_what_is_no_address() {
    for (text, want) in [
        ("", "unable to parse IP"),
        ("abc", "unable to parse IP"),
        ("%eth0", "missing IPv6 address"),
        ("1.2.3", "IPv4 address too short"),
        ("1.2.3.4.5", "IPv4 address too long"),
        ("01.2.3.4", "IPv4 field has octet with leading zero"),
        ("1.2.3.256", "IPv4 field has value >255"),
        (
            "1..2.3",
            "IPv4 field must have at least one digit (at \".2.3\")",
        ),
        (
            "1.2.3.",
            "IPv4 field must have at least one digit (at \".\")",
        ),
        ("1.2.3.é", "unexpected character (at \"é\")"),
        ("1:2", "address string too short"),
        (
            "1:2:3:4:5:6:7:8:9",
            "trailing garbage after address (at \"9\")",
        ),
        (
            "12345::",
            "each group must have 4 or less digits (at \"12345::\")",
        ),
        ("1::2::3", "multiple :: in address (at \":3\")"),
        (
            "1:2:3:4:5:6:7:8::",
            "the :: must expand to at least one field of zeros",
        ),
        (
            "1:2:3:4::5:6:7:8",
            "the :: must expand to at least one field of zeros",
        ),
        ("1:", "colon must be followed by more characters (at \":\")"),
        (
            ":1",
            "each colon-separated field must have at least one digit (at \":1\")",
        ),
        ("1g::", "unexpected character, want colon (at \"g::\")"),
        (
            "1:1.2.3.4",
            "embedded IPv4 address must replace the final 2 fields of the address \
             (at \"1.2.3.4\")",
        ),
        ("::1%", "zone must be a non-empty string"),
    ] {
        let error = Ip::parse(text).unwrap_err().to_string();
        let quoted = quote(text);
        assert_eq!(
            error,
            format!(
                "IP Address {quoted} parse error during conversion from string: \
                 ParseAddr({quoted}): {want}"
            )
        );
    }
}

#[test]
fn refuses_zones_and_mapped_addresses() {
    assert_eq!(
        Ip::parse("fe80::1%eth0").unwrap_err().to_string(),
        "IP address \"fe80::1%eth0\" with zone value is not allowed"
    );
    assert_eq!(
        Ip::parse("::ffff:1.2.3.4").unwrap_err().to_string(),
        "IPv4-mapped IPv6 address \"::ffff:1.2.3.4\" is not allowed"
    );
}

#[test]
fn knows_the_special_ranges() {
    let flags = |text: &str| {
        let ip = Ip::parse(text).unwrap();
        [
            ip.is_unspecified(),
            ip.is_loopback(),
            ip.is_link_local_multicast(),
            ip.is_link_local_unicast(),
            ip.is_global_unicast(),
        ]
        .map(u8::from)
    };
    for (text, want) in [
        ("0.0.0.0", [1, 0, 0, 0, 0]),
        ("::", [1, 0, 0, 0, 0]),
        ("127.8.8.8", [0, 1, 0, 0, 0]),
        ("::1", [0, 1, 0, 0, 0]),
        ("224.0.0.9", [0, 0, 1, 0, 0]),
        ("224.0.1.9", [0, 0, 0, 0, 0]),
        ("ff12::1", [0, 0, 1, 0, 0]),
        ("169.254.1.1", [0, 0, 0, 1, 0]),
        ("febf::1", [0, 0, 0, 1, 0]),
        ("10.0.0.1", [0, 0, 0, 0, 1]),
        ("fd00::1", [0, 0, 0, 0, 1]),
        ("255.255.255.255", [0, 0, 0, 0, 0]),
    ] {
        assert_eq!(flags(text), want, "{text}");
    }
}
