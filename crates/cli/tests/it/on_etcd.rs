//! Three `lockgate serve` on three etcd members, while random faults happen to servers, members and the network between them.
//! What clients do and see is recorded and checked. Without an etcd these tests say so and do nothing.
//!
//! `LOCKGATE_FAULT_ROUNDS` is the number of faults, `LOCKGATE_FAULT_SEED` chooses them; the figures are printed at the end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use lockgate_store::history::{Answer, Before, Call, Change, Recorder, Seen, check};
use lockgate_store::{Entry, ReadAt, Revision};
use lockgate_testkit::{CutProxy, EtcdCluster, Network};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::served::{Client, DEADLINE, Home, Served, signal, trusting};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVERS: usize = 3;
const WRITERS: usize = 2;
const NAMES: usize = 7;

/// A server of a cluster, which may be another process after a while.
struct Replica {
    home: Home,
    served: Option<Served>,
    port: Arc<AtomicU16>,
    /// The way to each member.
    network: Vec<CutProxy>,
    /// Further arguments.
    arguments: &'static [&'static str],
}

impl Replica {
    async fn start(cluster: &EtcdCluster, arguments: &'static [&'static str]) -> Self {
        let mut network = Vec::new();
        for member in addresses(cluster) {
            network.push(CutProxy::start(member).await);
        }
        let mut replica = Self {
            home: Home::new(),
            served: None,
            port: Arc::default(),
            network,
            arguments,
        };
        tokio::task::block_in_place(|| replica.restart());
        replica
    }

    fn restart(&mut self) {
        let arguments = self.home.arguments().into_iter();
        let arguments = arguments.filter(|argument| !argument.starts_with("--data-dir"));
        let members = self.network.iter();
        let members: Vec<String> = members
            .map(|proxy| format!("http://{}", proxy.address()))
            .collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
        command
            .args(arguments)
            .arg("--log-level=error")
            .args(self.arguments)
            .arg(format!("--etcd-servers={}", members.join(",")));
        let mut served = Served::start(command);
        self.port.store(served.port(), Ordering::SeqCst);
        self.served = Some(served);
    }

    fn pid(&self) -> u32 {
        self.served.as_ref().unwrap().pid()
    }

    fn cut(&self, network: Network) {
        for proxy in &self.network {
            proxy.set(network);
        }
    }

    fn kill(&mut self) {
        self.served.take().unwrap().kill();
    }

    /// The authority in its kubeconfig.
    fn tls(&self) -> TlsConnector {
        let kubeconfig = std::fs::read_to_string(self.home.path().join("kubeconfig")).unwrap();
        let (_, data) = kubeconfig
            .split_once("certificate-authority-data: ")
            .unwrap();
        let pem = lockgate_go::base64::decode(data.lines().next().unwrap()).unwrap();
        trusting(&pem)
    }
}

/// What all clients share.
#[derive(Clone)]
struct Load {
    recorder: Recorder,
    tls: TlsConnector,
    over: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    /// Requests that a policy denied on another server than the one that had just acknowledged it, and those that it did not.
    honoured: Arc<AtomicUsize>,
    stale: Arc<AtomicUsize>,
}

/// A policy that denies config maps of an earlier epoch than this.
fn gate(epoch: usize) -> Value {
    let version = "admissionregistration.k8s.io/v1";
    json!({
        "apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "gate"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
            }]},
            "matchConditions": [{"name": "stale", "expression": "object.metadata.name.startsWith('stale-')"}],
            "validations": [{"expression": format!("int(object.data.epoch) >= {epoch}"), "message": "earlier epoch"}],
        },
    })
}

impl Load {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    async fn connect(&self, port: &AtomicU16) -> Option<Client> {
        while !self.is_over() {
            if let Ok(client) = Client::connect(&self.tls, port.load(Ordering::SeqCst)).await {
                return Some(client);
            }
            // The server is being started.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        None
    }

    async fn write(self, port: Arc<AtomicU16>, writer: usize) {
        let mut step = 0;
        while let Some(mut client) = self.connect(&port).await {
            while !self.is_over() {
                step += 1;
                if self.step(&mut client, writer, step).await.is_none() {
                    break;
                }
            }
        }
    }

