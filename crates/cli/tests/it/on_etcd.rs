//! Three `lockgate serve` on three etcd members, with random faults of servers, members and the network between them.
//! The clients' operations and results are recorded and checked. Without etcd these tests are skipped with a message.
//!
//! `LOCKGATE_FAULT_ROUNDS` is the number of faults, `LOCKGATE_FAULT_SEED` their random seed, and `LOCKGATE_PROGRAM`
//! another build to test. `LOCKGATE_FAKETIME` is the path of libfaketime, without which there are no clock jumps. The
//! figures are printed at the end. Servers switch between the two admission consistencies from fault to fault.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use lockgate_store::history::{Before, Call, Change, OperationResult, Recorder, Seen, check};
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
/// The staleness bound of a server without linearizable admission: the time for which it may admit by objects that
/// another server has replaced; see docs/storage.md.
const WINDOW: Duration = Duration::from_secs(10);
/// Long enough for clients to reconnect elsewhere.
const DRAINED: &[&str] = &["--shutdown-delay-duration=1s"];
/// Longer than all failure detection timeouts of servers and members.
const NOTICED: Duration = Duration::from_secs(8);
/// The retry interval for a request that should be denied.
const PAUSE: Duration = Duration::from_millis(10);

/// `--admission-consistency`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Consistency {
    Eventual,
    Linearizable,
}

impl Consistency {
    const BOTH: [Self; 2] = [Self::Linearizable, Self::Eventual];

    fn argument(self) -> &'static str {
        match self {
            Self::Eventual => "--admission-consistency=eventual",
            Self::Linearizable => "--admission-consistency=linearizable",
        }
    }
}

/// The address of a server and its consistency; the process may be restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Door {
    port: u16,
    consistency: Consistency,
    /// Identifies the process.
    process: u32,
}

/// Shared access to the `Door` of a server.
#[derive(Debug, Clone)]
struct Doorway(Arc<Mutex<Door>>);

impl Doorway {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Door {
            port: 0,
            consistency: Consistency::Eventual,
            process: 0,
        })))
    }

    fn now(&self) -> Door {
        *self.0.lock().unwrap()
    }

    fn port(&self) -> u16 {
        self.now().port
    }
}

/// A server of a cluster, whose process may be replaced.
struct Replica {
    home: Home,
    served: Option<Served>,
    door: Doorway,
    /// The proxy to each member.
    network: Vec<CutProxy>,
    clock: Clock,
    /// Additional arguments.
    arguments: &'static [&'static str],
    consistency: Consistency,
}

