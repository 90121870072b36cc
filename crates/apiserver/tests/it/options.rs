//! Invalid options, media types and paths, and invalid combinations: the responses are recorded from kube-apiserver
//! v1.36.4.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use serde_json::{Value, json};

use crate::support::*;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io";
const PLAIN_406: &str = "406: Not Acceptable\n\nAvailable representations: application/json, \
                         application/yaml, application/vnd.kubernetes.protobuf";

async fn told(client: &Client, method: Method, path: &str, accept: &str) -> (u16, String) {
    let headers: &[(&str, &str)] = match accept {
        "" => &[],
        accept => &[("accept", accept)],
    };
    let answer = client.request(method, path, headers, "").await;
    let message = answer.json()["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    (answer.code, message)
}

fn token(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

#[tokio::test]
async fn options_of_lists_are_judged_in_order() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(CONFIG_MAPS, config_map("a")).await;
    let key = |why: &str| format!("invalid continue token: continue key is not valid: {why}");
    let struct_field =
        "json: cannot unmarshal string into Go struct field continueToken.rv of type int64";
    for (query, code, message) in [
        (
            "limit=abc&resourceVersionMatch=Exact",
            400,
            String::from("strconv.ParseInt: parsing \"abc\": invalid syntax"),
        ),
        (
            "limit=",
            400,
            String::from("strconv.ParseInt: parsing \"\": invalid syntax"),
        ),
        (
            "limit=9223372036854775808",
            400,
            String::from("strconv.ParseInt: parsing \"9223372036854775808\": value out of range"),
        ),
        (
            "labelSelector=(&sendInitialEvents=true",
            400,
            String::from("found '(', expected: !, identifier, or 'end of string'"),
        ),
        (
            "fieldSelector=spec.x%3D1&sendInitialEvents=true",
            422,
            String::from(
                "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
            ),
        ),
        (
            "resourceVersion=x",
            400,
            String::from(
                "invalid resource version: resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax",
            ),
        ),
        (
            "continue=!!",
            400,
            key("illegal base64 data at input byte 0"),
        ),
        (
            "continue=abc&resourceVersion=5",
            400,
            key("invalid character 'i' looking for beginning of value"),
        ),
        (
            &format!("continue={}", token(&json!([]))),
            400,
            key("json: cannot unmarshal array into Go value of type storage.continueToken"),
        ),
        (
            &format!(
                "continue={}",
                token(&json!({"v": "meta.k8s.io/v1", "rv": "x", "start": "a"}))
            ),
            400,
            key(struct_field),
        ),
        (
            &format!(
                "continue={}",
                token(&json!({"v": "v2", "rv": 1, "start": "a"}))
            ),
            400,
            key("server does not recognize this encoded version v2"),
        ),
        (
            &format!(
                "continue={}",
                token(&json!({"v": "meta.k8s.io/v1", "rv": 5, "start": "../../x"}))
            ),
            400,
            key("../../x"),
        ),
        (
            &format!(
                "continue={}",
                token(&json!({"v": "meta.k8s.io/v1", "rv": 5}))
            ),
            400,
            key("encoded start key empty (version meta.k8s.io/v1)"),
        ),
    ] {
        // deletecollection lists the collection first.
        for method in [Method::GET, Method::DELETE] {
            let path = format!("{CONFIG_MAPS}?dryRun=All&{query}");
            let got = told(&client, method.clone(), &path, "").await;
            assert_eq!(got, (code, message.clone()), "{method} {query}");
        }
    }
    // deletecollection with a selector.
    client.create(CONFIG_MAPS, config_map("b")).await;
    let path = format!("{CONFIG_MAPS}?limit=1&fieldSelector=metadata.namespace%3Ddefault");
    let gone = client.delete(&path).await.expect(200);
    assert_eq!(names(&gone), ["a"]);
    let left = client.get(CONFIG_MAPS).await.expect(200);
    assert!(names(&left).contains(&"b"), "{left}");
    server.stop().await;
}

#[tokio::test]
async fn names_and_versions_of_reads_are_judged() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let invalid =
        "resourceVersion: Invalid value: \"-1\": strconv.ParseUint: parsing \"-1\": invalid syntax";
    for (method, path, code, message) in [
        (Method::GET, "/a?resourceVersion=-1", 500, invalid),
        (
            Method::GET,
            "/%25",
            400,
            "Name parameter invalid: \"%\": may not contain '%'",
        ),
        (
            Method::DELETE,
            "/..%2f",
            400,
            "Name parameter invalid: \"..\": may not be '..'",
        ),
    ] {
        let got = told(&client, method.clone(), &format!("{CONFIG_MAPS}{path}"), "").await;
        assert_eq!(got, (code, message.to_owned()), "{method} {path}");
    }
    let odd = client
        .post(
            &format!("{CONFIG_MAPS}?fieldValidation=Odd"),
            &config_map("a"),
        )
        .await;
    odd.refused(
        422,
        "Invalid",
        "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Odd\": supported \
         values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
    );
    server.stop().await;
}

