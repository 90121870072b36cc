//! The store on slow, full and failing disks, and after a loss of power.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use proptest::prelude::*;
use redb::StorageBackend;

use super::file::DataFile;
use super::*;
use crate::Event;

/// An in-memory disk that simulates a loss of power.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    content: Mutex<Content>,
    syncs: AtomicUsize,
    /// Syncs block while this is set.
    held: Mutex<bool>,
    changed: Condvar,
    waiting: AtomicBool,
    fault: Mutex<Option<Fault>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Sync,
    Full,
}

#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    /// Writes since the last sync.
    writes: Vec<Step>,
}

#[derive(Debug, Clone)]
enum Step {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Step {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(offset, data) => {
                if bytes.len() < offset + data.len() {
                    bytes.resize(offset + data.len(), 0);
                }
                bytes[*offset..offset + data.len()].copy_from_slice(data);
            }
            Self::Length(length) => bytes.resize(*length, 0),
        }
    }
}

impl Disk {
    fn store(&self) -> DiskStore {
        let (file, loaded) = DataFile::on(self.clone()).unwrap();
        DiskStore::start(file, loaded, MemoryOptions::default()).unwrap()
    }

    fn hold(&self) {
        *self.0.held.lock().unwrap() = true;
    }

    /// Waits for a blocked sync. Requires [`hold`](Self::hold).
    fn until_held(&self) {
        let held = self.0.held.lock().unwrap();
        let waiting = |_: &mut bool| !self.0.waiting.load(Ordering::SeqCst);
        drop(self.0.changed.wait_while(held, waiting).unwrap());
    }

    fn release(&self) {
        *self.0.held.lock().unwrap() = false;
        self.0.changed.notify_all();
    }

    fn fail(&self, fault: Option<Fault>) {
        *self.0.fault.lock().unwrap() = fault;
    }

    fn syncs(&self) -> usize {
        self.0.syncs.load(Ordering::SeqCst)
    }

    /// The disk after a loss of power: any subset of unsynced writes may be kept.
    fn after_power_loss(&self, mut kept: impl FnMut() -> bool) -> Self {
        let content = self.0.content.lock().unwrap();
        let mut bytes = content.durable.clone();
        for step in content.writes.iter().filter(|_| kept()) {
            step.apply(&mut bytes);
        }
        let disk = Self::default();
        {
            let mut content = disk.0.content.lock().unwrap();
            content.durable = bytes.clone();
            content.bytes = bytes;
        }
        disk
    }

    fn step(&self, step: Step) -> io::Result<()> {
        if *self.0.fault.lock().unwrap() == Some(Fault::Full) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut content = self.0.content.lock().unwrap();
        step.apply(&mut content.bytes);
        content.writes.push(step);
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.content.lock().unwrap().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).unwrap();
        let content = self.0.content.lock().unwrap();
        let bytes = content.bytes.get(offset..offset + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.step(Step::Length(usize::try_from(length).unwrap()))
    }

    fn sync_data(&self) -> io::Result<()> {
        let held = self.0.held.lock().unwrap();
        if *held {
            self.0.waiting.store(true, Ordering::SeqCst);
            self.0.changed.notify_all();
            drop(self.0.changed.wait_while(held, |held| *held).unwrap());
            self.0.waiting.store(false, Ordering::SeqCst);
        }
        if *self.0.fault.lock().unwrap() == Some(Fault::Sync) {
            return Err(io::Error::other("the disk caught fire"));
        }
        self.0.syncs.fetch_add(1, Ordering::SeqCst);
        let mut content = self.0.content.lock().unwrap();
        content.durable = content.bytes.clone();
        content.writes.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.step(Step::Write(usize::try_from(offset).unwrap(), data.to_vec()))
    }
}

/// Starts writes so that they are queued in this order, and returns their results.
async fn queue<T: Send + 'static>(
    write: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    let task = tokio::spawn(write);
    // On a single thread, a task that was yielded to runs until it waits.
    tokio::task::yield_now().await;
    task
}

