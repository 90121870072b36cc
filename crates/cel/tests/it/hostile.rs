//! Malicious expressions end in a documented error, quickly and on a small stack.

use std::sync::mpsc;
use std::time::Duration;

use lockgate_cel::admission::{Composition, compile_expression};
use lockgate_cel::check::UnknownSizes;
use lockgate_cel::eval::{Limits, evaluate, evaluate_recorded};
use lockgate_cel::limits;
use lockgate_cel::program::estimate_cost;
use lockgate_cel::value::{Error, Value};

/// The usual stack size of a worker thread.
const STACK: usize = 2 << 20;
/// The timeout after which a test counts as hung; all of these need less than a thousandth of it.
const HANG: Duration = Duration::from_secs(300);

/// Runs a function on a thread with a stack of this many bytes; a timeout is a failure.
fn on_stack<T: Send + 'static>(stack: usize, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new()
        .stack_size(stack)
        .spawn(move || sender.send(run()))
        .unwrap();
    receiver
        .recv_timeout(HANG)
        .expect("it ends, and does not panic")
}

/// The outcome of an expression on a small stack: its value or error as a string.
fn outcome(expression: String) -> String {
    let run = move || {
        let inputs = [Value::Null, Value::Null, Value::Null, Value::Null];
        match compile_expression(&expression) {
            Err(error) => error
                .to_string()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned(),
            Ok(program) => match evaluate(&program, &inputs, Limits::default()).value {
                Ok(value) => value.to_string(),
                Err(error) => error.to_string(),
            },
        }
    };
    on_stack(STACK, run)
}

const TOO_DEEP: &str = "compilation failed: ERROR: <input>:-1:0: max recursion depth exceeded";
const TOO_NESTED: &str =
    "compilation failed: ERROR: <input>:-1:0: expression recursion limit exceeded: 250";
const TOO_DEAR: &str = "operation cancelled: actual cost limit exceeded";

/// A map of maps doubles its type with each variable that refers to the previous one.
#[test]
fn types_that_double_are_checked_in_time() {
    let nested = |count: usize, element: &dyn Fn(usize) -> String| {
        let opened: String = (1..count)
            .map(|level| format!("{}.all(x{level}, ", element(level - 1)))
            .collect();
        format!("[{{1: 1}}].all(x0, {opened}true{}", ")".repeat(count))
    };
    let in_order = nested(40, &|last| format!("[{{x{last}: x{last}}}]"));
    assert_eq!(outcome(in_order), "true");
    // Types that are inferred later, from the outermost to the innermost: the occurs check gives up, so they are
    // rejected.
    let opened: String = (0..40).map(|level| format!("[].all(x{level}, ")).collect();
    let joined: String = (1..40)
        .rev()
        .map(|level| format!("[x{level}, {{x{0}: x{0}}}].size() > 0 && ", level - 1))
        .collect();
    let later = format!("{opened}{joined}x39 == x39{}", ")".repeat(40));
    let refused = outcome(later);
    assert!(
        refused.contains("found no matching overload for '_==_'"),
        "{refused}"
    );
}

#[test]
fn named_expressions_are_compiled_in_time() {
    let compiled = |first: &'static str, next: fn(&str) -> String, count: usize| {
        on_stack(STACK, move || {
            let mut composition = Composition::new(false);
            composition.declare("v0", first).unwrap();
            for number in 1..count {
                let last = format!("variables.v{}", number - 1);
                composition
                    .declare(&format!("v{number}"), &next(&last))
                    .unwrap();
            }
            composition.variables().len()
        })
    };
    assert_eq!(compiled("1", |last| format!("{last} + {last}"), 5000), 5000);
    assert_eq!(compiled("[1]", |last| format!("[{last}]"), 5000), 5000);
    let doubling = |last: &str| format!("{{{last}: {last}}}");
    assert_eq!(compiled("{1: 1}", doubling, 200), 200);
}

