//! Malformed input: rejected with upstream's messages, in bounded time and memory, without affecting the server.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use lockgate_apiserver::{Settings, TestServer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::*;

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const LIMIT: usize = 3 * 1024 * 1024;

/// The server is healthy if a new client can write, read and watch.
async fn is_well(server: &TestServer) {
    let client = Client::admin(server).await;
    let made = client
        .create(CONFIG_MAPS, json!({"metadata": {"generateName": "well-"}}))
        .await;
    let name = made["metadata"]["name"].as_str().unwrap();
    client
        .get(&format!("{CONFIG_MAPS}/{name}"))
        .await
        .expect(200);
    client
        .delete(&format!("{CONFIG_MAPS}/{name}"))
        .await
        .expect(200);
}

/// Resident memory of this process, which includes the server.
pub(crate) fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    kilobytes
        .and_then(|text| text.parse::<usize>().ok())
        .unwrap_or_default()
        * 1024
}

/// A body of this many chunks, without a content length.
struct Pieces(usize);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static PIECE: [u8; 64 * 1024] = [b'a'; 64 * 1024];
        Poll::Ready(self.0.checked_sub(1).map(|left| {
            self.0 = left;
            Ok(Frame::data(Bytes::from_static(&PIECE)))
        }))
    }
}

/// 30 MB.
fn stream() -> Body {
    Pieces(460).boxed()
}

fn nested(depth: usize) -> String {
    format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth))
}

async fn with_open_definition() -> (TestServer, Client) {
    let server = start().await;
    let client = Client::admin(&server).await;
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    (server, client)
}

