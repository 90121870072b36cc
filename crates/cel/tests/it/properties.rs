//! Property tests with generated expressions.

use lockgate_cel::admission::compile_expression;
use lockgate_cel::check::Environment;
use lockgate_cel::eval::{Limits, evaluate, evaluate_recorded};
use lockgate_cel::program::compile;
use lockgate_cel::syntax::canonical;
use lockgate_cel::types::Type;
use lockgate_cel::value::Value;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

/// Generates expressions of a type, by its name, from smaller ones.
fn expression(of: &'static str, depth: u32) -> BoxedStrategy<String> {
    let leaf: BoxedStrategy<String> = match of {
        "int" => prop_oneof![
            Just("count".to_owned()),
            (-9_i64..100).prop_map(|n| n.to_string()),
            Just("9223372036854775807".to_owned()),
        ]
        .boxed(),
        "string" => prop_oneof![
            Just("name".to_owned()),
            "[a-zé%\\.]{0,8}".prop_map(|text| format!("'{text}'")),
        ]
        .boxed(),
        "bool" => prop_oneof![Just("true"), Just("false"), Just("on")]
            .prop_map(str::to_owned)
            .boxed(),
        _ => prop_oneof![Just("numbers"), Just("[]"), Just("[1, 2, 3]")]
            .prop_map(str::to_owned)
            .boxed(),
    };
    if depth == 0 {
        return leaf;
    }
    let smaller = move |of| expression(of, depth - 1);
    let choice = (smaller("bool"), smaller(of), smaller(of))
        .prop_map(|(c, a, b)| format!("({c} ? {a} : {b})"));
    let built = match of {
        "int" => prop_oneof![
            (smaller("int"), "[-+*/%]", smaller("int"))
                .prop_map(|(a, o, b)| format!("({a} {o} {b})")),
            smaller("string").prop_map(|s| format!("size({s})")),
            smaller("list").prop_map(|l| format!("{l}.size()")),
            (smaller("list"), smaller("int")).prop_map(|(l, i)| format!("{l}[{i}]")),
            (smaller("list"), smaller("int")).prop_map(|(l, i)| format!("{l}.indexOf({i})")),
            smaller("int").prop_map(|i| format!("-({i})")),
            choice,
        ]
        .boxed(),
        "string" => prop_oneof![
            (smaller("string"), smaller("string")).prop_map(|(a, b)| format!("({a} + {b})")),
            smaller("int").prop_map(|i| format!("string({i})")),
            (smaller("string"), smaller("int")).prop_map(|(s, i)| format!("{s}.charAt({i})")),
            (smaller("string"), smaller("string"))
                .prop_map(|(a, b)| format!("{a}.replace({b}, 'xy')")),
            (smaller("list"), smaller("string"))
                .prop_map(|(l, s)| format!("{l}.map(x, string(x)).join({s})")),
            choice,
        ]
        .boxed(),
        "bool" => prop_oneof![
            (
                smaller("int"),
                prop_oneof![Just("=="), Just("!="), Just("<"), Just(">=")],
                smaller("int")
            )
                .prop_map(|(a, o, b)| format!("({a} {o} {b})")),
            (
                smaller("bool"),
                prop_oneof![Just("&&"), Just("||")],
                smaller("bool")
            )
                .prop_map(|(a, o, b)| format!("({a} {o} {b})")),
            (smaller("string"), smaller("string"))
                .prop_map(|(a, b)| format!("{a}.startsWith({b})")),
            (smaller("int"), smaller("list")).prop_map(|(i, l)| format!("({i} in {l})")),
            (smaller("list"), smaller("int")).prop_map(|(l, i)| format!("{l}.all(x, x > {i})")),
            (smaller("list"), smaller("int"))
                .prop_map(|(l, i)| format!("{l}.exists(x, x / {i} == 1)")),
            smaller("bool").prop_map(|b| format!("!({b})")),
            choice,
        ]
        .boxed(),
        _ => prop_oneof![
            (smaller("list"), smaller("list")).prop_map(|(a, b)| format!("({a} + {b})")),
            (smaller("list"), smaller("int")).prop_map(|(l, i)| format!("{l}.map(x, x + {i})")),
            (smaller("list"), smaller("bool")).prop_map(|(l, b)| format!("{l}.filter(x, {b})")),
            (smaller("int"), smaller("int")).prop_map(|(a, b)| format!("[{a}, {b}]")),
            smaller("list").prop_map(|l| format!("{l}.sort()")),
            smaller("list").prop_map(|l| format!("{l}.distinct()")),
            choice,
        ]
        .boxed(),
    };
    prop_oneof![1 => leaf, 4 => built].boxed()
}

fn any_expression() -> BoxedStrategy<String> {
    prop_oneof![
        expression("bool", 4),
        expression("int", 4),
        expression("string", 4),
        expression("list", 4),
    ]
    .boxed()
}

fn environment() -> Environment {
    Environment::new()
        .variable("count", Type::Int)
        .variable("name", Type::String)
        .variable("on", Type::Bool)
        .variable("numbers", Type::list(Type::Int))
}