/// Upstream stores maps created by an expression in a Go map, which cannot look these keys up.
#[test]
fn keys_that_go_cannot_hash_end_the_evaluation() {
    let unhashable =
        |name| format!("internal error: runtime error: hash of unhashable type {name}");
    for expression in [
        "dyn(b'a') in dyn({'a': 1})",
        "dyn(b'a') in {'a': 1}",
        "{dyn(b'a'): 1}.size() == 1",
        "dyn(b'a') in dyn({'a': 1}) || true",
    ] {
        let found = outcome(expression.to_owned());
        assert_eq!(found, unhashable("types.Bytes"), "{expression}");
    }
    let versions = "dyn(semver('1.0.0')) in dyn({'a': 1})";
    assert_eq!(outcome(versions.to_owned()), unhashable("cel.Semver"));
    // Empty maps are not looked up, nor are objects of the request hashed.
    assert_eq!(outcome(String::from("dyn(b'a') in dyn({})")), "false");
    assert_eq!(outcome(String::from("dyn(b'a') in dyn(['a'])")), "false");
}

#[test]
fn long_chains_of_operators() {
    assert_eq!(outcome(vec!["1"; 10_000].join("+")), TOO_DEEP);
    assert_eq!(outcome(format!("object{}", ".a".repeat(10_000))), TOO_DEEP);
    assert_eq!(outcome(format!("object{}", "[0]".repeat(10_000))), TOO_DEEP);
    assert_eq!(outcome(format!("'a'{}", ".size()".repeat(5_000))), TOO_DEEP);
    // The longest accepted chain is evaluated.
    assert_eq!(outcome(vec!["1"; 250].join("+")), "250");
}

#[test]
fn logical_chains_have_no_limit() {
    assert_eq!(outcome(vec!["true"; 16_000].join("&&")), "true");
    assert_eq!(outcome(vec!["false"; 5_000].join("||")), "false");
    assert_eq!(outcome(format!("{}true", "!".repeat(99_990))), "true");
    assert_eq!(outcome(format!("{}1", "-".repeat(50_001))), "-1");
}

#[test]
fn deep_nesting() {
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("{1:", "}"),
        ("true?(", "):1"),
        ("size([", "])"),
    ] {
        let nested = format!("{}1{}", open.repeat(1_000), close.repeat(1_000));
        assert_eq!(outcome(nested), TOO_NESTED, "{open}");
    }
    let deepest = format!("{}1{}", "[".repeat(248), "]".repeat(248));
    assert_eq!(outcome(format!("{deepest} == {deepest}")), "true");
    assert_eq!(
        outcome(format!("{}1{}", "(1+".repeat(124), ")".repeat(124))),
        "125"
    );
}

#[test]
fn nested_loops_stop_at_the_limit() {
    let list = "[1,2,3,4,5,6,7,8,9,10]";
    let mut expression = "a+b+c+d+e+f > 0".to_owned();
    for variable in ["f", "e", "d", "c", "b", "a"] {
        expression = format!("{list}.all({variable}, {expression})");
    }
    assert_eq!(outcome(expression), TOO_DEAR);
    let maps = (0..60).fold("x0".to_owned(), |body, n| format!("[1].map(x{n}, {body})"));
    assert!(outcome(maps).starts_with('['));
}

#[test]
fn nothing_is_built_before_it_is_paid_for() {
    assert_eq!(
        outcome("lists.range(9223372036854775807)".to_owned()),
        TOO_DEAR
    );
    assert_eq!(outcome("lists.range(2000000).size()".to_owned()), TOO_DEAR);
    let word = "a".repeat(20_000);
    assert_eq!(
        outcome(format!("'{word}'.replace('', '{word}').size()")),
        TOO_DEAR
    );
    assert_eq!(
        outcome(format!("lists.range(60000).map(x, '{word}').join().size()")),
        TOO_DEAR
    );
    // Concatenating lists copies nothing.
    let joined = vec!["lists.range(1000)"; 100].join(" + ");
    assert_eq!(outcome(format!("size({joined})")), "100000");
}