    /// Tightens a policy on one server, and sends the next one what the policy denies since then.
    async fn govern(self, ports: Vec<Arc<AtomicU16>>) {
        let mut epoch = 0;
        while !self.is_over() {
            epoch += 1;
            let (one, other) = (
                &ports[epoch % ports.len()],
                &ports[(epoch + 1) % ports.len()],
            );
            let Some(mut client) = self.connect(one).await else {
                return;
            };
            if self.tighten(&mut client, epoch).await != Some(200) {
                continue;
            }
            let Some(mut client) = self.connect(other).await else {
                return;
            };
            let name = format!("stale-{epoch}");
            let object = json!({
                "metadata": {"name": name}, "data": {"epoch": (epoch - 1).to_string()},
            });
            match client.send("POST", CONFIG_MAPS, Some(&object)).await {
                Ok((422, status)) if status.to_string().contains("earlier epoch") => {
                    self.honoured.fetch_add(1, Ordering::SeqCst);
                }
                Ok((200..300, _)) => {
                    eprintln!("admitted although denied since before: {name}");
                    self.stale.fetch_add(1, Ordering::SeqCst);
                }
                _ => {}
            }
        }
    }

    async fn tighten(&self, client: &mut Client, epoch: usize) -> Option<u16> {
        let path = format!("{POLICIES}/gate");
        let (_, known) = client.send("GET", &path, None).await.ok()?;
        let mut policy = gate(epoch);
        policy["metadata"]["resourceVersion"] = known["metadata"]["resourceVersion"].clone();
        let (code, _) = client.send("PUT", &path, Some(&policy)).await.ok()?;
        Some(code)
    }

    /// Lists, and changes something. None if the connection is lost.
    async fn step(&self, client: &mut Client, writer: usize, step: usize) -> Option<()> {
        let invoked = self.recorder.now();
        let (code, list) = client.send("GET", CONFIG_MAPS, None).await.ok()?;
        if code != 200 {
            self.failed.fetch_add(1, Ordering::SeqCst);
            return Some(());
        }
        let items = list["items"].as_array().unwrap();
        let entries: Vec<Entry> = items.iter().filter_map(entry).collect();
        let call = Call::List {
            prefix: String::from("w-"),
            at: ReadAt::Latest,
            after: None,
            limit: None,
        };
        let answer = Answer::Listed(entries.clone(), version(&list), 0);
        self.recorder.record(invoked, call, answer);

        let name = format!("w-{}", (step * 5 + writer * 3) % NAMES);
        let key: Arc<str> = name.as_str().into();
        let value = format!("{writer}-{step}");
        let known = entries.iter().find(|entry| *entry.key == *name);
        let path = format!("{CONFIG_MAPS}/{name}");
        let mut object = json!({"metadata": {"name": name}, "data": {"v": value}});
        let (call, method, path, body) = match known {
            None => {
                let value = value.into();
                let expires = false;
                (
                    Call::Create {
                        key,
                        value,
                        expires,
                    },
                    "POST",
                    CONFIG_MAPS,
                    object,
                )
            }
            Some(known) => {
                let expected = known.revision;
                let text = expected.to_string();
                if step.is_multiple_of(4) {
                    let options = json!({"preconditions": {"resourceVersion": text}});
                    (Call::Delete { key, expected }, "DELETE", &*path, options)
                } else {
                    object["metadata"]["resourceVersion"] = text.into();
                    let value = value.into();
                    let call = Call::Update {
                        key,
                        expected,
                        value,
                    };
                    (call, "PUT", &*path, object)
                }
            }
        };
        let invoked = self.recorder.now();
        let sent = client.send(method, path, Some(&body)).await.ok();
        let answer = match &sent {
            // The answer to a deletion does not say when it was; the watch does.
            Some((200, _)) if method == "DELETE" => Answer::Unknown,
            Some((200 | 201, object)) => Answer::Written(version(object)),
            Some((404, _)) if method != "POST" => Answer::NotFound,
            Some((400..500, _)) => Answer::Rejected,
            _ => Answer::Unknown,
        };
        let counter = match &sent {
            Some((200 | 201, _)) => &self.acknowledged,
            Some((400..500, _)) => return self.record(invoked, call, answer),
            _ => &self.failed,
        };
        counter.fetch_add(1, Ordering::SeqCst);
        self.record(invoked, call, answer);
        sent.map(drop)
    }