impl Replica {
    async fn start(cluster: &EtcdCluster, arguments: &'static [&'static str]) -> Self {
        let mut network = Vec::new();
        for member in addresses(cluster) {
            network.push(CutProxy::start(member).await);
        }
        let home = Home::new();
        let mut replica = Self {
            clock: Clock::of(&home),
            home,
            served: None,
            door: Doorway::new(),
            network,
            arguments,
            consistency: Consistency::Linearizable,
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
        let program = std::env::var_os("LOCKGATE_PROGRAM");
        let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_lockgate").into());
        let mut command = Command::new(program);
        command
            .args(arguments)
            .arg("--log-level=error")
            .arg(self.consistency.argument())
            .args(self.arguments)
            .arg(format!("--etcd-servers={}", members.join(",")));
        self.clock.give_to(&mut command);
        let mut served = Served::start(command);
        *self.door.0.lock().unwrap() = Door {
            port: served.port(),
            consistency: self.consistency,
            process: served.pid(),
        };
        self.served = Some(served);
    }

    /// Switches the server to another consistency, as a rolling upgrade does: the new one starts before the old one
    /// stops.
    fn change(&mut self, consistency: Consistency) {
        if self.consistency != consistency {
            self.consistency = consistency;
            let replaced = self.served.take().unwrap();
            self.restart();
            replaced.stop();
        }
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

    /// The CA in its kubeconfig.
    fn tls(&self) -> TlsConnector {
        let kubeconfig = std::fs::read_to_string(self.home.path().join("kubeconfig")).unwrap();
        let (_, data) = kubeconfig
            .split_once("certificate-authority-data: ")
            .unwrap();
        let pem = lockgate_go::base64::decode(data.lines().next().unwrap()).unwrap();
        trusting(&pem)
    }
}

/// The wall clock of a server: an offset in a file, which libfaketime reads once a second. The monotonic clock is not changed, as when
/// an operator sets the time of a host.
struct Clock(PathBuf);

impl Clock {
    fn library() -> Option<OsString> {
        std::env::var_os("LOCKGATE_FAKETIME").filter(|library| !library.is_empty())
    }

    fn of(home: &Home) -> Self {
        let clock = Self(home.path().join("clock"));
        clock.jump("+0");
        clock
    }

    /// Sets the clock: `+3600` is an hour ahead.
    fn jump(&self, offset: &str) {
        std::fs::write(&self.0, offset).unwrap();
    }

    fn give_to(&self, command: &mut Command) {
        if let Some(library) = Self::library() {
            command
                .env("LD_PRELOAD", library)
                .env("FAKETIME_TIMESTAMP_FILE", &self.0)
                .env("FAKETIME_CACHE_DURATION", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
                .env("NO_FAKE_STAT", "1");
        }
    }
}

/// The state shared by all clients.
#[derive(Clone)]
struct Load {
    recorder: Recorder,
    tls: TlsConnector,
    over: Arc<AtomicBool>,
    /// The number of acknowledged writes, by writer.
    acknowledged: Arc<[AtomicUsize; SERVERS * WRITERS]>,
    failed: Arc<AtomicUsize>,
    failures: Arc<Mutex<Vec<Failed>>>,
    admission: Arc<Admission>,
}

/// A request without a response, or with a server error.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Failed {
    server: usize,
    /// `None` if the connection was lost.
    code: Option<u16>,
    why: String,
}

/// The results of requests that must be denied by a policy just acknowledged by another server.
#[derive(Debug, Default)]
struct Admission {
    /// Denied requests.
    honoured: AtomicUsize,
    /// Allowed requests, with the time between the acknowledgement and the request; must be empty if linearizable.
    stale: AtomicUsize,
    stale_linearizable: AtomicUsize,
    longest_micros: AtomicU64,
}

impl Admission {
    fn honoured(&self) -> usize {
        self.honoured.load(Ordering::SeqCst)
    }

    fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_micros.load(Ordering::SeqCst))
    }

    fn admitted(&self, consistency: Consistency, after: Duration) {
        match consistency {
            Consistency::Linearizable => {
                self.stale_linearizable.fetch_add(1, Ordering::SeqCst);
                eprintln!("admitted {after:.1?} after it was denied, although linearizable");
            }
            Consistency::Eventual => {
                self.stale.fetch_add(1, Ordering::SeqCst);
                let micros = u64::try_from(after.as_micros()).unwrap();
                self.longest_micros.fetch_max(micros, Ordering::SeqCst);
            }
        }
    }
}

