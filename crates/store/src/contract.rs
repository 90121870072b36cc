//! Contract tests: one function per guarantee, for any backend.
//!
//! A backend's test calls [`run_all`] with a function that creates an empty store. Tests never sleep: they wait for
//! events, with a deadline so that a hang is a failure.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "these are tests; a failure is a panic with a location"
)]

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::history::Recorded;
use crate::{
    Bloom, Event, Filter, List, MemoryOptions, ReadAt, ReadError, Revision, Store, Watch,
    WriteError,
};

/// Much longer than any step takes.
const DEADLINE: Duration = Duration::from_secs(20);

/// Runs all contract tests, each with a separate store, and checks the recorded history of the clients.
pub async fn run_all<S: Store, F: Future<Output = S>>(empty: impl Fn() -> F) {
    macro_rules! run {
        ($($promise:ident),* $(,)?) => {$({
            let store = Recorded::new(empty().await);
            $promise(store.clone()).await;
            let violations = store.violations();
            assert!(violations.is_empty(), "{}: {violations:?}", stringify!($promise));
        })*};
    }
    run![
        revisions_grow_across_keys,
        creates_once,
        updates_and_deletes_compare,
        writes_nothing_for_the_same_bytes,
        one_of_many_wins,
        lists_pages_of_one_state,
        lists_only_the_prefix,
        reads_earlier_states,
        every_earlier_state_is_whole,
        refuses_states_to_come,
        watches_every_change_in_order,
        quiet_watches_keep_up,
        watch_after_a_list_misses_nothing,
        a_dropped_wait_loses_nothing,
        compaction_is_never_partial,
        replaying_a_watch_gives_the_list,
        mixed_load_has_one_order,
    ];
}

/// The options of the store for [`lists_by_bloom_filters`].
#[must_use]
pub fn bloom_options() -> MemoryOptions {
    MemoryOptions {
        bloom: words,
        compressed_prefixes: &["/alike/"],
        ..MemoryOptions::default()
    }
}

/// The Bloom filter of the words of a value.
fn words(value: &[u8]) -> Bloom {
    let mut bloom = Bloom::EMPTY;
    for word in value.split(|byte| *byte == b' ') {
        bloom.insert(&word);
    }
    bloom
}

/// A list with a Bloom filter misses no matching entry, across pages, and counts skipped entries as read.
pub async fn lists_by_bloom_filters(store: impl Store) {
    for folder in ["/alike/x", "/whole/x"] {
        for number in 0..60 {
            let key = format!("{folder}/{number:02}");
            // Numbers collide with few others, and the parity is not part of the shared template.
            let value = format!(
                "{} n{} \"{number}\"",
                ["even", "odd"][number % 2],
                number % 6
            );
            store.create(&key, value.into(), None).await.unwrap();
        }
    }
    let whole = store.list(List::all("/")).await.unwrap();
    store
        .create("/alike/x/000", bytes("odd n1"), None)
        .await
        .unwrap();
    for prefix in ["/alike/x/", "/whole/x/", "/", "/none/"] {
        let under = || whole.entries.iter().filter(|it| it.key.starts_with(prefix));
        for wanted in ["odd", "even n2", "n1 odd", "nobody", "n5 n5", "\"7\""] {
            let bloom = words(wanted.as_bytes());
            for limit in [None, Some(1), Some(7), Some(60)] {
                let mut found = Vec::new();
                let mut after: Option<String> = None;
                loop {
                    let list = List {
                        at: ReadAt::Exact(whole.revision),
                        after: after.as_deref(),
                        limit,
                        bloom,
                        ..List::all(prefix)
                    };
                    let page = store.list(list).await.unwrap();
                    assert!(limit.is_none_or(|limit| page.entries.len() <= limit));
                    let last = page.entries.last().map(|last| last.key.to_string());
                    let later =
                        under().filter(|it| last.as_deref().is_none_or(|last| &*it.key > last));
                    match limit {
                        Some(limit) if page.entries.len() == limit => {
                            assert_eq!(page.remaining, later.count(), "{prefix} {wanted} {limit}");
                        }
                        _ => assert_eq!(page.remaining, 0, "all is read when a page is not full"),
                    }
                    found.extend(page.entries);
                    if page.remaining == 0 {
                        break;
                    }
                    after = last;
                }
                let has = |entry: &&Arc<crate::Entry>| words(&entry.value).may_contain(bloom);
                let missed: Vec<_> = under()
                    .filter(has)
                    .filter(|it| !found.contains(it))
                    .collect();
                assert!(missed.is_empty(), "{prefix} {wanted} {limit:?}: {missed:?}");
                assert!(found.is_sorted_by(|one, other| one.key < other.key));
            }
        }
    }
}

