//! Property tests with generated objects and input.

use lockgate_api::admission::ReviewVersion;
use lockgate_api::admission::response::{ExpectedResponse, HttpResponse, read};
use lockgate_api::decode::Bytes;
use lockgate_api::document::{json, yaml};
use lockgate_api::meta::label_selector::{LabelSelector, LabelSelectorRequirement};
use lockgate_api::meta::object::ObjectMeta;
use lockgate_api::meta::selector::{Operator, Requirement, Selector};
use lockgate_api::meta::time::Time;
use lockgate_api::registration::hub::{ClientConfig, MatchCondition, Rule, ServiceReference};
use lockgate_api::registration::strategy::{Request, prepare_create, prepare_update};
use lockgate_api::registration::validation::Unchecked;
use lockgate_api::registration::{
    Configuration, ConfigurationKind, Version, Webhook, codec, v1, v1beta1,
};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

/// Few enough cases for every test run. Failing cases become regression tests, instead of persisted
/// seeds.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn conversion_through_v1beta1_loses_nothing(there in any_configuration()) {
        let back = match there.kind {
            ConfigurationKind::Validating => {
                let v1 = v1::ValidatingWebhookConfiguration::from(there.clone());
                let hub = Configuration::from(v1.clone());
                let older = v1beta1::ValidatingWebhookConfiguration::from(hub);
                let back = Configuration::from(older);
                prop_assert_eq!(v1::ValidatingWebhookConfiguration::from(back.clone()), v1);
                back
            }
            ConfigurationKind::Mutating => {
                let v1 = v1::MutatingWebhookConfiguration::from(there.clone());
                let hub = Configuration::from(v1.clone());
                let older = v1beta1::MutatingWebhookConfiguration::from(hub);
                let back = Configuration::from(older);
                prop_assert_eq!(v1::MutatingWebhookConfiguration::from(back.clone()), v1);
                back
            }
        };
        prop_assert_eq!(back, there);
    }

    #[test]
    fn defaulting_twice_is_defaulting_once(configuration in any_configuration(), version in any_version()) {
        let mut once = configuration;
        once.apply_defaults(version);
        let mut twice = once.clone();
        twice.apply_defaults(version);
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn writing_and_reading_keeps_what_is_stored(configuration in any_configuration(), version in any_version()) {
        let mut stored = configuration;
        stored.apply_defaults(version);
        let text = codec::to_json(stored.clone(), version).to_string();
        let read = decode(text.as_bytes(), stored.kind, version);
        prop_assert_eq!(
            codec::to_json(read, version).to_string(),
            codec::to_json(stored, version).to_string()
        );
    }

    #[test]
    fn valid_objects_stay_valid(configuration in valid_configuration(), version in any_version()) {
        let request = Request { version, expressions: &Unchecked, static_manifests: false };
        let mut created = configuration;
        created.apply_defaults(version);
        let outcome = prepare_create(&mut created, &request);
        prop_assert!(outcome.is_ok(), "{:?}", outcome);
        created.metadata.resource_version = String::from("1");

        // The stored object is encoded and decoded once, which drops empty lists.
        let text = codec::to_json(created.clone(), version).to_string();
        let stored = decode(text.as_bytes(), created.kind, version);
        let mut unchanged = stored.clone();
        let outcome = prepare_update(&mut unchanged, &stored, &request);
        prop_assert!(outcome.is_ok(), "{:?}", outcome);
        prop_assert_eq!(unchanged, stored);
    }

    #[test]
    fn selectors_are_read_as_they_are_printed(selector in any_selector()) {
        let printed = selector.to_string();
        let read = Selector::parse(&printed);
        prop_assert_eq!(read.as_ref().map(ToString::to_string), Ok(printed.clone()));
        prop_assert_eq!(read, Ok(selector), "{}", printed);
    }

    #[test]
    fn a_document_is_read_as_it_is_written(text in json_text(4)) {
        let document = json::parse(text.as_bytes()).unwrap();
        let written = document.root().to_json();
        let again = json::parse(written.as_bytes()).unwrap();
        prop_assert_eq!(again.root().to_json(), written);
        // JSON is YAML, except for numbers out of range.
        if !text.contains("E400") && let Ok(from_yaml) = yaml::parse(&text) {
            prop_assert_eq!(from_yaml.root().kind(), document.root().kind());
        }
    }
}

