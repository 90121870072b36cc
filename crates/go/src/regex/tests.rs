//! Results recorded from Go 1.26.

use super::*;

fn error(pattern: &str) -> String {
    let text = Regex::new(pattern).unwrap_err().to_string();
    text.strip_prefix("error parsing regexp: ")
        .unwrap()
        .to_owned()
}

#[test]
fn finds_what_go_finds() {
    for (pattern, text, want) in [
        ("a|ab", "ab", &["a"][..]),
        ("(?:a*?)b", "aab", &["aab"]),
        ("(?U)a+", "aaa", &["a", "a", "a"]),
        ("(?U)a+?", "aaa", &["aaa"]),
        // Digits, words, spaces and boundaries are ASCII.
        (r"\d", "٣4", &["4"]),
        (r"\w+", "été9_", &["t", "9_"]),
        (r"\s", "\u{b}\u{a0} ", &[" "]),
        (r"[[:space:]]", "\u{b}", &["\u{b}"]),
        (r"\bt", "été", &["t"]),
        // Case folding is Unicode's.
        ("(?i)k", "kK\u{212a}", &["k", "K", "\u{212a}"]),
        (r"(?i)[^\W]", "ſ", &["ſ"]),
        ("(?i:a)b", "Ab AB", &["Ab"]),
        // A dollar only matches at the end of the text.
        ("a$", "a\n", &[]),
        ("(?m)^a$", "a\na", &["a", "a"]),
        ("(?s)a.b", "a\nb", &["a\nb"]),
        ("a.b", "a\nb", &[]),
        ("[^b]", "\n", &["\n"]),
        (r"\Qa.b*\E+", "a.b**a_b*", &["a.b**"]),
        (r"\p{Greek}\P{Greek}", "aΩb", &["Ωb"]),
        (r"\p{^Lu}\pN", "A1a1", &["a1"]),
        ("(?P<x>a)(?<x>b)", "ab", &["ab"]),
        ("a{,2}", "a{,2}", &["a{,2}"]),
        ("[]a]", "]a", &["]", "a"]),
        ("a(?i)*", "aaA", &["aa", ""]),
        (r"\x{D800}|a", "a", &["a"]),
        (r"\101\x42", "AB", &["AB"]),
        // An empty match adjacent to the previous one is skipped.
        ("a*", "baac", &["", "aa", ""]),
        ("", "aé", &["", "", ""]),
        (r"\B", "é", &["", ""]),
        ("(|a)*", "aa", &["", "", ""]),
        ("(|a)+", "aa", &["", "", ""]),
    ] {
        let regex = Regex::new(pattern).unwrap();
        assert_eq!(regex.find_all(text, -1), want, "{pattern} on {text}");
        assert_eq!(
            regex.is_match(text),
            !want.is_empty(),
            "{pattern} on {text}"
        );
        // The program for large patterns has the same matches.
        let program = Program::new(&parse::parse(pattern).unwrap()).unwrap();
        let limit = usize::MAX;
        assert_eq!(program.find_all(text, limit), want, "{pattern} on {text}");
        assert_eq!(program.is_match(text), !want.is_empty());
    }
}

#[test]
fn programs_find_what_automata_find() {
    let atoms = [
        "a", "b", "[ab]", "[^a]", ".", "^", "$", r"\b", r"\B", "(?:ab)", "é", "(?m:^)", "(?m:$)",
        "",
    ];
    let repeats = [
        "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{2,}?", "{0}",
    ];
    let texts = ["", "a", "ab", "aab\nba", "é aé", "abababab", "\n\n", "ba b"];
    let mut seed = 1_u64;
    let mut pick = |bound: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % bound as u64).unwrap()
    };
    let mut compared = 0;
    for _ in 0..3000 {
        let mut part = || {
            let mut text = String::new();
            for _ in 0..=pick(3) {
                let (atom, repeat) = (atoms[pick(atoms.len())], repeats[pick(repeats.len())]);
                text.push_str(&format!("(?:{atom}){repeat}"));
            }
            text
        };
        let pattern = match part().len() % 3 {
            0 => part(),
            1 => format!("{}|{}", part(), part()),
            _ => format!("(?:{}|{})*{}", part(), part(), part()),
        };
        let hir = parse::parse(&pattern).unwrap();
        let Some(Engine::Automata { automata, .. }) = automata(&hir) else {
            continue;
        };
        let program = Program::new(&hir).unwrap();
        for text in texts {
            let want: Vec<_> = automata
                .find_iter(text)
                .map(|found| found.range())
                .collect();
            let want: Vec<&str> = want.into_iter().map(|range| &text[range]).collect();
            assert_eq!(
                program.find_all(text, usize::MAX),
                want,
                "{pattern} on {text:?}"
            );
            let place = automata.find(text).map(|found| found.range());
            assert_eq!(program.find(text, 0), place, "{pattern} on {text:?}");
            compared += 1;
        }
    }
    assert!(compared > 10_000, "{compared}");
}