async fn next(watch: &mut dyn Watch) -> Event {
    match tokio::time::timeout(DEADLINE, watch.next()).await {
        Ok(event) => event.unwrap(),
        Err(_) => panic!("no event before the deadline"),
    }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Every change has a greater revision than all previous ones, and entries keep theirs.
pub async fn revisions_grow_across_keys(store: impl Store) {
    let start = store.revision().await.unwrap();
    let a = store.create("/a", bytes("1"), None).await.unwrap();
    let b = store.create("/b", bytes("1"), None).await.unwrap();
    let c = store.update("/a", a, bytes("2")).await.unwrap();
    assert!(start < a && a < b && b < c);
    let (entry, revision) = store.get("/a", ReadAt::Latest).await.unwrap();
    let entry = entry.unwrap();
    assert_eq!((entry.created, entry.revision, revision), (a, c, c));
    let (deleted, _) = store.delete("/b", b).await.unwrap();
    assert!(deleted > c);
    assert_eq!(store.revision().await.unwrap(), deleted);
}

/// A key can be created once; later attempts return the existing entry. After a deletion it can be created again.
pub async fn creates_once(store: impl Store) {
    let first = store.create("/a", bytes("1"), None).await.unwrap();
    let Err(WriteError::AlreadyExists(current)) = store.create("/a", bytes("2"), None).await else {
        panic!("created twice");
    };
    assert_eq!((current.value, current.revision), (bytes("1"), first));
    store.delete("/a", first).await.unwrap();
    let again = store.create("/a", bytes("3"), None).await.unwrap();
    let (entry, _) = store.get("/a", ReadAt::Latest).await.unwrap();
    assert_eq!(entry.unwrap().created, again);
}

/// Updates and deletes are conditional on the expected revision.
pub async fn updates_and_deletes_compare(store: impl Store) {
    let first = store.create("/a", bytes("1"), None).await.unwrap();
    let second = store.update("/a", first, bytes("2")).await.unwrap();
    for result in [
        store.update("/a", first, bytes("3")).await.map(|_| ()),
        store.delete("/a", first).await.map(|_| ()),
    ] {
        let Err(WriteError::Conflict(current)) = result else {
            panic!("wrote over a conflict")
        };
        assert_eq!((current.value, current.revision), (bytes("2"), second));
    }
    for result in [
        store.update("/none", first, bytes("3")).await.map(|_| ()),
        store.delete("/none", first).await.map(|_| ()),
    ] {
        assert_eq!(result, Err(WriteError::NotFound));
    }
    let (_, previous) = store.delete("/a", second).await.unwrap();
    assert_eq!(previous.value, bytes("2"));
    assert_eq!(store.get("/a", ReadAt::Latest).await.unwrap().0, None);
}

/// An update with the same bytes is a no-op.
pub async fn writes_nothing_for_the_same_bytes(store: impl Store) {
    let first = store.create("/a", bytes("1"), None).await.unwrap();
    assert_eq!(store.update("/a", first, bytes("1")).await.unwrap(), first);
    assert_eq!(store.revision().await.unwrap(), first);
}

/// Of concurrent writers with the same expected revision, exactly one succeeds; with retries all succeed, and no update
/// is lost.
pub async fn one_of_many_wins(store: impl Store + Clone) {
    const WRITERS: usize = 8;
    store.create("/n", bytes("0"), None).await.unwrap();
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                loop {
                    let (entry, _) = store.get("/n", ReadAt::Latest).await.unwrap();
                    let entry = entry.unwrap();
                    let count: u32 = std::str::from_utf8(&entry.value).unwrap().parse().unwrap();
                    let value = bytes(&(count + 1).to_string());
                    match store.update("/n", entry.revision, value).await {
                        Ok(_) => return,
                        Err(WriteError::Conflict(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let (entry, _) = store.get("/n", ReadAt::Latest).await.unwrap();
    assert_eq!(entry.unwrap().value, bytes(&WRITERS.to_string()));
}

/// All pages of a list are from one revision, despite concurrent writes.
pub async fn lists_pages_of_one_state(store: impl Store) {
    for key in ["/p/a", "/p/b", "/p/c", "/p/d", "/p/e"] {
        store.create(key, bytes(key), None).await.unwrap();
    }
    let first = store
        .list(List {
            limit: Some(2),
            ..List::all("/p/")
        })
        .await
        .unwrap();
    assert_eq!(keys(&first.entries), ["/p/a", "/p/b"]);
    assert_eq!(first.remaining, 3);
    store.create("/p/bb", bytes("new"), None).await.unwrap();
    let gone = store.get("/p/d", ReadAt::Latest).await.unwrap().0.unwrap();
    store.delete("/p/d", gone.revision).await.unwrap();
    let at = ReadAt::Exact(first.revision);
    let rest = store
        .list(List {
            at,
            after: Some("/p/b"),
            ..List::all("/p/")
        })
        .await
        .unwrap();
    assert_eq!(keys(&rest.entries), ["/p/c", "/p/d", "/p/e"]);
    assert_eq!((rest.remaining, rest.revision), (0, first.revision));
    // The remaining count is available after any key, not only at page ends.
    for (after, limit, wanted, remaining) in [
        ("/p/b", 2, &["/p/c", "/p/d"][..], 1),
        ("/p/d", 2, &["/p/e"], 0),
        ("/p/b", 1, &["/p/c"], 2),
        ("/p/c", 1, &["/p/d"], 1),
        ("/p/a", 1, &["/p/b"], 3),
        ("/", 1, &["/p/a"], 4),
    ] {
        let page = store
            .list(List {
                at,
                after: Some(after),
                limit: Some(limit),
                ..List::all("/p/")
            })
            .await
            .unwrap();
        assert_eq!(keys(&page.entries), wanted, "after {after}");
        assert_eq!(page.remaining, remaining, "after {after}");
    }
    let now = store.list(List::all("/p/")).await.unwrap();
    assert_eq!(
        keys(&now.entries),
        ["/p/a", "/p/b", "/p/bb", "/p/c", "/p/e"]
    );
}

fn keys(entries: &[Arc<crate::Entry>]) -> Vec<&str> {
    entries.iter().map(|entry| &*entry.key).collect()
}

/// Prefixes and ordering are bytewise.
pub async fn lists_only_the_prefix(store: impl Store) {
    for key in ["/a", "/a/x", "/a/y", "/ab", "/a0", "/b"] {
        store.create(key, bytes("v"), None).await.unwrap();
    }
    let page = store.list(List::all("/a/")).await.unwrap();
    assert_eq!(keys(&page.entries), ["/a/x", "/a/y"]);
    let page = store
        .list(List {
            after: Some("/a/x"),
            ..List::all("/a/")
        })
        .await
        .unwrap();
    assert_eq!(keys(&page.entries), ["/a/y"]);
    let page = store
        .list(List {
            after: Some("/"),
            ..List::all("/a/")
        })
        .await
        .unwrap();
    assert_eq!(keys(&page.entries), ["/a/x", "/a/y"]);
    let page = store
        .list(List {
            after: Some("/b"),
            ..List::all("/a/")
        })
        .await
        .unwrap();
    assert_eq!(keys(&page.entries), [""; 0]);
    assert_eq!(store.list(List::all("/none")).await.unwrap().entries, []);
    let page = store
        .list(List {
            limit: Some(0),
            ..List::all("/a/")
        })
        .await
        .unwrap();
    assert_eq!((page.entries.len(), page.remaining), (0, 2));
}

/// Any state in the history can be read.
pub async fn reads_earlier_states(store: impl Store) {
    let one = store.create("/a", bytes("1"), None).await.unwrap();
    let two = store.update("/a", one, bytes("2")).await.unwrap();
    let (three, _) = store.delete("/a", two).await.unwrap();
    for (at, want) in [(one, Some("1")), (two, Some("2")), (three, None)] {
        let (entry, revision) = store.get("/a", ReadAt::Exact(at)).await.unwrap();
        assert_eq!(entry.map(|entry| entry.value), want.map(bytes), "{at}");
        assert_eq!(revision, at);
        let (_, revision) = store.get("/a", ReadAt::NotOlderThan(at)).await.unwrap();
        assert!(revision >= at);
    }
}

/// Listing an earlier revision returns the same entries, regardless of the number of later changes.
pub async fn every_earlier_state_is_whole(store: impl Store) {
    const CHANGES: usize = 150;
    let mut states = vec![store.list(List::all("/s/")).await.unwrap()];
    for step in 0..CHANGES {
        let key = format!("/s/{}", step * 5 % 7);
        let value = bytes(&step.to_string());
        match store.get(&key, ReadAt::Latest).await.unwrap().0 {
            None => {
                store.create(&key, value, None).await.unwrap();
            }
            Some(entry) if step % 3 == 0 => {
                store.delete(&key, entry.revision).await.unwrap();
            }
            Some(entry) => {
                store.update(&key, entry.revision, value).await.unwrap();
            }
        }
        states.push(store.list(List::all("/s/")).await.unwrap());
    }
    for state in states {
        let at = ReadAt::Exact(state.revision);
        let again = store
            .list(List {
                at,
                ..List::all("/s/")
            })
            .await
            .unwrap();
        assert_eq!(again.entries, state.entries, "{}", state.revision);
    }
}

/// Reading a future revision is an error, not an old state.
pub async fn refuses_states_to_come(store: impl Store) {
    let now = store.create("/a", bytes("1"), None).await.unwrap();
    let later = Revision(now.0 + 1000);
    for at in [ReadAt::Exact(later), ReadAt::NotOlderThan(later)] {
        let result = store.get("/a", at).await;
        assert!(
            matches!(result, Err(ReadError::Future { .. })),
            "{result:?}"
        );
        let result = store
            .list(List {
                at,
                ..List::all("/")
            })
            .await;
        assert!(
            matches!(result, Err(ReadError::Future { .. })),
            "{result:?}"
        );
    }
}

/// A watch returns each change of its prefix exactly once, in order, with the previous entry.
pub async fn watches_every_change_in_order(store: impl Store) {
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/w/", start).await.unwrap();
    let one = store.create("/w/a", bytes("1"), None).await.unwrap();
    store.create("/other", bytes("x"), None).await.unwrap();
    let two = store.update("/w/a", one, bytes("2")).await.unwrap();
    let (three, _) = store.delete("/w/a", two).await.unwrap();

    let Event::Put {
        entry,
        previous: None,
    } = next(&mut *watch).await
    else {
        panic!("create")
    };
    assert_eq!((entry.value, entry.revision), (bytes("1"), one));
    let Event::Put {
        entry,
        previous: Some(previous),
    } = next(&mut *watch).await
    else {
        panic!("update")
    };
    assert_eq!(
        (entry.value, entry.revision, previous.value),
        (bytes("2"), two, bytes("1"))
    );
    let Event::Delete { revision, previous } = next(&mut *watch).await else {
        panic!("delete")
    };
    assert_eq!((revision, previous.value), (three, bytes("2")));
    assert!(watch.progress() >= three);

    // A watch from a later revision returns the rest.
    let mut later = store.watch("/w/", one).await.unwrap();
    assert_eq!(next(&mut *later).await.revision(), two);
}

/// A watch without events does not expire, regardless of other writes, and its progress advances.
pub async fn quiet_watches_keep_up(store: impl Store) {
    let start = store.revision().await.unwrap();
    let mut quiet = store.watch("/q/", start).await.unwrap();
    let filter: Filter = Arc::new(|event: &Event| event.key().ends_with("wanted"));
    let mut filtered = store.watch_if("/n/", start, Some(filter)).await.unwrap();
    let mut last = start;
    for index in 0..100 {
        let key = format!("/n/{index}");
        last = store.create(&key, bytes("x"), None).await.unwrap();
    }
    store.compact(last).await.unwrap();
    assert!(quiet.progress() >= last);
    assert!(filtered.progress() >= last);
    let wanted = store.create("/n/wanted", bytes("1"), None).await.unwrap();
    assert!(filtered.progress() < wanted, "it was not returned yet");
    let key = store.create("/q/a", bytes("1"), None).await.unwrap();
    store.create("/n/other", bytes("x"), None).await.unwrap();
    assert_eq!(next(&mut *filtered).await.revision(), wanted);
    assert_eq!(next(&mut *quiet).await.revision(), key);
    // An event that was compacted before it was returned expires the watch.
    store.create("/n/2-wanted", bytes("1"), None).await.unwrap();
    let last = store.create("/n/z", bytes("x"), None).await.unwrap();
    store.compact(last).await.unwrap();
    let cut_off = filtered.next().await;
    assert!(
        matches!(cut_off, Err(ReadError::Compacted(_))),
        "{cut_off:?}"
    );
}

/// A list, followed by a watch from the list's revision, misses nothing.
pub async fn watch_after_a_list_misses_nothing(store: impl Store + Clone) {
    const KEYS: usize = 200;
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for index in 0..KEYS {
                store
                    .create(&format!("/k/{index:04}"), bytes("v"), None)
                    .await
                    .unwrap();
                tokio::task::yield_now().await;
            }
        })
    };
    tokio::task::yield_now().await;
    let page = store.list(List::all("/k/")).await.unwrap();
    let mut seen: Vec<String> = page
        .entries
        .iter()
        .map(|entry| entry.key.to_string())
        .collect();
    let mut watch = store.watch("/k/", page.revision).await.unwrap();
    while seen.len() < KEYS {
        seen.push(next(&mut *watch).await.key().to_string());
    }
    writer.await.unwrap();
    let want: Vec<String> = (0..KEYS).map(|index| format!("/k/{index:04}")).collect();
    assert_eq!(seen, want);
}

/// Cancelling a wait for an event does not lose it.
pub async fn a_dropped_wait_loses_nothing(store: impl Store) {
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/d/", start).await.unwrap();
    {
        let waiting = watch.next();
        tokio::pin!(waiting);
        tokio::select! {
            biased;
            event = &mut waiting => panic!("{event:?} out of nothing"),
            () = tokio::task::yield_now() => {}
        }
    }
    let revision = store.create("/d/a", bytes("1"), None).await.unwrap();
    assert_eq!(next(&mut *watch).await.revision(), revision);
}

/// Reading compacted history is an error; the rest is complete.
pub async fn compaction_is_never_partial(store: impl Store) {
    let one = store.create("/c/a", bytes("1"), None).await.unwrap();
    let two = store.update("/c/a", one, bytes("2")).await.unwrap();
    let three = store.update("/c/a", two, bytes("3")).await.unwrap();
    store.compact(two).await.unwrap();
    let refused = store.get("/c/a", ReadAt::Exact(one)).await;
    assert!(
        matches!(refused, Err(ReadError::Compacted(_))),
        "{refused:?}"
    );
    let Err(ReadError::Compacted(compacted)) = store.watch("/c/", one).await.map(|_| ()) else {
        panic!("watched what is gone");
    };
    assert!(compacted.oldest > one && compacted.oldest <= three);
    let (entry, _) = store.get("/c/a", ReadAt::Exact(two)).await.unwrap();
    assert_eq!(entry.unwrap().value, bytes("2"));
    let mut watch = store.watch("/c/", two).await.unwrap();
    assert_eq!(next(&mut *watch).await.revision(), three);
    let future = store.compact(Revision(three.0 + 1000)).await;
    assert!(
        matches!(future, Err(ReadError::Future { .. })),
        "{future:?}"
    );
}

/// Replaying the events of a watch results in the same entries as a list.
pub async fn replaying_a_watch_gives_the_list(store: impl Store + Clone) {
    const CHANGES: usize = 300;
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/r/", start).await.unwrap();
    let writers: Vec<_> = (0..4_usize)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for step in 0..CHANGES {
                    let key = format!("/r/{}", (step * 7 + writer * 3) % 11);
                    let value = bytes(&format!("{writer}-{step}"));
                    match store.get(&key, ReadAt::Latest).await.unwrap().0 {
                        None => drop(store.create(&key, value, None).await),
                        Some(entry) if step % 5 == 0 => {
                            drop(store.delete(&key, entry.revision).await)
                        }
                        Some(entry) => drop(store.update(&key, entry.revision, value).await),
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let page = store.list(List::all("/r/")).await.unwrap();
    let mut replayed = BTreeMap::new();
    let mut last = start;
    while last < page.revision {
        let event = next(&mut *watch).await;
        assert!(event.revision() > last, "out of order");
        last = event.revision();
        match event {
            Event::Put { entry, previous } => {
                assert_eq!(replayed.insert(entry.key.clone(), entry), previous);
            }
            Event::Delete { previous, .. } => {
                assert_eq!(replayed.remove(&previous.key), Some(previous));
            }
        }
    }
    let replayed: Vec<_> = replayed.into_values().map(Arc::new).collect();
    assert_eq!(replayed, page.entries);
}

/// Clients that concurrently write, read, list and watch, with resumed watches, observe one order.
pub async fn mixed_load_has_one_order<S: Store>(store: Recorded<S>) {
    mixed_load(&store, 4, 60).await;
}

/// Runs writers, readers and a resuming watcher, each for a number of steps. Errors of the store are ignored: the
/// history contains the operations with unknown outcome.
pub async fn mixed_load<S: Store>(store: &Recorded<S>, clients: usize, steps: usize) {
    let clients = (0..clients).map(|client| {
        let store = store.clone();
        tokio::spawn(async move {
            for step in 0..steps {
                client_step(&store, client, step).await;
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    let mut position = Revision::START;
    let mut resumed = 0;
    let is_over = || clients.iter().all(tokio::task::JoinHandle::is_finished);
    while !is_over() {
        let Ok(mut watch) = store.watch("/m/", position).await else {
            // Compacted or unavailable: start with a list.
            if let Ok(page) = store.list(List::all("/m/")).await {
                position = page.revision;
            }
            tokio::task::yield_now().await;
            continue;
        };
        resumed += 1;
        for _ in 0..(3 + resumed % 7) {
            match tokio::time::timeout(Duration::from_millis(200), watch.next()).await {
                Ok(Ok(event)) => position = event.revision(),
                Ok(Err(_)) => break,
                Err(_) => {
                    position = position.max(watch.progress());
                    break;
                }
            }
        }
    }
    for client in clients {
        client.await.unwrap();
    }
}

async fn client_step<S: Store>(store: &Recorded<S>, client: usize, step: usize) {
    let key = format!("/m/{}", (step * 7 + client * 3) % 13);
    let value = bytes(&format!("{client}-{step}"));
    let Ok((entry, _)) = store.get(&key, ReadAt::Latest).await else {
        return;
    };
    match entry {
        None => drop(store.create(&key, value, None).await),
        Some(entry) if step.is_multiple_of(5) => drop(store.delete(&key, entry.revision).await),
        Some(entry) if step.is_multiple_of(11) => {
            drop(store.update(&key, entry.revision, entry.value).await);
        }
        Some(entry) => drop(store.update(&key, entry.revision, value).await),
    }
    if step % 4 == client % 4 {
        let first = List {
            limit: Some(3),
            ..List::all("/m/")
        };
        if let Ok(page) = store.list(first).await
            && let Some(last) = page.entries.last()
        {
            let rest = List {
                at: ReadAt::Exact(page.revision),
                after: Some(&last.key),
                ..List::all("/m/")
            };
            drop(store.list(rest).await);
        }
    }
    tokio::task::yield_now().await;
}
