//! The server on etcd, alone and with replicas on the same cluster. Without etcd these tests are skipped with a
//! message.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lockgate_apiserver::{
    AdmissionConsistency, Controllers, KubernetesLayout, Running, Settings, SharedCertificates,
};
use lockgate_store::{EtcdOptions, EtcdStore, List, ReadAt, Store as _};
use lockgate_testkit::EtcdCluster;
use serde_json::{Value, json};

use crate::support::*;

const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

async fn store(cluster: &EtcdCluster) -> EtcdStore {
    let options = EtcdOptions {
        servers: cluster.servers(),
        layout: Arc::new(KubernetesLayout::new()),
        ..EtcdOptions::default()
    };
    EtcdStore::open(options).await.unwrap()
}

/// A server on the cluster, with the same certificates as its other replicas.
async fn replica(cluster: &EtcdCluster, settings: Settings) -> Running {
    let store = store(cluster).await;
    let made = serde_json::to_vec(&SharedCertificates::make().unwrap()).unwrap();
    let agreed = store.agree("certificates", made.into()).await.unwrap();
    let settings = Settings {
        secure_port: 0,
        certificates: Some(serde_json::from_slice(&agreed).unwrap()),
        ..settings
    };
    Running::start(settings, Arc::new(store)).await.unwrap()
}

/// A configuration whose webhook is unreachable: requests that match it fail with 500.
fn closed(name: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{
            "name": "never.lockgate.test",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }],
    })
}