    fn record(&self, invoked: u64, call: Call, answer: Answer) -> Option<()> {
        self.recorder.record(invoked, call, answer);
        Some(())
    }

    /// Watches, and resumes from where it was.
    async fn watch(self, port: Arc<AtomicU16>, resumed: Arc<AtomicUsize>, mut after: Revision) {
        while let Some(client) = self.connect(&port).await {
            let path = format!(
                "{CONFIG_MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={after}"
            );
            let Ok(mut events) = client.watch(&path).await else {
                continue;
            };
            let watch = self.recorder.watch("w-", after, false);
            resumed.fetch_add(1, Ordering::SeqCst);
            while let Ok(Some(event)) = tokio::time::timeout(DEADLINE, events.next()).await {
                let object = &event["object"];
                match event["type"].as_str().unwrap() {
                    "ERROR" => {
                        // Too old: what was missed is listed.
                        after = Revision::START;
                        break;
                    }
                    "BOOKMARK" => self.recorder.saw(watch, Seen::Bookmark(version(object))),
                    kind => {
                        after = version(object);
                        let Some(entry) = entry(object) else {
                            continue;
                        };
                        let change = Change {
                            revision: entry.revision,
                            key: entry.key,
                            value: (kind != "DELETED").then_some(entry.value),
                            before: Before::Unknown,
                        };
                        self.recorder.saw(watch, Seen::Event(change));
                    }
                }
            }
            if after == Revision::START {
                let Some(mut client) = self.connect(&port).await else {
                    return;
                };
                if let Ok((200, list)) = client.send("GET", CONFIG_MAPS, None).await {
                    after = version(&list);
                }
            }
        }
    }
}

fn version(object: &Value) -> Revision {
    let text = object["metadata"]["resourceVersion"].as_str().unwrap();
    Revision(text.parse().unwrap())
}

/// A config map of this test.
fn entry(object: &Value) -> Option<Entry> {
    let name = object["metadata"]["name"].as_str()?;
    Some(Entry {
        key: name.strip_prefix("w-").map(|_| name)?.into(),
        value: object["data"]["v"].as_str()?.to_owned().into(),
        created: Revision::START,
        revision: version(object),
    })
}

fn addresses(cluster: &EtcdCluster) -> Vec<SocketAddr> {
    let servers = cluster.servers();
    let addresses = servers.iter().map(|url| url.trim_start_matches("http://"));
    addresses.map(|address| address.parse().unwrap()).collect()
}

/// Asks a member through its gateway for JSON. None if it does not answer.
async fn ask(member: SocketAddr, path: &str, body: Value) -> Option<Value> {
    let asking = async {
        let socket = TcpStream::connect(member).await.ok()?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.ok()?;
        tokio::spawn(connection);
        let request = http::Request::post(path)
            .header("host", "localhost")
            .body(Full::<Bytes>::from(body.to_string()))
            .unwrap();
        let response = sender.send_request(request).await.ok()?;
        let bytes = response.into_body().collect().await.ok()?.to_bytes();
        serde_json::from_slice(&bytes).ok()
    };
    tokio::time::timeout(Duration::from_secs(5), asking)
        .await
        .ok()?
}

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    KillServer,
    StopServer,
    PauseServer,
    PartitionServer,
    ResetConnections,
    KillMember,
    KillLeader,
    PauseMember,
    SlowMember,
    NoQuorum,
    Compaction,
    NoSpace,
}

impl Fault {
    const ALL: [Self; 12] = [
        Self::KillServer,
        Self::Compaction,
        Self::KillLeader,
        Self::PartitionServer,
        Self::StopServer,
        Self::PauseServer,
        Self::ResetConnections,
        Self::KillMember,
        Self::PauseMember,
        Self::SlowMember,
        Self::NoQuorum,
        Self::NoSpace,
    ];
}