#[tokio::test]
async fn paths_are_judged_before_media_types() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(CONFIG_MAPS, config_map("a")).await;
    let one = format!("{CONFIG_MAPS}/a");
    let nothing = "the server could not find the requested resource";
    let never = "the server does not allow this method on the requested resource";
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (path, accept, code, message) in [
        (one.as_str(), "application/*", 406, PLAIN_406.to_owned()),
        (
            CONFIG_MAPS,
            "junk",
            406,
            format!(
                "{PLAIN_406}, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
            ),
        ),
        (&format!("{one}/none"), "junk", 404, nothing.to_owned()),
        (reviews, "junk", 405, never.to_owned()),
        ("/api/v1/configmaps/a", "", 404, nothing.to_owned()),
        // Error responses have no other representation.
        (
            &format!("{CONFIG_MAPS}/none"),
            PARTIAL,
            404,
            String::from("configmaps \"none\" not found"),
        ),
    ] {
        let got = told(&client, Method::GET, path, accept).await;
        assert_eq!(got, (code, message), "{path} {accept}");
    }
    // Some subresources have no tables.
    let parts = "/api/v1/namespaces/default/pods/none";
    for (part, code) in [
        ("status", 404),
        ("resize", 406),
        ("ephemeralcontainers", 406),
    ] {
        let got = told(&client, Method::GET, &format!("{parts}/{part}"), TABLE).await;
        assert_eq!(got.0, code, "{part}: {got:?}");
    }
    let doubled = client.get(&format!("/{one}")).await;
    assert_eq!(
        (doubled.code, doubled.text().as_str()),
        (404, "404 page not found\n")
    );
    let forbidden = Client::anonymous(&server).await.get(&one).await;
    assert_eq!(
        (forbidden.code, forbidden.header("x-content-type-options")),
        (403, "nosniff")
    );
    server.stop().await;
}

#[tokio::test]
async fn metadata_comes_in_the_version_that_is_asked_for() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    client.create(CONFIG_MAPS, config_map("a")).await;
    for (path, kind) in [
        (format!("{CONFIG_MAPS}/a"), "PartialObjectMetadata"),
        (CONFIG_MAPS.to_owned(), "PartialObjectMetadataList"),
        (
            String::from("/apis/example.com/v1/namespaces/default/widgets"),
            "PartialObjectMetadataList",
        ),
    ] {
        let answer = client.with("accept", PARTIAL).get(&path).await.expect(200);
        assert_eq!(answer["apiVersion"], "meta.k8s.io/v1beta1", "{path}");
        assert_eq!(answer["kind"], kind, "{path}");
        assert_eq!(answer["metadata"].get("continue"), None, "{path}");
    }
    // Lists of custom resources have an empty continue token, their tables have none.
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let list = client.get(widgets).await.expect(200);
    assert_eq!(list["metadata"]["continue"], "");
    let table = client.with("accept", TABLE).get(widgets).await.expect(200);
    assert_eq!(table["metadata"].get("continue"), None);
    server.stop().await;
}

#[tokio::test]
async fn jobs_that_are_deleted_leave_their_pods_with_a_warning() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": spec}}});
    client.create(jobs, job).await;
    for (path, options, count) in [
        (
            format!("{jobs}/j?dryRun=All"),
            json!({"dryRun": ["All"]}),
            1,
        ),
        (format!("{jobs}?dryRun=All"), json!({"dryRun": ["All"]}), 1),
        (
            format!("{jobs}/j?dryRun=All"),
            json!({"dryRun": ["All"], "propagationPolicy": "Orphan"}),
            0,
        ),
    ] {
        let answer = client.delete_with(&path, &options).await;
        assert_eq!(answer.code, 200, "{}", answer.text());
        assert_eq!(answer.warnings().len(), count, "{path} {options}");
    }
    server.stop().await;
}

#[tokio::test]
async fn scales_that_are_read_need_replicas() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let mut version = open_version("v1", true);
    version["subresources"] = json!({"scale": {"specReplicasPath": ".spec.count", "statusReplicasPath": ".status.count"}});
    let made = client
        .create(DEFINITIONS, definition(json!([version])))
        .await;
    assert_eq!(made["metadata"]["name"], "widgets.example.com");
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    for (name, spec, code) in [("a", json!({"count": 1}), 200), ("b", json!({}), 500)] {
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec});
        client.create(widgets, widget).await;
        let answer = client.get(&format!("{widgets}/{name}/scale")).await;
        assert_eq!(answer.code, code, "{}", answer.text());
    }
    let text = client.get(&format!("{widgets}/b/scale")).await.text();
    assert!(
        text.contains("the spec replicas field \\\".spec.count\\\" does not exist"),
        "{text}"
    );
    server.stop().await;
}