#[test]
fn macros_that_copy_their_target_are_bounded() {
    let chain = format!("optional.of(1){}", ".optMap(x, x)".repeat(60));
    assert_eq!(
        outcome(chain),
        "compilation failed: ERROR: <input>:-1:0: expression is too large once its macros are expanded"
    );
    let short = format!("optional.of(1){}.value()", ".optMap(x, x + 1)".repeat(8));
    assert_eq!(outcome(short), "9");
}

#[test]
fn long_texts_and_odd_ones() {
    let size = "compilation failed: ERROR: <input>:-1:0: expression code point size exceeds limit: \
                size: 100001, limit 100000";
    assert_eq!(outcome("1".repeat(100_001)), size);
    let long = format!("'{}'.size()", "é".repeat(99_000));
    assert_eq!(outcome(long), "99000");
    for text in [
        "",
        "\0",
        "\u{feff}1",
        "'",
        "\"\"\"",
        "b'",
        "`",
        "é.é",
        "1.e",
        "0x",
        "\u{10ffff}",
    ] {
        assert!(
            outcome(text.to_owned()).starts_with("compilation failed: ERROR"),
            "{text:?}"
        );
    }
    // A syntax error at the end of a long source is reported without delay.
    let broken = format!("{} )", vec!["object.a.b == 'c'"; 4_500].join(" && "));
    assert!(outcome(broken).contains("Syntax error"));
}

/// Found by fuzzing: each open bracket doubled the work of reporting syntax errors.
#[test]
fn brackets_that_never_close_are_refused_soon() {
    let nested = "d[[[[[].[[[[[[[10, 1<- 1[[[-1[[[0, 1< -[-1[[[0, 1< -1[[[[[[G[[[2, 1< -1[([[[[[-1[[[0, 1< -1[";
    for text in [
        nested.to_owned(),
        nested.repeat(2),
        format!("2u.map({nested}"),
    ] {
        let check = move || lockgate_cel::admission::check_condition(&text).is_err();
        assert!(on_stack(STACK, check));
    }
}

/// Depths below, at and above the limits.
const DEPTHS: [usize; 9] = [100, 124, 200, 240, 248, 249, 250, 251, 1_000];
/// Less than a worker thread's stack, to leave room for its own frames.
const TIGHT: usize = 1_600 << 10;

/// Parses and evaluates a source in every way, on a thread with a stack of this many bytes.
///
/// Returns the first line of its errors.
fn survives(stack: usize, text: String) -> Option<String> {
    let run = move || {
        let printed = lockgate_cel::syntax::canonical(&text);
        let accepted = lockgate_cel::admission::check_condition(&text);
        let environment = lockgate_cel::admission::match_condition_environment();
        let estimated = estimate_cost(&text, environment, &UnknownSizes);
        match compile_expression(&text) {
            Ok(program) => {
                assert!(printed.is_ok() && estimated.is_ok());
                let inputs = [Value::Null, Value::Null, Value::Null, Value::Null];
                let plain = evaluate(&program, &inputs, Limits::default());
                let (recorded, _) = evaluate_recorded(&program, &inputs, Limits::default());
                assert_eq!(plain.cost, recorded.cost);
                let shown = |value: Result<Value<'_>, Error>| match value {
                    Ok(value) => value.to_string(),
                    Err(error) => error.to_string(),
                };
                assert_eq!(shown(plain.value), shown(recorded.value));
                None
            }
            Err(error) => {
                assert!(accepted.is_err() && estimated.is_err());
                error.to_string().lines().next().map(str::to_owned)
            }
        }
    };
    on_stack(stack, run)
}

fn nested((open, middle, close): (&str, &str, &str), depth: usize) -> String {
    format!("{}{middle}{}", open.repeat(depth), close.repeat(depth))
}