proptest! {
    #![proptest_config(cases(2048))]

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in any_input()) {
        for kind in ConfigurationKind::ALL {
            for version in [Version::V1, Version::V1beta1] {
                if let Ok(document) = json::parse(&bytes) {
                    let _ = codec::decode(document.root(), kind, version);
                }
                let text = String::from_utf8_lossy(&bytes);
                if let Ok(document) = yaml::parse(&text) {
                    let _ = codec::decode(document.root(), kind, version);
                }
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        let _ = yaml::parse_all(&text);
        for part in yaml::split(&text) {
            let _ = yaml::parse(&text[part]);
        }
        let _ = Selector::parse(&text);
        for version in [ReviewVersion::V1, ReviewVersion::V1beta1] {
            for code in [200, 204, 400, 403, 500] {
                let http = HttpResponse { code, content_type: Some(&text), body: &bytes };
                let expected = ExpectedResponse { version, uid: "u", may_patch: true };
                let _ = read(&http, &expected);
                let _ = read(&HttpResponse { content_type: None, ..http }, &expected);
            }
        }
    }
}

fn decode(text: &[u8], kind: ConfigurationKind, version: Version) -> Configuration {
    let document = json::parse(text).unwrap();
    let decoded = codec::decode(document.root(), kind, version).unwrap();
    assert_eq!(decoded.findings, []);
    decoded.value
}

fn any_version() -> impl Strategy<Value = Version> {
    select(vec![Version::V1, Version::V1beta1])
}

fn any_kind() -> impl Strategy<Value = ConfigurationKind> {
    select(ConfigurationKind::ALL.to_vec())
}

/// Any string, often a special one.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        select(vec!["", "*", "a", "a.b.c", "v1", "<b>&", "\u{2028}", "-"]).prop_map(str::to_owned),
        "\\PC{0,8}",
    ]
}

fn texts() -> impl Strategy<Value = Option<Vec<String>>> {
    of(vec(text(), 0..3))
}

fn any_label_selector() -> impl Strategy<Value = LabelSelector> {
    let requirement =
        (text(), text(), texts()).prop_map(|(key, operator, values)| LabelSelectorRequirement {
            key,
            operator,
            values,
        });
    (
        of(btree_map(text(), text(), 0..3)),
        of(vec(requirement, 0..3)),
    )
        .prop_map(|(match_labels, match_expressions)| LabelSelector {
            match_labels,
            match_expressions,
        })
}

fn any_client_config() -> impl Strategy<Value = ClientConfig> {
    let service =
        (text(), text(), of(text()), of(any::<i32>())).prop_map(|(namespace, name, path, port)| {
            ServiceReference {
                namespace,
                name,
                path,
                port,
            }
        });
    (of(text()), of(service), of(vec(any::<u8>(), 0..5))).prop_map(|(url, service, ca)| {
        ClientConfig {
            url,
            service,
            ca_bundle: ca.map(Bytes),
        }
    })
}

fn any_rule() -> impl Strategy<Value = Rule> {
    (texts(), texts(), texts(), texts(), of(text())).prop_map(
        |(operations, api_groups, api_versions, resources, scope)| Rule {
            operations,
            api_groups,
            api_versions,
            resources,
            scope,
        },
    )
}

/// A webhook of either kind; only mutating ones have a reinvocation policy.
fn any_webhook(kind: ConfigurationKind) -> impl Strategy<Value = Webhook> {
    let condition =
        (text(), text()).prop_map(|(name, expression)| MatchCondition { name, expression });
    let first = (
        text(),
        any_client_config(),
        of(vec(any_rule(), 0..3)),
        of(text()),
        of(text()),
        of(any_label_selector()),
    );
    let second = (
        of(any_label_selector()),
        of(text()),
        of(any::<i32>()),
        texts(),
        of(text()),
        of(vec(condition, 0..3)),
    );
    (first, second).prop_map(move |(first, second)| Webhook {
        name: first.0,
        client_config: first.1,
        rules: first.2,
        failure_policy: first.3,
        match_policy: first.4,
        namespace_selector: first.5,
        object_selector: second.0,
        side_effects: second.1,
        timeout_seconds: second.2,
        admission_review_versions: second.3,
        reinvocation_policy: second.4.filter(|_| kind == ConfigurationKind::Mutating),
        match_conditions: second.5,
    })
}

