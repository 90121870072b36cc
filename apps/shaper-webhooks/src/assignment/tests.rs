use serde_json::{Value, json};

use crate::lookup::fake::Fake;
use crate::testing::Ask;

const A: &str = "47c6da67-7477-4970-aa03-84e48ff4f6ad";
const B: &str = "3f5f3c39-584e-4c7c-b6ff-137e1aaa7175";
const MUTATE: &str = "/mutate-assignment";
const VALIDATE: &str = "/validate-assignment";

fn assignment(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "shaper.amahdha.com/v1alpha1",
        "kind": "Assignment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    })
}

fn selecting(archs: &[&str], uuids: &[&str]) -> Value {
    json!({
        "subjectSelectors": {"buildarch": archs, "uuidList": uuids},
        "profileName": "test-profile", "isDefault": false,
    })
}

fn default_for(archs: &[&str]) -> Value {
    json!({
        "subjectSelectors": {"buildarch": archs, "uuidList": []},
        "profileName": "test-profile", "isDefault": true,
    })
}

fn labelled(mut object: Value, labels: &[&str]) -> Value {
    object["metadata"]["labels"] = labels
        .iter()
        .map(|&key| (key.to_owned(), json!("")))
        .collect();
    object
}

fn in_namespace(mut object: Value, namespace: &str) -> Value {
    object["metadata"]["namespace"] = json!(namespace);
    object
}

/// The object after the mutating webhook.
async fn stored(object: &Value) -> Value {
    Ask::create("Assignment", object)
        .at(MUTATE, Fake::new())
        .await
        .allowed()
        .patched()
}

fn with_profile() -> Fake {
    Fake::new().profile(json!({"metadata": {"name": "test-profile", "namespace": "default"}}))
}

#[tokio::test]
async fn labels_with_one_operation_when_there_were_none() {
    let object = assignment("valid-assignment", &selecting(&["arm64"], &[A, B]));
    let said = Ask::create("Assignment", &object)
        .at(MUTATE, Fake::new())
        .await
        .allowed();
    assert_eq!(
        said.patch(),
        json!([{
            "op": "add", "path": "/metadata/labels",
            "value": {
                "buildarch.shaper.amahdha.com/arm64": "",
                format!("uuid.shaper.amahdha.com/{A}"): "",
                format!("uuid.shaper.amahdha.com/{B}"): "",
            },
        }])
    );
    assert_eq!(said.warnings(), Vec::<&str>::new());
    Ask::create("Assignment", &said.patched())
        .at(VALIDATE, with_profile())
        .await
        .allowed();
}

#[tokio::test]
async fn changes_only_the_labels_that_are_wrong() {
    let mut object = assignment("a", &selecting(&["arm64"], &[A]));
    object["metadata"]["labels"] = json!({
        "team": "a",
        "buildarch.shaper.amahdha.com/arm64": "",
        format!("uuid.shaper.amahdha.com/{B}"): "",
    });
    let said = Ask::create("Assignment", &object)
        .at(MUTATE, Fake::new())
        .await
        .allowed();
    assert_eq!(
        said.patch(),
        json!([
            {"op": "remove", "path": format!("/metadata/labels/uuid.shaper.amahdha.com~1{B}")},
            {"op": "add", "path": format!("/metadata/labels/uuid.shaper.amahdha.com~1{A}"), "value": ""},
        ])
    );
    let again = Ask::create("Assignment", &said.patched())
        .at(MUTATE, Fake::new())
        .await
        .allowed();
    assert_eq!(again.patch(), json!([]), "what is right needs no patch");
}

#[tokio::test]
async fn takes_null_labels_and_unknown_fields_as_they_come() {
    let mut object = assignment("a", &selecting(&["arm64"], &[]));
    object["metadata"]["labels"] = Value::Null;
    object["metadata"]["annotations"] = json!({"a": "b"});
    object["spec"]["later"] = json!({"x": [1, 2.5]});
    let said = Ask::create("Assignment", &object)
        .at(MUTATE, Fake::new())
        .await
        .allowed();
    let mut want = object;
    want["metadata"]["labels"] = json!({"buildarch.shaper.amahdha.com/arm64": ""});
    assert_eq!(said.patched(), want);
}