#[tokio::test]
async fn nobody_sees_a_write_before_it_is_on_the_disk() {
    let disk = Disk::default();
    let store = disk.store();
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/", start).await.unwrap();
    disk.hold();
    let writer = store.clone();
    let write = queue(async move { writer.create("/a", "1".into(), None).await }).await;
    disk.until_held();
    assert_eq!(
        store.get("/a", ReadAt::Latest).await.unwrap(),
        (None, start)
    );
    assert_eq!(store.revision().await.unwrap(), start);
    assert!(!write.is_finished());
    {
        let waiting = watch.next();
        tokio::pin!(waiting);
        tokio::select! {
            biased;
            event = &mut waiting => panic!("{event:?} was seen"),
            () = tokio::task::yield_now() => {}
        }
    }
    disk.release();
    let revision = write.await.unwrap().unwrap();
    assert_eq!(watch.next().await.unwrap().revision(), revision);
    assert_eq!(store.revision().await.unwrap(), revision);
}

#[tokio::test]
async fn writes_that_wait_share_a_sync_and_are_decided_in_order() {
    let disk = Disk::default();
    let store = disk.store();
    disk.hold();
    let clone = || store.clone();
    let (a, b, c, d, e, f) = (clone(), clone(), clone(), clone(), clone(), clone());
    let first = queue(async move { a.create("/first", "1".into(), None).await }).await;
    disk.until_held();
    let before = disk.syncs();
    // All of these are applied while none is committed to disk.
    let created = queue(async move { b.create("/a", "1".into(), None).await }).await;
    let again = queue(async move { c.create("/a", "2".into(), None).await }).await;
    let updated = queue(async move { d.update("/a", Revision(2), "3".into()).await }).await;
    let stale = queue(async move { e.update("/a", Revision(2), "4".into()).await }).await;
    let deleted = queue(async move { f.delete("/a", Revision(3)).await }).await;
    disk.release();
    assert_eq!(first.await.unwrap(), Ok(Revision(1)));
    assert_eq!(created.await.unwrap(), Ok(Revision(2)));
    let Err(WriteError::AlreadyExists(entry)) = again.await.unwrap() else {
        panic!("created twice")
    };
    assert_eq!(entry.revision, Revision(2));
    assert_eq!(updated.await.unwrap(), Ok(Revision(3)));
    let Err(WriteError::Conflict(entry)) = stale.await.unwrap() else {
        panic!("wrote over a conflict")
    };
    assert_eq!((entry.revision, &entry.value[..]), (Revision(3), &b"3"[..]));
    let (revision, previous) = deleted.await.unwrap().unwrap();
    assert_eq!((revision, &previous.value[..]), (Revision(4), &b"3"[..]));
    // One sync for the first write, one for all others.
    assert_eq!(disk.syncs() - before, 2);
    let (entry, _) = store.get("/a", ReadAt::Exact(Revision(2))).await.unwrap();
    assert_eq!(entry.unwrap().value, "1");
    // The result is the same after reopening.
    drop(store);
    let (_, loaded) = DataFile::on(disk).unwrap();
    let keys: Vec<_> = loaded
        .state
        .keys
        .iter()
        .map(|stored| stored.entry().key.to_string())
        .collect();
    assert_eq!(
        (keys.as_slice(), loaded.state.revision.0),
        (&[String::from("/first")][..], 4)
    );
}

