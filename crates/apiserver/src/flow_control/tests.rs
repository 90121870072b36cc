//! Classification, and the effects of changed objects.

use serde_json::json;

use super::*;
use crate::http::request_info::{Target, Verb};

const MINUTE: Duration = Duration::from_secs(60);

/// A server with all suggested objects, whose UIDs are their names.
fn suggested_control(total: usize) -> FlowControl {
    let control = FlowControl::new(total, MINUTE);
    suggest(&control);
    control
}

fn suggest(control: &FlowControl) {
    for mut suggested in suggested::all() {
        let name = name_of(&suggested.object).to_owned();
        suggested.object["metadata"]["uid"] = json!(name);
        match suggested.plural {
            suggested::LEVELS => control.set_level(&name, &suggested.object),
            _ => control.set_schema(&name, &suggested.object),
        }
    }
}

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        username: name.to_owned(),
        groups: Some(groups.iter().map(|&group| group.to_owned()).collect()),
        ..UserInfo::default()
    }
}

fn target(verb: Verb, [group, resource, subresource, namespace]: [&str; 4]) -> Target {
    Target {
        verb,
        group: group.to_owned(),
        version: "v1".to_owned(),
        namespace: namespace.to_owned(),
        resource: resource.to_owned(),
        name: String::new(),
        subresource: subresource.to_owned(),
        rest: Vec::new(),
    }
}

fn classes(control: &FlowControl, user: &UserInfo, digest: &RequestDigest<'_>) -> (String, String) {
    let classified = control.classify(user, digest).unwrap();
    let mut headers = HeaderMap::new();
    classified.add_headers(&mut headers);
    let uid = |name: &HeaderName| headers[name].to_str().unwrap().to_owned();
    (uid(&FLOW_SCHEMA_UID), uid(&PRIORITY_LEVEL_UID))
}

#[test]
fn requests_belong_to_the_first_schema_that_matches() {
    let control = suggested_control(600);
    let authenticated = "system:authenticated";
    let admin = user("admin", &["system:masters", authenticated]);
    let ann = user("ann", &[authenticated]);
    let node = user("system:node:a", &["system:nodes", authenticated]);
    let manager = user("system:kube-controller-manager", &[authenticated]);
    let account = |namespace: &str| {
        user(
            &format!("system:serviceaccount:{namespace}:bot"),
            &["system:serviceaccounts", authenticated],
        )
    };
    let pods = target(Verb::List, ["", "pods", "", "shop"]);
    let lease = target(
        Verb::Update,
        ["coordination.k8s.io", "leases", "", "kube-system"],
    );
    let node_status = target(Verb::Patch, ["", "nodes", "status", ""]);
    let node_proxy = target(Verb::Get, ["", "nodes", "proxy", ""]);
    let probe = RequestDigest::Path {
        verb: "get",
        path: "/livez/ping",
    };
    let posted = RequestDigest::Path {
        verb: "post",
        path: "/livez",
    };
    for (user, digest, schema, level) in [
        (&admin, RequestDigest::Resource(&pods), "exempt", "exempt"),
        (
            &ann,
            RequestDigest::Resource(&pods),
            "global-default",
            "global-default",
        ),
        (&ann, probe, "probes", "exempt"),
        (&ann, posted, "global-default", "global-default"),
        (
            &node,
            RequestDigest::Resource(&node_status),
            "system-node-high",
            "node-high",
        ),
        (
            &node,
            RequestDigest::Resource(&node_proxy),
            "system-nodes",
            "system",
        ),
        (
            &node,
            RequestDigest::Resource(&lease),
            "system-node-high",
            "node-high",
        ),
        (
            &manager,
            RequestDigest::Resource(&lease),
            "system-leader-election",
            "leader-election",
        ),
        (
            &manager,
            RequestDigest::Resource(&pods),
            "kube-controller-manager",
            "workload-high",
        ),
        (
            &account("kube-system"),
            RequestDigest::Resource(&lease),
            "system-leader-election",
            "leader-election",
        ),
        (
            &account("kube-system"),
            RequestDigest::Resource(&pods),
            "kube-system-service-accounts",
            "workload-high",
        ),
        (
            &account("kube-system-2"),
            RequestDigest::Resource(&pods),
            "service-accounts",
            "workload-low",
        ),
        // In none of the groups in the schemas.
        (
            &user("ghost", &[]),
            RequestDigest::Resource(&pods),
            "catch-all",
            "catch-all",
        ),
    ] {
        let found = classes(&control, user, &digest);
        assert_eq!(
            found,
            (schema.to_owned(), level.to_owned()),
            "{digest:?} of {user:?}"
        );
    }
}

