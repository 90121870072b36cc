//! Cost estimates, compared with kube-apiserver's code.

use lockgate_cel::check::{Environment, Estimate, Sizes, UnknownSizes};
use lockgate_cel::program::estimate_cost;
use lockgate_cel::types::Type;

/// A string of up to 100 characters, 20 strings of up to 30, and a map of up to 7 entries.
struct Bounded;

impl Sizes for Bounded {
    fn size(&self, path: &[String], _: &Type) -> Option<Estimate> {
        let max = match (path.first()?.as_str(), path.len()) {
            ("s", 1) => 100,
            ("l", 1) => 20,
            ("l", 2) => 30,
            ("m", 1) => 7,
            _ => return None,
        };
        Some(Estimate { min: 0, max })
    }
}

fn environment() -> Environment {
    Environment::new()
        .variable("object", Type::Dyn)
        .variable("s", Type::String)
        .variable("l", Type::list(Type::String))
        .variable("m", Type::map(Type::String, Type::Int))
}

#[test]
fn estimates_follow_the_sizes_of_the_inputs() {
    for (expression, min, max) in [
        ("s.startsWith('a') && l.all(x, x.size() < 10)", 2, 124),
        ("l.exists(x, x == s)", 2, 182),
        ("m.all(k, m[k] > 1)", 2, 51),
        (
            "l.map(x, x + s).join(',').size() > 10",
            14,
            1_844_674_407_370_955_818,
        ),
        ("s.matches('^a+$')", 2, 12),
        ("s.replace('a','bb')", 1, 21),
        ("l.map(x, [x, x]).flatten()", 23, 523),
        ("has(object.a.b)", 1, 1),
        ("true ? s : 'a'", 0, 1),
        ("l + l", 3, 3),
        ("l.filter(x, x.contains('a')).size()", 13, 353),
        ("s.split(',').all(x, x != '')", 2, 422),
        ("l[0] == 'a'", 3, 3),
        ("m['a'] == 1", 3, 3),
        ("l.transformMap(k, v, v)", 32, 112),
        (
            "optional.of(s).optMap(v, v + v)",
            4,
            1_844_674_407_370_955_283,
        ),
        ("l.sortBy(x, x)", 35, 1135),
    ] {
        let estimate = estimate_cost(expression, &environment(), &Bounded).unwrap();
        assert_eq!(estimate, Estimate { min, max }, "{expression}");
    }
}

#[test]
fn unbounded_inputs_have_no_upper_bound() {
    let estimate = estimate_cost("l.all(x, x == s)", &environment(), &UnknownSizes).unwrap();
    assert_eq!(
        estimate,
        Estimate {
            min: 2,
            max: u64::MAX
        }
    );
}

#[test]
fn what_does_not_compile_has_no_estimate() {
    let error = estimate_cost("nope", &environment(), &UnknownSizes).unwrap_err();
    assert!(
        error.to_string().contains("undeclared reference to 'nope'"),
        "{error}"
    );
}