/// The cluster that faults happen to.
struct Cluster {
    members: EtcdCluster,
    servers: Vec<Replica>,
    load: Load,
    /// Requests that failed while nothing could be written.
    without_quorum: usize,
}

impl Cluster {
    /// Waits until so many more writes are acknowledged.
    async fn progress(&self, writes: usize) {
        let end = Instant::now() + DEADLINE;
        let before = self.load.acknowledged.load(Ordering::SeqCst);
        while self.load.acknowledged.load(Ordering::SeqCst) < before + writes {
            assert!(Instant::now() < end, "the load stands still");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until requests fail, since nothing can be written.
    async fn failures(&mut self, requests: usize) {
        let end = Instant::now() + DEADLINE;
        let before = self.load.failed.load(Ordering::SeqCst);
        while self.load.failed.load(Ordering::SeqCst) < before + requests {
            assert!(Instant::now() < end, "nothing fails");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn leader(&self) -> usize {
        let end = Instant::now() + DEADLINE;
        loop {
            for (index, member) in addresses(&self.members).into_iter().enumerate() {
                let status = ask(member, "/v3/maintenance/status", json!({})).await;
                let status = status.unwrap_or_default();
                if !status["leader"].is_null() && status["leader"] == status["header"]["member_id"]
                {
                    return index;
                }
            }
            assert!(Instant::now() < end, "nobody leads");
        }
    }

    async fn suffer(&mut self, fault: Fault, chance: usize) {
        let (server, member) = (chance % SERVERS, chance / SERVERS % 3);
        match fault {
            Fault::KillServer => {
                self.servers[server].kill();
                self.progress(20).await;
                tokio::task::block_in_place(|| self.servers[server].restart());
            }
            Fault::StopServer => {
                let served = self.servers[server].served.take().unwrap();
                tokio::task::block_in_place(|| served.stop());
                self.progress(20).await;
                tokio::task::block_in_place(|| self.servers[server].restart());
            }
            Fault::PauseServer => {
                signal("STOP", self.servers[server].pid());
                self.progress(20).await;
                signal("CONT", self.servers[server].pid());
            }
            Fault::PartitionServer => {
                self.servers[server].cut(Network::Silent);
                self.progress(40).await;
                self.servers[server].cut(Network::Open);
            }
            Fault::ResetConnections => {
                for _ in 0..3 {
                    self.servers[server].cut(Network::Closed);
                    self.servers[server].cut(Network::Open);
                    self.progress(10).await;
                }
            }
            Fault::KillMember | Fault::KillLeader => {
                let member = match fault {
                    Fault::KillLeader => self.leader().await,
                    _ => member,
                };
                self.members.kill(member);
                self.progress(20).await;
                tokio::task::block_in_place(|| self.members.restart(member));
            }
            Fault::PauseMember => {
                self.members.pause(member);
                self.progress(20).await;
                self.members.resume(member);
            }
            // As one whose disk is slow: it works for a fifth of the time.
            Fault::SlowMember => {
                for _ in 0..20 {
                    self.members.pause(member);
                    tokio::time::sleep(Duration::from_millis(40)).await;
                    self.members.resume(member);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            Fault::NoQuorum => {
                let before = self.load.failed.load(Ordering::SeqCst);
                self.members.kill(member);
                self.members.kill((member + 1) % 3);
                self.failures(3).await;
                tokio::task::block_in_place(|| self.members.restart_all());
                self.progress(1).await;
                self.without_quorum += self.load.failed.load(Ordering::SeqCst) - before;
            }
            Fault::Compaction => {
                let address = addresses(&self.members)[member];
                let status = ask(address, "/v3/maintenance/status", json!({})).await;
                let revision = status.unwrap_or_default()["header"]["revision"].clone();
                ask(address, "/v3/kv/compaction", json!({"revision": revision})).await;
            }
            Fault::NoSpace => {
                let before = self.load.failed.load(Ordering::SeqCst);
                let address = addresses(&self.members)[member];
                let status = ask(address, "/v3/maintenance/status", json!({})).await;
                let id = status.unwrap_or_default()["header"]["member_id"].clone();
                let alarm =
                    |action: &str| json!({"action": action, "memberID": id, "alarm": "NOSPACE"});
                ask(address, "/v3/maintenance/alarm", alarm("ACTIVATE"))
                    .await
                    .unwrap();
                self.failures(3).await;
                ask(address, "/v3/maintenance/alarm", alarm("DEACTIVATE"))
                    .await
                    .unwrap();
                self.progress(1).await;
                self.without_quorum += self.load.failed.load(Ordering::SeqCst) - before;
            }
        }
        self.progress(30).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_faults_of_servers_members_and_network_lose_nothing() {
    let Some(members) = EtcdCluster::start(3) else {
        return;
    };
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let rounds: usize = number("LOCKGATE_FAULT_ROUNDS").unwrap_or(4);
    let seed: usize = number("LOCKGATE_FAULT_SEED").unwrap_or(1);
    let mut seed = u64::try_from(seed).unwrap() + 0x9e37_79b9_7f4a_7c15;
    let start = Instant::now();
    let mut servers = Vec::new();
    for _ in 0..SERVERS {
        servers.push(Replica::start(&members, &["--admission-consistency=linearizable"]).await);
    }
    let load = Load {
        recorder: Recorder::new(),
        // The authority of the first is that of all.
        tls: servers[0].tls(),
        over: Arc::default(),
        acknowledged: Arc::default(),
        failed: Arc::default(),
        honoured: Arc::default(),
        stale: Arc::default(),
    };
    let mut first = load.connect(&servers[1].port).await.unwrap();
    let (_, list) = first.send("GET", CONFIG_MAPS, None).await.unwrap();
    let resumed = Arc::new(AtomicUsize::new(0));
    let (code, status) = first.send("POST", POLICIES, Some(&gate(0))).await.unwrap();
    assert_eq!(code, 201, "{status}");
    let binding = json!({
        "metadata": {"name": "gate"}, "spec": {"policyName": "gate", "validationActions": ["Deny"]},
    });
    let bindings = POLICIES.replace("policies", "policybindings");
    let (code, status) = first.send("POST", &bindings, Some(&binding)).await.unwrap();
    assert_eq!(code, 201, "{status}");
    let ports = servers.iter().map(|server| Arc::clone(&server.port));
    let mut clients = vec![tokio::spawn(load.clone().govern(ports.collect()))];
    for (index, server) in servers.iter().enumerate() {
        for writer in 0..WRITERS {
            let port = Arc::clone(&server.port);
            let writer = index * WRITERS + writer;
            clients.push(tokio::spawn(load.clone().write(port, writer)));
        }
        let port = Arc::clone(&server.port);
        let watch = load
            .clone()
            .watch(port, Arc::clone(&resumed), version(&list));
        tokio::spawn(watch);
    }
    let mut cluster = Cluster {
        members,
        servers,
        load,
        without_quorum: 0,
    };
    let mut counts: BTreeMap<Fault, usize> = BTreeMap::new();
    cluster.progress(60).await;
    for _ in 0..rounds {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let chance = usize::try_from(seed >> 16).unwrap();
        let fault = Fault::ALL[chance % Fault::ALL.len()];
        *counts.entry(fault).or_default() += 1;
        cluster.suffer(fault, chance / Fault::ALL.len()).await;
    }
    let Cluster {
        servers,
        load,
        without_quorum,
        ..
    } = &mut cluster;
    load.over.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    let history = load.recorder.history();
    let (acknowledged, failed) = (
        load.acknowledged.load(Ordering::SeqCst),
        load.failed.load(Ordering::SeqCst),
    );
    eprintln!(
        "{rounds} faults in {:.1?}: {acknowledged} writes acknowledged, {failed} requests failed, {without_quorum} of them while \
         nothing could be written, {} operations, {} watches, {} times a policy was honoured by the next server and {} times not; {counts:?}",
        start.elapsed(),
        history.operations.len(),
        resumed.load(Ordering::SeqCst),
        load.honoured.load(Ordering::SeqCst),
        load.stale.load(Ordering::SeqCst),
    );
    assert_eq!(check(&history), []);
    assert_eq!(load.stale.load(Ordering::SeqCst), 0);
    assert!(load.honoured.load(Ordering::SeqCst) > 0);
    for server in servers {
        server.served.take().unwrap().stop();
    }
}

/// The object of the first event of a watch that is like this, after a revision or from what there is.
async fn first(
    client: Client,
    collection: &str,
    after: Option<Revision>,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    let after = after.map_or_else(|| String::from("0"), |after| after.to_string());
    let path = format!("{collection}?watch=true&resourceVersion={after}");
    let mut events = client.watch(&path).await.unwrap();
    loop {
        let next = tokio::time::timeout(DEADLINE, events.next()).await;
        let event = next.expect("nothing happens").expect("the watch ends");
        if wanted(&event["object"]) {
            return event["object"].clone();
        }
    }
}

fn holder(lease: &Value) -> &str {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default()
}

/// One server runs the controllers and the simulated cluster. When it is killed, another one takes over once the Lease has
/// expired, and nobody acts in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_takes_over_when_the_leader_is_killed() {
    let Some(members) = EtcdCluster::start(1) else {
        return;
    };
    const SIMULATING: &[&str] = &["--simulate=workloads"];
    let mut leader = Replica::start(&members, SIMULATING).await;
    let tls = leader.tls();
    let connect = async |replica: &Replica| {
        let port = replica.port.load(Ordering::SeqCst);
        Client::connect(&tls, port).await.unwrap()
    };
    let name = "lockgate-controller-manager";
    let is_held = |lease: &Value| lease["metadata"]["name"] == name && !holder(lease).is_empty();
    let lease = first(connect(&leader).await, LEASES, None, is_held).await;
    let old = holder(&lease).to_owned();
    let others = [
        Replica::start(&members, SIMULATING).await,
        Replica::start(&members, SIMULATING).await,
    ];
    let mut client = connect(&others[0]).await;
    let deployment = |name: &str| {
        let labels = json!({"app": name});
        json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": 3, "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "c", "image": "web"}]},
                },
            },
        })
    };
    let is_ready = |object: &Value| object["status"]["readyReplicas"] == 3;
    let (code, before) = client
        .send("POST", DEPLOYMENTS, Some(&deployment("before")))
        .await
        .unwrap();
    assert_eq!(code, 201, "{before}");
    let started = Some(version(&before));
    first(connect(&others[1]).await, DEPLOYMENTS, started, is_ready).await;

