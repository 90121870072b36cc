use std::collections::BTreeMap;

use lockgate_api::meta::label_selector::{LabelSelector, LabelSelectorRequirement};
use lockgate_api::meta::object::ObjectMeta;
use lockgate_api::registration::{Configuration, ConfigurationKind, Webhook, hub};
use serde_json::json;

use super::*;
use crate::configuration::Configurations;
use crate::host::{BoxFuture, ConvertError, DecodeError, Kinds, Namespaces, PlainKinds};
use crate::request::{Operation, kind, resource};
use crate::testing::NoCaller;

/// Namespaces `cached` and `stored` have the label `runlevel=0`; the lookup of `broken` fails; others are missing.
struct Known;

impl Namespaces for Known {
    fn cached(&self, name: &str) -> Option<Arc<Namespace>> {
        (name == "cached").then(runlevel_zero)
    }

    fn fetch<'f>(&'f self, name: &'f str) -> BoxFuture<'f, Result<Arc<Namespace>, NamespaceError>> {
        Box::pin(async move {
            match name {
                "stored" => Ok(runlevel_zero()),
                "broken" => Err(NamespaceError::Failed(String::from("etcd is away"))),
                name => Err(NamespaceError::not_found(name)),
            }
        })
    }
}

fn runlevel_zero() -> Arc<Namespace> {
    Arc::new(Namespace {
        labels: BTreeMap::from([(String::from("runlevel"), String::from("0"))]),
        terminating: false,
    })
}

/// `things` are served as `v1`, `v2` and, with an unknown kind, `v3`.
struct Versions;

impl Kinds for Versions {
    fn equivalents(&self, resource: &GroupVersionResource, _: &str) -> Arc<[Equivalent]> {
        if resource.resource != "things" {
            return Arc::default();
        }
        let version = |version: &str, known: bool| Equivalent {
            resource: crate::request::resource("example.com", version, "things"),
            kind: known.then(|| kind("example.com", version, "Thing")),
        };
        Arc::from([
            version("v1", true),
            version("v2", true),
            version("v3", false),
        ])
    }

    fn convert<'f>(
        &'f self,
        object: &'f Object,
        to: &'f GroupVersionKind,
    ) -> BoxFuture<'f, Result<Object, ConvertError>> {
        PlainKinds.convert(object, to)
    }

    fn decode(
        &self,
        value: serde_json::Value,
        _: &GroupVersionKind,
    ) -> Result<serde_json::Value, DecodeError> {
        Ok(value)
    }

    fn apply_defaults(&self, _: &mut serde_json::Value, _: &GroupVersionKind) {}

    fn semantically_equal(
        &self,
        _: &GroupVersionKind,
        one: &serde_json::Value,
        other: &serde_json::Value,
    ) -> bool {
        one == other
    }
}

fn host() -> Host {
    Host {
        namespaces: Arc::new(Known),
        kinds: Arc::new(Versions),
        ..Host::new(Arc::new(NoCaller))
    }
}

fn texts(list: &[&str]) -> Option<Vec<String>> {
    Some(list.iter().map(|text| String::from(*text)).collect())
}

fn rule(groups: &[&str], versions: &[&str], resources: &[&str]) -> hub::Rule {
    hub::Rule {
        operations: texts(&["*"]),
        api_groups: texts(groups),
        api_versions: texts(versions),
        resources: texts(resources),
        scope: None,
    }
}

fn hook() -> Webhook {
    Webhook {
        name: String::from("h.example.com"),
        rules: Some(vec![rule(&["*"], &["*"], &["*/*"])]),
        match_policy: Some(String::from("Equivalent")),
        namespace_selector: Some(LabelSelector::default()),
        object_selector: Some(LabelSelector::default()),
        ..Webhook::default()
    }
}

fn selector(key: &str, operator: &str, values: &[&str]) -> Option<LabelSelector> {
    Some(LabelSelector {
        match_labels: None,
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: texts(values).filter(|values| !values.is_empty()),
        }]),
    })
}