fn inputs(numbers: &Json) -> [Value<'_>; 4] {
    [
        Value::Int(3),
        Value::Str("name"),
        Value::Bool(true),
        Value::from(numbers),
    ]
}

/// The outcome as a string, and the cost.
fn outcome(expression: &str) -> (String, u64) {
    let numbers = json!([4, 5, 6]);
    let inputs = inputs(&numbers);
    match compile(expression, &environment(), None) {
        Err(error) => (
            error
                .to_string()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned(),
            0,
        ),
        Ok(program) => {
            let outcome = evaluate(&program, &inputs, Limits::default());
            let text = match outcome.value {
                Ok(value) => value.to_string(),
                Err(error) => error.to_string(),
            };
            (text, outcome.cost)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printing_and_parsing_again_changes_nothing(expression in any_expression()) {
        let printed = canonical(&expression).unwrap();
        prop_assert_eq!(&canonical(&printed).unwrap(), &printed);
        let (before, cost) = outcome(&expression);
        // Compilation errors contain positions, which printing changes.
        if !before.starts_with("compilation failed") {
            prop_assert_eq!(outcome(&printed), (before, cost));
        }
    }

    #[test]
    fn what_the_checker_accepts_has_no_type_errors(expression in any_expression()) {
        let (text, _) = outcome(&expression);
        prop_assert!(!text.contains("no such overload"), "{}: {}", expression, text);
    }

    #[test]
    fn cost_never_decreases(expression in any_expression()) {
        let numbers = json!([4, 5, 6]);
        let inputs = inputs(&numbers);
        if let Ok(program) = compile(&expression, &environment(), None) {
            let (outcome, recording) = evaluate_recorded(&program, &inputs, Limits::default());
            let steps = recording.steps;
            prop_assert!(steps.is_sorted_by_key(|step| step.before));
            prop_assert!(steps.iter().all(|step| step.before + step.cost <= outcome.cost));
            prop_assert!(steps.first().is_none_or(|step| step.cost == outcome.cost));
            let quiet = evaluate(&program, &inputs, Limits::default());
            prop_assert_eq!(quiet.cost, outcome.cost);
        }
    }

    #[test]
    fn a_recorded_part_is_worth_what_it_is_worth_alone(expression in any_expression()) {
        let numbers = json!([4, 5, 6]);
        let inputs = inputs(&numbers);
        if let Ok(program) = compile(&expression, &environment(), None) {
            let (_, recording) = evaluate_recorded(&program, &inputs, Limits::default());
            for step in recording.steps {
                let part = step.span.of(&expression).unwrap();
                // Loop variables are only defined inside their loop.
                if let Ok(alone) = compile(part, &environment(), None) {
                    let (_, alone) = evaluate_recorded(&alone, &inputs, Limits::default());
                    prop_assert_eq!(&alone.steps[0].outcome, &step.outcome, "{}", part);
                }
            }
        }
    }

    #[test]
    fn memory_is_bounded_by_the_cost_limit(expression in any_expression(), limit in 0_u64..2_000) {
        let numbers = json!([4, 5, 6]);
        let inputs = inputs(&numbers);
        if let Ok(program) = compile(&expression, &environment(), None) {
            let limits = Limits { cost: limit, interrupt: None };
            let used = allocation_counter::measure(|| {
                let _ = evaluate(&program, &inputs, limits);
            });
            prop_assert!(used.bytes_max <= 1_000 * (limit + 50), "{} bytes", used.bytes_max);
        }
    }

    #[test]
    fn a_lower_limit_only_cuts_short(expression in any_expression(), limit in 0_u64..200) {
        let numbers = json!([4, 5, 6]);
        let inputs = inputs(&numbers);
        if let Ok(program) = compile(&expression, &environment(), None) {
            let full = evaluate(&program, &inputs, Limits::default());
            let cut = evaluate(&program, &inputs, Limits { cost: limit, interrupt: None });
            if full.cost <= limit {
                prop_assert_eq!(cut.cost, full.cost);
            } else {
                prop_assert!(cut.cost > limit);
                prop_assert_eq!(
                    cut.value.unwrap_err().to_string(),
                    "operation cancelled: actual cost limit exceeded"
                );
            }
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,60}") {
        let _ = compile_expression(&text);
    }

    #[test]
    fn no_heap_of_tokens_makes_it_panic(
        tokens in prop::collection::vec(
            prop::sample::select(vec![
                "a", "1", "2u", "1.5", "'x'", "b'y'", "(", ")", "[", "]", "{", "}", ".", ",", "?",
                ":", "-", "!", "+", "*", "==", "in", "&&", "||", "true", "null", "`q`", ".?", "[?",
                "all(x, x)", "has(a.b)", "T{f: 1}", "é", "@", "'",
            ]),
            0..12,
        ),
    ) {
        let _ = compile_expression(&tokens.concat());
        let _ = compile_expression(&tokens.join(" "));
    }
}
