//! Results recorded from cel-go v0.26.0.

use super::*;

#[test]
fn counts_in_code_points() {
    assert_eq!(char_at("héllo", 1), Ok("é"));
    assert_eq!(char_at("héllo", 5), Ok(""));
    assert_eq!(char_at("héllo", 6), Err(IndexError::OutOfRange(6)));
    assert_eq!(substring("漢字😀", 2), Ok("😀"));
    assert_eq!(substring("漢字😀", 3), Ok(""));
    assert_eq!(substring_range("漢字😀", 1, 2), Ok("字"));
    assert_eq!(
        substring_range("漢字😀", 0, 4),
        Err(IndexError::OutOfRange(4))
    );
    assert_eq!(index_of("héhé", "é"), 1);
    assert_eq!(last_index_of("héhé", "é"), 3);
}

#[test]
fn finds_from_an_offset() {
    for (text, part, offset, first, last) in [
        ("tacocat", "ac", 0, Ok(1), Ok(-1)),
        ("tacocat", "a", 3, Ok(5), Ok(1)),
        ("tacocat", "", 3, Ok(3), Ok(3)),
        ("tacocat", "", -30, Ok(-30), Ok(-30)),
        ("tacocat", "", 99, Ok(99), Ok(99)),
        ("tacocat", "a", 7, Ok(-1), Ok(-1)),
        ("tacocat", "tacocatx", 0, Ok(-1), Ok(-1)),
        ("ééaé", "é", 2, Ok(3), Ok(1)),
        ("", "a", 0, Ok(-1), Ok(-1)),
        (
            "a",
            "a",
            -1,
            Err(IndexError::OutOfRange(-1)),
            Err(IndexError::OutOfRange(-1)),
        ),
    ] {
        assert_eq!(
            index_of_from(text, part, offset),
            first,
            "{text} {part} {offset}"
        );
        assert_eq!(
            last_index_of_from(text, part, offset),
            last,
            "{text} {part} {offset}"
        );
    }
    assert_eq!(last_index_of("", ""), 0);
    assert_eq!(last_index_of("ab", ""), 2);
}

#[test]
fn replaces_up_to_a_limit() {
    for (text, old, new, limit, want) in [
        ("hello hello", "he", "we", -1, "wello wello"),
        ("hello hello", "he", "we", 1, "wello hello"),
        ("hello hello", "he", "we", 0, "hello hello"),
        ("ab", "", "-", -1, "-a-b-"),
        ("ab", "", "-", 2, "-a-b"),
        ("", "", "-", -1, "-"),
    ] {
        assert_eq!(replace(text, old, new, limit), want);
        assert_eq!(replaced_len(text, old, new, limit), want.len());
    }
}

#[test]
fn splits_up_to_a_limit() {
    assert_eq!(split("a,b,c", ",", -1), ["a", "b", "c"]);
    assert_eq!(split("a,b,c", ",", 2), ["a", "b,c"]);
    assert!(split("a,b,c", ",", 0).is_empty());
    assert_eq!(split("", ",", -1), [""]);
    assert!(split("", "", -1).is_empty());
    assert_eq!(split("aé😀", "", -1), ["a", "é", "😀"]);
    assert_eq!(split("aé😀", "", 2), ["a", "é😀"]);
}

#[test]
fn trims_joins_and_changes_case() {
    assert_eq!(trim("\u{85}\u{a0}\u{2003}a\u{200b}\t\n\u{b}"), "a\u{200b}");
    assert_eq!(join(["a", "b"], "-"), "a-b");
    assert_eq!(join(Vec::<&str>::new(), "-"), "");
    assert_eq!(lower_ascii("ÀÉAb"), "ÀÉab");
    assert_eq!(upper_ascii("àéAb"), "àéAB");
}

#[test]
fn quotes_only_what_cel_escapes() {
    assert_eq!(
        quote("a\"b\\\n\r\t\u{7}\u{8}\u{b}\u{c}"),
        r#""a\"b\\\n\r\t\a\b\v\f""#
    );
    assert_eq!(quote("\0\u{7f}\u{feff}é"), "\"\0\u{7f}\u{feff}é\"");
}

#[test]
fn explains_bad_ranges() {
    assert_eq!(
        substring("a", 2).unwrap_err().to_string(),
        "index out of range: 2"
    );
    let backwards = substring_range("abc", 2, 1).unwrap_err();
    assert_eq!(
        backwards.to_string(),
        "invalid substring range. start: 2, end: 1"
    );
}

#[test]
fn reads_format_strings() {
    let all: Vec<_> = pieces("a%%é%s%.2f%X").collect();
    assert_eq!(
        all,
        [
            Piece::Text("a"),
            Piece::Text("%"),
            Piece::Text("é"),
            Piece::Clause(Ok(Clause::String)),
            Piece::Clause(Ok(Clause::Fixed(Some(2)))),
            Piece::Clause(Ok(Clause::Hex { upper: true })),
        ]
    );
}

#[test]
fn explains_bad_clauses() {
    for (format, want) in [
        ("%", "unexpected end of string"),
        (
            "%.2",
            "could not parse formatting clause: error while parsing precision: \
             could not find end of precision specifier",
        ),
        (
            "%.f",
            "could not parse formatting clause: error while parsing precision: error while \
             converting precision to integer: strconv.Atoi: parsing \"\": invalid syntax",
        ),
        (
            "%z",
            "could not parse formatting clause: unrecognized formatting clause \"z\"",
        ),
        (
            "%é",
            "could not parse formatting clause: unrecognized formatting clause \"Ã\"",
        ),
    ] {
        let Some(Piece::Clause(Err(error))) = pieces(format).next() else {
            panic!("{format} has no error");
        };
        assert_eq!(error.to_string(), want);
    }
}

#[test]
fn names_the_type_a_clause_refuses() {
    assert_eq!(
        Clause::Decimal.refusal("string"),
        "decimal clause can only be used on integers, was given string"
    );
    assert_eq!(
        Clause::String.refusal("net.IP"),
        "string clause can only be used on strings, bools, bytes, ints, \
         doubles, maps, lists, types, durations, and timestamps, was given net.IP"
    );
}
