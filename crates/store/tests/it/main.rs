//! The backends, tested against the contract and their additional guarantees.

mod disk;
mod memory_cost;
mod on_etcd;

use std::sync::Arc;
use std::time::Duration;

use lockgate_store::{
    Bloom, Entry, Event, List, MemoryOptions, MemoryStore, ReadAt, ReadError, Revision, Store,
    contract,
};

#[tokio::test]
async fn memory_keeps_the_contract_on_one_thread() {
    contract::run_all(async || MemoryStore::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_keeps_the_contract_on_many_threads() {
    contract::run_all(async || MemoryStore::new()).await;
}

#[tokio::test]
async fn memory_lists_by_bloom_filters() {
    let store = MemoryStore::with_options(contract::bloom_options());
    contract::lists_by_bloom_filters(store.clone()).await;
    let mut bloom = Bloom::EMPTY;
    bloom.insert(&&b"odd"[..]);
    let list = List {
        bloom,
        ..List::all("/")
    };
    let page = store.list(list).await.unwrap();
    let odd = |entry: &&Arc<Entry>| entry.value.starts_with(b"odd");
    let others = page.entries.len() - page.entries.iter().filter(odd).count();
    assert!(others <= 2, "{others} are read for nothing");
}

#[tokio::test(start_paused = true)]
async fn entries_expire_when_their_time_is_over() {
    let store = MemoryStore::new();
    let mut watch = store.watch("/", Revision::START).await.unwrap();
    let long = Some(Duration::from_secs(60));
    let short = Some(Duration::from_secs(5));
    let kept = store.create("/long", "1".into(), long).await.unwrap();
    store.create("/short", "1".into(), short).await.unwrap();
    // Created again without a time to live: the first expiry does not apply.
    let renewed = store.create("/renewed", "1".into(), short).await.unwrap();
    store.delete("/renewed", renewed).await.unwrap();
    store.create("/renewed", "2".into(), None).await.unwrap();
    store.update("/long", kept, "2".into()).await.unwrap();

    let mut deleted = Vec::new();
    while deleted.len() < 3 {
        if let Event::Delete { previous, .. } = watch.next().await.unwrap() {
            deleted.push(previous.key.to_string());
        }
    }
    assert_eq!(deleted, ["/renewed", "/short", "/long"]);
    let page = store.list(List::all("/")).await.unwrap();
    assert_eq!(page.entries.len(), 1);
    assert_eq!(page.entries[0].value, "2");
}

#[tokio::test]
async fn history_is_bounded_by_number() {
    let options = MemoryOptions {
        max_events: 10,
        min_age: Duration::from_secs(3600),
        ..MemoryOptions::default()
    };
    let store = MemoryStore::with_options(options);
    let mut slow = store.watch("/", Revision::START).await.unwrap();
    let mut revision = store.create("/a", "0".into(), None).await.unwrap();
    let first = revision;
    for count in 1..50 {
        revision = store
            .update("/a", revision, count.to_string().into())
            .await
            .unwrap();
    }
    // The slow watcher expires, and never blocked writers.
    assert!(matches!(slow.next().await, Err(ReadError::Compacted(_))));
    let old = store.get("/a", ReadAt::Exact(first)).await;
    assert!(matches!(old, Err(ReadError::Compacted(_))), "{old:?}");
    let recent = Revision(revision.0 - 10);
    assert_eq!(
        store
            .get("/a", ReadAt::Exact(recent))
            .await
            .unwrap()
            .0
            .unwrap()
            .value,
        "39"
    );
}

#[tokio::test(start_paused = true)]
async fn history_is_bounded_by_age() {
    let options = MemoryOptions {
        max_events: 1000,
        min_age: Duration::from_secs(75),
        ..MemoryOptions::default()
    };
    let store = MemoryStore::with_options(options);
    let first = store.create("/a", "0".into(), None).await.unwrap();
    let second = store.update("/a", first, "1".into()).await.unwrap();
    assert!(store.watch("/", first).await.is_ok());
    tokio::time::advance(Duration::from_secs(76)).await;
    // Writes drop history beyond the minimum age.
    let third = store.update("/a", second, "2".into()).await.unwrap();
    assert!(store.watch("/", first).await.is_err());
    assert!(store.watch("/", third).await.is_ok());
}

#[tokio::test]
async fn dropping_the_store_ends_its_clock() {
    let store = MemoryStore::new();
    let ttl = Some(Duration::from_secs(3600));
    store.create("/a", "1".into(), ttl).await.unwrap();
    drop(store);
    // The runtime shuts down without waiting an hour for a task.
}