#[tokio::test]
async fn reads_both_versions_and_both_paths() {
    let object = assignment("a", &selecting(&["arm64"], &[A]));
    for path in [MUTATE, "/mutate-shaper-amahdha-com-v1alpha1-assignment"] {
        for version in ["v1", "v1beta1"] {
            let said = Ask::create("Assignment", &object)
                .version(version)
                .at(path, Fake::new())
                .await;
            assert_eq!(said.allowed().patch()[0]["path"], "/metadata/labels");
        }
    }
    for path in [VALIDATE, "/validate-shaper-amahdha-com-v1alpha1-assignment"] {
        Ask::create("Assignment", &object)
            .version("v1beta1")
            .at(path, with_profile())
            .await
            .allowed();
    }
}

#[tokio::test]
async fn both_phases_refuse_what_needs_no_lookup_with_all_causes() {
    let object = assignment("a", &selecting(&["invalid-arch"], &["not-a-valid-uuid", A]));
    for path in [MUTATE, VALIDATE] {
        let said = Ask::create("Assignment", &object)
            .at(path, Fake::broken())
            .await;
        let said = said.denied(422, "[spec.subjectSelectors.uuidList[0]: Invalid value: \"not-a-valid-uuid\": invalid UUID length: 16, spec.subjectSelectors.buildarch[0]: Unsupported value: \"invalid-arch\": specified buildarch is not supported: expected one of 'arm32', 'arm64', 'i386', 'x86_64'; received \"invalid-arch\"]");
        assert_eq!(said.response["status"]["reason"], "Invalid");
        assert_eq!(
            said.response["status"]["details"]["causes"],
            json!([
                {"reason": "FieldValueInvalid", "field": "spec.subjectSelectors.uuidList[0]",
                 "message": "Invalid value: \"not-a-valid-uuid\": invalid UUID length: 16"},
                {"reason": "FieldValueNotSupported", "field": "spec.subjectSelectors.buildarch[0]",
                 "message": "Unsupported value: \"invalid-arch\": specified buildarch is not supported: expected one of 'arm32', 'arm64', 'i386', 'x86_64'; received \"invalid-arch\""},
            ])
        );
    }
}

#[tokio::test]
async fn warns_in_both_phases_alike() {
    let object = assignment("a", &selecting(&[], &[A, &A.to_uppercase()]));
    let want = [format!(
        "spec.subjectSelectors.uuidList[1]: {A} is named twice"
    )];
    let said = Ask::create("Assignment", &object)
        .at(MUTATE, Fake::new())
        .await
        .allowed();
    assert_eq!(said.warnings(), want);
    let said = Ask::create("Assignment", &said.patched())
        .at(VALIDATE, with_profile())
        .await
        .allowed();
    assert_eq!(said.warnings(), want);
}

#[tokio::test]
async fn the_profile_exists_in_the_same_namespace() {
    let missing = "spec.profileName: Not found: \"test-profile\": assignment must specify an existing profileName";
    let object = assignment("a", &selecting(&[], &[A]));
    let ask = Ask::create("Assignment", &object);
    ask.at(VALIDATE, with_profile()).await.allowed();
    ask.at(VALIDATE, Fake::new()).await.denied(422, missing);
    let elsewhere = json!({"metadata": {"name": "test-profile", "namespace": "other"}});
    ask.at(VALIDATE, Fake::new().profile(elsewhere))
        .await
        .denied(422, missing);
}

#[tokio::test]
async fn a_machine_has_one_assignment_in_the_whole_cluster() {
    let object = assignment("new", &selecting(&["arm64"], &[B, A]));
    let other = stored(&assignment("old", &selecting(&["i386"], &[A]))).await;
    let lookup = || with_profile().assignment(other.clone());
    Ask::create("Assignment", &object).at(VALIDATE, lookup()).await.denied(422,
        "spec.subjectSelectors.uuidList[1]: Duplicate value: \"47c6da67-7477-4970-aa03-84e48ff4f6ad\": assignment cannot reference a subject selector referenced by another assignment: default/old");

    // The same name in another namespace.
    let twin = in_namespace(
        stored(&assignment("new", &selecting(&[], &[A]))).await,
        "other",
    );
    Ask::create("Assignment", &object).at(VALIDATE, with_profile().assignment(twin.clone())).await.denied(422,
        "spec.subjectSelectors.uuidList[1]: Duplicate value: \"47c6da67-7477-4970-aa03-84e48ff4f6ad\": assignment cannot reference a subject selector referenced by another assignment: other/new");

    // The object itself comes first in the list, another one second.
    let own = stored(&object).await;
    let lookup = with_profile().assignment(own.clone()).assignment(twin);
    Ask::update("Assignment", &own, &own).at(VALIDATE, lookup).await.denied(422,
        "spec.subjectSelectors.uuidList[1]: Duplicate value: \"47c6da67-7477-4970-aa03-84e48ff4f6ad\": assignment cannot reference a subject selector referenced by another assignment: other/new");

    // Only the object itself.
    Ask::update("Assignment", &own, &own)
        .at(VALIDATE, with_profile().assignment(own.clone()))
        .await
        .allowed();
}