/// A policy that denies ConfigMaps of an epoch before this one.
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

    async fn connect(&self, door: &Doorway) -> Option<Client> {
        while !self.is_over() {
            if let Ok(client) = Client::connect(&self.tls, door.port()).await {
                return Some(client);
            }
            // The server is starting.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        None
    }

    fn acknowledged(&self) -> usize {
        self.acknowledged
            .iter()
            .map(|count| count.load(Ordering::SeqCst))
            .sum()
    }

    fn fail(&self, server: usize, code: Option<u16>, why: &Value) {
        let why = why["message"].as_str().unwrap_or_default().to_owned();
        let failed = Failed { server, code, why };
        self.failures.lock().unwrap().push(failed);
        self.failed.fetch_add(1, Ordering::SeqCst);
    }

    async fn write(self, door: Doorway, writer: usize) {
        let mut step = 0;
        while let Some(mut client) = self.connect(&door).await {
            while !self.is_over() {
                step += 1;
                if self.step(&mut client, writer, step).await.is_none() {
                    break;
                }
            }
        }
    }

    /// Tightens a policy on one server, and sends requests that it denies to the next one until they are denied.
    async fn govern(self, doors: Vec<Doorway>) {
        let mut epoch = 0;
        while !self.is_over() {
            epoch += 1;
            let (one, other) = (
                &doors[epoch % doors.len()],
                &doors[(epoch + 1) % doors.len()],
            );
            let Some(mut client) = self.connect(one).await else {
                return;
            };
            if self.tighten(&mut client, epoch).await != Some(200) {
                continue;
            }
            let acknowledged = Instant::now();
            let mut attempt = 0;
            while self.try_earlier(other, epoch, attempt, acknowledged).await == Tried::Admitted {
                attempt += 1;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn try_earlier(
        &self,
        door: &Doorway,
        epoch: usize,
        attempt: usize,
        acknowledged: Instant,
    ) -> Tried {
        let Some(mut client) = self.connect(door).await else {
            return Tried::Nothing;
        };
        let before = door.now();
        let name = format!("stale-{epoch}-{attempt}");
        let object = json!({
            "metadata": {"name": name}, "data": {"epoch": (epoch - 1).to_string()},
        });
        let after = acknowledged.elapsed();
        match client.send("POST", CONFIG_MAPS, Some(&object)).await {
            Ok((422, status)) if status.to_string().contains("earlier epoch") => {
                self.admission.honoured.fetch_add(1, Ordering::SeqCst);
                Tried::Denied
            }
            // If the process was replaced meanwhile, another process than the recorded one may have responded.
            Ok((200..300, _)) if before == door.now() => {
                self.admission.admitted(before.consistency, after);
                Tried::Admitted
            }
            _ => Tried::Nothing,
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

    /// Lists, and writes. `None` if the connection is lost.
    async fn step(&self, client: &mut Client, writer: usize, step: usize) -> Option<()> {
        let server = writer / WRITERS;
        let invoked = self.recorder.now();
        let (code, list) = client.send("GET", CONFIG_MAPS, None).await.ok()?;
        if code != 200 {
            self.fail(server, Some(code), &list);
            return Some(());
        }
        let items = list["items"].as_array().unwrap();
        let entries = items.iter().filter_map(entry).map(Arc::new);
        let entries: Vec<Arc<Entry>> = entries.collect();
        let call = Call::List {
            prefix: String::from("w-"),
            at: ReadAt::Latest,
            after: None,
            limit: None,
        };
        let answer = OperationResult::Listed(entries.clone(), version(&list), 0);
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
        if !client.is_open().await {
            return None;
        }
        let invoked = self.recorder.now();
        let sent = client.send(method, path, Some(&body)).await.ok();
        let answer = match &sent {
            // The response to a delete does not contain its revision; the watch does.
            Some((200, _)) if method == "DELETE" => OperationResult::Unknown,
            Some((200 | 201, object)) => OperationResult::Written(version(object)),
            Some((404, _)) if method != "POST" => OperationResult::NotFound,
            Some((400..500, _)) => OperationResult::Rejected,
            _ => OperationResult::Unknown,
        };
        match &sent {
            Some((200 | 201, _)) => {
                self.acknowledged[writer].fetch_add(1, Ordering::SeqCst);
            }
            Some((400..500, _)) => {}
            Some((code, status)) => self.fail(server, Some(*code), status),
            None => self.fail(server, None, &Value::Null),
        }
        self.recorder.record(invoked, call, answer);
        sent.map(drop)
    }

    /// Watches, resuming from the last revision.
    async fn watch(self, door: Doorway, resumed: Arc<AtomicUsize>, mut after: Revision) {
        while let Some(client) = self.connect(&door).await {
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
                        // Compacted: missed changes are listed.
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
                let Some(mut client) = self.connect(&door).await else {
                    return;
                };
                if let Ok((200, list)) = client.send("GET", CONFIG_MAPS, None).await {
                    after = version(&list);
                }
            }
        }
    }
}

/// The outcome of a request that a policy must deny.
#[derive(Debug, PartialEq, Eq)]
enum Tried {
    Denied,
    Admitted,
    /// It failed, or the responding process is unknown.
    Nothing,
}

fn version(object: &Value) -> Revision {
    let text = object["metadata"]["resourceVersion"].as_str().unwrap();
    Revision(text.parse().unwrap())
}

/// A ConfigMap of this test.
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

/// Sends a JSON request to a member's gateway. `None` without a response.
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

/// A fault.
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
    ClockJump,
}

impl Fault {
    /// The faults that this host supports: clock jumps need libfaketime.
    fn possible() -> &'static [Self] {
        match Clock::library() {
            Some(_) => &Self::ALL,
            None => {
                let (Self::ClockJump, others) = Self::ALL.split_last().unwrap() else {
                    unreachable!("jumps come last")
                };
                others
            }
        }
    }

    const ALL: [Self; 13] = [
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
        Self::ClockJump,
    ];
}

/// The cluster under test.
struct Cluster {
    members: EtcdCluster,
    servers: Vec<Replica>,
    load: Load,
}

impl Cluster {
    /// Waits until this many more writes are acknowledged.
    async fn progress(&self, writes: usize) {
        let end = Instant::now() + DEADLINE;
        let before = self.load.acknowledged();
        while self.load.acknowledged() < before + writes {
            assert!(Instant::now() < end, "the load stands still");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until every client is served again, and a policy is enforced.
    async fn recovered(&self) {
        let end = Instant::now() + DEADLINE;
        let counts = || {
            let counts = self.load.acknowledged.iter();
            counts.map(|count| count.load(Ordering::SeqCst))
        };
        let before: Vec<usize> = counts().collect();
        let honoured = self.load.admission.honoured();
        // Two each, as one request may have been sent before.
        while counts().zip(&before).any(|(now, before)| now < before + 2)
            || self.load.admission.honoured() < honoured + 2
        {
            assert!(Instant::now() < end, "clients do not recover");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until requests fail, as nothing can be written.
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
        // Some faults last until all others have detected them.
        let while_it_lasts = async || {
            if chance / 9 % 3 == 2 {
                tokio::time::sleep(NOTICED).await;
            }
        };
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
                while_it_lasts().await;
                signal("CONT", self.servers[server].pid());
            }
            Fault::PartitionServer => {
                self.servers[server].cut(Network::Silent);
                self.progress(40).await;
                while_it_lasts().await;
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
                while_it_lasts().await;
                self.members.resume(member);
            }
            // Like a member with a slow disk: it runs for a fifth of the time.
            Fault::SlowMember => {
                for _ in 0..20 {
                    self.members.pause(member);
                    tokio::time::sleep(Duration::from_millis(40)).await;
                    self.members.resume(member);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            Fault::NoQuorum => {
                self.members.kill(member);
                self.members.kill((member + 1) % 3);
                self.failures(3).await;
                tokio::task::block_in_place(|| self.members.restart_all());
                self.progress(1).await;
            }
            Fault::Compaction => {
                let address = addresses(&self.members)[member];
                let status = ask(address, "/v3/maintenance/status", json!({})).await;
                let revision = status.unwrap_or_default()["header"]["revision"].clone();
                ask(address, "/v3/kv/compaction", json!({"revision": revision})).await;
            }
            Fault::NoSpace => {
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
            }
            // An hour ahead, an hour behind, and back, each for longer than the Leases of leaders and addresses last.
            Fault::ClockJump => {
                for offset in ["+3600", "-3600", "+0"] {
                    self.servers[server].clock.jump(offset);
                    self.progress(20).await;
                    tokio::time::sleep(NOTICED).await;
                    self.recovered().await;
                }
            }
        }
        self.recovered().await;
        self.progress(30).await;
    }
}

/// The requests that may fail because of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Expected {
    /// All requests: nothing can be written.
    Everywhere,
    /// Requests in progress at the affected server.
    At(usize),
    /// Writes in progress at a lost member: their outcome is unknown.
    UnderWay,
    Nobody,
}

impl Fault {
    fn expected(self, chance: usize) -> Expected {
        match self {
            Self::NoQuorum | Self::NoSpace => Expected::Everywhere,
            Self::KillServer
            | Self::PauseServer
            | Self::PartitionServer
            | Self::ResetConnections => Expected::At(chance % SERVERS),
            Self::KillMember | Self::KillLeader | Self::PauseMember | Self::SlowMember => {
                Expected::UnderWay
            }
            Self::StopServer | Self::Compaction | Self::ClockJump => Expected::Nobody,
        }
    }
}

/// The numbers of failed requests, expected and unexpected.
#[derive(Debug, Default)]
struct Failures {
    everywhere: usize,
    at_the_server: usize,
    under_way: usize,
    /// Unexplained failures.
    unexpected: Vec<(String, Failed)>,
}

impl Failures {
    fn count(&mut self, what: &str, expected: Expected, failed: Vec<Failed>) {
        for failed in failed {
            match expected {
                Expected::Everywhere => self.everywhere += 1,
                Expected::At(server) if server == failed.server => self.at_the_server += 1,
                // There is a response: the server was running all the time.
                Expected::UnderWay if failed.code.is_some() => self.under_way += 1,
                _ => self.unexpected.push((what.to_owned(), failed)),
            }
        }
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
        servers.push(Replica::start(&members, DRAINED).await);
    }
    let load = Load {
        recorder: Recorder::new(),
        // All servers share the CA of the first.
        tls: servers[0].tls(),
        over: Arc::default(),
        acknowledged: Arc::default(),
        failed: Arc::default(),
        failures: Arc::default(),
        admission: Arc::default(),
    };
    let mut first = load.connect(&servers[1].door).await.unwrap();
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
    let doors = servers.iter().map(|server| server.door.clone());
    let mut clients = vec![tokio::spawn(load.clone().govern(doors.collect()))];
    for (index, server) in servers.iter().enumerate() {
        for writer in 0..WRITERS {
            let writer = index * WRITERS + writer;
            clients.push(tokio::spawn(
                load.clone().write(server.door.clone(), writer),
            ));
        }
        let watch = load
            .clone()
            .watch(server.door.clone(), Arc::clone(&resumed), version(&list));
        tokio::spawn(watch);
    }
    let mut cluster = Cluster {
        members,
        servers,
        load,
    };
    let mut counts: BTreeMap<(Fault, Consistency), usize> = BTreeMap::new();
    let mut failures = Failures::default();
    cluster.progress(60).await;
    for round in 0..rounds {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let chance = usize::try_from(seed >> 16).unwrap();
        let faults = Fault::possible();
        let fault = faults[chance % faults.len()];
        let chance = chance / faults.len();
        let consistency = Consistency::BOTH[round % 2];
        for server in 0..SERVERS {
            let changing = &mut cluster.servers[server];
            tokio::task::block_in_place(|| changing.change(consistency));
            cluster.recovered().await;
            let failed = std::mem::take(&mut *cluster.load.failures.lock().unwrap());
            failures.count("another consistency", Expected::Nobody, failed);
        }
        *counts.entry((fault, consistency)).or_default() += 1;
        cluster.suffer(fault, chance).await;
        let failed = std::mem::take(&mut *cluster.load.failures.lock().unwrap());
        let expected = fault.expected(chance);
        eprintln!("{round}: {fault:?}, {consistency:?}, {expected:?}: {failed:?}");
        failures.count(&format!("{fault:?} in round {round}"), expected, failed);
    }
    let Cluster { servers, load, .. } = &mut cluster;
    load.over.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    let history = load.recorder.history();
    let Admission {
        honoured,
        stale,
        stale_linearizable,
        ..
    } = &*load.admission;
    eprintln!(
        "{rounds} faults in {:.1?}: {} writes acknowledged, {} operations, {} watches; {} requests failed: {} while nothing could be \
         written, {} at a server that was killed, paused or cut off, {} under way at a member, {} for no such reason; a policy was \
         honoured by the next server {honoured:?} times, and {stale:?} times not yet, {:.1?} after it at most; {stale_linearizable:?} times not \
         although linearizable; {counts:?}",
        start.elapsed(),
        load.acknowledged(),
        history.operations.len(),
        resumed.load(Ordering::SeqCst),
        load.failed.load(Ordering::SeqCst),
        failures.everywhere,
        failures.at_the_server,
        failures.under_way,
        failures.unexpected.len(),
        load.admission.longest(),
    );
    assert_eq!(check(&history), []);
    assert_eq!(failures.unexpected, []);
    assert_eq!(stale_linearizable.load(Ordering::SeqCst), 0);
    assert!(load.admission.longest() < WINDOW);
    for server in servers {
        server.served.take().unwrap().stop();
    }
}

/// The first object that matches, in the events of a watch since a revision or from the initial state.
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
/// expired, and no server is active in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_takes_over_when_the_leader_is_killed() {
    let Some(members) = EtcdCluster::start(1) else {
        return;
    };
    const SIMULATING: &[&str] = &["--simulate=workloads"];
    let mut leader = Replica::start(&members, SIMULATING).await;
    let tls = leader.tls();
    let connect = async |replica: &Replica| {
        let port = replica.door.port();
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