fn any_metadata() -> impl Strategy<Value = ObjectMeta> {
    // Times with a four-digit year.
    let time = (-62_135_596_799_i64..253_402_300_800).prop_map(Time::from_unix_seconds);
    (
        text(),
        text(),
        any::<i64>(),
        of(time.clone()),
        of(time),
        of(btree_map(text(), text(), 0..3)),
        texts(),
    )
        .prop_map(
            |(name, uid, generation, created, deleted, labels, finalizers)| ObjectMeta {
                name,
                uid,
                generation,
                creation_timestamp: created,
                deletion_timestamp: deleted,
                labels,
                finalizers,
                ..ObjectMeta::default()
            },
        )
}

fn any_configuration() -> impl Strategy<Value = Configuration> {
    any_kind().prop_flat_map(|kind| {
        (any_metadata(), of(vec(any_webhook(kind), 0..3))).prop_map(move |(metadata, webhooks)| {
            Configuration {
                kind,
                metadata,
                webhooks,
            }
        })
    })
}

/// A valid configuration, without defaults.
fn valid_configuration() -> impl Strategy<Value = Configuration> {
    let webhooks = vec((valid_webhook(), any::<bool>()), 0..4);
    (any_kind(), "[a-z0-9]{1,8}", of(webhooks)).prop_map(|(kind, name, webhooks)| {
        let number = |(index, (mut hook, reinvoke)): (usize, (Webhook, bool))| {
            hook.name = format!("h{index}.{}", hook.name);
            let policy = String::from("IfNeeded");
            hook.reinvocation_policy =
                (reinvoke && kind == ConfigurationKind::Mutating).then_some(policy);
            hook
        };
        Configuration {
            kind,
            metadata: ObjectMeta {
                name,
                ..ObjectMeta::default()
            },
            webhooks: webhooks.map(|hooks| hooks.into_iter().enumerate().map(number).collect()),
        }
    })
}

fn one_of(values: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(values).prop_map(str::to_owned)
}

fn valid_webhook() -> impl Strategy<Value = Webhook> {
    let service =
        (of(one_of(&["", "/", "/a", "/a/b.c/"])), of(1..=65535_i32)).prop_map(|(path, port)| {
            ClientConfig {
                service: Some(ServiceReference {
                    namespace: String::from("ns"),
                    name: String::from("n"),
                    path,
                    port,
                }),
                ..ClientConfig::default()
            }
        });
    let url =
        one_of(&["https://h", "https://[::1]:8443/x", "https://é.example/%41"]).prop_map(|url| {
            ClientConfig {
                url: Some(url),
                ca_bundle: Some(Bytes(b"not checked".to_vec())),
                ..ClientConfig::default()
            }
        });
    let rule = (
        vec(one_of(&["CREATE", "UPDATE"]), 1..3),
        vec(one_of(&["", "apps"]), 1..3),
        vec(one_of(&["v1", "v1beta1"]), 1..3),
        one_of(&["*", "*/*", "pods", "pods/*", "*/scale"]),
        of(one_of(&["*", "Cluster", "Namespaced"])),
    )
        .prop_map(
            |(operations, api_groups, api_versions, resource, scope)| Rule {
                operations: Some(operations),
                api_groups: Some(api_groups),
                api_versions: Some(api_versions),
                resources: Some(vec![resource]),
                scope,
            },
        );
    let condition = of(Just(vec![MatchCondition {
        name: String::from("a/b"),
        expression: String::from("true"),
    }]));
    (
        prop_oneof![service, url],
        of(vec(rule, 0..3)),
        of(one_of(&["Fail", "Ignore"])),
        of(one_of(&["Exact", "Equivalent"])),
        one_of(&["None", "NoneOnDryRun"]),
        of(1..=30_i32),
        one_of(&["v1", "v1beta1"]),
        condition,
    )
        .prop_map(|hook| Webhook {
            name: String::from("example.com"),
            client_config: hook.0,
            rules: hook.1,
            failure_policy: hook.2,
            match_policy: hook.3,
            side_effects: Some(hook.4),
            timeout_seconds: hook.5,
            admission_review_versions: Some(vec![hook.6]),
            match_conditions: hook.7,
            ..Webhook::default()
        })
}

