//! Expensive requests delay no others: the latency of `/livez` beside each of them is as it is beside unrelated threads
//! with the same CPU load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use lockgate_apiserver::{Controllers, Settings, TestServer};
use serde_json::{Map, Value, json};

use crate::support::*;

/// The number of concurrent requests of each kind: more than the number of workers.
const AT_ONCE: usize = 4;
/// The maximum slowdown of the slowest health check relative to other busy threads.
const RATIO: u32 = 10;
/// The latency of a loaded machine; differences below it are ignored.
const NOTHING: Duration = Duration::from_millis(60);

/// The slowest health check during a future, and the duration of the future.
async fn beside(server: &TestServer, going_on: impl Future<Output = ()>) -> (Duration, Duration) {
    let probe = Client::admin(server).await;
    let mut slowest = Duration::ZERO;
    let started = Instant::now();
    let checks = async {
        loop {
            let asked = Instant::now();
            assert_eq!(probe.get("/livez").await.code, 200);
            slowest = slowest.max(asked.elapsed());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        () = checks => {}
        () = going_on => {}
    }
    (slowest, started.elapsed())
}

/// The slowest health check beside unrelated threads with the same CPU load.
async fn baseline(server: &TestServer) -> Duration {
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut number = 1_u64;
                while !stop.load(Ordering::Relaxed) {
                    number = std::hint::black_box(number.wrapping_mul(3));
                }
            })
        })
        .collect();
    let (slowest, _) = beside(server, tokio::time::sleep(Duration::from_secs(2))).await;
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    slowest
}

/// An expensive request.
struct Hostile {
    name: &'static str,
    method: Method,
    path: String,
    media_type: &'static str,
    body: String,
    codes: &'static [u16],
}

impl Hostile {
    fn post(name: &'static str, path: &str, object: &Value) -> Self {
        Self {
            name,
            method: Method::POST,
            path: format!("{path}?dryRun=All"),
            media_type: "application/json",
            body: object.to_string(),
            codes: &[201],
        }
    }

    fn patch(name: &'static str, path: &str, patch: &Value) -> Self {
        Self {
            method: Method::PATCH,
            media_type: "application/merge-patch+json",
            codes: &[200],
            ..Self::post(name, path, patch)
        }
    }

    fn get(name: &'static str, path: &str, accept: &'static str) -> Self {
        Self {
            name,
            method: Method::GET,
            path: path.to_owned(),
            media_type: accept,
            body: String::new(),
            codes: &[200, 429],
        }
    }

    async fn send(&self, client: &Client) {
        let headers = [
            ("content-type", self.media_type),
            ("accept", "application/json"),
        ];
        let headers = match self.method {
            Method::GET => [("accept", self.media_type), ("x-unused", "x")],
            _ => headers,
        };
        let body = self.body.clone();
        let answer = client
            .request(self.method.clone(), &self.path, &headers, body)
            .await;
        let text: String = answer.text().chars().take(300).collect();
        assert!(
            self.codes.contains(&answer.code),
            "{}: {} {text}",
            self.name,
            answer.code
        );
    }
}

/// A CustomResourceDefinition with one version and this schema.
fn defined(plural: &str, schema: Value) -> Value {
    let mut definition = definition(json!([{
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
    }]));
    let kind = format!("K{plural}");
    definition["metadata"]["name"] = format!("{plural}.example.com").into();
    definition["spec"]["names"] =
        json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind});
    definition
}

fn custom(plural: &str, name: &str, members: Value) -> Value {
    let mut object = members;
    object["apiVersion"] = "example.com/v1".into();
    object["kind"] = format!("K{plural}").into();
    object["metadata"] = json!({"name": name});
    object
}

fn properties(count: usize, schema: &Value) -> Value {
    let members = (0..count).map(|number| (format!("p{number}"), schema.clone()));
    json!({"type": "object", "properties": members.collect::<Map<_, _>>()})
}

fn nested(depth: usize) -> Value {
    let mut value = json!({"leaf": 1});
    for _ in 0..depth {
        value = json!({"a": value});
    }
    value
}