async fn post_secret(client: &Client) -> u16 {
    let secret = json!({"metadata": {"generateName": "s-"}});
    client.post(SECRETS, &secret).await.code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_every_verb_and_keeps_what_kube_apiserver_would() {
    let Some(cluster) = EtcdCluster::start(1) else {
        return;
    };
    let server = replica(&cluster, settings()).await;
    let client = Client::admin(&server).await;
    let list = client.get(CONFIG_MAPS).await.expect(200);
    let since = list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut watch = client
        .watch(&format!("{CONFIG_MAPS}?resourceVersion={since}"))
        .await;
    let mut object = client.create(CONFIG_MAPS, config_map("a")).await;
    for name in ["b", "c"] {
        client.create(CONFIG_MAPS, config_map(name)).await;
    }
    let path = format!("{CONFIG_MAPS}/a");
    object["data"] = json!({"k": "2"});
    let updated = client.put(&path, &object).await.expect(200);
    assert!(version_of(&updated) > version_of(&object));
    client.put(&path, &object).await.refused(
        409,
        "Conflict",
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again",
    );
    let again = client.put(&path, &updated).await.expect(200);
    assert_eq!(
        version_of(&again),
        version_of(&updated),
        "nothing for nothing"
    );
    let patched = client
        .patch(&path, "merge", &json!({"data": {"k": "3"}}))
        .await;
    assert_eq!(patched.expect(200)["data"]["k"], "3");
    client.post(CONFIG_MAPS, &config_map("a")).await.expect(409);
    client.delete(&format!("{CONFIG_MAPS}/b")).await.expect(200);
    for (kind, name) in [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("ADDED", "c"),
        ("MODIFIED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "b"),
    ] {
        let (found, object) = watch.next().await;
        assert_eq!((&*found, &object["metadata"]["name"]), (kind, &json!(name)));
    }
    let page = client
        .get(&format!("{CONFIG_MAPS}?limit=1"))
        .await
        .expect(200);
    assert_eq!(names(&page), ["a"]);
    let token = page["metadata"]["continue"].as_str().unwrap();
    client.create(CONFIG_MAPS, config_map("bb")).await;
    let rest = client.get(&format!("{CONFIG_MAPS}?continue={token}")).await;
    assert_eq!(names(&rest.expect(200)), ["c"], "one state");
    let before = format!("{CONFIG_MAPS}?resourceVersion={since}&resourceVersionMatch=Exact");
    assert_eq!(names(&client.get(&before).await.expect(200)), [""; 0]);

    // A configuration is in effect when its creation returns, and no longer when its deletion returns.
    assert_eq!(post_secret(&client).await, 201);
    client.create(HOOKS, closed("gate")).await;
    assert_eq!(post_secret(&client).await, 500);
    client.delete(&format!("{HOOKS}/gate")).await.expect(200);
    assert_eq!(post_secret(&client).await, 201);

    // With the key layout of kube-apiserver.
    let plain = EtcdOptions {
        servers: cluster.servers(),
        ..EtcdOptions::default()
    };
    let plain = EtcdStore::open(plain).await.unwrap();
    let (entry, _) = plain
        .get("/configmaps/default/a", ReadAt::Latest)
        .await
        .unwrap();
    let entry = entry.expect("at the place of kube-apiserver");
    let stored: Value = serde_json::from_slice(&entry.value).unwrap();
    assert_eq!(
        (&stored["kind"], &stored["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
    assert_eq!(stored["metadata"].get("resourceVersion"), None);
    let (service, _) = plain
        .get("/services/specs/default/kubernetes", ReadAt::Latest)
        .await
        .unwrap();
    assert!(service.is_some());
    server.stop().await;

    // Another process reads all of it, with the same certificates.
    let other = replica(&cluster, settings()).await;
    let client = Client::admin(&other).await;
    assert_eq!(
        names(&client.get(CONFIG_MAPS).await.expect(200)),
        ["a", "bb", "c"]
    );
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_replica_stores_the_other_honours() {
    let Some(cluster) = EtcdCluster::start(1) else {
        return;
    };
    let strict = Settings {
        admission_consistency: AdmissionConsistency::Linearizable,
        ..settings()
    };
    let (one, other) = (
        replica(&cluster, settings()).await,
        replica(&cluster, strict).await,
    );
    assert_eq!(
        one.ca_pem(),
        other.ca_pem(),
        "clients of one are clients of all"
    );
    let first = Client::admin(&one).await;
    // With the credentials of the other replica.
    let second = Client::connect(&other, admin(&one)).await;
    // Immediately, in every round: linearizable.
    for round in 0..20 {
        let name = format!("gate-{round}");
        assert_eq!(post_secret(&second).await, 201, "round {round}");
        first.create(HOOKS, closed(&name)).await;
        assert_eq!(post_secret(&second).await, 500, "round {round}");
        first.delete(&format!("{HOOKS}/{name}")).await.expect(200);
    }
    // In the opposite direction it takes a moment, but not longer.
    second.create(HOOKS, closed("gate")).await;
    within(async { while post_secret(&first).await != 500 {} }).await;
    second.delete(&format!("{HOOKS}/gate")).await.expect(200);
    within(async { while post_secret(&first).await != 201 {} }).await;
    // A namespace can be used immediately on either replica.
    for (round, (here, there)) in [(&first, &second), (&second, &first)]
        .into_iter()
        .enumerate()
    {
        let name = format!("shop-{round}");
        let namespace = json!({"metadata": {"name": name}});
        here.create("/api/v1/namespaces", namespace).await;
        let path = format!("/api/v1/namespaces/{name}/configmaps");
        there.create(&path, config_map("a")).await;
    }
    // CustomResourceDefinitions, roles and bindings are watched too.
    let definition = definition(json!([open_version("v1", true)]));
    first
        .create(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            definition.clone(),
        )
        .await;
    let (group, plural) = (
        &definition["spec"]["group"],
        &definition["spec"]["names"]["plural"],
    );
    let path = format!("/apis/{}/v1/", group.as_str().unwrap());
    within(async {
        loop {
            let found = second.get(&path).await;
            if found.code == 200 && found.text().contains(plural.as_str().unwrap()) {
                break;
            }
        }
    })
    .await;
    let user = second.taken_for("ann");
    user.get(CONFIG_MAPS).await.expect(403);
    let role = json!({
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
    });
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    first.create(&format!("{rbac}/clusterroles"), role).await;
    let binding = json!({
        "metadata": {"name": "ann"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    first
        .create(&format!("{rbac}/clusterrolebindings"), binding)
        .await;
    within(async { while user.get(CONFIG_MAPS).await.code != 200 {} }).await;
    // Addresses and ports are allocated to one Service only, on either replica.
    let services = "/api/v1/namespaces/default/services";
    let creating = (0..40).map(|index| {
        let client = [&first, &second][index % 2].clone();
        let service = json!({
            "metadata": {"name": format!("s-{index}")},
            "spec": {"type": "NodePort", "ports": [{"port": 80}]},
        });
        tokio::spawn(async move { client.post(services, &service).await.code })
    });
    let creating: Vec<_> = creating.collect();
    for created in creating {
        let code = created.await.unwrap();
        assert!(matches!(code, 201 | 500), "{code}");
    }
    let list = first.get(services).await.expect(200);
    let items = list["items"].as_array().unwrap();
    assert!(items.len() > 30, "{}", items.len());
    let addresses: BTreeSet<_> = items
        .iter()
        .map(|item| item["spec"]["clusterIP"].as_str().unwrap())
        .collect();
    let ports = items
        .iter()
        .filter_map(|item| item["spec"]["ports"][0]["nodePort"].as_i64());
    assert_eq!(addresses.len(), items.len());
    assert_eq!(ports.collect::<BTreeSet<_>>().len(), items.len() - 1);
    assert!(
        addresses.contains("10.96.0.1"),
        "the server's own is the first"
    );
    one.stop().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_on_both_replicas_never_exceed_a_quota() {
    let Some(cluster) = EtcdCluster::start(1) else {
        return;
    };
    let counting = || Settings {
        controllers: Controllers {
            namespace: true,
            resource_quota: true,
            ..Controllers::all(false)
        },
        ..settings()
    };
    let one = replica(&cluster, counting()).await;
    let other = replica(&cluster, counting()).await;
    let clients = [Client::admin(&one).await, Client::admin(&other).await];
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "17"}}});
    clients[0].create(QUOTAS, quota).await;
    let counts = |want: &'static str| {
        move |quota: &Value| quota["status"]["used"]["count/configmaps"] == want
    };
    within(clients[1].wait_until(QUOTAS, "q", counts("0"))).await;
    let race = async |round: usize| {
        let writers = (0..40).map(|index| {
            let client = clients[index % 2].clone();
            let object = config_map(&format!("r{round}-{index}"));
            tokio::spawn(async move { client.post(CONFIG_MAPS, &object).await })
        });
        let writers: Vec<_> = writers.collect();
        let mut stored = 0;
        for writer in writers {
            let answer = writer.await.unwrap();
            match answer.code {
                201 => stored += 1,
                // Too many conflicts on one quota: the client may retry.
                409 => {}
                code => assert_eq!(code, 403, "{}", answer.text()),
            }
        }
        stored
    };
    let stored = async || names(&clients[0].get(CONFIG_MAPS).await.expect(200)).len();
    let mut round = 0;
    while stored().await < 17 {
        race(round).await;
        assert!(stored().await <= 17, "the quota is exceeded");
        round += 1;
        assert!(round < 30, "nothing gets through");
    }
    assert_eq!(race(round).await, 0, "there is no room");
    // Usage released on one replica can be used on the other.
    let list = clients[0].get(CONFIG_MAPS).await.expect(200);
    for name in names(&list).into_iter().take(5) {
        let path = format!("{CONFIG_MAPS}/{name}");
        clients[0].delete(&path).await.expect(200);
    }
    within(clients[1].wait_until(QUOTAS, "q", counts("12"))).await;
    while stored().await < 17 {
        round += 1;
        race(round).await;
        assert!(stored().await <= 17, "the quota is exceeded");
        assert!(round < 60, "nothing gets through");
    }
    one.stop().await;
    other.stop().await;
}

/// Objects that kube-apiserver stored in protobuf are read, and written back as JSON.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adopts_what_kube_apiserver_stored() {
    let Some(cluster) = EtcdCluster::start(1) else {
        return;
    };
    let plain = || EtcdOptions {
        servers: cluster.servers(),
        adopt_prefix: true,
        ..EtcdOptions::default()
    };
    let raw = EtcdStore::open(plain()).await.unwrap();
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "old", "namespace": "default", "uid": "6f0a1f6c-0f0f-4a6c-9a37-4f0a1f6c0f0f",
            "creationTimestamp": "2024-01-01T00:00:00Z",
        },
        "data": {"k": "v"},
    });
    let bytes = lockgate_kinds::protobuf::encode(&object).unwrap();
    raw.create("/configmaps/default/old", bytes.into(), None)
        .await
        .unwrap();
    raw.create("/ranges/serviceips", "not an object".into(), None)
        .await
        .unwrap();
    let server = replica(&cluster, settings()).await;
    let client = Client::admin(&server).await;
    let path = format!("{CONFIG_MAPS}/old");
    let mut found = client.get(&path).await.expect(200);
    assert_eq!(
        (&found["data"], &found["metadata"]["uid"]),
        (&object["data"], &object["metadata"]["uid"])
    );
    assert_eq!(names(&client.get(CONFIG_MAPS).await.expect(200)), ["old"]);
    found["data"]["k"] = "w".into();
    client.put(&path, &found).await.expect(200);
    let (entry, _) = raw
        .get("/configmaps/default/old", ReadAt::Latest)
        .await
        .unwrap();
    let stored: Value = serde_json::from_slice(&entry.unwrap().value).unwrap();
    assert_eq!(
        (&stored["kind"], &stored["data"]["k"]),
        (&json!("ConfigMap"), &json!("w"))
    );
    // Foreign keys are unchanged.
    let page = raw.list(List::all("/ranges/")).await.unwrap();
    assert_eq!(page.entries[0].value, "not an object");
    server.stop().await;
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const LEADER: &str = "lockgate-controller-manager";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

fn holder(lease: &Value) -> &str {
    lease["spec"]["holderIdentity"].as_str().unwrap()
}

fn addresses(endpoints: &Value) -> Vec<&str> {
    let addresses = endpoints["subsets"][0]["addresses"].as_array();
    let addresses = addresses.map(Vec::as_slice).unwrap_or_default().iter();
    addresses.map(|it| it["ip"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_replica_runs_the_controllers_and_all_are_endpoints() {
    let Some(cluster) = EtcdCluster::start(1) else {
        return;
    };
    let at = |last| Settings {
        advertise_address: Some([10, 0, 0, last].into()),
        ..Settings::default()
    };
    let one = replica(&cluster, at(1)).await;
    let first = Client::admin(&one).await;
    let lease = first
        .wait_until(LEASES, LEADER, |lease| !holder(lease).is_empty())
        .await;
    let leader = holder(&lease).to_owned();
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 15);
    let other = replica(&cluster, at(2)).await;
    let second = Client::connect(&other, admin(&one)).await;

    // Identity Leases, as kube-apiserver's.
    let identities =
        format!("{LEASES}?labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver");
    within(async { while names(&second.get(&identities).await.expect(200)).len() < 2 {} }).await;
    let list = second.get(&identities).await.expect(200);
    for lease in list["items"].as_array().unwrap() {
        let name = lease["metadata"]["name"].as_str().unwrap();
        assert!(name.starts_with("apiserver-"), "{lease}");
        assert!(holder(lease).starts_with(&format!("{name}_")), "{lease}");
        assert_eq!(lease["spec"]["leaseDurationSeconds"], 3600);
    }

    // The endpoints of both replicas, once each.
    let both = |endpoints: &Value| addresses(endpoints) == ["10.0.0.1", "10.0.0.2"];
    let endpoints = second.wait_until(ENDPOINTS, "kubernetes", both).await;
    assert_eq!(endpoints["subsets"][0]["ports"][0]["name"], "https");
    let skipped = "endpointslice.kubernetes.io/skip-mirror";
    assert_eq!(endpoints["metadata"]["labels"][skipped], "true");
    let slice = second
        .wait_until(SLICES, "kubernetes", |slice| {
            slice["endpoints"]
                .as_array()
                .is_some_and(|it| it.len() == 2)
        })
        .await;
    assert_eq!(slice["addressType"], "IPv4");
    assert_eq!(slice["endpoints"][1]["conditions"]["ready"], true);
    assert_eq!(
        slice["metadata"]["labels"]["kubernetes.io/service-name"],
        "kubernetes"
    );

    // A namespace has its default objects when its creation returns, on the leader and on a follower.
    for (client, name) in [(&first, "led"), (&second, "followed")] {
        client
            .create("/api/v1/namespaces", json!({"metadata": {"name": name}}))
            .await;
        let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
        second.wait_until(&accounts, "default", |_| true).await;
    }
    let lease = second.get(&format!("{LEASES}/{LEADER}")).await.expect(200);
    assert_eq!(holder(&lease), leader, "the second one waits");

    // A stopped replica is removed from the endpoints, and the other becomes the leader of the controllers.
    drop(first);
    one.stop().await;
    let endpoints = second
        .get(&format!("{ENDPOINTS}/kubernetes"))
        .await
        .expect(200);
    assert_eq!(addresses(&endpoints), ["10.0.0.2"]);
    let taken = |lease: &Value| !holder(lease).is_empty() && holder(lease) != leader;
    let lease = second.wait_until(LEASES, LEADER, taken).await;
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
    second.delete("/api/v1/namespaces/led").await.expect(200);
    second.wait_until_gone("/api/v1/namespaces", "led").await;
    other.stop().await;
}

/// Clients that follow HTTP semantics see no failure: `Connection: close` makes them reconnect elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_stops_fails_no_request() {
    let Some(cluster) = EtcdCluster::start(1) else {
        return;
    };
    let slowly = Settings {
        shutdown_delay: std::time::Duration::from_secs(2),
        ..settings()
    };
    let (one, other) = (
        replica(&cluster, slowly).await,
        replica(&cluster, settings()).await,
    );
    let addresses = [one.address(), other.address()];
    let credentials = admin(&one);
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::new(AtomicUsize::new(0));
    let loads: Vec<_> = (0..8)
        .map(|number| {
            let tls = tls(&one, &credentials, "http/1.1");
            let (over, told) = (Arc::clone(&over), Arc::clone(&told));
            tokio::spawn(async move {
                let mut stored = 0;
                let mut at = 0;
                while !over.load(Ordering::SeqCst) {
                    let stream = connect(&tls, addresses[at]).await;
                    let (mut sender, connection) =
                        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream))
                            .await
                            .unwrap();
                    tokio::spawn(connection);
                    while !over.load(Ordering::SeqCst) {
                        let object = json!({"metadata": {"name": format!("n-{number}-{stored}")}});
                        let request = http::Request::post(CONFIG_MAPS)
                            .header("host", "localhost")
                            .header("content-type", "application/json")
                            .body(body(object.to_string()))
                            .unwrap();
                        sender.ready().await.unwrap();
                        let answer =
                            read(within(sender.send_request(request)).await.unwrap()).await;
                        assert_eq!(answer.code, 201, "{}", answer.text());
                        stored += 1;
                        if answer.header("connection") == "close" {
                            told.fetch_add(1, Ordering::SeqCst);
                            at = 1;
                            break;
                        }
                    }
                }
                stored
            })
        })
        .collect();
    let probe = Client::admin(&one).await;
    assert_eq!(probe.get("/readyz").await.code, 200);
    let stopping = tokio::spawn(one.stop());
    // New connections are still served, and /readyz reports the shutdown.
    within(async {
        let tls = tls(&other, &credentials, "http/1.1");
        loop {
            let stream = connect(&tls, addresses[0]).await;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream))
                    .await
                    .unwrap();
            tokio::spawn(connection);
            let request = http::Request::get("/readyz").header("host", "localhost");
            let request = request.body(body("")).unwrap();
            let answer = read(sender.send_request(request).await.unwrap()).await;
            if answer.code == 500 {
                assert!(
                    answer.text().contains("[-]shutdown failed"),
                    "{}",
                    answer.text()
                );
                break;
            }
        }
    })
    .await;
    within(stopping).await.unwrap();
    over.store(true, Ordering::SeqCst);
    let mut stored = 0;
    for load in loads {
        stored += within(load).await.unwrap();
    }
    assert_eq!(told.load(Ordering::SeqCst), 8, "all went elsewhere");
    let rest = Client::connect(&other, credentials).await;
    let list = rest.get(CONFIG_MAPS).await.expect(200);
    let found = names(&list)
        .iter()
        .filter(|name| name.starts_with("n-"))
        .count();
    assert_eq!(found, stored);
    other.stop().await;
}
