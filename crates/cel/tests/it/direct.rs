//! Tests that are evaluated without the machine have the same value or error as in the machine, at the
//! same cost, for any documents and limit.
//!
//! Recorded evaluations run every step in the machine.

use std::sync::atomic::AtomicBool;

use lockgate_cel::admission::{Request, RequestVariable, Variables, compile_expression};
use lockgate_cel::eval::{Inputs, Limits, Program, evaluate, evaluate_recorded};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

fn text() -> BoxedStrategy<String> {
    prop_oneof![
        Just(String::new()),
        "[ab]{1,2}",
        // Around ten code points, the boundary of one unit, with one and with several bytes each.
        "a{9,12}",
        "[aé€]{2,12}",
    ]
    .boxed()
}

/// Any JSON value, often an object with the names that the expressions select.
fn document() -> BoxedStrategy<Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        (-2_i64..3).prop_map(Json::from),
        Just(json!(1.5)),
        Just(json!(u64::MAX)),
        text().prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        let name = prop_oneof![Just("a"), Just("b"), Just("items"), Just("name")];
        // More members than are scanned.
        let many = |entries: Vec<(&str, Json)>, filler: usize| {
            let fillers = (0..filler).map(|nth| (format!("key{nth}"), Json::Null));
            let entries = entries
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value));
            Json::Object(entries.chain(fillers).collect())
        };
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
            (
                prop::collection::vec((name, inner), 1..4),
                prop_oneof![Just(0_usize), 8_usize..30]
            )
                .prop_map(move |(entries, filler)| many(entries, filler)),
        ]
    })
    .boxed()
}

fn request() -> BoxedStrategy<Request> {
    let groups = prop::collection::vec(text(), 0..4);
    (text(), text(), text(), groups)
        .prop_map(|(name, username, group, groups)| {
            let mut request = Request::from_json(&json!({ "operation": "CREATE" }));
            request.resource.group = group;
            (request.name, request.username, request.groups) = (name, username, groups);
            request
        })
        .boxed()
}

/// An operand; `locals` are the loop variables in scope.
fn operand(locals: usize) -> BoxedStrategy<String> {
    let mut roots = vec!["object".to_owned(), "oldObject".to_owned()];
    roots.extend((0..locals).flat_map(|nth| [format!("x{nth}"), format!("x{nth}")]));
    let fields = ["a", "b", "items", "name"];
    let path = (
        prop::sample::select(roots),
        prop::collection::vec(prop::sample::select(fields.to_vec()), 0..3),
    );
    let known = [
        "request.resource.group",
        "request.operation",
        "request.name",
        "request.userInfo.username",
        "request.userInfo.groups",
    ];
    prop_oneof![
        4 => path.prop_map(|(root, fields)| {
            fields.iter().fold(root, |path, field| format!("{path}.{field}"))
        }),
        1 => prop::sample::select(known.to_vec()).prop_map(str::to_owned),
        1 => text().prop_map(|text| format!("'{text}'")),
        1 => (-2_i64..3).prop_map(|int| int.to_string()),
        1 => any::<bool>().prop_map(|b| b.to_string()),
    ]
    .boxed()
}

fn test(depth: u32, locals: usize) -> BoxedStrategy<String> {
    let any = move || operand(locals);
    let simple = prop_oneof![
        (
            any(),
            prop::sample::select(vec!["==", "!=", "<", ">="]),
            any()
        )
            .prop_map(|(left, op, right)| format!("dyn({left}) {op} dyn({right})")),
        (any(), prop::sample::select(vec!["==", "!=", "<="]), any())
            .prop_map(|(left, op, right)| format!("{left} {op} {right}")),
        (
            any(),
            prop::sample::select(vec!["startsWith", "endsWith", "contains"]),
            text()
        )
            .prop_map(|(operand, function, text)| format!("{operand}.{function}('{text}')")),
        any().prop_map(|operand| format!("{operand}.matches('^a+$')")),
        (any(), any()).prop_map(|(left, right)| format!("{left} in {right}")),
        (any(), text()).prop_map(|(operand, text)| format!("{operand} in ['{text}', 'ab']")),
        any().prop_map(|operand| format!("has({operand}.name)")),
        any(),
        (any(), any()).prop_map(|(left, right)| format!("({left} + {right} == 1)")),
    ]
    .boxed();
    if depth == 0 {
        return simple;
    }
    let smaller = move || test(depth - 1, locals);
    let body = test(depth - 1, locals + 1);
    let looped = (
        any(),
        prop::sample::select(vec!["all", "exists", "exists_one"]),
        body,
    );
    prop_oneof![
        2 => simple,
        2 => (smaller(), prop::sample::select(vec!["&&", "||"]), smaller())
            .prop_map(|(left, op, right)| format!("({left} {op} {right})")),
        1 => smaller().prop_map(|test| format!("!({test})")),
        3 => looped.prop_map(move |(range, name, body)| format!("{range}.{name}(x{locals}, {body})")),
    ]
    .boxed()
}

/// The outcome as a string, and the cost.
fn outcomes(program: &Program, inputs: Inputs<'_>, limits: Limits<'_>) -> [(String, u64); 2] {
    let (recorded, _) = evaluate_recorded(program, inputs, limits);
    [evaluate(program, inputs, limits), recorded].map(|evaluation| {
        let text = match evaluation.value {
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        };
        (text, evaluation.cost)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn direct_tests_agree_with_the_machine(
        expression in test(3, 0),
        request in request(),
        object in document(),
        old_object in document(),
        limit in 0_u64..60,
    ) {
        // Expressions with mismatched types do not compile.
        let Ok(program) = compile_expression(&expression) else {
            return Ok(());
        };
        let request = RequestVariable::new(request);
        let plain = Variables::new(request.json());
        for variables in [plain, Variables::of(&request)] {
            let variables = variables.object(Some(&object)).old_object(Some(&old_object));
            for cost in [limit, Limits::default().cost] {
                let limits = Limits { cost, interrupt: None };
                let [direct, machine] = outcomes(&program, variables.inputs(), limits);
                prop_assert_eq!(direct, machine, "{} within {}", &expression, cost);
            }
        }
    }
}

#[test]
fn an_interrupt_ends_direct_loops() {
    let flag = AtomicBool::new(true);
    let object = json!({ "items": vec![json!({ "name": "a" }); 200], "few": [{ "name": "a" }] });
    let request = Request::default().to_json();
    let variables = Variables::new(&request).object(Some(&object));
    for (expression, expected) in [
        (
            "object.items.all(i, i.name == 'a')",
            "operation interrupted",
        ),
        (
            "object.few.all(i, object.items.exists(j, j.name == 'b'))",
            "operation interrupted",
        ),
        ("object.few.all(i, i.name == 'a')", "true"),
    ] {
        let program = compile_expression(expression).unwrap();
        let limits = Limits {
            interrupt: Some(&flag),
            ..Limits::default()
        };
        let [direct, machine] = outcomes(&program, variables.inputs(), limits);
        assert_eq!(direct.0, expected, "{expression}");
        assert_eq!(direct, machine, "{expression}");
    }
}