fn compiled(webhook: Webhook) -> Arc<Snapshot> {
    let all = Configurations::new(ConfigurationKind::Validating);
    all.upsert(&Configuration {
        kind: ConfigurationKind::Validating,
        metadata: ObjectMeta {
            name: String::from("c"),
            ..ObjectMeta::default()
        },
        webhooks: Some(vec![webhook]),
    });
    all.snapshot()
}

fn pod(namespace: &str) -> Request {
    let mut request = Request::new(
        Operation::Create,
        kind("", "v1", "Pod"),
        resource("", "v1", "pods"),
    );
    request.namespace = namespace.to_owned();
    request.object = Some(json!({"metadata": {"labels": {"app": "web"}}}).into());
    request
}

async fn decide(webhook: Webhook, request: &Request) -> (Predicates, Option<Status>) {
    let host = host();
    let snapshot = compiled(webhook);
    let mut matcher = Matcher::new(&host, request);
    let hook = &snapshot.hooks()[0];
    let predicates = matcher.decide(hook, request, request.object.as_ref()).await;
    let failed = predicates.selection() == Selection::Fail;
    (
        predicates,
        failed.then(|| matcher.failure(hook, &predicates)),
    )
}

const CALLED: Selection = Selection::Call(Target::Requested);

#[tokio::test]
async fn the_namespace_selector_looks_where_the_labels_are() {
    let broken = || selector("runlevel", "Odd", &[]);
    let zero = || selector("runlevel", "In", &["0"]);
    let not_zero = || selector("runlevel", "NotIn", &["0"]);
    let namespaces = |operation, subresource: &str, labels: serde_json::Value| {
        let mut request = Request::new(
            operation,
            kind("", "v1", "Namespace"),
            resource("", "v1", "namespaces"),
        );
        request.namespace = String::from("cached");
        request.subresource = subresource.to_owned();
        request.object = Some(json!({"metadata": {"labels": labels}}).into());
        request
    };
    use NamespaceVerdict as V;
    for (name, selector, request, want) in [
        (
            "empty selector",
            Some(LabelSelector::default()),
            pod("missing"),
            V::Everything,
        ),
        ("matching", zero(), pod("cached"), V::Matched),
        (
            "matching after a live look",
            zero(),
            pod("stored"),
            V::Matched,
        ),
        ("not matching", not_zero(), pod("cached"), V::Refused),
        ("missing namespace", zero(), pod("missing"), V::Error),
        (
            "missing namespace, negative",
            not_zero(),
            pod("missing"),
            V::Error,
        ),
        ("lookup fails", zero(), pod("broken"), V::Error),
        ("no selector", None, pod("cached"), V::Refused),
        (
            "no selector, missing namespace",
            None,
            pod("missing"),
            V::Error,
        ),
        ("cluster-scoped", not_zero(), pod(""), V::NotNamespaced),
        (
            "cluster-scoped, broken selector",
            broken(),
            pod(""),
            V::NotNamespaced,
        ),
        ("broken selector", broken(), pod("cached"), V::Error),
        (
            "a new namespace has its own labels",
            zero(),
            namespaces(Operation::Create, "", json!({"runlevel": "1"})),
            V::Refused,
        ),
        (
            "an updated namespace has its new labels",
            zero(),
            namespaces(Operation::Update, "", json!({"runlevel": "0"})),
            V::Matched,
        ),
        (
            "a deleted namespace has its stored labels",
            zero(),
            namespaces(Operation::Delete, "", json!({})),
            V::Matched,
        ),
        (
            "so has a namespace's status",
            zero(),
            namespaces(Operation::Update, "status", json!({})),
            V::Matched,
        ),
    ] {
        let webhook = Webhook {
            namespace_selector: selector,
            ..hook()
        };
        assert_eq!(decide(webhook, &request).await.0.namespace, want, "{name}");
    }
}

