//! Named character classes.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange, HirKind};

/// The Unicode version of Go's tables. The tables here are newer, so later characters are excluded.
const GO_UNICODE: &str = r"\p{Age=15.0}";

/// A class of the given characters.
pub(super) fn of(ranges: &[(char, char)]) -> ClassUnicode {
    ClassUnicode::new(
        ranges
            .iter()
            .map(|(low, high)| ClassUnicodeRange::new(*low, *high)),
    )
}

/// Every character.
pub(super) fn any() -> ClassUnicode {
    of(&[('\0', char::MAX)])
}

/// The class of `\d`, `\s` or `\w`, by its lower-case letter.
pub(super) fn perl(letter: u8) -> Option<ClassUnicode> {
    match letter {
        b'd' => posix("digit"),
        b's' => Some(of(&[('\t', '\n'), ('\u{c}', '\r'), (' ', ' ')])),
        b'w' => posix("word"),
        _ => None,
    }
}

/// The class of `[:name:]`.
pub(super) fn posix(name: &str) -> Option<ClassUnicode> {
    Some(match name {
        "alnum" => of(&[('0', '9'), ('A', 'Z'), ('a', 'z')]),
        "alpha" => of(&[('A', 'Z'), ('a', 'z')]),
        "ascii" => of(&[('\0', '\x7f')]),
        "blank" => of(&[('\t', '\t'), (' ', ' ')]),
        "cntrl" => of(&[('\0', '\x1f'), ('\x7f', '\x7f')]),
        "digit" => of(&[('0', '9')]),
        "graph" => of(&[('!', '~')]),
        "lower" => of(&[('a', 'z')]),
        "print" => of(&[(' ', '~')]),
        "punct" => of(&[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')]),
        "space" => of(&[('\t', '\r'), (' ', ' ')]),
        "upper" => of(&[('A', 'Z')]),
        "word" => of(&[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')]),
        "xdigit" => of(&[('0', '9'), ('A', 'F'), ('a', 'f')]),
        _ => return None,
    })
}

/// The class of `\p{name}`, with all case variants if `fold` is set.
pub(super) fn unicode(name: &str, fold: bool) -> Option<ClassUnicode> {
    let key: String = name
        .chars()
        .filter(|c| !matches!(c, '_' | '-' | ' '))
        .collect();
    let key = key.to_ascii_lowercase();
    let mut class = match key.as_str() {
        "any" => return Some(any()),
        "ascii" => of(&[('\0', '\x7f')]),
        "assigned" => assigned(),
        "cn" | "unassigned" => negated(assigned()),
        // Strings contain no surrogates.
        "cs" | "surrogate" => of(&[]),
        "c" | "other" => {
            let mut class = table("C");
            class.union(&negated(assigned()));
            class
        }
        // UPSTREAM: Go has no case folding table for LC.
        "lc" | "casedletter" => return Some(known(table("LC"))),
        key => match category(key) {
            Some(category) => known(table(category)),
            None if SCRIPTS.contains(&key) => known(table(&format!("sc={key}"))),
            None => return None,
        },
    };
    if fold {
        // The tables are compiled in, so folding cannot fail.
        let _ = class.try_case_fold_simple();
    }
    Some(class)
}

pub(super) fn negated(mut class: ClassUnicode) -> ClassUnicode {
    class.negate();
    class
}

fn assigned() -> ClassUnicode {
    known(negated(table("Cn")))
}

/// The class without characters that are newer than Go's tables.
fn known(mut class: ClassUnicode) -> ClassUnicode {
    class.intersect(&parse(GO_UNICODE));
    class
}

fn table(property: &str) -> ClassUnicode {
    parse(&format!(r"\p{{{property}}}"))
}

/// Parses a class with the tables of `regex-syntax`; unknown ones are empty.
fn parse(pattern: &str) -> ClassUnicode {
    match regex_syntax::parse(pattern).map(regex_syntax::hir::Hir::into_kind) {
        Ok(HirKind::Class(regex_syntax::hir::Class::Unicode(class))) => class,
        _ => of(&[]),
    }
}

/// The short name of a general category, from its short or long name in lower case.
fn category(key: &str) -> Option<&'static str> {
    Some(match key {
        "cc" | "control" | "cntrl" => "Cc",
        "cf" | "format" => "Cf",
        "co" | "privateuse" => "Co",
        "l" | "letter" => "L",
        "ll" | "lowercaseletter" => "Ll",
        "lm" | "modifierletter" => "Lm",
        "lo" | "otherletter" => "Lo",
        "lt" | "titlecaseletter" => "Lt",
        "lu" | "uppercaseletter" => "Lu",
        "m" | "mark" | "combiningmark" => "M",
        "mc" | "spacingmark" => "Mc",
        "me" | "enclosingmark" => "Me",
        "mn" | "nonspacingmark" => "Mn",
        "n" | "number" => "N",
        "nd" | "decimalnumber" | "digit" => "Nd",
        "nl" | "letternumber" => "Nl",
        "no" | "othernumber" => "No",
        "p" | "punctuation" | "punct" => "P",
        "pc" | "connectorpunctuation" => "Pc",
        "pd" | "dashpunctuation" => "Pd",
        "pe" | "closepunctuation" => "Pe",
        "pf" | "finalpunctuation" => "Pf",
        "pi" | "initialpunctuation" => "Pi",
        "po" | "otherpunctuation" => "Po",
        "ps" | "openpunctuation" => "Ps",
        "s" | "symbol" => "S",
        "sc" | "currencysymbol" => "Sc",
        "sk" | "modifiersymbol" => "Sk",
        "sm" | "mathsymbol" => "Sm",
        "so" | "othersymbol" => "So",
        "z" | "separator" => "Z",
        "zl" | "lineseparator" => "Zl",
        "zp" | "paragraphseparator" => "Zp",
        "zs" | "spaceseparator" => "Zs",
        _ => return None,
    })
}

/// Scripts that Go finds by name. Names of several words are excluded: Go removes the underscore
/// from the requested name, but not from its table's names.
// UPSTREAM: Go regexp/syntax/parse.go (canonicalName) and unicode/tables.go.
#[rustfmt::skip]
const SCRIPTS: &[&str] = &[
    "adlam", "ahom", "arabic", "armenian", "avestan", "balinese", "bamum", "batak", "bengali",
    "bhaiksuki", "bopomofo", "brahmi", "braille", "buginese", "buhid", "carian", "chakma", "cham",
    "cherokee", "chorasmian", "common", "coptic", "cuneiform", "cypriot", "cyrillic", "deseret",
    "devanagari", "dogra", "duployan", "elbasan", "elymaic", "ethiopic", "georgian", "glagolitic",
    "gothic", "grantha", "greek", "gujarati", "gurmukhi", "han", "hangul", "hanunoo", "hatran",
    "hebrew", "hiragana", "inherited", "javanese", "kaithi", "kannada", "katakana", "kawi",
    "kharoshthi", "khmer", "khojki", "khudawadi", "lao", "latin", "lepcha", "limbu", "lisu",
    "lycian", "lydian", "mahajani", "makasar", "malayalam", "mandaic", "manichaean", "marchen",
    "medefaidrin", "miao", "modi", "mongolian", "mro", "multani", "myanmar", "nabataean",
    "nandinagari", "newa", "nko", "nushu", "ogham", "oriya", "osage", "osmanya", "palmyrene",
    "phoenician", "rejang", "runic", "samaritan", "saurashtra", "sharada", "shavian", "siddham",
    "sinhala", "sogdian", "soyombo", "sundanese", "syriac", "tagalog", "tagbanwa", "takri",
    "tamil", "tangsa", "tangut", "telugu", "thaana", "thai", "tibetan", "tifinagh", "tirhuta",
    "toto", "ugaritic", "vai", "vithkuqi", "wancho", "yezidi", "yi",
];
