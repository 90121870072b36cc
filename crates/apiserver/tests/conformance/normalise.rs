//! Normalises the results of a run, and compares them with the recording.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::LazyLock;

use crate::node::{Map, Node, map};
use crate::pattern::Pattern;

/// Values that differ between runs, and their placeholders; `$1` is the first group.
static PLACEHOLDERS: LazyLock<Vec<(Pattern, &str)>> = LazyLock::new(|| {
    [
        (
            "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "<uid>",
        ),
        (
            r"(gen-|kube-api-access-)[bcdfghjklmnpqrstvwxz2456789]{5}(?-u:\b)",
            "$1<rand>",
        ),
        ("LS0tLS1CRUdJTi[A-Za-z0-9+/=]+", "<certificate>"),
        (r#"in scheme "[^"]*""#, r#"in scheme "<scheme>""#),
        (r"(127\.0\.0\.1|\[::1\]):[0-9]+->", "$1:<port>->"),
    ]
    .map(|(pattern, placeholder)| (Pattern::new(pattern), placeholder))
    .into()
});

static TIME: LazyLock<Pattern> = LazyLock::new(|| {
    Pattern::new(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z$")
});
static METRIC: LazyLock<Pattern> =
    LazyLock::new(|| Pattern::new(r"^([A-Za-z0-9_]+)\{([^}]*)\} (\S+)$"));
static LABEL: LazyLock<Pattern> =
    LazyLock::new(|| Pattern::new(r#"([A-Za-z0-9_]+)="((?:[^"\\]|\\.)*)""#));

/// The counters that are compared.
const METRICS: [&str; 11] = [
    "apiserver_admission_webhook_admission_duration_seconds_count",
    "apiserver_admission_webhook_rejection_count",
    "apiserver_admission_webhook_fail_open_count",
    "apiserver_admission_webhook_request_total",
    "apiserver_admission_match_condition_evaluation_errors_total",
    "apiserver_admission_match_condition_exclusions_total",
    "apiserver_admission_match_condition_evaluation_seconds_count",
    "apiserver_validating_admission_policy_check_total",
    "apiserver_validating_admission_policy_check_duration_seconds_count",
    "apiserver_mutating_admission_policy_check_total",
    "apiserver_mutating_admission_policy_check_duration_seconds_count",
];

/// The prefixes of metric names.
const METRIC_PREFIXES: [&str; 3] = [
    "apiserver_admission_",
    "apiserver_validating_admission_policy_",
    "apiserver_mutating_admission_policy_",
];

/// Audit annotations of other components than webhooks.
const FOREIGN_ANNOTATIONS: [&str; 5] = [
    "authorization.k8s.io/",
    "authentication.k8s.io/",
    "pod-security.kubernetes.io/",
    "apiserver.latency.k8s.io/",
    "authentication.kubernetes.io/",
];

/// The comparison mode of `managedFields`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ManagedFields {
    Dropped,
    Kept,
}

/// Replaces values that differ between runs.
#[derive(Debug)]
pub(crate) struct Normaliser {
    /// Strings of this run and their placeholders.
    pub(crate) names: Vec<(String, &'static str)>,
    pub(crate) managed_fields: ManagedFields,
}

impl Normaliser {
    pub(crate) fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, placeholder) in &self.names {
            text = text.replace(name, placeholder);
        }
        for (pattern, placeholder) in PLACEHOLDERS.iter() {
            let Ok(replaced) = pattern.replace(&text, |groups| {
                let first = groups.get(1).copied().unwrap_or_default();
                Ok::<_, Infallible>(placeholder.replace("$1", first))
            });
            text = replaced;
        }
        if TIME.matches(&text) {
            return String::from("<time>");
        }
        text
    }

    pub(crate) fn value(&self, node: &Node) -> Node {
        match node {
            Node::Map(map) => map
                .iter()
                .filter(|&(key, _)| match key {
                    "selfLink" => false,
                    "managedFields" => self.managed_fields == ManagedFields::Kept,
                    _ => true,
                })
                .map(|(key, child)| (self.text(key), self.member(key, child)))
                .collect::<Map>()
                .into(),
            Node::List(items) => Node::List(items.iter().map(|item| self.value(item)).collect()),
            Node::Text(text) => Node::Text(self.text(text)),
            other => other.clone(),
        }
    }

    fn member(&self, key: &str, child: &Node) -> Node {
        match (key, child) {
            ("resourceVersion", child) if !is_empty(child) => Node::from("<rv>"),
            // Servers sort these by time.
            ("managedFields", Node::List(entries)) => {
                let mut entries: Vec<Node> =
                    entries.iter().map(|entry| self.value(entry)).collect();
                entries.sort_by_cached_key(Node::to_sorted_json);
                Node::List(entries)
            }
            _ => self.value(child),
        }
    }

    /// Mutating calls in the order of arrival; validating calls, which are concurrent, sorted.
    pub(crate) fn calls(&self, calls: Vec<Map>) -> Node {
        let path = |call: &Node| call.text("path").unwrap_or_default().to_owned();
        let (mutating, mut validating): (Vec<Node>, Vec<Node>) = calls
            .into_iter()
            .map(|call| self.value(&call.into()))
            .partition(|call| path(call).starts_with("/m"));
        validating.sort_by_cached_key(|call| (path(call), call.to_sorted_json()));
        map! {"mutating": mutating, "validating": validating}.into()
    }

    /// Annotations, without those of other components unless their prefix is in `kept`.
    pub(crate) fn annotations(&self, annotations: &Map, kept: &[String]) -> Node {
        annotations
            .iter()
            .filter(|(key, _)| {
                let mut foreign = FOREIGN_ANNOTATIONS.iter();
                let mut kept = kept.iter();
                !foreign.any(|prefix| key.starts_with(prefix))
                    || kept.any(|prefix| key.starts_with(prefix.as_str()))
            })
            .map(|(key, value)| (key.to_owned(), self.value(value)))
            .collect::<Map>()
            .into()
    }
}

/// Returns true for values that are equivalent to an empty resource version.
fn is_empty(node: &Node) -> bool {
    match node {
        Node::Null | Node::Bool(false) | Node::Int(0) => true,
        Node::Text(text) => text.is_empty(),
        Node::List(items) => items.is_empty(),
        Node::Map(map) => map.keys().next().is_none(),
        _ => false,
    }
}

/// The admission counters of a Prometheus page, by name and labels.
pub(crate) fn parse_metrics(page: &str) -> BTreeMap<String, f64> {
    let mut counters = BTreeMap::new();
    for line in page.lines() {
        if !METRIC_PREFIXES
            .iter()
            .any(|prefix| line.starts_with(prefix))
        {
            continue;
        }
        let Some(groups) = METRIC.groups(line) else {
            continue;
        };
        if let [_, name, labels, value] = groups[..]
            && METRICS.contains(&name)
            && let Ok(value) = value.parse()
        {
            let mut labels: Vec<_> = LABEL.all_groups(labels).collect();
            labels.sort_by(|a, b| a[1..].cmp(&b[1..]));
            let labels: Vec<_> = labels.iter().map(|label| label[1..].join("=")).collect();
            counters.insert(format!("{name}{{{}}}", labels.join(",")), value);
        }
    }
    counters
}

/// The increments of counters that changed.
pub(crate) fn metric_deltas(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> Node {
    after
        .iter()
        .filter_map(|(key, value)| {
            let delta = value - before.get(key).copied().unwrap_or_default();
            (delta != 0.0).then(|| (key.clone(), Node::Int(delta as i128)))
        })
        .collect::<Map>()
        .into()
}

/// Deletes the fields at a dotted path; `*` matches every field.
pub(crate) fn drop_path(node: &mut Node, path: &str) {
    let (head, rest) = match path.split_once('.') {
        Some((head, rest)) => (head, Some(rest)),
        None => (path, None),
    };
    match node {
        Node::List(items) => {
            let chosen = match head {
                "*" => 0..items.len(),
                _ => match head.parse() {
                    Ok(index) if index < items.len() => index..index + 1,
                    _ => 0..0,
                },
            };
            match rest {
                Some(rest) => items[chosen]
                    .iter_mut()
                    .for_each(|item| drop_path(item, rest)),
                None => drop(items.drain(chosen)),
            }
        }
        Node::Map(map) => {
            let keys: Vec<String> = map
                .keys()
                .filter(|&key| head == "*" || key == head)
                .map(str::to_owned)
                .collect();
            for key in keys {
                match (rest, map.get_mut(&key)) {
                    (Some(rest), Some(child)) => drop_path(child, rest),
                    _ => drop(map.remove(&key)),
                }
            }
        }
        _ => {}
    }
}

/// One line for each JSON path that differs.
pub(crate) fn differences(expected: &Node, actual: &Node) -> Vec<String> {
    let mut lines = Vec::new();
    compare(expected, actual, "", &mut lines);
    lines
}

fn compare(expected: &Node, actual: &Node, path: &str, lines: &mut Vec<String>) {
    let mut child =
        |expected: Option<&Node>, actual: Option<&Node>, path: &str| match (expected, actual) {
            (Some(expected), Some(actual)) => compare(expected, actual, path, lines),
            (Some(expected), None) => {
                lines.push(format!("{path}: missing, expected {}", expected.short()))
            }
            (None, Some(actual)) => lines.push(format!("{path}: unexpected {}", actual.short())),
            (None, None) => {}
        };
    match (expected, actual) {
        (Node::Map(expected), Node::Map(actual)) => {
            let keys: BTreeSet<&str> = expected.keys().chain(actual.keys()).collect();
            for key in keys {
                let path = if path.is_empty() {
                    key.to_owned()
                } else {
                    format!("{path}.{key}")
                };
                child(expected.get(key), actual.get(key), &path);
            }
        }
        (Node::List(expected), Node::List(actual)) => {
            for index in 0..expected.len().max(actual.len()) {
                child(
                    expected.get(index),
                    actual.get(index),
                    &format!("{path}[{index}]"),
                );
            }
        }
        _ if expected != actual => lines.push(format!(
            "{path}: expected {}, got {}",
            expected.short(),
            actual.short()
        )),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Node {
        Node::parse_json(text).unwrap()
    }

    fn normaliser(managed_fields: ManagedFields) -> Normaliser {
        Normaliser {
            names: vec![
                (String::from("lgt00000001x"), "<ns>"),
                (String::from(":4444"), ":<port>"),
            ],
            managed_fields,
        }
    }

    #[test]
    fn replaces_what_differs_from_run_to_run() {
        let normaliser = normaliser(ManagedFields::Dropped);
        for (text, expected) in [
            ("lgt00000001x/a", "<ns>/a"),
            ("https://127.0.0.1:4444/v", "https://127.0.0.1:<port>/v"),
            ("id 0a1b2c3d-0000-4000-8000-0123456789ab.", "id <uid>."),
            ("gen-bcdf2 and gen-bcdf2x", "gen-<rand> and gen-bcdf2x"),
            ("ca LS0tLS1CRUdJTiBD=!", "ca <certificate>!"),
            (r#"in scheme "pkg/x.go:1""#, r#"in scheme "<scheme>""#),
            (
                "127.0.0.1:99->127.0.0.1:80",
                "127.0.0.1:<port>->127.0.0.1:80",
            ),
            ("2026-01-02T03:04:05Z", "<time>"),
            ("2026-01-02T03:04:05.123456Z", "<time>"),
            ("at 2026-01-02T03:04:05Z", "at 2026-01-02T03:04:05Z"),
        ] {
            assert_eq!(normaliser.text(text), expected);
        }
    }

    #[test]
    fn drops_and_sorts_managed_fields() {
        let object = json(
            r#"{"selfLink": "x", "resourceVersion": "7", "managedFields": [{"manager": "b"}, {"manager": "a"}]}"#,
        );
        assert_eq!(
            normaliser(ManagedFields::Dropped).value(&object),
            json(r#"{"resourceVersion": "<rv>"}"#)
        );
        assert_eq!(
            normaliser(ManagedFields::Kept).value(&object),
            json(
                r#"{"resourceVersion": "<rv>", "managedFields": [{"manager": "a"}, {"manager": "b"}]}"#
            )
        );
        assert_eq!(
            normaliser(ManagedFields::Kept).value(&json(r#"{"resourceVersion": ""}"#)),
            json(r#"{"resourceVersion": ""}"#)
        );
    }

    #[test]
    fn counts_what_grew() {
        let before =
            parse_metrics("apiserver_admission_webhook_request_total{b=\"2\",a=\"1\"} 3\n");
        let after = parse_metrics(
            "# HELP\n\
             apiserver_admission_webhook_request_total{b=\"2\",a=\"1\"} 5\n\
             apiserver_admission_webhook_fail_open_count{name=\"x\"} 1\n\
             apiserver_admission_step_admission_duration_seconds_count{name=\"x\"} 1\n",
        );
        assert_eq!(
            metric_deltas(&before, &after),
            json(
                r#"{"apiserver_admission_webhook_request_total{a=1,b=2}": 2,
                    "apiserver_admission_webhook_fail_open_count{name=x}": 1}"#
            )
        );
    }

    #[test]
    fn keeps_the_order_of_mutating_calls_only() {
        let calls = ["/v/b", "/m/b", "/m/a", "/v/a"].map(|path| map! {"path": path});
        assert_eq!(
            normaliser(ManagedFields::Dropped).calls(calls.into()),
            json(
                r#"{"mutating": [{"path": "/m/b"}, {"path": "/m/a"}],
                    "validating": [{"path": "/v/a"}, {"path": "/v/b"}]}"#
            )
        );
    }

    #[test]
    fn drops_paths() {
        let mut node = json(r#"{"a": [{"x": 1, "y": 2}, {"x": 3}], "b": 4}"#);
        drop_path(&mut node, "a.*.x");
        drop_path(&mut node, "b");
        drop_path(&mut node, "c.d");
        assert_eq!(node, json(r#"{"a": [{"y": 2}, {}]}"#));
        drop_path(&mut node, "a.1");
        assert_eq!(node, json(r#"{"a": [{"y": 2}]}"#));
    }

    #[test]
    fn names_every_path_that_differs() {
        let expected = json(r#"{"a": [1, 2], "b": {"c": 1}, "d": "x", "e": null}"#);
        let actual = json(r#"{"a": [1], "b": {"c": 1.0}, "d": "x", "f": true}"#);
        assert_eq!(
            differences(&expected, &actual),
            [
                "a[1]: missing, expected 2",
                "b.c: expected 1, got 1.0",
                "e: missing, expected null",
                "f: unexpected true",
            ]
        );
        assert!(differences(&expected, &expected).is_empty());
    }
}
