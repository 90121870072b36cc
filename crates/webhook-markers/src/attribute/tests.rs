use proc_macro2::TokenStream;

use super::*;

fn marker(arguments: &str, item: &str) -> Result<Marker, Vec<String>> {
    let item: TokenStream = item.parse().unwrap();
    let tokens: Vec<TokenTree> = item.into_iter().collect();
    let (header, length) = Header::read(&tokens).unwrap();
    assert_eq!(length, tokens.len());
    let arguments: TokenStream = arguments.parse().unwrap();
    read(arguments, &header, Span::call_site()).map_err(|problems| {
        problems
            .into_iter()
            .map(|problem| problem.message)
            .collect()
    })
}

const ALL: &str = "impl Validator<Pod> for T { async fn create(&self) {} fn update(&self) {} fn delete(&self) {} fn connect(&self) {} }";
const NEW: &str = "impl Validator<Pod> for T { async fn create(&self) {} fn helper() {} }";
const MUTATES: &str = "impl lockgate_webhook::Mutator<Vec<Pod>> for T { async fn mutate() {} }";

#[test]
fn reads_every_argument() {
    let text = r#"
        name = "pods.policy.example.com", path = /mutate-pods, alias("/a", logical), service_name = hooks,
        service_namespace = "infra", service_port = 8443, groups(core, "apps"), versions = v1,
        resources = [pods, pods/status, "*/*"], scope = namespaced, verbs("create", CONNECT),
        failure_policy = ignore, match_policy = "Exact", side_effects = none_on_dry_run,
        reinvocation_policy = IfNeeded, timeout_seconds = 5, admission_review_versions(v1, v1beta1),
        webhook_versions(v1), namespace_selector = "team=red, !legacy", object_selector = "on",
        match_conditions("no-leases" = r"request.resource.resource != 'leases'", other = "true",), mutating,
    "#;
    let marker = marker(text, MUTATES).unwrap();
    let owned = |texts: &[&str]| {
        texts
            .iter()
            .map(|&text| text.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(marker.role, Role::Mutating);
    assert_eq!(marker.name, "pods.policy.example.com");
    assert_eq!(marker.path.as_deref(), Some("/mutate-pods"));
    assert_eq!(marker.aliases, [Alias::Path("/a".into()), Alias::Logical]);
    assert_eq!(marker.service.name.as_deref(), Some("hooks"));
    assert_eq!(marker.service.namespace.as_deref(), Some("infra"));
    assert_eq!(marker.service.port, Some(8443));
    assert_eq!(marker.groups, Some(owned(&["", "apps"])));
    assert_eq!(marker.versions, Some(owned(&["v1"])));
    assert_eq!(
        marker.resources,
        Some(owned(&["pods", "pods/status", "*/*"]))
    );
    assert_eq!(marker.scope.as_deref(), Some("Namespaced"));
    assert_eq!(marker.verbs, ["CREATE", "CONNECT"]);
    assert_eq!(marker.failure_policy.as_deref(), Some("Ignore"));
    assert_eq!(marker.match_policy.as_deref(), Some("Exact"));
    assert_eq!(marker.side_effects.as_deref(), Some("NoneOnDryRun"));
    assert_eq!(marker.reinvocation_policy.as_deref(), Some("IfNeeded"));
    assert_eq!(marker.timeout_seconds, Some(5));
    assert_eq!(
        marker.admission_review_versions,
        Some(owned(&["v1", "v1beta1"]))
    );
    assert_eq!(marker.namespace_selector.unwrap().labels.len(), 1);
    assert_eq!(
        marker.object_selector.unwrap().expressions[0].operator,
        "Exists"
    );
    assert_eq!(marker.match_conditions[1], ("other".into(), "true".into()));
}

#[test]
fn verbs_follow_from_the_methods() {
    assert_eq!(
        marker("name = a.b.c", ALL).unwrap().verbs,
        ["CREATE", "UPDATE", "DELETE", "CONNECT"]
    );
    assert_eq!(marker("name = a.b.c", NEW).unwrap().verbs, ["CREATE"]);
    assert_eq!(
        marker("name = a.b.c", MUTATES).unwrap().verbs,
        ["CREATE", "UPDATE"]
    );
    assert_eq!(
        marker("name = a.b.c, verbs = \"*\"", ALL).unwrap().verbs,
        ["*"]
    );
}

#[test]
fn reads_the_heads_of_generic_impls() {
    let head = "#[doc = \"x\"] impl<F: Fn(&str) -> bool, T> crate::Validator<Map<String, fn() -> T>> for Checks<F, T> where F: Send { fn create() { fn update() {} } }";
    let tokens: Vec<TokenTree> = head.parse::<TokenStream>().unwrap().into_iter().collect();
    let (header, _) = Header::read(&tokens).unwrap();
    let shown = |tokens: &[TokenTree]| {
        let stream: TokenStream = tokens.iter().cloned().collect();
        stream.to_string().replace(' ', "")
    };
    assert_eq!(shown(&header.generics), "<F:Fn(&str)->bool,T>");
    assert_eq!(shown(&header.kind), "Map<String,fn()->T>");
    assert_eq!(shown(&header.target), "Checks<F,T>");
    assert_eq!(shown(&header.where_clause), "whereF:Send");
    assert_eq!(header.methods, ["create"]);
    for other in [
        "fn f() {}",
        "impl T {}",
        "impl Clone for T {}",
        "impl Validator for T {}",
        "impl Validator<> for T {}",
        "impl Validator<Pod> for T",
        "impl Validator<Pod for T {}",
        "impl",
        "impl<",
        "",
    ] {
        let tokens: Vec<TokenTree> = other.parse::<TokenStream>().unwrap().into_iter().collect();
        assert!(Header::read(&tokens).is_err(), "{other}");
    }
}

#[test]
fn says_what_is_wrong() {
    for (arguments, item, want) in [
        ("", NEW, "argument `name` is missing"),
        ("name = a.b.c, nmae = x", NEW, "unknown argument `nmae`"),
        (
            "name = a.b.c, name = a.b.d",
            NEW,
            "argument `name` is given twice",
        ),
        ("name = a.b", NEW, "name `a.b` has 2 of at least 3 segments"),
        (
            "name = a.b.c, timeout_seconds = 31",
            NEW,
            "`timeout_seconds` is a number from 1 to 30, not `31`",
        ),
        (
            "name = a.b.c, side_effects = some",
            NEW,
            "`side_effects` is `None` or `NoneOnDryRun`, not `some`",
        ),
        (
            "name = a.b.c, path = x",
            NEW,
            "path `x` does not start with `/`",
        ),
        (
            "name = a.b.c, url = \"https://a/x\", path = /x",
            NEW,
            "`path` and `url` exclude each other: the path is that of the URL",
        ),
        (
            "name = a.b.c, url = \"https://a/x\", service_port = 1",
            NEW,
            "`service_port` and `url` exclude each other: a webhook is at a URL or behind a service",
        ),
        (
            "name = a.b.c, reinvocation_policy = never",
            NEW,
            "reinvocation applies to a `Mutator` only",
        ),
        (
            "name = a.b.c, mutating = true",
            NEW,
            "the trait says whether a webhook is mutating: `Mutator` is, `Validator` is not",
        ),
        (
            "name = a.b.c, verbs(delete)",
            MUTATES,
            "a deletion has no object to change: `mutate` would never be called",
        ),
        (
            "name = a.b.c, verbs(create, delete)",
            NEW,
            "no method is written here for `delete`",
        ),
        (
            "name = a.b.c, verbs(create, update, connect)",
            ALL,
            "`delete` is never called: `verbs` has no `delete`",
        ),
        (
            "name = a.b.c, verbs(patch)",
            MUTATES,
            "`verbs` is `create`, `update`, `delete`, `connect` or `*`, not `patch`",
        ),
        (
            "name = a.b.c, groups(a, a)",
            NEW,
            "`a` is duplicated in `groups`",
        ),
        ("name = a.b.c, groups()", NEW, "`groups` is empty"),
        (
            "name = a.b.c, groups",
            NEW,
            "`groups` takes a list of values",
        ),
        ("name(a.b.c, d)", NEW, "`name` takes one value"),
        ("name = ", NEW, "a value is missing"),
        (
            "name = a.b.c, path = \"/x\" + 1",
            NEW,
            "unexpected `\"/x\"` in a value",
        ),
        (
            "name = a.b.c, match_conditions(x)",
            NEW,
            "`match_conditions` takes names and expressions",
        ),
        (
            "name = a.b.c, match_conditions(x = y)",
            NEW,
            "match condition `x` needs a CEL expression as text",
        ),
        (
            "name = a.b.c, match_conditions(x = \"true\", x = \"true\")",
            NEW,
            "match condition `x` is given twice",
        ),
        (
            "name = a.b.c, namespace_selector = \"a in\"",
            NEW,
            "`namespace_selector` cannot be read: `a in` is not the name of a label",
        ),
        (
            "name = a.b.c, webhook_versions(v1beta1)",
            NEW,
            "`webhook_versions` is `v1`, not `v1beta1`",
        ),
        (
            "name = a.b.c, admission_review_versions(v2)",
            NEW,
            "`admission_review_versions` is `v1` or `v1beta1`, not `v2`",
        ),
        (
            "name = a.b.c",
            "impl Validator<Pod> for T {}",
            "this validator implements no method",
        ),
        ("3", NEW, "an argument starts with its name"),
        (
            "name < 3",
            NEW,
            "after `name` comes `=` or a list in parentheses",
        ),
    ] {
        let problems = marker(arguments, item).unwrap_err();
        assert!(
            problems.iter().any(|problem| problem == want),
            "{arguments}: {problems:?}"
        );
    }
}

#[test]
fn tells_every_problem_at_once() {
    let problems = marker("name = a, timeout_seconds = 0, foo", NEW).unwrap_err();
    assert_eq!(problems.len(), 3, "{problems:?}");
}
