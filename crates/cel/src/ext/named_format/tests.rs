//! Results recorded from k8s.io/apiserver v0.36.4.

use super::NamedFormat::*;
use super::*;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters \
    or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
    regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
    'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or \
    '-', start with an alphabetic character, and end with an alphanumeric character (e.g. \
    'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and \
    end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used \
    for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

#[test]
fn accepts_what_has_the_format() {
    for (format, texts) in [
        (Dns1123Label, &["a", "1", "my-name"][..]),
        (Dns1123LabelPrefix, &["my-name-", "a-"]),
        (Dns1123Subdomain, &["a.b-c.d", "1.2"]),
        (Dns1123SubdomainPrefix, &["a.b-"]),
        (Dns1035Label, &["a1", "my-name"]),
        (Dns1035LabelPrefix, &["a-", "ab-", "1-"]),
        (QualifiedName, &["MyName", "a_b.c", "example.com/MyName"]),
        (LabelValue, &["", "a", "My_value.1"]),
        (Uri, &["http://example.com/a?b", "/a", "a:b"]),
        (
            Uuid,
            &[
                "123e4567-e89b-12d3-A456-426614174000",
                "123e4567e89b12d3a456426614174000",
                "123e4567e89b-12d3a456-426614174000",
            ],
        ),
        (Byte, &["YWJj", "YWI=", "YQ==", "+/+/"]),
        (Date, &["2024-02-29", "0000-01-01"]),
        (
            DateTime,
            &[
                "2024-02-29T23:59:59Z",
                "2024-02-29t00:00:00.5+99:99",
                "2024-02-29T00:00:00é5z",
                "2024-02-29T00:00:00Ztrash",
            ],
        ),
    ] {
        for text in texts {
            assert_eq!(
                format.validate(text),
                Vec::<String>::new(),
                "{format:?} {text}"
            );
        }
    }
}

#[test]
fn explains_what_has_not_the_format() {
    let long = "a".repeat(254);
    for (format, text, want) in [
        (Dns1123Label, "a.b", &["must not contain dots"][..]),
        (Dns1123Label, "A", &[LABEL]),
        (Dns1123Label, "", &[LABEL]),
        (Dns1123Label, &long, &["must be no more than 63 characters"]),
        (Dns1123LabelPrefix, "-", &[LABEL]),
        (Dns1123Subdomain, "a..b", &[SUBDOMAIN]),
        (
            Dns1123Subdomain,
            &long,
            &["must be no more than 253 characters"],
        ),
        (Dns1035Label, "1a", &[LABEL_1035]),
        (LabelValue, "-a", &[LABEL_VALUE]),
        (LabelValue, &long, &["must be no more than 63 bytes"]),
        (Uri, "a", &["parse \"a\": invalid URI for request"]),
        (Uuid, "x", &["does not match the UUID format"]),
        (
            Uuid,
            "123e4567--e89b-12d3-A456-426614174000",
            &["does not match the UUID format"],
        ),
        (Byte, "", &["invalid base64"]),
        (Byte, "Y===", &["invalid base64"]),
        (Byte, "YQ-_", &["invalid base64"]),
        (Date, "2023-02-29", &["invalid date"]),
        (Date, "2024-1-1", &["invalid date"]),
        (DateTime, "2024-01-01 00:00:00Z", &["invalid datetime"]),
        (DateTime, "2024-01-01T24:00:00Z", &["invalid datetime"]),
        (DateTime, "2024-01-01T00:00:00", &["invalid datetime"]),
    ] {
        assert_eq!(format.validate(text), want, "{format:?} {text}");
    }
}

#[test]
fn explains_both_parts_of_a_qualified_name() {
    let part = |part: &str, text: &str| format!("{part} part {text}");
    assert_eq!(
        QualifiedName.validate("/"),
        [
            part("prefix", "must be non-empty"),
            part("name", "must be non-empty"),
            part("name", NAME)
        ]
    );
    assert_eq!(QualifiedName.validate("A/b"), [part("prefix", SUBDOMAIN)]);
    assert_eq!(
        QualifiedName.validate(&"a".repeat(64)),
        [part("name", "must be no more than 63 bytes")]
    );
    assert_eq!(
        QualifiedName.validate("a/b/c"),
        [format!(
            "a valid label key {NAME} with an optional DNS subdomain prefix and '/' \
             (e.g. 'example.com/MyName')"
        )]
    );
}

#[test]
fn finds_formats_by_name() {
    for format in NamedFormat::ALL {
        assert_eq!(NamedFormat::from_name(format.name()), Some(format));
    }
    assert_eq!(NamedFormat::from_name("DNS1123Label"), None);
    assert_eq!(NamedFormat::from_name("dateTime"), None);
}
