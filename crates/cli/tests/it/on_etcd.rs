//! Several `lockgate serve` on one etcd cluster, while servers and members are killed and paused. What clients do and
//! see is recorded and checked. Without an etcd these tests say so and do nothing.
//!
//! `LOCKGATE_FAULT_ROUNDS` is the number of rounds of faults; the figures are printed at the end.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockgate_store::history::{Answer, Before, Call, Change, Recorder, Seen, check};
use lockgate_store::{Entry, ReadAt, Revision};
use lockgate_testkit::EtcdCluster;
use serde_json::{Value, json};
use tokio_rustls::TlsConnector;

use crate::served::{Client, DEADLINE, Home, Served, signal, trusting};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: usize = 3;
const NAMES: usize = 7;

/// A server of a cluster, which may be another process after a while.
struct Replica {
    home: Home,
    served: Option<Served>,
    port: Arc<AtomicU16>,
}

impl Replica {
    fn start(cluster: &EtcdCluster) -> Self {
        let mut replica = Self {
            home: Home::new(),
            served: None,
            port: Arc::default(),
        };
        replica.restart(cluster);
        replica
    }

    fn restart(&mut self, cluster: &EtcdCluster) {
        let arguments = self.home.arguments().into_iter();
        let arguments = arguments.filter(|argument| !argument.starts_with("--data-dir"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
        command
            .args(arguments)
            .arg(format!("--etcd-servers={}", cluster.servers().join(",")));
        let mut served = Served::start(command);
        self.port.store(served.port(), Ordering::SeqCst);
        self.served = Some(served);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_paused_servers_and_members_lose_nothing() {
    let Some(mut cluster) = EtcdCluster::start(3) else {
        return;
    };
    let rounds = std::env::var("LOCKGATE_FAULT_ROUNDS");
    let rounds: usize = rounds.map_or(1, |rounds| rounds.parse().unwrap());
    let start = Instant::now();
    let mut replicas = [Replica::start(&cluster), Replica::start(&cluster)];
    let load = Load {
        recorder: Recorder::new(),
        // The authority of the first is that of all.
        tls: replicas[0].tls(),
        over: Arc::default(),
        acknowledged: Arc::default(),
        failed: Arc::default(),
    };
    let mut first = load.connect(&replicas[1].port).await.unwrap();
    let (_, list) = first.send("GET", CONFIG_MAPS, None).await.unwrap();
    let resumed = Arc::new(AtomicUsize::new(0));
    let mut clients = Vec::new();
    for (index, replica) in replicas.iter().enumerate() {
        for writer in 0..WRITERS {
            let port = Arc::clone(&replica.port);
            let writer = index * WRITERS + writer;
            clients.push(tokio::spawn(load.clone().write(port, writer)));
        }
        let port = Arc::clone(&replica.port);
        let watch = load
            .clone()
            .watch(port, Arc::clone(&resumed), version(&list));
        tokio::spawn(watch);
    }
    let progress = async |writes: usize| {
        let end = Instant::now() + DEADLINE;
        let before = load.acknowledged.load(Ordering::SeqCst);
        while load.acknowledged.load(Ordering::SeqCst) < before + writes {
            assert!(Instant::now() < end, "the load stands still");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    for round in 0..rounds {
        let (replica, member) = (round % 2, round % 3);
        progress(60).await;
        replicas[replica].kill();
        progress(30).await;
        tokio::task::block_in_place(|| replicas[replica].restart(&cluster));
        progress(30).await;
        cluster.kill(member);
        progress(30).await;
        tokio::task::block_in_place(|| cluster.restart(member));
        progress(30).await;
        // Where they are, with their connections open.
        let paused = replicas[1 - replica].served.as_ref().unwrap().pid();
        signal("STOP", paused);
        cluster.pause(member);
        progress(30).await;
        cluster.resume(member);
        signal("CONT", paused);
        progress(30).await;
    }
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
        "{rounds} rounds in {:.1?}: {acknowledged} writes acknowledged, {failed} requests failed, {} operations, {} watches",
        start.elapsed(),
        history.operations.len(),
        resumed.load(Ordering::SeqCst),
    );
    assert_eq!(check(&history), []);
    for replica in replicas {
        replica.served.unwrap().stop();
    }
}
