//! `lockgate serve --data-dir`: killed at any moment, with a full disk, twice on one data directory.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;

use crate::served::{Client, Gone, Home, Served, signal, tls};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: u64 = 8;
const NAMES: u64 = 6;

/// Pseudo-random numbers from a seed.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// The acknowledged state of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    version: u64,
    uid: String,
    value: String,
}

impl Known {
    fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self {
            version: text(&metadata["resourceVersion"]).parse().unwrap(),
            uid: text(&metadata["uid"]),
            value: text(&object["data"]["v"]),
        }
    }
}

/// A write without a response: it may have been stored.
#[derive(Debug, Clone)]
enum Attempt {
    Write(String),
    Delete,
}

/// All operations of one writer on its own names.
#[derive(Debug, Default)]
struct History {
    /// The last acknowledged state of a name: an object, or its deletion.
    acknowledged: BTreeMap<String, Option<Known>>,
    /// Writes without a response.
    attempted: BTreeMap<String, Attempt>,
    /// All versions it was returned.
    versions: BTreeSet<u64>,
}

impl History {
    /// Writes until the connection is lost.
    async fn write(&mut self, load: &Load, random: &mut Random) {
        let Ok(mut client) = Client::connect(&load.tls, load.port).await else {
            return;
        };
        while self.step(load, &mut client, random).await.is_ok() {}
    }

    async fn step(
        &mut self,
        load: &Load,
        client: &mut Client,
        random: &mut Random,
    ) -> Result<(), Gone> {
        let name = format!("w{}-{}", load.writer, random.below(NAMES));
        let known = self.acknowledged.get(&name).cloned().flatten();
        let value = format!("{name}-{}-{}", load.round, random.below(u64::MAX));
        let value = value.repeat(usize::try_from(random.below(40)).unwrap() + 1);
        let mut object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"v": value},
        });
        let path = format!("{CONFIG_MAPS}/{name}");
        let deletes = known.is_some() && random.below(5) == 0;
        let attempt = if deletes {
            Attempt::Delete
        } else {
            Attempt::Write(value)
        };
        self.attempted.insert(name.clone(), attempt);
        let (code, answer) = match &known {
            Some(_) if deletes => client.send("DELETE", &path, None).await?,
            Some(known) => {
                object["metadata"]["resourceVersion"] = known.version.to_string().into();
                client.send("PUT", &path, Some(&object)).await?
            }
            None => client.send("POST", CONFIG_MAPS, Some(&object)).await?,
        };
        assert!(matches!(code, 200 | 201), "{name}: {answer}");
        self.attempted.remove(&name);
        if deletes {
            self.acknowledged.insert(name, None);
        } else {
            let now = Known::of(&answer);
            assert!(self.versions.insert(now.version), "twice the same version");
            assert!(now.version > load.before, "a version of an earlier life");
            if let Some(known) = known {
                assert!(now.version > known.version && now.uid == known.uid);
            }
            self.acknowledged.insert(name, Some(now));
        }
        load.done.fetch_add(1, Ordering::SeqCst);
        load.progress.notify_one();
        Ok(())
    }

    /// Compares with the state after a restart, and continues from it.
    fn check(&mut self, found: &BTreeMap<String, Known>) {
        for (name, acknowledged) in &mut self.acknowledged {
            let found = found.get(name);
            if found == acknowledged.as_ref() {
                continue;
            }
            let before = acknowledged.as_ref().map_or(0, |known| known.version);
            match (self.attempted.get(name), found) {
                (Some(Attempt::Write(value)), Some(found)) => {
                    assert_eq!(found.value, *value, "{name} is neither one nor the other");
                    assert!(found.version > before, "{name} went back");
                }
                (Some(Attempt::Delete), None) => {}
                (attempt, found) => panic!(
                    "{name}: acknowledged {acknowledged:?}, then tried {attempt:?}, found {found:?}"
                ),
            }
            *acknowledged = found.cloned();
        }
        // Unacknowledged writes may be present too.
        for (name, attempt) in std::mem::take(&mut self.attempted) {
            if let Some(found) = found.get(&name) {
                if let Attempt::Write(value) = attempt
                    && !self.acknowledged.contains_key(&name)
                {
                    assert_eq!(found.value, value);
                }
                self.acknowledged.insert(name, Some(found.clone()));
            }
        }
    }
}

/// The state shared by the writers of one server process.
struct Load {
    tls: TlsConnector,
    port: u16,
    writer: u64,
    round: u64,
    /// All later versions are higher.
    before: u64,
    done: Arc<AtomicUsize>,
    progress: Arc<Notify>,
}