#[tokio::test]
async fn after_a_fault_nothing_is_acknowledged_and_reads_go_on() {
    for (fault, text) in [
        (Fault::Sync, "caught fire"),
        (Fault::Full, "no storage space"),
    ] {
        let disk = Disk::default();
        let store = disk.store();
        let kept = store.create("/kept", "1".into(), None).await.unwrap();
        assert_eq!(store.failure(), None);
        disk.fail(Some(fault));
        let refused = store.create("/lost", "1".into(), None).await;
        let Err(WriteError::Unavailable(Unavailable(why))) = refused else {
            panic!("{fault:?}: {refused:?}")
        };
        assert!(why.contains(text), "{why}");
        // A recovered disk is not trusted, as its contents are unknown.
        disk.fail(None);
        let ttl = Some(Duration::from_millis(1));
        for result in [
            store.create("/lost", "2".into(), ttl).await,
            store.update("/kept", kept, "2".into()).await,
            store
                .delete("/kept", kept)
                .await
                .map(|(revision, _)| revision),
        ] {
            assert!(
                matches!(result, Err(WriteError::Unavailable(_))),
                "{result:?}"
            );
        }
        assert_eq!(store.failure(), Some(store.failed().await));
        let page = store.list(List::all("/")).await.unwrap();
        assert_eq!(page.entries.len(), 1);
        assert_eq!((page.entries[0].revision, page.revision), (kept, kept));
        store.close().await;
        // After reopening, acknowledged writes are there, and writes succeed.
        let disk = disk.after_power_loss(|| true);
        let store = disk.store();
        let (entry, _) = store.get("/kept", ReadAt::Latest).await.unwrap();
        assert_eq!(entry.unwrap().revision, kept);
        let next = store.create("/next", "1".into(), None).await.unwrap();
        assert!(next > kept);
    }
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let store = Disk::default().store();
    store.close().await;
    let refused = store.create("/a", "1".into(), None).await;
    assert!(
        matches!(refused, Err(WriteError::Unavailable(_))),
        "{refused:?}"
    );
    assert!(store.compact(Revision::START).await.is_err());
    store.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// For any subset of unsynced writes on the disk, all acknowledged writes are there, and
    /// unacknowledged batches are there completely or not at all.
    #[test]
    fn a_loss_of_power_loses_nothing_acknowledged(
        steps in prop::collection::vec((0_u8..20, 0_usize..6000), 1..60),
        keeps in prop::collection::vec(any::<bool>(), 64),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let disk = Disk::default();
            let store = disk.store();
            let mut acknowledged = BTreeMap::new();
            for (key, size) in steps {
                let key = format!("/k/{key}");
                let value = Bytes::from(vec![key.as_bytes()[3]; size]);
                match acknowledged.get(&key).copied() {
                    None => {
                        let revision = store.create(&key, value, None).await.unwrap();
                        acknowledged.insert(key, (revision, size));
                    }
                    Some((revision, _)) if size % 5 == 0 => {
                        store.delete(&key, revision).await.unwrap();
                        acknowledged.remove(&key);
                    }
                    Some((revision, _)) => {
                        let revision = store.update(&key, revision, value).await.unwrap();
                        acknowledged.insert(key, (revision, size));
                    }
                }
            }
            let revision = store.revision().await.unwrap();
            // The power fails during two further writes.
            disk.hold();
            let (a, b) = (store.clone(), store.clone());
            let one = queue(async move { a.create("/one", "1".into(), None).await }).await;
            disk.until_held();
            let two = queue(async move { b.create("/two", "2".into(), None).await }).await;
            let mut keeps = keeps.into_iter().cycle();
            let lost = disk.after_power_loss(|| keeps.next().unwrap());
            disk.release();
            one.await.unwrap().unwrap();
            two.await.unwrap().unwrap();

            let store = lost.store();
            let page = store.list(List::all("/k/")).await.unwrap();
            let found: BTreeMap<_, _> = page
                .entries
                .iter()
                .map(|entry| (entry.key.to_string(), (entry.revision, entry.value.len())))
                .collect();
            assert_eq!(found, acknowledged);
            let (one, _) = store.get("/one", ReadAt::Latest).await.unwrap();
            assert_eq!(page.revision.0, revision.0 + u64::from(one.is_some()));
            // The history leads there, from the first revision.
            let mut watch = store.watch("/", Revision::START).await.unwrap();
            let mut replayed = BTreeMap::new();
            while watch.progress() < page.revision {
                match watch.next().await.unwrap() {
                    Event::Put { entry, .. } => replayed.insert(entry.key.to_string(), entry.revision),
                    Event::Delete { previous, .. } => replayed.remove(&*previous.key),
                };
            }
            let all = store.list(List::all("/")).await.unwrap();
            let want = all.entries.iter().map(|entry| (entry.key.to_string(), entry.revision));
            assert_eq!(replayed, want.collect());
        });
    }
}