#[test]
fn schemas_of_one_precedence_are_matched_by_name() {
    let control = suggested_control(600);
    let ann = user("ann", &["system:authenticated"]);
    let pods = target(Verb::List, ["", "pods", "", "shop"]);
    let own = |name: &str| {
        json!({
            "metadata": {"name": name, "uid": name},
            "spec": {
                "priorityLevelConfiguration": {"name": "workload-low"}, "matchingPrecedence": 50,
                "rules": [{
                    "subjects": [{"kind": "User", "user": {"name": "ann"}}],
                    "resourceRules": [{
                        "verbs": ["list"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["shop"],
                    }],
                }],
            },
        })
    };
    control.set_schema("second", &own("second"));
    let class = |target: &Target| classes(&control, &ann, &RequestDigest::Resource(target)).0;
    assert_eq!(class(&pods), "second");
    control.set_schema("first", &own("first"));
    assert_eq!(class(&pods), "first");
    assert_eq!(
        class(&target(Verb::List, ["", "pods", "", ""])),
        "global-default"
    );
    assert_eq!(
        class(&target(Verb::List, ["", "pods", "", "bank"])),
        "global-default"
    );
    assert_eq!(
        class(&target(Verb::Get, ["", "pods", "", "shop"])),
        "global-default"
    );
    assert_eq!(
        class(&target(Verb::List, ["", "pods", "status", "shop"])),
        "global-default"
    );
    // A schema whose level does not exist is not used.
    control.remove_level("workload-low");
    assert_eq!(class(&pods), "global-default");
}

#[test]
fn what_must_be_there_is_imagined() {
    let control = FlowControl::new(600, MINUTE);
    let pods = target(Verb::List, ["", "pods", "", "shop"]);
    let digest = RequestDigest::Resource(&pods);
    let admin = control.classify(&user("admin", &["system:masters"]), &digest);
    assert_eq!(admin.unwrap().0.level.name, "exempt");
    let ann = control.classify(&user("ann", &["system:authenticated"]), &digest);
    assert_eq!(ann.unwrap().0.level.name, "catch-all");
}

#[test]
fn what_is_held_is_compiled_when_it_is_released() {
    let control = FlowControl::new(600, MINUTE);
    let pods = target(Verb::List, ["", "pods", "", "shop"]);
    let level = |control: &FlowControl| {
        let ann = user("ann", &["system:authenticated"]);
        let classified = control.classify(&ann, &RequestDigest::Resource(&pods));
        classified.unwrap().0.level.name.clone()
    };
    control.hold();
    suggest(&control);
    assert_eq!(level(&control), "catch-all");
    control.release();
    assert_eq!(level(&control), "global-default");
}

#[test]
fn levels_share_the_seats_of_the_server() {
    let control = suggested_control(600);
    let snapshot = control.snapshot.load();
    let nominal: BTreeMap<&str, Limits> = snapshot
        .all
        .iter()
        .filter_map(|flows| Some((flows.level.name.as_str(), flows.limits?)))
        .collect();
    // Of 245 shares, equal to nominal_limit_seats of the real server.
    let seats = nominal.iter().map(|(name, limits)| (*name, limits.nominal));
    assert_eq!(
        seats.collect::<Vec<_>>(),
        [
            ("catch-all", 13),
            ("global-default", 49),
            ("leader-election", 25),
            ("node-high", 98),
            ("system", 74),
            ("workload-high", 98),
            ("workload-low", 245),
        ]
    );
    assert_eq!(nominal["system"].lendable, 24);
    assert_eq!(nominal["workload-low"].lendable, 221);
    assert_eq!(nominal["workload-low"].borrowing, 600);
}

#[tokio::test]
async fn a_level_that_rejects_answers_when_to_come_back() {
    let control = FlowControl::new(600, MINUTE);
    let mut level = suggested::mandatory_levels().remove(1);
    level["spec"]["limited"]["nominalConcurrencyShares"] = json!(0);
    control.set_level(CATCH_ALL, &level);
    let ann = user("ann", &["system:authenticated"]);
    let pods = target(Verb::List, ["", "pods", "", "shop"]);
    let digest = RequestDigest::Resource(&pods);
    let classified = control.classify(&ann, &digest).unwrap();
    let refused = control.enter(&classified, &ann, &digest).await.unwrap_err();
    assert_eq!(refused.retry_after_seconds, 1);
    let metrics = control.render();
    let rejected = "apiserver_flowcontrol_rejected_requests_total{flow_schema=\"catch-all\",\
                    priority_level=\"catch-all\",reason=\"concurrency-limit\"} 1\n";
    assert!(metrics.contains(rejected), "{metrics}");
    level["spec"]["limited"]["nominalConcurrencyShares"] = json!(1);
    control.set_level(CATCH_ALL, &level);
    let classified = control.classify(&ann, &digest).unwrap();
    let seat = control.enter(&classified, &ann, &digest).await.unwrap();
    assert!(seat.is_some());
    let metrics = control.render();
    let taken = "apiserver_flowcontrol_current_executing_seats{priority_level=\"catch-all\"} 1\n";
    assert!(metrics.contains(taken), "{metrics}");
}

#[test]
fn classification_allocates_nothing() {
    let control = suggested_control(600);
    let ann = user("ann", &["system:authenticated"]);
    let pods = target(Verb::List, ["", "pods", "status", "shop"]);
    let digest = RequestDigest::Resource(&pods);
    drop(control.classify(&ann, &digest));
    let counted = allocation_counter::measure(|| {
        drop(std::hint::black_box(control.classify(&ann, &digest)));
    });
    assert_eq!(counted.count_total, 0);
}
