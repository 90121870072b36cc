//! The etcd backend with real etcd processes. Without etcd, these tests are skipped with a notice.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests; a failure is a panic with a location"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockgate_store::history::{Recorded, Recorder, check};
use lockgate_store::{
    EtcdError, EtcdOptions, EtcdStore, Event, List, ReadAt, ReadError, Revision, Store, WriteError,
    contract,
};
use lockgate_testkit::certs::{Authority, Identity};
use lockgate_testkit::{CutProxy, EtcdCluster, Network};

/// Much longer than any step takes.
const DEADLINE: Duration = Duration::from_secs(30);

fn options(servers: Vec<String>, prefix: &str) -> EtcdOptions {
    EtcdOptions {
        servers,
        prefix: prefix.to_owned(),
        ..EtcdOptions::default()
    }
}

async fn open(cluster: &EtcdCluster, prefix: &str) -> EtcdStore {
    let options = options(cluster.servers(), prefix);
    EtcdStore::open(options).await.unwrap()
}

async fn keeps_the_contract() {
    let Some(cluster) = EtcdCluster::start(1) else {
        return;
    };
    let count = AtomicUsize::new(0);
    // Nested prefixes, and a revision counter shared with others.
    contract::run_all(async || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        open(&cluster, &format!("/contract{number}")).await
    })
    .await;
}