/// All objects of the test, and the version of the list.
async fn everything(tls: &TlsConnector, port: u16) -> (BTreeMap<String, Known>, u64) {
    let mut client = Client::connect(tls, port).await.unwrap();
    let (code, list) = client.send("GET", CONFIG_MAPS, None).await.unwrap();
    assert_eq!(code, 200, "{list}");
    let items = list["items"].as_array().unwrap().iter();
    let found = items
        .map(|item| (item["metadata"]["name"].as_str().unwrap(), item))
        // A controller creates it in every namespace.
        .filter(|(name, _)| *name != "kube-root-ca.crt")
        .map(|(name, item)| (name.to_owned(), Known::of(item)));
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    (found.collect(), version.parse().unwrap())
}

/// The bootstrap objects, which no restart recreates.
async fn bootstrapped(tls: &TlsConnector, port: u16) -> Value {
    let mut client = Client::connect(tls, port).await.unwrap();
    let (_, list) = client
        .send("GET", "/api/v1/namespaces", None)
        .await
        .unwrap();
    list["items"].clone()
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap(),
        Err(_) => otherwise,
    }
}

/// After any number of kills at any time: every acknowledged write is present, versions only increase, and the server
/// starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_lose_nothing() {
    let rounds = from_environment("LOCKGATE_CRASH_ROUNDS", 5);
    let seed = from_environment("LOCKGATE_CRASH_SEED", 1);
    let mut random = Random::new(seed);
    let home = Home::new();
    let mut histories: Vec<History> = (0..WRITERS).map(|_| History::default()).collect();
    let mut trust: Option<(TlsConnector, Value)> = None;
    let newest = AtomicU64::new(0);
    let (mut writes, mut early) = (0, 0);
    for round in 0..rounds {
        // Sometimes the server is killed before it is ready.
        if random.below(3) == 0 {
            let mut served = home.start();
            let _ = served.port_within(Duration::from_millis(random.below(250)));
            served.kill();
            early += 1;
        }
        let (mut served, port) = home.start_ready();
        // The CA and the objects of the first start are kept by all others.
        if trust.is_none() {
            let tls = tls(&home.data());
            let objects = bootstrapped(&tls, port).await;
            trust = Some((tls, objects));
        }
        let (tls, objects) = trust.as_ref().unwrap();
        assert_eq!(
            bootstrapped(tls, port).await,
            *objects,
            "round {round} of seed {seed}"
        );
        let (found, version) = everything(tls, port).await;
        assert!(
            version >= newest.load(Ordering::SeqCst),
            "versions went back"
        );
        for history in &mut histories {
            history.check(&found);
        }

        let (done, progress) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let mut running = tokio::task::JoinSet::new();
        for (writer, mut history) in histories.drain(..).enumerate() {
            let load = Load {
                tls: tls.clone(),
                port,
                writer: u64::try_from(writer).unwrap(),
                round,
                before: version,
                done: Arc::clone(&done),
                progress: Arc::clone(&progress),
            };
            let mut random = Random::new(random.below(u64::MAX));
            running.spawn(async move {
                history.write(&load, &mut random).await;
                (writer, history)
            });
        }
        let enough = usize::try_from(random.below(400)).unwrap();
        let working = async {
            while done.load(Ordering::SeqCst) < enough {
                progress.notified().await;
            }
        };
        tokio::time::timeout(crate::served::DEADLINE, working)
            .await
            .unwrap_or_else(|_| panic!("round {round} of seed {seed}: no progress"));
        served.kill();
        let mut ended = running.join_all().await;
        ended.sort_by_key(|(writer, _)| *writer);
        histories = ended.into_iter().map(|(_, history)| history).collect();
        let versions = histories
            .iter()
            .filter_map(|history| history.versions.last());
        newest.fetch_max(versions.max().copied().unwrap_or(version), Ordering::SeqCst);
        writes += done.load(Ordering::SeqCst);
    }
    // No version was used twice, across all restarts.
    let given: usize = histories.iter().map(|history| history.versions.len()).sum();
    let all: BTreeSet<u64> = histories
        .iter()
        .flat_map(|history| history.versions.iter().copied())
        .collect();
    assert_eq!(all.len(), given);
    // A graceful shutdown loses nothing either.
    let (tls, _) = trust.unwrap();
    for _ in 0..2 {
        let (served, port) = home.start_ready();
        let (found, _) = everything(&tls, port).await;
        for history in &mut histories {
            history.check(&found);
        }
        served.stop();
    }
    eprintln!("{rounds} kills under load and {early} while starting, {writes} writes acknowledged");
}