#[tokio::test]
async fn objects_that_came_past_the_webhooks_count_as_well() {
    let bare = assignment(
        "old",
        &selecting(&["i386"], &[&format!("{{{}}}", A.to_uppercase())]),
    );
    let object = assignment("new", &selecting(&["arm64"], &[A]));
    let said = Ask::create("Assignment", &object)
        .at(VALIDATE, with_profile().assignment(bare))
        .await;
    said.denied(422, "spec.subjectSelectors.uuidList[0]: Duplicate value: \"47c6da67-7477-4970-aa03-84e48ff4f6ad\": assignment cannot reference a subject selector referenced by another assignment: default/old");
    let bare = assignment("old", &default_for(&[]));
    let object = assignment("new", &default_for(&["arm64"]));
    let said = Ask::create("Assignment", &object)
        .at(VALIDATE, with_profile().assignment(bare))
        .await;
    said.denied(422, "spec.subjectSelectors.buildarch[0]: Duplicate value: \"arm64\": there is a default assignment for this buildarch already: default/old");
}

#[tokio::test]
async fn asks_about_every_machine() {
    for count in [40, 100] {
        let many: Vec<String> = (0..count).map(|n| format!("{A:.24}{n:012}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let object = assignment("new", &selecting(&[], &many));
        let other = stored(&assignment(
            "old",
            &selecting(&[], &[many[count - 1], many[0]]),
        ))
        .await;
        let lookup = with_profile().assignment(other);
        let said = Ask::create("Assignment", &object)
            .at(VALIDATE, lookup)
            .await;
        let causes = said.response["status"]["details"]["causes"]
            .as_array()
            .unwrap();
        let fields: Vec<_> = causes
            .iter()
            .map(|cause| cause["field"].as_str().unwrap())
            .collect();
        let last = format!("spec.subjectSelectors.uuidList[{}]", count - 1);
        assert_eq!(fields, ["spec.subjectSelectors.uuidList[0]", &last]);
    }
}

#[tokio::test]
async fn an_architecture_has_one_default() {
    let arm = stored(&assignment("arm", &default_for(&["arm64"]))).await;
    let lookup = || with_profile().assignment(arm.clone());
    let ask = |spec: &Value| Ask::create("Assignment", &assignment("new", spec));
    ask(&default_for(&["i386", "x86_64"]))
        .at(VALIDATE, lookup())
        .await
        .allowed();
    ask(&default_for(&["i386", "arm64"])).at(VALIDATE, lookup()).await.denied(422,
        "spec.subjectSelectors.buildarch[1]: Duplicate value: \"arm64\": there is a default assignment for this buildarch already: default/arm");
    // An assignment for any architecture includes this one, whether or not the object has labels yet.
    ask(&default_for(&[])).at(VALIDATE, lookup()).await.denied(422,
        "spec.subjectSelectors.buildarch: Duplicate value: \"arm64\": there is a default assignment for this buildarch already: default/arm");
    // An assignment that is not a default conflicts with none.
    ask(&selecting(&["arm64"], &[A]))
        .at(VALIDATE, lookup())
        .await
        .allowed();
    // Nor with itself.
    Ask::update("Assignment", &arm, &arm)
        .at(VALIDATE, lookup())
        .await
        .allowed();
    let twin = in_namespace(assignment("arm", &default_for(&["arm64"])), "default2");
    let lookup =
        lookup().profile(json!({"metadata": {"name": "test-profile", "namespace": "default2"}}));
    Ask::create("Assignment", &twin).at(VALIDATE, lookup).await.denied(422,
        "spec.subjectSelectors.buildarch[0]: Duplicate value: \"arm64\": there is a default assignment for this buildarch already: default/arm");
}

#[tokio::test]
async fn tells_a_missing_profile_and_a_taken_machine_together() {
    let other = stored(&assignment("old", &selecting(&[], &[A]))).await;
    let object = assignment("new", &selecting(&[], &[A]));
    let said = Ask::create("Assignment", &object)
        .at(VALIDATE, Fake::new().assignment(other))
        .await;
    assert_eq!(
        said.response["status"]["details"]["causes"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn what_goes_away_may_lose_its_finalizers() {
    let mut old = labelled(assignment("a", &selecting(&["arm64"], &[A])), &[]);
    old["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    old["metadata"]["finalizers"] = json!(["example.com/x"]);
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!([]);
    Ask::update("Assignment", &old, &new)
        .at(VALIDATE, Fake::new())
        .await
        .allowed();
    Ask::update("Assignment", &old, &new)
        .at(MUTATE, Fake::new())
        .await
        .allowed();
    // Even when its spec was never valid.
    old["spec"]["subjectSelectors"]["uuidList"] = json!(["never-was-one"]);
    new["spec"] = old["spec"].clone();
    Ask::update("Assignment", &old, &new)
        .at(MUTATE, Fake::new())
        .await
        .allowed();
    // But not if its spec changes, nor before it is being deleted.
    new["spec"]["profileName"] = json!("other");
    new["spec"]["subjectSelectors"]["uuidList"] = json!([A]);
    Ask::update("Assignment", &old, &new).at(VALIDATE, Fake::new()).await.denied(422,
        "spec.profileName: Not found: \"other\": assignment must specify an existing profileName");
    let alive = assignment("a", &selecting(&["arm64"], &[A]));
    Ask::update("Assignment", &alive, &alive).at(VALIDATE, Fake::new()).await.denied(422,
        "spec.profileName: Not found: \"test-profile\": assignment must specify an existing profileName");
}

#[tokio::test]
async fn cannot_decide_while_the_api_is_away() {
    let object = assignment("a", &selecting(&[], &[A]));
    let said = Ask::create("Assignment", &object)
        .at(VALIDATE, Fake::broken())
        .await;
    assert_eq!(said.code, 500, "{said:?}");
}

#[tokio::test]
async fn deletions_dry_runs_and_subresources_pass() {
    let object = assignment("a", &selecting(&[], &["never-was-one"]));
    for path in [MUTATE, VALIDATE] {
        Ask::delete("Assignment", &object)
            .at(path, Fake::broken())
            .await
            .allowed();
        let status =
            Ask::update("Assignment", &object, &object).with("subResource", json!("status"));
        let said = status.at(path, Fake::broken()).await.allowed();
        assert_eq!(said.patch(), json!([]));
    }
    let object = assignment("a", &selecting(&[], &[A]));
    let dry = Ask::create("Assignment", &object).with("dryRun", json!(true));
    dry.at(MUTATE, Fake::new()).await.allowed();
    dry.at(VALIDATE, with_profile()).await.allowed();
}

#[tokio::test]
async fn other_kinds_are_not_for_it() {
    let object = assignment("a", &selecting(&[], &[A]));
    for path in [MUTATE, VALIDATE] {
        let ask = Ask::create("Assignment", &object);
        let ask = ask.with("kind", json!({"group": "", "version": "v1", "kind": "Pod"}));
        ask.at(path, Fake::new()).await.denied(
            400,
            "webhook does not support resource with GroupVersionKind=\"/v1, Kind=Pod\"",
        );
        Ask::create("Profile", &object).at(path, Fake::new()).await.denied(400,
            "webhook does not support resource with GroupVersionKind=\"shaper.amahdha.com/v1alpha1, Kind=Profile\"");
    }
}

#[tokio::test]
async fn an_object_of_wrong_types_is_refused() {
    let object = assignment(
        "a",
        &json!({"subjectSelectors": {"uuidList": "not a list"}}),
    );
    let said = Ask::create("Assignment", &object)
        .at(MUTATE, Fake::new())
        .await;
    assert_eq!(said.response["status"]["code"], 422);
    let mut missing = object;
    missing.as_object_mut().unwrap().remove("spec");
    Ask::create("Assignment", &missing)
        .at(MUTATE, Fake::new())
        .await
        .denied(
            422,
            "spec.profileName: Required value: assignment must specify an existing profileName",
        );
}