/// Reporting their errors once needed a stack of 10 MiB.
#[test]
fn broken_texts_of_any_depth_are_refused_on_a_small_stack() {
    for shape in [
        ("(", "if", ")"),
        ("(", "", ""),
        ("(", "1 1", ")"),
        ("(", "'abc", ")"),
        ("[", "", ""),
        ("[", "'abc", "]"),
        ("[", "a b", "].a.b"),
        ("[?", "1 1", "]"),
        ("{", "", ""),
        ("{1:", "", ""),
        ("{if:", "1 1", "}"),
        ("f(", "", ""),
        ("f(", "\"", ")"),
        ("a.f(", "", ""),
        ("a[", "", ""),
        ("a?", "", ""),
        ("a?a:", "", ""),
        ("a?b:", "1 1", ""),
        ("a?(", "if", "):b"),
        ("-", "", ""),
        ("!", "", ""),
        ("-(", "", ")"),
        ("!(", "if", ")"),
        ("1&&(", "1 1", ")"),
        ("A{`a`:", "1 1", "}"),
        ("A{a:", "if if", "}"),
        ("[1].map(x, ", "x y", ")"),
        ("[if].optMap(x, ", "x y", ")"),
        ("([{1:f(", "1 1", ")}])"),
        ("#(", "1 #", ")"),
        ("", "1 1", ".a"),
        ("", "1 1", "+1"),
    ] {
        for depth in DEPTHS.into_iter().chain([20_000]) {
            let text = nested(shape, depth);
            let refusal = survives(TIGHT, text).expect("a refusal");
            let start = "compilation failed: ERROR: <input>:";
            assert!(refusal.starts_with(start), "{shape:?} {depth}: {refusal}");
            if depth > 250 && ["(", "[", "{1:", "f("].contains(&shape.0) && shape.2.is_empty() {
                assert_eq!(refusal, TOO_NESTED, "{shape:?} {depth}");
            }
        }
    }
}

#[test]
fn deep_texts_are_read_checked_and_evaluated_on_a_small_stack() {
    for shape in [
        ("(", "1", ")"),
        ("[", "1", "]"),
        ("{1:", "1", "}"),
        ("{", "1", ":1}"),
        ("dyn(", "1", ")"),
        ("string(", "1", ")"),
        ("size([", "1", "])"),
        ("true?(", "1", "):1"),
        ("true?1:", "1", ""),
        ("-(", "1", ")"),
        ("!(", "true", ")"),
        ("1+(", "1", ")"),
        ("1+1*(", "1", ")"),
        ("true && (", "true", ")"),
        ("[1][", "0", "]"),
        ("", "object", ".a"),
        ("", "object", ".?a"),
        ("", "1", "+1"),
        ("[1].map(x, true, ", "x", ")"),
        ("[1].all(x, ", "true", ")"),
        ("", "[1]", ".map(x, x)"),
        ("optional.of(", "1", ")"),
        ("'a'.replace('a', ", "'b'", ")"),
    ] {
        assert_eq!(survives(TIGHT, nested(shape, 60)), None, "{shape:?}");
        for depth in DEPTHS {
            let refusal = survives(TIGHT, nested(shape, depth));
            let too_much = refusal.is_none_or(|r| r == TOO_DEEP || r == TOO_NESTED);
            assert!(too_much, "{shape:?} {depth}");
        }
        assert!(survives(TIGHT, nested(shape, 1_000)).is_some(), "{shape:?}");
    }
}

/// The tree of a logical chain is balanced and its levels are not counted, so chains in parentheses have by far
/// the deepest trees: ten levels for each parenthesis here.
#[test]
fn logical_chains_in_brackets_fit_a_small_stack() {
    for term in ["1<2", "object"] {
        let chains = [format!("{term}||"), format!("{term}&&")].map(|link| link.repeat(31));
        let open = format!("({}", chains.concat());
        let depth = (limits::MAX_CODE_POINTS / open.len() - 1).min(248);
        assert_eq!(survives(STACK, nested((&open, term, ")"), depth)), None);
    }
}

/// The trees of longer chains could not be walked on a small stack.
#[test]
fn logical_chains_in_brackets_have_a_bound() {
    let chains = ["1||", "1&&"].map(|link| link.repeat(63));
    let text = format!(
        "{}1{}",
        format!("({}", chains.concat()).repeat(248),
        ")".repeat(248)
    );
    assert!(text.len() < 100_000, "{}", text.len());
    let told = outcome(text);
    assert!(told.contains("expression nests too many levels"), "{told}");
}