#[tokio::test]
async fn refuses_bodies_that_are_too_large() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let too_large = "Request entity too large: limit is 3145728";
    let json = [("content-type", "application/json")];
    let mut object = config_map("big");
    object["data"]["a"] = "x".repeat(LIMIT).into();
    let text = object.to_string();
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        let (path, kind) = match method {
            Method::POST => (CONFIG_MAPS.to_owned(), "application/json"),
            Method::PATCH => (format!("{CONFIG_MAPS}/big"), "application/merge-patch+json"),
            _ => (format!("{CONFIG_MAPS}/big"), "application/json"),
        };
        let answer = client
            .request(method, &path, &[("content-type", kind)], text.clone())
            .await;
        answer.refused(413, "RequestEntityTooLarge", too_large);
    }
    // A body at the limit is read, and rejected for another reason.
    let padding = LIMIT - config_map("edge").to_string().len();
    let text = format!("{}{}", config_map("edge"), " ".repeat(padding));
    assert_eq!(text.len(), LIMIT);
    client
        .request(Method::POST, CONFIG_MAPS, &json, text)
        .await
        .expect(201);
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn does_not_keep_streams_that_never_fit() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let before = resident_bytes();
    let streams: Vec<_> = (0..10)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let json = [("content-type", "application/json")];
                let response = client
                    .send(&Method::POST, CONFIG_MAPS, &json, stream())
                    .await;
                read(response).await.code
            })
        })
        .collect();
    let mut codes = Vec::new();
    for stream in streams {
        codes.push(stream.await.unwrap());
    }
    // A body without a content length reserves the maximum size, and the budget allows for some of them.
    assert!(codes.contains(&413), "{codes:?}");
    assert!(
        codes.iter().all(|code| [413, 429].contains(code)),
        "{codes:?}"
    );
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 200_000_000, "{grown} bytes more");

    let request = Request::post(CONFIG_MAPS)
        .header("host", "server")
        .body(stream())
        .unwrap();
    let answer = http1_request(&server, &admin(&server), request).await;
    assert_eq!(answer.code, 413);
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn refuses_what_it_cannot_read() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let unrecognized = |error: &str, shown: &str| {
        format!(
            "the object provided is unrecognized (must be of type ConfigMap): {error} ({shown})"
        )
    };
    let parse = |error: &str| format!("couldn't get version/kind; json parse error: {error}");
    for (body, message) in [
        (
            &b""[..],
            unrecognized(&parse("unexpected end of JSON input"), "<empty>"),
        ),
        (
            b"{",
            unrecognized(&parse("unexpected end of JSON input"), "{"),
        ),
        (
            b"nope",
            unrecognized(
                &parse("invalid character 'o' in literal null (expecting 'u')"),
                "6e6f7065",
            ),
        ),
        (
            b"{\"kind\": 1}",
            unrecognized(
                &parse("json: cannot unmarshal number into Go struct field .kind of type string"),
                "{\"kind\": 1}",
            ),
        ),
    ] {
        let json = [("content-type", "application/json")];
        let answer = client.request(Method::POST, CONFIG_MAPS, &json, body).await;
        let shown = String::from_utf8_lossy(body);
        let status = answer.json();
        assert_eq!(answer.code, 400, "{shown}");
        assert_eq!(status["message"], message, "{shown}");
    }
    for (kind, code) in [
        ("text/plain", 415),
        ("application/xml", 415),
        ("application/cbor", 415),
        ("nonsense", 415),
        ("application/json; charset=utf-8", 201),
        ("", 201),
    ] {
        let headers = [("content-type", kind)];
        let object = json!({"metadata": {"generateName": "t-"}}).to_string();
        let answer = client
            .request(Method::POST, CONFIG_MAPS, &headers, object)
            .await;
        assert_eq!(answer.code, code, "{kind}: {}", answer.text());
        if code == 415 {
            assert_eq!(
                answer.json()["message"],
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json, application/yaml, application/vnd.kubernetes.protobuf"
            );
        }
    }
    // Invalid UTF-8 is replaced, as in Go.
    let json = [("content-type", "application/json")];
    let answer = client
        .request(
            Method::POST,
            CONFIG_MAPS,
            &json,
            &b"{\"metadata\":{\"name\":\"utf\"},\"data\":{\"a\":\"\xff\xfe\"}}"[..],
        )
        .await;
    assert_eq!(answer.expect(201)["data"]["a"], "\u{fffd}\u{fffd}");
    let answer = client
        .request(
            Method::POST,
            CONFIG_MAPS,
            &[("content-type", "application/yaml")],
            &b"metadata: {name: \xff}"[..],
        )
        .await;
    assert_eq!(answer.code, 400);
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn refuses_wrong_kinds_everywhere() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(CONFIG_MAPS, config_map("a")).await;
    client.create(DEPLOYMENTS, deployment("d")).await;
    let a = format!("{CONFIG_MAPS}/a");
    for value in [
        json!(null),
        json!([]),
        json!("x"),
        json!(1),
        json!({"metadata": []}),
        json!({"metadata": {"name": 5}}),
        json!({"data": []}),
    ] {
        for answer in [
            client.post(CONFIG_MAPS, &value).await,
            client.put(&a, &value).await,
            client
                .patch(&format!("{DEPLOYMENTS}/d/scale"), "merge", &json!([value]))
                .await,
            client.post(&format!("{PODS}/p/eviction"), &value).await,
        ] {
            let code = answer.code;
            assert!(
                (400..500).contains(&code),
                "{value}: {code} {}",
                answer.text()
            );
        }
    }
    let answer = client.delete_with(&a, &pod("x")).await;
    assert_eq!(answer.code, 400, "{}", answer.text());
    for (kind, patch) in [
        ("json", json!({})),
        ("json", json!([1])),
        ("json", json!([{"op": "dance", "path": "/data"}])),
        ("json", json!([{"op": "remove", "path": "/nothing/there"}])),
        (
            "json",
            json!([{"op": "add", "path": "/data/x", "value": {"y": 1}}]),
        ),
        ("merge", json!([])),
        ("merge", json!({"data": [1]})),
        ("strategic", json!("x")),
        ("strategic", json!({"data": 5})),
    ] {
        let answer = client.patch(&a, kind, &patch).await;
        assert!(
            (400..500).contains(&answer.code),
            "{kind} {patch}: {} {}",
            answer.code,
            answer.text()
        );
    }
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn paths_lead_nowhere_else() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "hunter2"}});
    admin
        .create("/api/v1/namespaces/kube-system/secrets", secret)
        .await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    admin
        .create(
            &format!("{rbac}/roles"),
            json!({"metadata": {"name": "all"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}),
        )
        .await;
    admin
        .create(
            &format!("{rbac}/rolebindings"),
            json!({
                "metadata": {"name": "all"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
            }),
        )
        .await;
    let bob = admin.taken_for("bob");
    let data = "aHVudGVyMg";
    let read = admin
        .get("/api/v1/namespaces/kube-system/secrets/s")
        .await
        .text();
    assert!(read.contains(data), "{read}");
    let long = format!("/api/v1/namespaces/{}/secrets", "x".repeat(15_000));
    for path in [
        "/api/v1/namespaces/default/../kube-system/secrets/s",
        "/api/v1/namespaces/default/secrets/../../kube-system/secrets/s",
        "/api/v1/namespaces/default/secrets/..%2f..%2fkube-system%2fsecrets%2fs",
        "/api/v1/namespaces/default/secrets/%2e%2e/%2e%2e/kube-system/secrets/s",
        "/api/v1/namespaces/default%2f..%2fkube-system/secrets/s",
        "/api/v1/namespaces/default/secrets/kube-system%2fs",
        "/api/v1/namespaces//secrets/kube-system%2Fs",
        "/api/v1/secrets/kube-system%2Fs",
        "/api/v1//namespaces/kube-system//secrets/s",
        "/api/v1/namespaces/%2e%2e/secrets/kube-system%2Fs",
        "/api/v1/namespaces/./kube-system/secrets/s",
        "/api/v1/namespaces/default/secrets/s%00",
        "/api/v1/namespaces/default/secrets/%zz",
        "/api/v1/namespaces/default/secrets/%ff%fe",
        "/api/v1/namespaces/default/secrets/s?x=%zz&;&=&&==",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/api/v1/watch/namespaces/kube-system/secrets",
        "//////",
        "/api/v1/namespaces/default/secrets?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLi4va3ViZS1zeXN0ZW0vXHUwMDAwIn0",
        "/api/v1/namespaces/default/secrets?fieldSelector=metadata.namespace%3Dkube-system",
        &long,
    ] {
        let answer = bob.get(path).await;
        let text = answer.text();
        assert!(!text.contains(data), "{path}: {text}");
        assert!(answer.code < 500, "{path}: {} {text}", answer.code);
        let name: String = path.chars().take(100).collect();
        for method in [Method::PUT, Method::PATCH, Method::DELETE, Method::POST] {
            let answer = bob.request(method.clone(), path, &[], "{}").await;
            let code = answer.code;
            assert!(
                (200..500).contains(&code),
                "{method} {name}: {code} {}",
                answer.text()
            );
        }
    }
    // Names that are invalid path segments are rejected.
    for name in [".", "..", "a/b", "a%b"] {
        let role = json!({"metadata": {"name": name}, "rules": []});
        let answer = admin.post(&format!("{rbac}/roles"), &role).await;
        assert_eq!(answer.code, 422, "{name}: {}", answer.text());
    }
    let answer = admin.get("/api/v1/namespaces/kube-system/secrets/s").await;
    assert!(answer.text().contains(data), "nothing was lost");
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn refuses_values_nobody_knows() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(CONFIG_MAPS, config_map("a")).await;
    let a = format!("{CONFIG_MAPS}/a");
    for (path, code, part) in [
        (
            format!("{CONFIG_MAPS}?timeout=soon"),
            400,
            "invalid timeout specified in the request URL",
        ),
        (
            format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=x"),
            400,
            "strconv.ParseInt: parsing \"x\": invalid syntax",
        ),
        (
            format!("{CONFIG_MAPS}?resourceVersion=-1"),
            400,
            "Invalid value: \"-1\"",
        ),
        (
            format!("{CONFIG_MAPS}?resourceVersion=99999999999999999999999"),
            400,
            "Invalid value: \"99999999999999999999999\"",
        ),
        (
            format!("{a}?resourceVersion=x"),
            500,
            "Invalid value: \"x\"",
        ),
        (
            format!("{CONFIG_MAPS}?watch=true&resourceVersion=x"),
            500,
            "Invalid value: \"x\"",
        ),
        (
            format!("{CONFIG_MAPS}?limit=99999999999999999999"),
            400,
            "strconv.ParseInt: parsing \"99999999999999999999\"",
        ),
        (format!("{CONFIG_MAPS}?limit=-5"), 200, "\"items\""),
        (
            format!("{CONFIG_MAPS}?limit=9223372036854775807"),
            200,
            "\"items\"",
        ),
        (format!("{CONFIG_MAPS}?unheard=of"), 200, "\"items\""),
    ] {
        let answer = client.get(&path).await;
        assert_eq!(answer.code, code, "{path}: {}", answer.text());
        let text = answer.text().replace("\\\"", "\"");
        assert!(text.contains(part), "{path}: {text}");
    }
    for (path, part) in [
        (
            format!("{a}?gracePeriodSeconds=x"),
            "strconv.ParseInt: parsing \"x\"",
        ),
        (
            format!("{a}?propagationPolicy=x"),
            "Unsupported value: \"x\"",
        ),
        (format!("{a}?dryRun=x"), "Unsupported value: [\"x\"]"),
        (
            format!("{a}?propagationPolicy=Orphan&orphanDependents=true"),
            "orphanDependents and deletionPropagation cannot be both set",
        ),
    ] {
        let answer = client.delete(&path).await;
        assert!((400..500).contains(&answer.code), "{path}: {}", answer.code);
        let text = answer.text().replace("\\\"", "\"");
        assert!(text.contains(part), "{path}: {text}");
    }
    let manager = "x".repeat(129);
    for (query, part) in [
        (
            format!("fieldManager={manager}"),
            "fieldManager: Too long: may not be more than 128",
        ),
        (
            String::from("fieldManager=a%07b"),
            "fieldManager: Invalid value",
        ),
    ] {
        let answer = client
            .post(&format!("{CONFIG_MAPS}?{query}"), &config_map("b"))
            .await;
        assert_eq!(answer.code, 422);
        assert!(answer.text().contains(part), "{}", answer.text());
    }
    client.get(&a).await.expect(200);
    server.stop().await;
}

#[tokio::test]
async fn depth_is_bounded_wherever_anything_may_stand() {
    let (server, client) = with_open_definition().await;
    client
        .create(
            WIDGETS,
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}),
        )
        .await;
    client.create(CONFIG_MAPS, config_map("a")).await;
    for depth in [501, 10_000, 100_000] {
        let deep = nested(depth);
        let head = "\"apiVersion\":\"example.com/v1\",\"kind\":\"Widget\"";
        let revision = "\"apiVersion\":\"apps/v1\",\"kind\":\"ControllerRevision\",\"metadata\":{\"name\":\"r\"},\"revision\":1";
        let fields = "{\"manager\":\"m\",\"operation\":\"Update\",\"apiVersion\":\"v1\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":";
        let schema =
            "\"type\":\"object\",\"x-kubernetes-preserve-unknown-fields\":true,\"default\":";
        let crd = |member: &str| {
            format!(
                "{{\"apiVersion\":\"apiextensions.k8s.io/v1\",\"kind\":\"CustomResourceDefinition\",\"metadata\":{{\"name\":\"deeps.example.org\"}},\
                 \"spec\":{{\"group\":\"example.org\",\"scope\":\"Cluster\",\"names\":{{\"plural\":\"deeps\",\"kind\":\"Deep\"}},\"versions\":[{{\"name\":\"v1\",\"served\":true,\"storage\":true,\
                 \"schema\":{{\"openAPIV3Schema\":{{\"type\":\"object\",\"properties\":{{\"spec\":{{{member}}}}}}}}}}}]}}}}"
            )
        };
        let properties = format!(
            "{}\"type\":\"object\"{}",
            "\"type\":\"object\",\"properties\":{\"a\":{".repeat(depth),
            "}}".repeat(depth)
        );
        for (method, path, kind, text) in [
            (
                Method::POST,
                WIDGETS,
                "application/json",
                format!("{{{head},\"metadata\":{{\"name\":\"d\"}},\"spec\":{deep}}}"),
            ),
            (
                Method::PUT,
                &format!("{WIDGETS}/w"),
                "application/json",
                format!("{{{head},\"metadata\":{{\"name\":\"w\"}},\"spec\":{deep}}}"),
            ),
            (
                Method::POST,
                "/apis/apps/v1/namespaces/default/controllerrevisions",
                "application/json",
                format!("{{{revision},\"data\":{deep}}}"),
            ),
            (
                Method::POST,
                CONFIG_MAPS,
                "application/json",
                format!("{{\"metadata\":{{\"name\":\"d\",\"managedFields\":[{fields}{deep}}}]}}}}"),
            ),
            (Method::POST, CONFIG_MAPS, "application/json", deep.clone()),
            (
                Method::POST,
                CONFIG_MAPS,
                "application/json",
                format!("{}1{}", "[".repeat(depth), "]".repeat(depth)),
            ),
            (
                Method::POST,
                CONFIG_MAPS,
                "application/yaml",
                format!("{}1{}", "[".repeat(depth), "]".repeat(depth)),
            ),
            (
                Method::POST,
                DEFINITIONS,
                "application/json",
                crd(&format!("{schema}{deep}")),
            ),
            (
                Method::POST,
                DEFINITIONS,
                "application/json",
                crd(&properties),
            ),
            (
                Method::PATCH,
                &format!("{WIDGETS}/w"),
                "application/merge-patch+json",
                format!("{{\"spec\":{deep}}}"),
            ),
            (
                Method::PATCH,
                &format!("{WIDGETS}/w"),
                "application/json-patch+json",
                format!("[{{\"op\":\"add\",\"path\":\"/spec/d\",\"value\":{deep}}}]"),
            ),
            (
                Method::PATCH,
                &format!("{CONFIG_MAPS}/a"),
                "application/strategic-merge-patch+json",
                format!("{{\"data\":{deep}}}"),
            ),
            (
                Method::DELETE,
                &format!("{CONFIG_MAPS}/a"),
                "application/json",
                deep.clone(),
            ),
            (
                Method::POST,
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                "application/json",
                format!("{{\"spec\":{deep}}}"),
            ),
        ] {
            if text.len() > LIMIT {
                continue;
            }
            let headers = [("content-type", kind)];
            let answer = client.request(method.clone(), path, &headers, text).await;
            let shown: String = answer.text().chars().take(300).collect();
            assert!(
                (400..500).contains(&answer.code),
                "{depth} {method} {path} {kind}: {} {shown}",
                answer.code
            );
        }
    }
    // Within the limit everything is preserved.
    let deep = nested(490);
    let text = format!(
        "{{\"apiVersion\":\"example.com/v1\",\"kind\":\"Widget\",\"metadata\":{{\"name\":\"ok\"}},\"spec\":{deep}}}"
    );
    let json = [("content-type", "application/json")];
    let answer = client.request(Method::POST, WIDGETS, &json, text).await;
    assert_eq!(answer.code, 201);
    assert!(answer.text().contains(&deep));
    for path in [WIDGETS.to_owned(), format!("{WIDGETS}/ok")] {
        let answer = client.get(&path).await;
        assert!(answer.text().contains(&deep), "{path}: {}", answer.code);
    }
    let mut watch = client
        .send(
            &Method::GET,
            &format!("{WIDGETS}?watch=true&timeoutSeconds=1"),
            &[],
            body(""),
        )
        .await;
    let told = within(watch.body_mut().collect()).await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&told).contains(&deep));
    let patch = json!({"metadata": {"labels": {"x": "y"}}});
    let answer = client
        .patch(&format!("{WIDGETS}/ok"), "merge", &patch)
        .await;
    assert_eq!(answer.code, 200);
    assert!(answer.text().contains(&deep));
    let answer = client.delete(&format!("{WIDGETS}/ok")).await;
    assert_eq!(answer.code, 200);
    client.get(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn depth_does_not_grow_patch_by_patch() {
    let (server, client) = with_open_definition().await;
    client
        .create(
            WIDGETS,
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}),
        )
        .await;
    let w = format!("{WIDGETS}/w");
    let json_patch = [("content-type", "application/json-patch+json")];
    let step = 400;
    let mut refused = None;
    for round in 0..30 {
        let path = format!("/spec{}", "/a".repeat(round * step + 1));
        let text = format!(
            "[{{\"op\":\"add\",\"path\":\"{path}\",\"value\":{}}}]",
            nested(step - 1).replace('1', "{}")
        );
        let answer = client.request(Method::PATCH, &w, &json_patch, text).await;
        if answer.code != 200 {
            assert!((400..500).contains(&answer.code), "{}", answer.code);
            refused = Some(round);
            break;
        }
    }
    assert!(refused.is_some_and(|round| round <= 2), "{refused:?}");
    // Nor by copy operations within one patch.
    let copies = |count: usize| -> Value {
        std::iter::once(json!({"op": "replace", "path": "/spec", "value": {"x": "y"}}))
            .chain((0..count).map(|_| json!({"op": "copy", "from": "/spec", "path": "/spec/x"})))
            .collect()
    };
    for count in [30, 2000] {
        let answer = client.patch(&w, "json", &copies(count)).await;
        assert!(answer.code < 500, "{count}: {}", answer.code);
    }
    client.get(&w).await.expect(200);
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn a_patch_of_a_million_operations_costs_little() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(CONFIG_MAPS, config_map("a")).await;
    let headers = [("content-type", "application/json-patch+json")];
    let path = format!("{CONFIG_MAPS}/a");
    let patch = format!("[{}{{}}]", "{},".repeat(999_999));
    client
        .request(Method::PATCH, &path, &headers, patch)
        .await
        .refused(
            413,
            "RequestEntityTooLarge",
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got \
             1000000",
        );
    let operation = "{\"op\":\"add\",\"path\":\"/data/k\",\"value\":\"v\"},";
    let patch = format!("[{}]", operation.repeat(10_000).trim_end_matches(','));
    let answer = client.request(Method::PATCH, &path, &headers, patch).await;
    assert_eq!(answer.expect(200)["data"]["k"], "v");
    // Doubling copy operations are limited.
    let doubling = format!(
        "[{}]",
        (0..100)
            .map(|index| format!(
                "{{\"op\":\"copy\",\"from\":\"/metadata\",\"path\":\"/metadata/x{index}\"}}"
            ))
            .collect::<Vec<_>>()
            .join(",")
    );
    let answer = client
        .request(Method::PATCH, &path, &headers, doubling)
        .await;
    assert!((400..500).contains(&answer.code), "{}", answer.code);
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn yaml_does_not_explode() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let mut text = String::from("a: &a [x,x,x,x,x,x,x,x,x]\n");
    for (this, last) in ('b'..='j').zip('a'..) {
        let list = vec![format!("*{last}"); 9].join(",");
        text.push_str(&format!("{this}: &{this} [{list}]\n"));
    }
    let headers = [("content-type", "application/yaml")];
    let answer = client
        .request(Method::POST, CONFIG_MAPS, &headers, text)
        .await;
    assert_eq!(answer.code, 400);
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn headers_are_bounded() {
    let server = start().await;
    let credentials = admin(&server);
    let mut many = Request::get(CONFIG_MAPS).header("host", "server");
    for index in 0..2000 {
        many = many.header(format!("x-{index}"), "y");
    }
    let request = many.body(body("")).unwrap();
    let answer = http1_request(&server, &credentials, request).await;
    assert_eq!(answer.code, 431);

    let request = Request::get(CONFIG_MAPS)
        .header("host", "server")
        .header("x-long", "y".repeat(1_000_000))
        .body(body(""))
        .unwrap();
    let answer = http1_request(&server, &credentials, request).await;
    assert_eq!(answer.code, 431);
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn slow_bodies_run_out_of_time() {
    let server = start_with(Settings {
        request_timeout: Duration::from_millis(300),
        ..settings()
    })
    .await;
    let credentials = admin(&server);
    let mut stream = connect(&tls(&server, &credentials, "http/1.1"), server.address()).await;
    stream
        .write_all(
            format!("POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{{")
                .as_bytes(),
        )
        .await
        .unwrap();
    stream.flush().await.unwrap();
    let mut answer = [0; 12];
    within(stream.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 504");
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn those_who_say_nothing_hold_nobody_up() {
    let server = start().await;
    let credentials = admin(&server);
    let mut held = Vec::new();
    for _ in 0..100 {
        held.push(TcpStream::connect(server.address()).await.unwrap());
    }
    let connector = tls(&server, &credentials, "h2");
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(connect(&connector, server.address()).await);
    }
    let mut garbage = TcpStream::connect(server.address()).await.unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    within(garbage.read_to_end(&mut rest)).await.ok();
    let mut half = connect(&tls(&server, &credentials, "http/1.1"), server.address()).await;
    half.write_all(b"GET /version HTTP/1.1\r\nhos")
        .await
        .unwrap();
    is_well(&server).await;
    drop((held, silent, half));
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections_come_and_go() {
    let server = start().await;
    let credentials = Credentials::default();
    let connector = tls(&server, &credentials, "http/1.1");
    let address = server.address();
    let tasks: Vec<_> = (0..10)
        .map(|task| {
            let connector = connector.clone();
            tokio::spawn(async move {
                for round in 0..100 {
                    let mut stream = connect(&connector, address).await;
                    if (task + round) % 2 == 0 {
                        // Closed without sending a request.
                        continue;
                    }
                    stream
                        .write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                        .await
                        .unwrap();
                    let mut answer = Vec::new();
                    within(stream.read_to_end(&mut answer)).await.ok();
                    assert!(answer.starts_with(b"HTTP/1.1 200"));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_carries_many_streams() {
    let server = start().await;
    let client = Client::admin(&server).await;
    // The maximum number of watches, and requests beside them on another connection.
    let mut watches = Vec::new();
    for _ in 0..240 {
        watches.push(client.watch(CONFIG_MAPS).await);
    }
    let other = Client::admin(&server).await;
    let requests: Vec<_> = (0..1000)
        .map(|_| {
            let other = other.clone();
            tokio::spawn(async move { other.get(CONFIG_MAPS).await.code })
        })
        .collect();
    for request in requests {
        assert_eq!(request.await.unwrap(), 200);
    }
    other.create(CONFIG_MAPS, config_map("seen")).await;
    for watch in &mut watches {
        assert_eq!(watch.line().await, "ADDED seen");
    }
    // Repeatedly cancelled streams do not use up the limit.
    drop(watches);
    for _ in 0..10 {
        let client = Client::admin(&server).await;
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(
                        Duration::from_micros(200),
                        client.get("/api/v1/namespaces?watch=true"),
                    )
                    .await;
                })
            })
            .collect();
        for task in tasks {
            // The server may close the connection, which is just as good.
            let _ = task.await;
        }
    }
    is_well(&server).await;
    server.stop().await;
}