#[test]
fn a_second_server_is_told_who_uses_the_folder() {
    let home = Home::new();
    let (served, _) = home.start_ready();
    let mut second = home.start();
    assert!(second.port_within(crate::served::DEADLINE).is_err());
    let error_output = second.error_output();
    let want = format!(
        "the directory `{}` is in use by process {}",
        home.data().display(),
        served.pid()
    );
    assert!(error_output.contains(&want), "{error_output}");
    assert!(error_output.contains("stop that process"), "{error_output}");
    served.stop();
}

#[test]
fn a_damaged_file_is_refused() {
    let home = Home::new();
    home.start_ready().0.stop();
    let path = home.data().join("store.redb");
    let mut bytes = std::fs::read(&path).unwrap();
    // Corrupts a stored name. Unused pages may contain it too.
    let name = b"system-node-critical";
    let places: Vec<usize> = (0..bytes.len() - name.len())
        .filter(|&place| bytes[place..].starts_with(name))
        .collect();
    assert!(!places.is_empty());
    for place in places {
        bytes[place + 3] ^= 1;
    }
    std::fs::write(&path, bytes).unwrap();
    let mut served = home.start();
    assert!(served.port_within(crate::served::DEADLINE).is_err());
    let error_output = served.error_output();
    assert!(error_output.contains("is damaged"), "{error_output}");
}

/// Starts a server on a small disk; `None` if this user may not mount one.
fn on_a_small_disk(home: &Home) -> Option<Served> {
    std::fs::create_dir(home.data()).unwrap();
    // The mount is in a namespace of these processes and removed with them.
    let script = format!(
        "mount -t tmpfs -o size=6m,mode=700 tmpfs '{}' || exit 77; \"$@\"; exec \"$@\"",
        home.data().display()
    );
    let may = Command::new("unshare").args(["-rm", "true"]).status();
    if !may.is_ok_and(|status| status.success()) {
        return None;
    }
    let mut command = Command::new("unshare");
    command
        .args(["-rm", "sh", "-c", &script, "sh"])
        .arg(env!("CARGO_BIN_EXE_lockgate"))
        .args(home.arguments());
    Some(Served::start(command))
}

#[tokio::test]
async fn a_full_disk_stops_writes_and_loses_nothing() {
    let home = Home::new();
    let Some(mut served) = on_a_small_disk(&home) else {
        eprintln!("not run: no file systems can be mounted here");
        return;
    };
    let port = served.port();
    // The path in the mount namespace of the processes.
    let inside = format!("/proc/{}/root{}", served.pid(), home.data().display());
    let tls = tls(inside.as_ref());
    let mut client = Client::connect(&tls, port).await.unwrap();
    let big = "v".repeat(300_000);
    let mut acknowledged = BTreeMap::new();
    let refused = loop {
        let name = format!("big-{}", acknowledged.len());
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"v": big},
        });
        match client
            .send("POST", CONFIG_MAPS, Some(&object))
            .await
            .unwrap()
        {
            (201, object) => acknowledged.insert(name, Known::of(&object)),
            refused => break refused,
        };
        assert!(acknowledged.len() < 100, "the disk is not full");
    };
    let (code, status) = refused;
    let message = status["message"].as_str().unwrap();
    assert_eq!(code, 500);
    assert!(message.contains("storage is unavailable"), "{message}");
    assert!(message.contains("No space left on device"), "{message}");
    // Reads succeed, writes fail, and probes report it.
    assert_eq!(everything(&tls, port).await.0, acknowledged);
    let path = format!("{CONFIG_MAPS}/big-0");
    assert_eq!(client.send("DELETE", &path, None).await.unwrap().0, 500);
    assert_eq!(client.send("GET", "/readyz", None).await.unwrap().0, 500);
    // After a restart on the same full disk all data is present, and deletes succeed.
    let pid = std::fs::read_to_string(format!("{inside}/lock")).unwrap();
    signal("TERM", pid.trim().parse().unwrap());
    let port = served.port();
    let (found, _) = everything(&tls, port).await;
    let lost: Vec<_> = acknowledged
        .iter()
        .filter(|(name, known)| found.get(*name) != Some(known))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    let error_output = served.error_output();
    assert!(
        error_output.contains("No space left on device"),
        "{error_output}"
    );
}