#[tokio::test]
async fn the_object_selector_looks_at_both_objects() {
    let labelled = |labels: serde_json::Value| Some(json!({"metadata": {"labels": labels}}).into());
    let web = || selector("app", "In", &["web"]);
    let not_web = || selector("app", "NotIn", &["web"]);
    let absent = || selector("app", "DoesNotExist", &[]);
    use ObjectVerdict as V;
    for (name, selector, operation, object, old, want) in [
        (
            "empty",
            Some(LabelSelector::default()),
            Operation::Create,
            None,
            None,
            V::Everything,
        ),
        (
            "none",
            None,
            Operation::Create,
            labelled(json!({"app": "web"})),
            None,
            V::Refused,
        ),
        (
            "broken",
            selector("app", "Odd", &[]),
            Operation::Create,
            None,
            None,
            V::Error,
        ),
        (
            "new",
            web(),
            Operation::Create,
            labelled(json!({"app": "web"})),
            None,
            V::MatchedObject,
        ),
        (
            "old only",
            web(),
            Operation::Update,
            labelled(json!({"app": "api"})),
            labelled(json!({"app": "web"})),
            V::MatchedOldObject,
        ),
        (
            "neither",
            web(),
            Operation::Update,
            labelled(json!({})),
            labelled(json!({})),
            V::Refused,
        ),
        (
            "deleted",
            web(),
            Operation::Delete,
            None,
            labelled(json!({"app": "web"})),
            V::MatchedOldObject,
        ),
        (
            "no objects, negative",
            not_web(),
            Operation::Delete,
            None,
            None,
            V::Refused,
        ),
        (
            "no labels, negative",
            not_web(),
            Operation::Create,
            labelled(json!({})),
            None,
            V::MatchedObject,
        ),
        (
            "no labels, absence",
            absent(),
            Operation::Create,
            Some(json!({}).into()),
            None,
            V::MatchedObject,
        ),
        (
            "no metadata, negative",
            not_web(),
            Operation::Connect,
            Some(json!({"kind": "PodExecOptions"}).into()),
            None,
            V::Refused,
        ),
    ] {
        let mut request = pod("cached");
        request.operation = operation;
        request.object = object;
        request.old_object = old;
        let webhook = Webhook {
            object_selector: selector,
            ..hook()
        };
        assert_eq!(
            decide(webhook, &request).await.0.object,
            Some(want),
            "{name}"
        );
    }
}

#[tokio::test]
async fn rules_match_equivalent_resources_after_the_requested_one() {
    let things = |version: &str| {
        Request::new(
            Operation::Create,
            kind("example.com", version, "Thing"),
            resource("example.com", version, "things"),
        )
    };
    let group = &["example.com"];
    use RuleVerdict as V;
    for (name, policy, rules, version, want) in [
        (
            "exact",
            Some("Exact"),
            vec![rule(group, &["v1"], &["things"])],
            "v1",
            V::Exact { rule: 0 },
        ),
        (
            "exact, other version",
            Some("Exact"),
            vec![rule(group, &["v1"], &["things"])],
            "v2",
            V::None,
        ),
        (
            "unset is exact",
            None,
            vec![rule(group, &["v1"], &["things"])],
            "v2",
            V::None,
        ),
        (
            "equivalent",
            Some("Equivalent"),
            vec![rule(group, &["v1"], &["things"])],
            "v2",
            V::Equivalent {
                rule: 0,
                equivalent: 0,
            },
        ),
        (
            "an exact later rule beats an equivalent earlier one",
            Some("Equivalent"),
            vec![
                rule(group, &["v1"], &["things"]),
                rule(group, &["v2"], &["things"]),
            ],
            "v2",
            V::Exact { rule: 1 },
        ),
        (
            "earlier rules come first",
            Some("Equivalent"),
            vec![
                rule(group, &["v2"], &["things"]),
                rule(group, &["v1"], &["things"]),
            ],
            "v3",
            V::Equivalent {
                rule: 0,
                equivalent: 1,
            },
        ),
        (
            "unknown kind",
            Some("Equivalent"),
            vec![rule(group, &["v3"], &["things"])],
            "v1",
            V::UnknownKind {
                rule: 0,
                equivalent: 2,
            },
        ),
        (
            "none",
            Some("Equivalent"),
            vec![rule(group, &["v1"], &["others"])],
            "v1",
            V::None,
        ),
    ] {
        let webhook = Webhook {
            match_policy: policy.map(String::from),
            rules: Some(rules),
            ..hook()
        };
        assert_eq!(
            decide(webhook, &things(version)).await.0.rule,
            Some(want),
            "{name}"
        );
    }
    let webhook = Webhook {
        rules: Some(vec![rule(group, &["v3"], &["things"])]),
        ..hook()
    };
    let (predicates, status) = decide(webhook, &things("v1")).await;
    assert_eq!(predicates.selection(), Selection::Fail);
    assert_eq!(
        status.unwrap().message,
        "Internal error occurred: unable to convert to example.com/v3, Resource=things: unknown kind"
    );
}

