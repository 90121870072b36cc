use super::*;

fn json(source: &str) -> String {
    parse(source).unwrap().root().to_json()
}

fn error(source: &str) -> String {
    parse(source).unwrap_err().message
}

#[test]
fn resolves_scalars_like_kubernetes() {
    for (source, want) in [
        ("yes", "true"),
        ("Off", "false"),
        ("y", "true"),
        ("~", "null"),
        ("''", "\"\""),
        ("\"yes\"", "\"yes\""),
        ("0777", "511"),
        ("0o17", "15"),
        ("0x1F", "31"),
        ("-0b11", "-3"),
        ("1_000", "1000"),
        ("1_000.5", "1000.5"),
        ("+12", "12"),
        ("09", "9"),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616", "18446744073709552000"),
        ("-9223372036854775808", "-9223372036854775808"),
        (".5", "0.5"),
        ("1e3", "1000"),
        ("1e21", "1e+21"),
        ("1e-7", "1e-7"),
        ("1.", "1"),
        ("1.2.3", "\"1.2.3\""),
        ("12:30", "\"12:30\""),
        ("2001-12-14", "\"2001-12-14\""),
        ("v1", "\"v1\""),
        ("-", "[null]"),
        ("-x", "\"-x\""),
        ("!!str 5", "\"5\""),
        ("!!int '5'", "5"),
        ("!!float 5", "5"),
        ("!custom 5", "\"5\""),
        ("!!binary aGVsbG8=", "\"hello\""),
        ("|\n  a\n  b\n", "\"a\\nb\\n\""),
    ] {
        assert_eq!(json(source), want, "{source:?}");
    }
}

#[test]
fn spells_out_keys() {
    assert_eq!(
        json("{1: a, yes: b, 1.5: c, x: d}"),
        r#"{"1":"a","true":"b","1.5":"c","x":"d"}"#
    );
    assert_eq!(
        json("{.inf: a, -.inf: b, .nan: c, 1.1: d, 1e30: e, 1e-5: f, 1e6: g}"),
        r#"{".inf":"a","-.inf":"b",".nan":"c","1.1":"d","1e+30":"e","1e-05":"f","1e+06":"g"}"#
    );
    assert_eq!(
        error("? [a]\n: b"),
        "a key must be a scalar, not a list or a map"
    );
    assert_eq!(error("~: b"), "a key must not be null");
}

#[test]
fn refuses_what_json_cannot_say() {
    assert_eq!(error("a: .inf"), "json: unsupported value: +Inf");
    assert_eq!(error("a: !!int x"), "cannot decode !!str `x` as a !!int");
}

#[test]
fn follows_aliases_and_merges() {
    assert_eq!(
        json("a: &x {b: [1, {c: 2}]}\nd: *x\ne: [*x, *x]"),
        r#"{"a":{"b":[1,{"c":2}]},"d":{"b":[1,{"c":2}]},"e":[{"b":[1,{"c":2}]},{"b":[1,{"c":2}]}]}"#
    );
    assert_eq!(
        json("base: &b {u: 1, v: 2}\nm:\n  <<: *b\n  v: 3"),
        r#"{"base":{"u":1,"v":2},"m":{"u":1,"v":2,"v":3}}"#
    );
    assert_eq!(
        json("p: &p {a: 1}\nq: &q {b: [2]}\nm: {<<: [*p, *q, {c: 3}], d: 4}"),
        r#"{"p":{"a":1},"q":{"b":[2]},"m":{"a":1,"b":[2],"c":3,"d":4}}"#
    );
    assert_eq!(
        json("a: {<<: {x: {w: 1}}, z: 2}"),
        r#"{"a":{"x":{"w":1},"z":2}}"#
    );
    assert_eq!(
        error("a: {<<: 1}"),
        "map merge requires map or sequence of maps as the value"
    );
    assert_eq!(
        error("a: &a [*a]"),
        "the value of an anchor contains itself"
    );
}

#[test]
fn stops_an_alias_bomb() {
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        bomb += &format!("a{level}: &a{level} [{}]\n", vec![alias; 9].join(","));
    }
    assert_eq!(error(&bomb), "document contains excessive aliasing");
}

#[test]
fn bounds_the_depth_without_using_the_stack() {
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(parse(&deep(200)).is_ok());
    assert!(parse(&deep(100_000)).is_err());
    let block: String = (0..11_000).map(|_| "- ").collect();
    assert_eq!(error(&block), "exceeded max depth of 10000");
}

#[test]
fn splits_streams_at_separators() {
    let source = "a: 1\n---\nb: 2\n--- # c\nc: |\n  --- not a separator\n---\n";
    let parts: Vec<&str> = split(source)
        .into_iter()
        .map(|part| &source[part])
        .collect();
    assert_eq!(
        parts,
        [
            "a: 1\n",
            "---\nb: 2\n",
            "--- # c\nc: |\n  --- not a separator\n",
            "---\n"
        ]
    );
    let source = "%YAML 1.1\n---\na: 1\n";
    assert_eq!(split(source).first(), Some(&(0..source.len())));
    assert_eq!(parse_all("a\n...\n---\nb\n").unwrap().len(), 2);
    assert_eq!(json("# nothing\n"), "null");
}

#[test]
fn keeps_places_in_bytes() {
    let source = "é: 1\nname: 'x y'\n";
    let document = parse(source).unwrap();
    let member = document.root().members().nth(1).unwrap();
    assert_eq!(&source[member.key_span.range()], "name");
    assert_eq!(&source[member.value.span().range()], "'x y'");
}

/// Tekton's manifests close a bracket at the indentation of the list, and Gatekeeper's templates continue a
/// quoted scalar there.
#[test]
fn lines_within_brackets_and_quotes_begin_in_any_column() {
    for (source, want) in [
        (
            "- args: [\n    a,\n  ]\n  b: 1\n",
            r#"[{"args":["a"],"b":1}]"#,
        ),
        (
            "- args: [\n\"a\", b,\nc\n]\n  b: 1\n",
            r#"[{"args":["a","b","c"],"b":1}]"#,
        ),
        (
            "a:\n  b: {\n  c: 1,\n d: [\n2\n]}\n  e: 3\n",
            r#"{"a":{"b":{"c":1,"d":[2]},"e":3}}"#,
        ),
        (
            "a:\n  d: \"x\n  y.\"\n  e: 2\n",
            r#"{"a":{"d":"x y.","e":2}}"#,
        ),
        (
            "a:\n  d: 'it''s\nfine'\nb: 1\n",
            r#"{"a":{"d":"it's fine"},"b":1}"#,
        ),
        (
            "a:\n  d: \"é \\\" \\\n  x\n\n  z\"\n",
            r#"{"a":{"d":"é \" x\nz"}}"#,
        ),
    ] {
        assert_eq!(json(source), want, "{source:?}");
    }
    // Following positions are those of the original source.
    let source = "é: [\n]\nb:\n- c: [\nd\n]\n  e: here\n";
    let document = parse(source).unwrap();
    let place = document
        .root()
        .get("b")
        .and_then(|list| list.items().next()?.get("e"));
    assert_eq!(&source[place.unwrap().span().range()], "here");
    assert_eq!(
        error("a:\n  d: \"x\n  y.\n"),
        "found unexpected end of stream"
    );
    // The total of parsing again is limited.
    let lines = "- [\n]\n".repeat(10) + &"#".repeat(MAX_REPARSED_BYTES / 4);
    let source = format!("a:\n- b:\n{}", lines.replace("- [", "  - c: ["));
    assert!(parse(&source).is_err());
}