    leader.kill();
    let path = format!("{LEASES}/{name}");
    let (_, lease) = client.send("GET", &path, None).await.unwrap();
    assert_eq!(holder(&lease), old, "it is killed and gives nothing back");
    let (code, after) = client
        .send("POST", DEPLOYMENTS, Some(&deployment("after")))
        .await
        .unwrap();
    assert_eq!(code, 201, "{after}");
    let created = Some(version(&after));
    let is_taken = |lease: &Value| is_held(lease) && holder(lease) != old;
    let taken = first(connect(&others[1]).await, LEASES, created, is_taken).await;
    let transitions = |lease: &Value| lease["spec"]["leaseTransitions"].as_i64().unwrap();
    assert_eq!(transitions(&taken), transitions(&lease) + 1, "{taken}");
    let is_after = |object: &Value| object["metadata"]["labels"]["app"] == "after";
    let pod = first(connect(&others[0]).await, PODS, created, is_after).await;
    assert!(
        version(&pod) > version(&taken),
        "somebody acted who did not lead: {pod}"
    );
    let is_complete = |object: &Value| object["metadata"]["name"] == "after" && is_ready(object);
    first(connect(&others[0]).await, DEPLOYMENTS, created, is_complete).await;
    let (_, pods) = client.send("GET", PODS, None).await.unwrap();
    assert_eq!(pods["items"].as_array().unwrap().len(), 6, "{pods}");
}