#[tokio::test]
async fn remembered_errors_count_only_when_a_rule_matches() {
    let other = || Some(vec![rule(&["other"], &["*"], &["*"])]);
    let broken = || selector("a", "Odd", &[]);
    let zero = || selector("runlevel", "In", &["0"]);
    let message = "Internal error occurred: \"Odd\" is not a valid label selector operator";
    for (name, webhook, namespace, want) in [
        ("fine", hook(), "cached", None),
        (
            "missing namespace",
            Webhook {
                namespace_selector: zero(),
                ..hook()
            },
            "missing",
            Some((404, "NotFound", "namespaces \"missing\" not found")),
        ),
        (
            "lookup failed",
            Webhook {
                namespace_selector: zero(),
                ..hook()
            },
            "broken",
            Some((
                500,
                "InternalError",
                "Internal error occurred: etcd is away",
            )),
        ),
        (
            "broken namespace selector",
            Webhook {
                namespace_selector: broken(),
                ..hook()
            },
            "cached",
            Some((500, "InternalError", message)),
        ),
        (
            "broken object selector",
            Webhook {
                object_selector: broken(),
                ..hook()
            },
            "cached",
            Some((500, "InternalError", message)),
        ),
        (
            "the namespace's error comes first",
            Webhook {
                namespace_selector: zero(),
                object_selector: broken(),
                ..hook()
            },
            "missing",
            Some((404, "NotFound", "namespaces \"missing\" not found")),
        ),
        (
            "failurePolicy has no say",
            Webhook {
                namespace_selector: zero(),
                failure_policy: Some(String::from("Ignore")),
                ..hook()
            },
            "missing",
            Some((404, "NotFound", "namespaces \"missing\" not found")),
        ),
        (
            "no rule matches",
            Webhook {
                namespace_selector: zero(),
                rules: other(),
                ..hook()
            },
            "missing",
            None,
        ),
        (
            "no rule matches, broken selectors",
            Webhook {
                namespace_selector: broken(),
                object_selector: broken(),
                rules: other(),
                ..hook()
            },
            "cached",
            None,
        ),
        (
            "an object selector that refuses hides the namespace's error",
            Webhook {
                namespace_selector: zero(),
                object_selector: selector("app", "In", &["api"]),
                ..hook()
            },
            "missing",
            None,
        ),
    ] {
        let (predicates, status) = decide(webhook, &pod(namespace)).await;
        assert_eq!(
            predicates.selection() == Selection::Fail,
            want.is_some(),
            "{name}"
        );
        let status = status.map(|status| (status.code, status.reason, status.message));
        let want = want.map(|(code, reason, text)| (code, reason.to_owned(), text.to_owned()));
        assert_eq!(status, want, "{name}");
        if name == "fine" {
            assert_eq!(predicates.selection(), CALLED);
        }
    }
}
