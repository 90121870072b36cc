use super::*;

#[test]
fn texts_are_told_by_their_format() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "bsonobjectid",
            &["507f1f77bcf86cd799439011"],
            &["507f1f77", "zz7f1f77bcf86cd799439011"],
        ),
        ("uri", &["https://a.b/c", "/path"], &["a b", "foo"]),
        (
            "email",
            &[
                "a@b",
                "Ann <a@b.c>",
                "\"a b\"@c",
                "a@[127.0.0.1]",
                "a@b (x (y))",
                "g: a@b;",
                "=?utf-8?q?J=C3=BC?= <a@b>",
            ],
            &[
                "",
                "a",
                "a@",
                "@b",
                "a@b c",
                "a..b@c",
                "a@[x]",
                "g: a@b, c@d;",
                "\"\"@b",
                "a@b (",
                "=?klingon?q?x?= <a@b>",
            ],
        ),
        (
            "hostname",
            &["a", "a.example", "xn--a.de", "☃.net"],
            &["", "-a", "a_b.c", "a.b1", "a..b"],
        ),
        (
            "ipv4",
            &["10.0.0.1", "010.001.0.1", "::ffff:1.2.3.4"],
            &["::1", "1.2.3", "256.1.1.1"],
        ),
        (
            "ipv6",
            &["::1", "fe80::1"],
            &["1.2.3.4", "fe80::1%eth0", "1::2::3"],
        ),
        (
            "cidr",
            &["10.0.0.0/08", "::/0", "010.0.0.0/8"],
            &["10.0.0.0", "10.0.0.0/33", "::/129"],
        ),
        (
            "mac",
            &["01:02:03:04:05:06", "0102.0304.0506", "010203040506"],
            &["01:02", "01-02:03:04:05:06"],
        ),
        (
            "uuid",
            &[
                "123e4567-e89b-12d3-a456-426614174000",
                "123E4567e89b12d3a456426614174000",
            ],
            &["123"],
        ),
        (
            "uuid3",
            &["123e4567-e89b-32d3-0456-426614174000"],
            &["123e4567-e89b-42d3-a456-426614174000"],
        ),
        (
            "uuid4",
            &["123e4567-e89b-42d3-a456-426614174000"],
            &["123e4567-e89b-42d3-c456-426614174000"],
        ),
        (
            "uuid5",
            &["123e4567-e89b-52d3-b456-426614174000"],
            &["123e4567-e89b-42d3-a456-426614174000"],
        ),
        (
            "isbn10",
            &["3836221195", "3 401 01319 X"],
            &["3423214121", "978-3836221191"],
        ),
        (
            "isbn13",
            &["978-4-87311-368-5"],
            &["978 3 8362 2119 0", "01234567890ab"],
        ),
        ("isbn", &["3836221195", "978 3401013190"], &["foo"]),
        (
            "creditcard",
            &["4220-8554-2622-2389", "374953669708156"],
            &["4220855426213389", "30190239451016"],
        ),
        (
            "ssn",
            &["123-45-6789", "123 45-6789"],
            &["123456789", "12-345-6789"],
        ),
        ("hexcolor", &["#fff", "CCccCC"], &["#ff", "fff0", "#ff12FG"]),
        (
            "rgbcolor",
            &["rgb(0,  31, 255)"],
            &["rgb(01,31,255)", "rgb(1,349,275)", "rgba(0,31,255)"],
        ),
        ("byte", &["aGk=", "aGVs"], &["", "aGk", "a-k="]),
        ("password", &["", "x"], &[]),
        ("date", &["2024-02-29"], &["2023-02-29", "2024-2-9"]),
        (
            "date-time",
            &["2024-02-29T10:00:00Z", "2024-02-29t10:00:00.5+01:00"],
            &["2024-02-29", "2024-02-29T25:00:00Z"],
        ),
        (
            "duration",
            &["1h", "3 days", "2 weeks and 1 hour", "0"],
            &["", "abc", "5 fortnights"],
        ),
        ("k8s-short-name", &["a-b"], &["A", "a.b", "-"]),
        ("k8s-long-name", &["a-b.c"], &["A", "a..b"]),
    ];
    for (name, good, bad) in cases {
        let format = Format::read(name, &Type::String, false).expect("a known format");
        for text in *good {
            assert!(format.matches(text), "{name} {text:?}");
        }
        for text in *bad {
            assert!(!format.matches(text), "{name} {text:?}");
        }
    }
}

#[test]
fn formats_count_only_for_their_types() {
    assert!(Format::read("int32", &Type::Integer, false).is_some_and(|f| !f.is_of_text()));
    assert!(Format::read("int32", &Type::String, false).is_none());
    assert!(Format::read("date", &Type::Integer, false).is_none());
    assert!(Format::read("date", &Type::Any, true).is_some());
    assert!(Format::read("nonsense", &Type::String, false).is_none());
    assert!(is_recognized("da-te", "string"));
    assert!(!is_recognized("date", "object"));
}