/// Creates the objects of the requests, and returns the requests.
async fn hostile_requests(client: &Client) -> Vec<Hostile> {
    let instances = |plural: &str| format!("/apis/example.com/v1/namespaces/default/{plural}");
    let mut requests = Vec::new();

    let owners = |count: usize| -> Value {
        let owner = |number| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": format!("u{number}")});
        (0..count).map(owner).collect()
    };
    let mut owned = config_map("owned");
    owned["metadata"]["ownerReferences"] = owners(20_000);
    requests.push(Hostile::post("20,000 owners", CONFIG_MAPS, &owned));
    owned["metadata"]["name"] = "stored".into();
    owned["metadata"]["ownerReferences"] = owners(10_000);
    client.create(CONFIG_MAPS, owned).await;
    let change = json!({"data": {"a": "2"}});
    requests.push(Hostile::patch(
        "a small change of a large object",
        &format!("{CONFIG_MAPS}/stored"),
        &change,
    ));

    let pattern = json!({"type": "string", "pattern": "^[a-z\\pL]{1,900}$"});
    requests.push(Hostile::post(
        "3,000 patterns",
        DEFINITIONS,
        &defined("unused", properties(3000, &pattern)),
    ));
    client
        .create(DEFINITIONS, defined("patterns", properties(3000, &pattern)))
        .await;
    let few: Map<String, Value> = (0..1000)
        .map(|number| (format!("p{number}"), "ü".into()))
        .collect();
    let object = custom("patterns", "small", few.into());
    requests.push(Hostile::post(
        "1,000 patterns used",
        &instances("patterns"),
        &object,
    ));

    let number = json!({"type": "integer"});
    requests.push(Hostile::post(
        "30,000 properties",
        DEFINITIONS,
        &defined("wide", properties(30_000, &number)),
    ));

    let rule = json!({
        "type": "object", "properties": {"list": {"type": "array", "maxItems": 100, "items": {"type": "integer"}}},
        "x-kubernetes-validations": [{"rule": "self.list.all(a, self.list.exists(b, a == b))"}],
    });
    client
        .create(
            DEFINITIONS,
            defined(
                "rules",
                json!({"type": "object", "properties": {"spec": rule}}),
            ),
        )
        .await;
    let list: Vec<usize> = (0..100).collect();
    let object = custom("rules", "small", json!({"spec": {"list": list}}));
    requests.push(Hostile::post(
        "an expression over pairs",
        &instances("rules"),
        &object,
    ));

    client
        .create(
            DEFINITIONS,
            defined(
                "open",
                json!({
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }),
            ),
        )
        .await;
    let deep = custom("open", "deep", json!({"spec": vec![nested(300); 600]}));
    requests.push(Hostile::post("deep objects", &instances("open"), &deep));
    let many: Map<String, Value> = (0..60_000)
        .map(|number| (format!("k{number}"), 1.into()))
        .collect();
    let wide = custom("open", "wide", json!({"spec": many}));
    requests.push(Hostile::post("60,000 members", &instances("open"), &wide));
    for number in 0..12 {
        let items: Vec<Value> = (0..8000)
            .map(|item| json!({"name": item, "value": "x".repeat(20)}))
            .collect();
        let object = custom(
            "open",
            &format!("large-{number}"),
            json!({"spec": {"items": items}}),
        );
        client.create(&instances("open"), object).await;
    }
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    requests.push(Hostile::get(
        "a list of custom objects",
        &instances("open"),
        "application/json",
    ));
    requests.push(Hostile::get("a table", &instances("open"), table));
    requests.push(Hostile::get(
        "a list as YAML",
        &instances("open"),
        "application/yaml",
    ));

    let rules: Vec<Value> = (0..4000)
        .map(|number| json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": [format!("n{number}")]}))
        .collect();
    let role = |name: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name, "labels": {"gather": name}}, "rules": rules,
        })
    };
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    client.create(roles, role("gathered")).await;
    requests.push(Hostile::post("4,000 rules", roles, &role("other")));
    let selectors: Vec<Value> = (0..200)
        .map(|_| json!({"matchLabels": {"gather": "gathered"}}))
        .collect();
    let gathers = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "all"},
        "aggregationRule": {"clusterRoleSelectors": selectors},
    });
    requests.push(Hostile {
        path: format!("{roles}/all?fieldManager=test"),
        method: Method::PATCH,
        media_type: "application/apply-patch+yaml",
        codes: &[200, 201],
        ..Hostile::post("a role that gathers 4,000 rules 200 times", roles, &gathers)
    });
    requests
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_checks_answer_beside_every_hostile_request() {
    let server = start_with(Settings {
        controllers: Controllers {
            namespace: true,
            role_aggregation: true,
            ..Controllers::all(false)
        },
        ..settings()
    })
    .await;
    let client = Client::admin(&server).await;
    let requests = hostile_requests(&client).await;
    let usual = baseline(&server).await.max(NOTHING);
    let mut slow = Vec::new();
    for request in &requests {
        let mut clients = Vec::new();
        for _ in 0..AT_ONCE {
            clients.push(Client::admin(&server).await);
        }
        let all = async {
            let mut sent = Vec::new();
            for client in &clients {
                sent.push(request.send(client));
            }
            futures_util::future::join_all(sent).await;
        };
        let (slowest, took) = beside(&server, all).await;
        println!(
            "{}: {took:.1?}, the slowest health check {slowest:.1?}, usual {usual:.1?}",
            request.name
        );
        if slowest > usual * RATIO {
            slow.push(format!(
                "{}: {slowest:?} of {took:?}, usual {usual:?}",
                request.name
            ));
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
    server.stop().await;
}