#[tokio::test]
async fn keeps_the_contract_on_one_thread() {
    keeps_the_contract().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keeps_the_contract_on_many_threads() {
    keeps_the_contract().await;
}

#[tokio::test]
async fn lists_by_bloom_filters() {
    let Some(cluster) = EtcdCluster::start(1) else {
        return;
    };
    let options = EtcdOptions {
        history: contract::bloom_options(),
        ..options(cluster.servers(), "/registry")
    };
    let store = EtcdStore::open(options).await.unwrap();
    contract::lists_by_bloom_filters(store).await;
}

#[tokio::test]
async fn entries_expire_with_their_leases() {
    let Some(cluster) = EtcdCluster::start(1) else {
        return;
    };
    let store = open(&cluster, "/registry").await;
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/", start).await.unwrap();
    let short = Some(Duration::from_secs(1));
    let one = store.create("/one", "1".into(), short).await.unwrap();
    store.create("/two", "1".into(), short).await.unwrap();
    store.create("/kept", "1".into(), None).await.unwrap();
    // The key keeps its lease.
    store.update("/one", one, "2".into()).await.unwrap();
    let mut deleted = Vec::new();
    while deleted.len() < 2 {
        let event = tokio::time::timeout(DEADLINE, watch.next()).await;
        if let Event::Delete { revision, previous } = event.unwrap().unwrap() {
            deleted.push((revision, previous.key.to_string()));
        }
    }
    assert_ne!(deleted[0].0, deleted[1].0, "each at a revision of its own");
    let page = store.list(List::all("/")).await.unwrap();
    assert_eq!(page.entries.len(), 1);
}

#[tokio::test]
async fn a_prefix_of_others_is_left_alone() {
    let Some(cluster) = EtcdCluster::start(1) else {
        return;
    };
    let other = open(&cluster, "/registry").await;
    other.create("/pods/a", "1".into(), None).await.unwrap();
    // This deeper prefix is not marked as Lockgate's.
    let inside = || options(cluster.servers(), "/registry/pods/");
    let refused = EtcdStore::open(inside()).await.unwrap_err();
    let EtcdError::ForeignPrefix { prefix, key } = refused else {
        panic!("{refused}");
    };
    assert_eq!((&*prefix, &*key), ("/registry/pods", "/registry/pods/a"));
    let adopting = EtcdOptions {
        adopt_prefix: true,
        ..inside()
    };
    let adopted = EtcdStore::open(adopting).await.unwrap();
    let (entry, _) = adopted.get("/a", ReadAt::Latest).await.unwrap();
    assert_eq!(entry.unwrap().value, "1");
    // Adopting it once is sufficient.
    EtcdStore::open(inside()).await.unwrap();
    // A sibling prefix with the same start is not in use.
    EtcdStore::open(options(cluster.servers(), "/registry/po"))
        .await
        .unwrap();
}

#[tokio::test]
async fn one_replica_compacts_and_watches_of_another_say_so() {
    let Some(cluster) = EtcdCluster::start(1) else {
        return;
    };
    let recorder = Recorder::new();
    let replica = async || {
        let options = EtcdOptions {
            compaction_interval: Duration::from_millis(300),
            ..options(cluster.servers(), "/registry")
        };
        Recorded::with(recorder.clone(), EtcdStore::open(options).await.unwrap())
    };
    let (one, other) = (replica().await, replica().await);
    let first = one.create("/k/a", "0".into(), None).await.unwrap();
    // A read that bypasses the cache, and so depends on etcd's history.
    let reads_first = async || {
        let (key, at) = ("/k/none", ReadAt::Exact(first));
        other.inner().get(key, at).await
    };
    let mut watch = other.watch("/k/", first).await.unwrap();
    let end = tokio::time::Instant::now() + DEADLINE;
    let mut revision = first;
    let fresh = loop {
        revision = one
            .update("/k/a", revision, revision.0.to_string().into())
            .await
            .unwrap();
        assert_eq!(watch.next().await.unwrap().revision(), revision);
        let options = options(cluster.servers(), "/registry");
        let fresh = EtcdStore::open(options).await.unwrap();
        if let Err(ReadError::Compacted(_)) = fresh.get("/k/a", ReadAt::Exact(first)).await {
            break fresh;
        }
        assert!(tokio::time::Instant::now() < end, "nobody compacts");
    };
    // A store opened before has the history in its cache; one opened later returns an error.
    assert!(reads_first().await.is_ok());
    let too_old = fresh.watch("/k/", first).await.map(|_| ());
    assert!(
        matches!(too_old, Err(ReadError::Compacted(_))),
        "{too_old:?}"
    );
    let listed = fresh.list(List {
        at: ReadAt::Exact(first),
        ..List::all("/k/")
    });
    let listed = listed.await.map(|_| ());
    assert!(matches!(listed, Err(ReadError::Compacted(_))), "{listed:?}");
    assert_eq!(check(&recorder.history()), []);
}

/// A state from before the cache was filled is read from etcd.
#[tokio::test]
async fn earlier_states_are_read_from_etcd() {
    let Some(cluster) = EtcdCluster::start(1) else {
        return;
    };
    let writer = open(&cluster, "/registry").await;
    for key in ["/p/a", "/p/b", "/p/c", "/q/a"] {
        writer.create(key, "1".into(), None).await.unwrap();
    }
    let before = writer.list(List::all("/p/")).await.unwrap();
    let b = before.entries[1].revision;
    writer.delete("/p/b", b).await.unwrap();
    let store = open(&cluster, "/registry").await;
    let at = ReadAt::Exact(before.revision);
    let all = store
        .list(List {
            at,
            ..List::all("/p/")
        })
        .await
        .unwrap();
    assert_eq!(
        (&all.entries, all.revision),
        (&before.entries, before.revision)
    );
    let page = async |after, limit| {
        let list = List {
            at,
            after,
            limit,
            ..List::all("/p/")
        };
        let page = store.list(list).await.unwrap();
        let keys: Vec<_> = page
            .entries
            .iter()
            .map(|entry| entry.key.to_string())
            .collect();
        (keys.join(" "), page.remaining)
    };
    assert_eq!(page(None, Some(2)).await, ("/p/a /p/b".to_owned(), 1));
    assert_eq!(page(Some("/p/a"), Some(1)).await, ("/p/b".to_owned(), 1));
    assert_eq!(page(Some("/p/b"), None).await, ("/p/c".to_owned(), 0));
    assert_eq!(page(Some("/"), Some(0)).await, (String::new(), 3));
    assert_eq!(page(Some("/q"), None).await, (String::new(), 0));
    let (entry, _) = store.get("/p/b", at).await.unwrap();
    assert_eq!(entry.unwrap().revision, b);
}

/// Two replicas under load, with concurrent faults.
async fn under_load(
    replicas: &[Recorded<EtcdStore>],
    steps: usize,
    happens: impl Future<Output = ()>,
) {
    let loads = replicas.iter().map(|replica| {
        let replica = replica.clone();
        tokio::spawn(async move { contract::mixed_load(&replica, 3, steps).await })
    });
    let loads: Vec<_> = loads.collect();
    happens.await;
    for load in loads {
        load.await.unwrap();
    }
}

/// Everything still works, and the history has no violations.
async fn is_sound(recorder: &Recorder, replicas: &[Recorded<EtcdStore>]) {
    let mut last = Revision::START;
    for (index, replica) in replicas.iter().enumerate() {
        let key = format!("/m/last-{index}");
        let create = async || loop {
            match replica.create(&key, "1".into(), None).await {
                Ok(revision) => break revision,
                // Written by the previous attempt, whose response was lost.
                Err(WriteError::AlreadyExists(entry)) => break entry.revision,
                Err(_) => {}
            }
        };
        let created = tokio::time::timeout(DEADLINE, create()).await;
        last = last.max(created.expect("writes again"));
    }
    for replica in replicas {
        // A watch of each replica's whole history, up to the last change.
        let page = replica.list(List::all("/m/")).await.unwrap();
        assert!(page.revision >= last);
        assert!(replica.failure().is_none());
    }
    let violations = check(&recorder.history());
    assert_eq!(violations, []);
}

/// Replicas with a shared recorder, and a watch of everything on each, which must not end.
async fn replicas(
    servers: &[Vec<String>],
    recorder: &Recorder,
) -> (Vec<Recorded<EtcdStore>>, Vec<tokio::task::JoinHandle<()>>) {
    let mut replicas = Vec::new();
    let mut watches = Vec::new();
    for servers in servers {
        let store = EtcdStore::open(options(servers.clone(), "/registry"));
        let replica = Recorded::with(recorder.clone(), store.await.unwrap());
        let start = replica.revision().await.unwrap();
        let mut watch = replica.watch("/m/", start).await.unwrap();
        watches.push(tokio::spawn(
            async move { while watch.next().await.is_ok() {} },
        ));
        replicas.push(replica);
    }
    (replicas, watches)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn killed_and_paused_members_lose_nothing() {
    let Some(mut cluster) = EtcdCluster::start(3) else {
        return;
    };
    let recorder = Recorder::new();
    let servers = cluster.servers();
    let (replicas, watches) = replicas(&[servers.clone(), servers], &recorder).await;
    let progress = async |writes: usize| {
        let end = tokio::time::Instant::now() + DEADLINE;
        let before = recorder.history().operations.len();
        while recorder.history().operations.len() < before + writes {
            assert!(tokio::time::Instant::now() < end, "the load stands still");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let faults = async {
        for member in 0..3 {
            progress(100).await;
            // All members in turn, which includes the leader.
            cluster.kill(member);
            progress(50).await;
            tokio::task::block_in_place(|| cluster.restart(member));
            cluster.pause(member);
            progress(50).await;
            cluster.resume(member);
        }
    };
    under_load(&replicas, 150, faults).await;
    is_sound(&recorder, &replicas).await;
    assert!(
        watches.iter().all(|watch| !watch.is_finished()),
        "a watch ended"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_quorum_nothing_is_acknowledged_and_all_is_well_after() {
    let Some(mut cluster) = EtcdCluster::start(3) else {
        return;
    };
    let recorder = Recorder::new();
    let (replicas, watches) = replicas(&[cluster.servers()], &recorder).await;
    let store = &replicas[0];
    let created = store.create("/m/a", "1".into(), None).await.unwrap();
    cluster.kill(0);
    cluster.kill(1);
    let refused = store.update("/m/a", created, "2".into()).await;
    assert!(
        matches!(refused, Err(WriteError::Unavailable(_))),
        "{refused:?}"
    );
    let refused = store.get("/m/a", ReadAt::Latest).await;
    assert!(
        matches!(refused, Err(ReadError::Unavailable(_))),
        "{refused:?}"
    );
    // Reads that need not be consistent succeed.
    let (entry, _) = store
        .get("/m/a", ReadAt::NotOlderThan(created))
        .await
        .unwrap();
    assert_eq!(entry.unwrap().value, "1");
    tokio::task::block_in_place(|| cluster.restart_all());
    is_sound(&recorder, &replicas).await;
    assert!(
        watches.iter().all(|watch| !watch.is_finished()),
        "a watch ended"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_partition_is_noticed_and_watches_resume_without_a_gap() {
    let Some(cluster) = EtcdCluster::start(1) else {
        return;
    };
    let server = cluster.servers()[0]
        .trim_start_matches("http://")
        .parse()
        .unwrap();
    let (proxy, second) = (CutProxy::start(server).await, CutProxy::start(server).await);
    let url = |proxy: &CutProxy| format!("http://{}", proxy.address());
    let recorder = Recorder::new();
    // One replica with two proxies, one of which is cut at a time, and one without.
    let ways = [vec![url(&proxy), url(&second)], cluster.servers()];
    let (replicas, watches) = replicas(&ways, &recorder).await;
    let cuts = async {
        for (round, network) in [Network::Closed, Network::Silent, Network::Closed]
            .into_iter()
            .enumerate()
        {
            for way in [&proxy, &second] {
                way.set(network);
                // The other replica writes, so that there is an event to miss.
                let key = format!("/m/{round}-{}", way.address());
                replicas[1].create(&key, "1".into(), None).await.unwrap();
                let seen = async {
                    while !matches!(
                        replicas[0].get(&key, ReadAt::Latest).await,
                        Ok((Some(_), _))
                    ) {}
                };
                tokio::time::timeout(DEADLINE, seen)
                    .await
                    .expect("another way");
                way.set(Network::Open);
            }
        }
    };
    under_load(&replicas, 100, cuts).await;
    is_sound(&recorder, &replicas).await;
    assert!(
        watches.iter().all(|watch| !watch.is_finished()),
        "a watch ended"
    );
}

#[tokio::test]
async fn large_values_are_refused_and_many_are_read() {
    let Some(cluster) = EtcdCluster::start(1) else {
        return;
    };
    let store = open(&cluster, "/registry").await;
    let large = vec![b'x'; 2 << 20];
    let refused = store.create("/large", large.into(), None).await;
    assert!(matches!(refused, Err(WriteError::TooLarge)), "{refused:?}");
    // More than one page, with a size above one frame.
    let value = bytes::Bytes::from(vec![b'x'; 20_000]);
    let keys: Vec<_> = (0..2_100)
        .map(|index| format!("/many/{index:05}"))
        .collect();
    for keys in keys.chunks(100) {
        let writes = keys
            .iter()
            .map(|key| store.create(key, value.clone(), None));
        for write in futures_util::future::join_all(writes).await {
            write.unwrap();
        }
    }
    let other = open(&cluster, "/registry").await;
    let page = other.list(List::all("/many/")).await.unwrap();
    let found: Vec<_> = page
        .entries
        .iter()
        .map(|entry| entry.key.to_string())
        .collect();
    assert_eq!(found, keys);
}

#[tokio::test]
async fn clients_and_members_verify_each_other() {
    let authority = Authority::new("etcd-ca");
    let Some(cluster) = EtcdCluster::start_with_tls(3, &authority) else {
        return;
    };
    let identity = |authority: &Authority| {
        let Identity {
            certificate_pem,
            key_pem,
        } = authority.issue_for_clients(&["lockgate"]);
        (certificate_pem, key_pem)
    };
    let with = |ca: &Authority, identity: Option<(String, String)>| EtcdOptions {
        ca_pem: Some(ca.pem().to_owned()),
        identity_pem: identity,
        ..options(cluster.servers(), "/registry")
    };
    let other = Authority::new("other-ca");
    // Server certificates of another CA, client certificates of another CA, and clients without
    // one.
    for refused in [
        with(&other, Some(identity(&authority))),
        with(&authority, Some(identity(&other))),
        with(&authority, None),
    ] {
        let opened = EtcdStore::open(refused);
        let opened = tokio::time::timeout(DEADLINE, opened).await.unwrap();
        assert!(
            matches!(opened, Err(EtcdError::Unavailable(_))),
            "{opened:?}"
        );
    }
    let store = EtcdStore::open(with(&authority, Some(identity(&authority)))).await;
    let store = store.unwrap();
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/", start).await.unwrap();
    let made = store.create("/a", "1".into(), None).await.unwrap();
    let event = tokio::time::timeout(DEADLINE, watch.next()).await.unwrap();
    assert_eq!(event.unwrap().revision(), made);
    assert_eq!(store.list(List::all("/")).await.unwrap().entries.len(), 1);
}

#[tokio::test]
async fn reaches_a_revision() {
    let Some(cluster) = EtcdCluster::start(1) else {
        return;
    };
    let store = open(&cluster, "/registry").await;
    let now = store.revision().await.unwrap();
    let wanted = Revision(now.0 + 1000);
    store.advance_revision(wanted).await.unwrap();
    assert!(store.create("/a", "1".into(), None).await.unwrap() > wanted);
    // A revision that is already reached stays.
    let now = store.revision().await.unwrap();
    store.advance_revision(wanted).await.unwrap();
    assert_eq!(store.revision().await.unwrap(), now);
}