fn any_selector() -> impl Strategy<Value = Selector> {
    let key = "([a-z]{1,3}\\.x/)?[A-Za-z][-A-Za-z0-9_.]{0,3}[a-z0-9]";
    let value = "([A-Za-z0-9]([-A-Za-z0-9_.]{0,3}[a-z0-9])?)?";
    let requirement = (
        key,
        select(vec![
            Operator::Equals,
            Operator::DoubleEquals,
            Operator::NotEquals,
            Operator::In,
            Operator::NotIn,
            Operator::Exists,
            Operator::DoesNotExist,
            Operator::GreaterThan,
            Operator::LessThan,
        ]),
        vec(value, 1..4),
        any::<u32>(),
    )
        .prop_map(|(key, operator, mut values, number)| {
            match operator {
                Operator::Exists | Operator::DoesNotExist => values.clear(),
                Operator::GreaterThan | Operator::LessThan => values = vec![number.to_string()],
                Operator::Equals | Operator::DoubleEquals | Operator::NotEquals => {
                    values.truncate(1);
                }
                // A set: neither order nor duplicates are kept.
                Operator::In | Operator::NotIn => {
                    values.sort();
                    values.dedup();
                }
            }
            Requirement::new(&key, operator, values).unwrap()
        });
    vec(requirement, 0..4).prop_map(Selector::from)
}

fn json_text(depth: u32) -> impl Strategy<Value = String> {
    let string = "\\PC{0,6}".prop_map(|text| serde_json::to_string(&text).unwrap());
    let leaf = prop_oneof![
        one_of(&[
            "null",
            "true",
            "false",
            "0",
            "-1.5e3",
            "1E400",
            "\"\\ud800\""
        ]),
        string.clone(),
    ];
    leaf.prop_recursive(depth, 24, 4, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
            vec((string.clone(), inner), 0..4).prop_map(|members| {
                let members: Vec<String> = members
                    .into_iter()
                    .map(|(key, value)| format!("{key} :{value}"))
                    .collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

/// Bytes similar to valid input.
fn any_input() -> impl Strategy<Value = Vec<u8>> {
    let pieces = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "'",
        "\\",
        "\\u",
        "d83d",
        "\n",
        "  ",
        "\t",
        "- ",
        "? ",
        "&a ",
        "*a",
        "<<: ",
        "!!int ",
        "| ",
        "> ",
        "#",
        "---\n",
        "...",
        "%",
        "@",
        "~",
        "null",
        "tru",
        "1",
        "-",
        ".5",
        "e9",
        "é",
        "\u{feff}",
        "\u{0}",
        "a",
        "=",
        "in (",
        ")",
        "!",
        "<",
        ">",
        "\"kind\":",
        "\"apiVersion\":",
        "\"response\":",
        "\"metadata\":",
        "\"webhooks\":",
        "kind: ",
        "response: ",
        "webhooks: ",
        "\"Status\"",
        "\"AdmissionReview\"",
        "\"admission.k8s.io/v1\"",
        "\"creationTimestamp\":\"2024-",
        "\"patch\":\"W1=\"",
        "text/plain; a=\"",
    ];
    let piece = select(pieces.to_vec()).prop_map(|piece| piece.as_bytes().to_vec());
    prop_oneof![
        vec(any::<u8>(), 0..32),
        vec(piece, 0..16).prop_map(|pieces| pieces.concat()),
        json_text(3).prop_map(String::into_bytes),
    ]
}