#[test]
fn large_patterns_are_small_programs() {
    let regex = Regex::new(r"^[a-z\pL]{1,900}$").unwrap();
    assert!(
        matches!(*regex.engine(), Engine::Program { .. }),
        "{regex:?}"
    );
    assert!(regex.is_match("größe"));
    assert!(!regex.is_match("1"));
    assert!(!regex.is_match(&"x".repeat(901)));
    let Engine::Program { program, .. } = regex.engine() else {
        panic!("an automaton");
    };
    assert!(program.memory() < 64 << 10, "{}", program.memory());
}

#[test]
fn patterns_without_room_still_match() {
    // Far beyond the budget: a million instructions each.
    let patterns: Vec<Regex> = (0..20)
        .map(|number| Regex::new(&format!("^(?:{})$", "a{1000}b".repeat(300 + number))).unwrap())
        .collect();
    let kept = |engine: &Engine| !matches!(engine, Engine::Source);
    assert!(patterns.iter().any(|regex| !kept(regex.engine())));
    let last = patterns.last().unwrap();
    assert!(last.is_match(&format!("{}b", "a".repeat(1000)).repeat(319)));
    assert!(!last.is_match(&format!("{}b", "a".repeat(1000)).repeat(318)));
    assert_eq!(last.find("a"), None);
    drop(patterns);
}

#[test]
fn stops_at_the_limit() {
    let regex = Regex::new("a").unwrap();
    assert_eq!(regex.find_all("aaa", 2), ["a", "a"]);
    assert!(regex.find_all("aaa", 0).is_empty());
    assert_eq!(regex.find_at("ba"), Some(1..2));
    assert_eq!(regex.find("b"), None);
}

#[test]
fn explains_what_go_refuses() {
    for (pattern, want) in [
        ("[a", "missing closing ]: `[a`"),
        ("x[", "missing closing ]: `[`"),
        ("[]", "missing closing ]: `[]`"),
        ("(a", "missing closing ): `(a`"),
        ("a)b", "unexpected ): `a)b`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a+*?b", "invalid nested repetition operator: `+*?`"),
        ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a|*?", "missing argument to repetition operator: `*?`"),
        ("(?i)+", "missing argument to repetition operator: `+`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{2,1}", "invalid repeat count: `{2,1}`"),
        ("a{99999999999}", "invalid repeat count: `{99999999999}`"),
        ("(a{100}){11}", "invalid repeat count: `{11}`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        (r"\p{Foo}b", r"invalid character class range: `\p{Foo}`"),
        (
            r"\p{Old_Italic}",
            r"invalid character class range: `\p{Old_Italic}`",
        ),
        (r"\p{Greek", r"invalid character class range: `\p{Greek`"),
        (r"a\pXb", r"invalid character class range: `\pX`"),
        (r"a\", "trailing backslash at end of expression: ``"),
        (r"\C", r"invalid escape sequence: `\C`"),
        (r"\8", r"invalid escape sequence: `\8`"),
        (r"\1", r"invalid escape sequence: `\1`"),
        (r"[a-\d]", r"invalid escape sequence: `\d`"),
        (r"\x{110000}", r"invalid escape sequence: `\x{110000`"),
        (r"\é", r"invalid escape sequence: `\é`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?i", "invalid or unsupported Perl syntax: `(?i`"),
        ("(?i-)", "invalid or unsupported Perl syntax: `(?i-)`"),
        ("(?P<n", "invalid named capture: `(?P<n`"),
        ("(?P<n-m>a)", "invalid named capture: `(?P<n-m>`"),
        ("(?<=a)", "invalid named capture: `(?<=a)`"),
    ] {
        assert_eq!(error(pattern), want, "{pattern}");
    }
}

#[test]
fn bounds_depth_and_size() {
    let nested = |count: usize| format!("{}a{}", "(".repeat(count), ")".repeat(count));
    assert!(Regex::new(&nested(999)).is_ok());
    assert!(error(&nested(1000)).starts_with("expression nests too deeply: `((("));
    let flat = format!("{}a{}", "(?:".repeat(5000), ")".repeat(5000));
    assert!(Regex::new(&flat).is_ok());
    let deep = format!("{}{}", "(?:ab|c".repeat(498), ")".repeat(498));
    assert!(Regex::new(&deep).is_ok());
    assert!(error(&"a{1000}".repeat(4000)).starts_with("expression too large: `a{1000}"));
}

#[test]
fn compiles_when_first_searched_for() {
    let regex = Regex::new(r"^[a-z\pL]{1,900}$").unwrap();
    let clone = regex.clone();
    assert!(regex.pattern.engine.get().is_none());
    assert!(clone.is_match("été"));
    assert!(regex.pattern.engine.get().is_some());
    // Patterns above the size limit are still rejected immediately.
    let large = Regex::new(&"a{1000}".repeat(600)).unwrap_err();
    assert_eq!(large.kind, ErrorKind::Large);
}
