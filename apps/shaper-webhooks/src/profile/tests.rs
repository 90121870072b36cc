use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::config::ProfileDeletion;
use crate::lookup::fake::Fake;
use crate::testing::{Ask, CONTROLLER};
use crate::uuid::Uuid;

const A: &str = "47c6da67-7477-4970-aa03-84e48ff4f6ad";
const B: &str = "3f5f3c39-584e-4c7c-b6ff-137e1aaa7175";
const MUTATE: &str = "/mutate-profile";
const VALIDATE: &str = "/validate-profile";

fn profile(name: &str, contents: &[(&str, bool)]) -> Value {
    let contents: Vec<_> = contents
        .iter()
        .map(|&(name, exposed)| json!({"name": name, "exposed": exposed, "inline": "x"}))
        .collect();
    json!({
        "apiVersion": "shaper.amahdha.com/v1alpha1",
        "kind": "Profile",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"ipxeTemplate": "#!ipxe", "additionalContent": contents},
    })
}

fn key(uuid: &str) -> String {
    format!("uuid.shaper.amahdha.com/{uuid}")
}

fn labelled(mut object: Value, labels: &[(&str, &str)]) -> Value {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    object["metadata"]["labels"] = json!(labels);
    object
}

/// The UUID labels: the names of contents, and their UUIDs.
fn contents(object: &Value) -> BTreeMap<String, String> {
    let labels = object["metadata"]["labels"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let own = labels.into_iter().filter_map(|(key, value)| {
        let uuid = key.strip_prefix("uuid.shaper.amahdha.com/")?.to_owned();
        Uuid::parse(&uuid).unwrap();
        Some((value.as_str().unwrap().to_owned(), uuid))
    });
    own.collect()
}

async fn mutated(ask: Ask, lookup: Fake) -> Value {
    ask.at(MUTATE, lookup).await.allowed().patched()
}

#[tokio::test]
async fn exposed_contents_get_random_uuids_that_stay() {
    let object = profile(
        "p",
        &[
            ("ignition-config", true),
            ("cloud-init", true),
            ("internal", false),
        ],
    );
    let first = mutated(Ask::create("Profile", &object), Fake::new()).await;
    let made = contents(&first);
    assert_eq!(
        made.keys().collect::<Vec<_>>(),
        ["cloud-init", "ignition-config"]
    );
    assert!(
        made.values().all(|uuid| uuid.as_bytes()[14] == b'4'),
        "{made:?}"
    );
    let other = mutated(Ask::create("Profile", &object), Fake::new()).await;
    assert_ne!(contents(&other), made, "every profile gets its own");

    let mut changed = first.clone();
    changed["spec"]["ipxeTemplate"] = json!("#!ipxe\necho changed");
    let said = Ask::update("Profile", &first, &changed)
        .at(MUTATE, Fake::new())
        .await
        .allowed();
    assert_eq!(said.patch(), json!([]), "nothing to change");
    // An update that omits the labels, as `kubectl replace` does, keeps them.
    let mut bare = changed.clone();
    bare["metadata"].as_object_mut().unwrap().remove("labels");
    let back = mutated(Ask::update("Profile", &first, &bare), Fake::new()).await;
    assert_eq!(contents(&back), made);
    Ask::update("Profile", &first, &back)
        .at(VALIDATE, Fake::new())
        .await
        .allowed();
}

#[tokio::test]
async fn a_second_look_at_a_new_profile_changes_nothing() {
    let object = profile("p", &[("a", true)]);
    let first = mutated(Ask::create("Profile", &object), Fake::new()).await;
    let said = Ask::create("Profile", &first)
        .at(MUTATE, Fake::new())
        .await
        .allowed();
    assert_eq!(said.patch(), json!([]));
    Ask::create("Profile", &first)
        .at(VALIDATE, Fake::new())
        .await
        .allowed();
}

#[tokio::test]
async fn profiles_without_exposed_contents_get_no_patch() {
    for object in [
        profile("p", &[]),
        profile("p", &[("a", false)]),
        labelled(profile("p", &[]), &[("team", "a")]),
    ] {
        let said = Ask::create("Profile", &object)
            .at(MUTATE, Fake::new())
            .await
            .allowed();
        assert_eq!(said.patch(), json!([]));
    }
    let mut bare = profile("p", &[]);
    bare.as_object_mut().unwrap().remove("spec");
    Ask::create("Profile", &bare)
        .at(MUTATE, Fake::new())
        .await
        .allowed();
}

#[tokio::test]
async fn hiding_or_renaming_drops_the_uuid() {
    let old = labelled(
        profile("p", &[("a", true), ("b", true)]),
        &[(&key(A), "a"), (&key(B), "b"), ("team", "x")],
    );
    let mut new = labelled(
        profile("p", &[("a", false), ("c", true)]),
        &[(&key(A), "a"), (&key(B), "b"), ("team", "x")],
    );
    new["status"] = json!({"exposedAdditionalContent": {"a": A, "b": B}});
    let changed = mutated(Ask::update("Profile", &old, &new), Fake::new()).await;
    let now = contents(&changed);
    assert_eq!(now.keys().collect::<Vec<_>>(), ["c"]);
    assert!(![A, B].contains(&now["c"].as_str()));
    assert_eq!(changed["metadata"]["labels"]["team"], "x");

    // Content that is exposed again does not get its previous UUID.
    let mut hidden = labelled(profile("p", &[("a", false)]), &[]);
    hidden["status"] = json!({"exposedAdditionalContent": {"a": A}});
    let again = mutated(
        Ask::update("Profile", &hidden, &profile("p", &[("a", true)])),
        Fake::new(),
    )
    .await;
    assert_ne!(contents(&again)["a"], A);
}

#[tokio::test]
async fn the_status_restores_what_labels_lost() {
    let mut old = profile("p", &[("a", true), ("b", true)]);
    old["status"] = json!({"exposedAdditionalContent": {"a": A, "b": "nonsense"}});
    let new = profile("p", &[("a", true), ("b", true)]);
    let restored = contents(&mutated(Ask::update("Profile", &old, &new), Fake::new()).await);
    assert_eq!(restored["a"], A);
    // Labels take precedence over the status.
    let old = labelled(old, &[(&key(B), "a")]);
    let restored = contents(&mutated(Ask::update("Profile", &old, &new), Fake::new()).await);
    assert_eq!(restored["a"], B);
}

#[tokio::test]
async fn nobody_takes_the_uuid_of_another_profile() {
    let victim = || {
        Fake::new().profile(labelled(
            profile("victim", &[("secret", true)]),
            &[(&key(A), "secret")],
        ))
    };
    let thief = labelled(profile("thief", &[("mine", true)]), &[(&key(A), "mine")]);

    let said = Ask::create("Profile", &thief)
        .at(MUTATE, victim())
        .await
        .allowed();
    assert_ne!(contents(&said.patched())["mine"], A);
    assert_eq!(
        said.warnings(),
        [format!(
            "metadata.labels: UUID {A} belongs to another profile, `mine` gets a new one"
        )]
    );
    let stolen = format!(
        "metadata.labels[{0}]: Duplicate value: \"{0}\": the UUID belongs to a content of another profile: default/victim",
        key(A)
    );
    Ask::create("Profile", &thief)
        .at(VALIDATE, victim())
        .await
        .denied(422, &stolen);

    let before = labelled(profile("thief", &[("mine", true)]), &[(&key(B), "mine")]);
    let changed = mutated(Ask::update("Profile", &before, &thief), victim()).await;
    assert_eq!(contents(&changed)["mine"], B);
    Ask::update("Profile", &before, &thief)
        .at(VALIDATE, victim())
        .await
        .denied(422, &stolen);

    // An object of the same name in another namespace is another object.
    let mut twin = thief.clone();
    twin["metadata"]["name"] = json!("victim");
    twin["metadata"]["namespace"] = json!("other");
    Ask::create("Profile", &twin)
        .at(VALIDATE, victim())
        .await
        .denied(422, &stolen);

    // Nor while it is being deleted.
    let mut going = before.clone();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut after = thief.clone();
    after["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let changed = mutated(Ask::update("Profile", &going, &after), victim()).await;
    assert_eq!(contents(&changed)["mine"], B);
}

#[tokio::test]
async fn a_restored_profile_keeps_its_uuids() {
    let backup = labelled(
        profile("p", &[("a", true)]),
        &[(&key(A), "a"), (&key(B), "gone")],
    );
    let restored = mutated(Ask::create("Profile", &backup), Fake::new()).await;
    assert_eq!(
        contents(&restored),
        BTreeMap::from([(String::from("a"), A.to_owned())])
    );

    // The controller restores recorded UUIDs at any time.
    let old = profile("p", &[("a", true)]);
    let put_back = labelled(old.clone(), &[(&key(A), "a")]);
    let ask = Ask::update("Profile", &old, &put_back).user(CONTROLLER);
    assert_eq!(contents(&mutated(ask, Fake::new()).await)["a"], A);
    let ask = Ask::update("Profile", &old, &put_back).user("system:serviceaccount:default:other");
    assert_ne!(contents(&mutated(ask, Fake::new()).await)["a"], A);
}

#[tokio::test]
async fn refuses_in_both_phases_with_all_causes() {
    let mut object = profile("p", &[("a", true), ("b", true)]);
    object["spec"]["additionalContent"][1]["webhook"] =
        json!({"url": "https://example.com/config"});
    object["spec"]["additionalContent"][0]["name"] = json!("b");
    for path in [MUTATE, VALIDATE] {
        let said = Ask::create("Profile", &object).at(path, Fake::broken()).await.denied(422,
            "[spec.additionalContent[1].name: Duplicate value: \"b\", spec.additionalContent[1]: Invalid value: \"b\": additionalContent MUST contain exactly 1 content configuration: one of inline, objectRef and webhook; found inline, webhook]");
        assert_eq!(
            said.response["status"]["details"]["causes"]
                .as_array()
                .unwrap()
                .len(),
            2
        );
        assert_eq!(
            said.warnings(),
            [
                "spec.additionalContent[1].webhook.url: leave `https://` out, shaper puts https:// before it"
            ]
        );
    }
}

#[tokio::test]
async fn what_goes_away_may_lose_its_finalizers() {
    let mut old = profile("p", &[("not a label", true)]);
    old["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    for path in [MUTATE, VALIDATE] {
        let said = Ask::update("Profile", &old, &old)
            .at(path, Fake::new())
            .await
            .allowed();
        assert_eq!(
            said.patch(),
            json!([]),
            "no label that the API server would refuse"
        );
    }
}

#[tokio::test]
async fn profiles_in_use_are_guarded_as_configured() {
    let object = profile("p", &[]);
    let using = |name: &str| json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"profileName": "p"}});
    let lookup = || {
        let elsewhere =
            json!({"metadata": {"name": "x", "namespace": "other"}, "spec": {"profileName": "p"}});
        let mut going = using("going");
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        Fake::new().assignment(elsewhere).assignment(going)
    };
    let ask = |deletion| Ask::delete("Profile", &object).deletion(deletion);
    let text = "profile is still referenced by assignments: a, b, c and 1 more";
    let used = || {
        ["a", "b", "c", "d"]
            .into_iter()
            .fold(lookup(), |lookup, name| lookup.assignment(using(name)))
    };
    for deletion in [
        ProfileDeletion::Allow,
        ProfileDeletion::Warn,
        ProfileDeletion::Deny,
    ] {
        let said = ask(deletion).at(VALIDATE, lookup()).await.allowed();
        assert_eq!(said.warnings(), Vec::<&str>::new());
    }
    assert_eq!(
        ask(ProfileDeletion::Allow)
            .at(VALIDATE, used())
            .await
            .allowed()
            .warnings(),
        Vec::<&str>::new()
    );
    assert_eq!(
        ask(ProfileDeletion::Warn)
            .at(VALIDATE, used())
            .await
            .allowed()
            .warnings(),
        [text]
    );
    ask(ProfileDeletion::Deny)
        .at(VALIDATE, used())
        .await
        .denied(403, text);
    ask(ProfileDeletion::Warn)
        .at(VALIDATE, Fake::broken())
        .await
        .allowed();
    assert_eq!(
        ask(ProfileDeletion::Deny)
            .at(VALIDATE, Fake::broken())
            .await
            .code,
        500
    );
    ask(ProfileDeletion::Deny)
        .at(MUTATE, Fake::broken())
        .await
        .allowed();
}

#[tokio::test]
async fn subresources_and_other_kinds_are_not_for_it() {
    let object = profile("p", &[("not a label", true)]);
    for path in [
        MUTATE,
        VALIDATE,
        "/mutate-shaper-amahdha-com-v1alpha1-profile",
        "/validate-shaper-amahdha-com-v1alpha1-profile",
    ] {
        let status = Ask::update("Profile", &object, &object).with("subResource", json!("status"));
        assert_eq!(
            status.at(path, Fake::broken()).await.allowed().patch(),
            json!([])
        );
        Ask::create("Assignment", &object).at(path, Fake::new()).await.denied(400,
            "webhook does not support resource with GroupVersionKind=\"shaper.amahdha.com/v1alpha1, Kind=Assignment\"");
    }
}
