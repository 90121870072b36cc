//! The store on disk: durability, and rejected data files.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockgate_store::{
    Bloom, DiskStore, Entry, Event, List, MemoryOptions, MemoryStore, OpenError, ReadAt, ReadError,
    RestoreError, RestoreOptions, Revision, Snapshot, SnapshotReader, Store, contract,
};
use proptest::prelude::*;
use tempfile::TempDir;

/// Much longer than any step takes.
const DEADLINE: Duration = Duration::from_secs(20);

/// Creates a new directory each time, all removed on drop.
struct Folders(TempDir, AtomicUsize);

impl Folders {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap(), AtomicUsize::new(0))
    }

    fn next(&self) -> PathBuf {
        let number = self.1.fetch_add(1, Ordering::Relaxed);
        self.0.path().join(number.to_string())
    }
}

#[tokio::test]
async fn keeps_the_contract_on_one_thread() {
    let folders = Folders::new();
    contract::run_all(async || DiskStore::open(&folders.next()).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keeps_the_contract_on_many_threads() {
    let folders = Folders::new();
    contract::run_all(async || DiskStore::open(&folders.next()).unwrap()).await;
}

#[tokio::test]
async fn lists_by_bloom_filters() {
    let folder = tempfile::tempdir().unwrap();
    let open = || DiskStore::open_with(folder.path(), contract::bloom_options()).unwrap();
    contract::lists_by_bloom_filters(open()).await;
    // Filters are not persisted but recomputed.
    let store = open();
    let mut bloom = Bloom::EMPTY;
    bloom.insert(&&b"odd"[..]);
    let list = List {
        bloom,
        ..List::all("/whole/")
    };
    let found = store.list(list).await.unwrap().entries.len();
    assert!((30..33).contains(&found), "{found} of 60 are listed");
}

async fn everything(store: &impl Store) -> (Vec<Arc<Entry>>, Revision) {
    let page = store.list(List::all("")).await.unwrap();
    (page.entries, page.revision)
}

#[tokio::test]
async fn entries_and_revisions_outlive_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = DiskStore::open(folder.path()).unwrap();
    let one = store.create("/a", "1".into(), None).await.unwrap();
    store.update("/a", one, "2".into()).await.unwrap();
    let gone = store.create("/gone", "1".into(), None).await.unwrap();
    store.delete("/gone", gone).await.unwrap();
    let before = everything(&store).await;
    store.close().await;

    let store = DiskStore::open(folder.path()).unwrap();
    let after = everything(&store).await;
    assert_eq!(after, before);
    // A watch can be resumed, and earlier states can be read.
    let revision = after.1;
    let (earlier, _) = store.get("/a", ReadAt::Exact(one)).await.unwrap();
    assert_eq!(earlier.unwrap().value, "1");
    let mut watch = store.watch("/", one).await.unwrap();
    for missed in one.0 + 1..=revision.0 {
        assert_eq!(watch.next().await.unwrap().revision(), Revision(missed));
    }
    let next = store.create("/b", "1".into(), None).await.unwrap();
    assert!(next > revision);
    let event = tokio::time::timeout(DEADLINE, watch.next()).await.unwrap();
    assert_eq!(event.unwrap().revision(), next);
}

/// All changes in the history.
async fn changes(store: &impl Store, after: Revision) -> Vec<Event> {
    let newest = store.revision().await.unwrap();
    let mut watch = store.watch("", after).await.unwrap();
    let mut changes = Vec::new();
    while watch.progress() < newest {
        let event = tokio::time::timeout(DEADLINE, watch.next()).await.unwrap();
        changes.push(event.unwrap());
    }
    changes
}

/// The rows of the history table.
fn rows(folder: &Path) -> u64 {
    use redb::{ReadableDatabase as _, ReadableTableMetadata as _};
    let database = redb::Database::open(folder.join("store.redb")).unwrap();
    let table = redb::TableDefinition::<u64, &[u8]>::new("history");
    let transaction = database.begin_read().unwrap();
    transaction.open_table(table).unwrap().len().unwrap()
}

#[tokio::test]
async fn history_on_disk_is_as_short_as_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let options = MemoryOptions {
        max_events: 3,
        ..MemoryOptions::default()
    };
    let open = || DiskStore::open_with(folder.path(), options).unwrap();
    let store = open();
    for number in 0..600 {
        let key = format!("/{number}");
        store.create(&key, "1".into(), None).await.unwrap();
    }
    let want = changes(&store, Revision(597)).await;
    store.close().await;
    assert_eq!(rows(folder.path()), 3);

    let store = open();
    assert_eq!(changes(&store, Revision(597)).await, want);
    let gone = store.watch("/", Revision(596)).await.map(|_| ());
    assert!(matches!(gone, Err(ReadError::Compacted(_))), "{gone:?}");
    // Compacted history is removed by the next write.
    store.compact(Revision(599)).await.unwrap();
    store.create("/next", "1".into(), None).await.unwrap();
    store.close().await;
    assert_eq!(rows(folder.path()), 2);
    // With a smaller limit, history is trimmed.
    let less = MemoryOptions {
        max_events: 1,
        ..options
    };
    let store = DiskStore::open_with(folder.path(), less).unwrap();
    assert_eq!(changes(&store, Revision(600)).await.len(), 1);
    assert!(store.watch("/", Revision(599)).await.is_err());
}

#[tokio::test]
async fn the_first_format_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = DiskStore::open(folder.path()).unwrap();
    let kept = store.create("/a", "1".into(), None).await.unwrap();
    store.close().await;
    {
        let database = redb::Database::open(folder.path().join("store.redb")).unwrap();
        let transaction = database.begin_write().unwrap();
        let table = redb::TableDefinition::<&str, &[u8]>::new("store");
        transaction
            .open_table(table)
            .unwrap()
            .insert("format", 1_u64.to_le_bytes().as_slice())
            .unwrap();
        let history = redb::TableDefinition::<u64, &[u8]>::new("history");
        transaction.delete_table(history).unwrap();
        transaction.commit().unwrap();
    }
    for _ in 0..2 {
        let store = DiskStore::open(folder.path()).unwrap();
        assert_eq!(everything(&store).await.0[0].revision, kept);
        assert!(store.watch("/", Revision::START).await.is_err());
        assert_eq!(changes(&store, kept).await, []);
    }
    let store = DiskStore::open(folder.path()).unwrap();
    store.create("/b", "1".into(), None).await.unwrap();
    let want = changes(&store, kept).await;
    drop(store);
    let store = DiskStore::open(folder.path()).unwrap();
    assert_eq!(changes(&store, kept).await, want);
    assert_eq!(want.len(), 1);
}

/// Watches would miss a change that is missing in the history.
#[tokio::test]
async fn refuses_a_history_with_a_gap() {
    for gap in [1_u64, 2, 3] {
        let folder = tempfile::tempdir().unwrap();
        let store = DiskStore::open(folder.path()).unwrap();
        for key in ["/a", "/b", "/c"] {
            store.create(key, "1".into(), None).await.unwrap();
        }
        store.close().await;
        {
            let database = redb::Database::open(folder.path().join("store.redb")).unwrap();
            let transaction = database.begin_write().unwrap();
            let history = redb::TableDefinition::<u64, &[u8]>::new("history");
            transaction
                .open_table(history)
                .unwrap()
                .remove(gap)
                .unwrap();
            transaction.commit().unwrap();
        }
        match DiskStore::open(folder.path()) {
            // The oldest change: the history is the same as if it were compacted.
            Ok(store) if gap == 1 => assert!(store.watch("/", Revision::START).await.is_err()),
            Err(OpenError::Damaged { why, .. }) if gap > 1 => {
                assert_eq!(why, "its history does not lead to its entries");
            }
            other => panic!("{gap}: {other:?}"),
        }
    }
}

fn bytes(snapshot: Snapshot) -> Vec<u8> {
    let mut bytes = snapshot.bytes();
    let pieces = std::iter::from_fn(|| bytes.next_piece(1000));
    pieces.flatten().collect()
}

fn restore(folder: &Path, bytes: &[u8], options: RestoreOptions) -> Result<Revision, RestoreError> {
    let reader = SnapshotReader::open(bytes)?;
    DiskStore::restore(folder, reader, options, &mut |_| {})
}

#[tokio::test]
async fn a_snapshot_is_one_state_and_is_restored_as_it_was() {
    let folders = Folders::new();
    let folder = folders.next();
    let store = DiskStore::open(&folder).unwrap();
    let hour = Some(Duration::from_secs(3600));
    for number in 0..50 {
        let key = format!("/k/{number}");
        store.create(&key, key.clone().into(), None).await.unwrap();
    }
    store.create("/events/a", "1".into(), hour).await.unwrap();
    let want = everything(&store).await;
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!((snapshot.revision(), snapshot.count()), (want.1, 51));
    // Later writes are not in the snapshot, even if it is read afterwards.
    for entry in &want.0 {
        store.delete(&entry.key, entry.revision).await.unwrap();
    }
    let snapshot = bytes(snapshot);
    store.close().await;

    // An existing store is kept.
    let kept = restore(&folder, &snapshot, RestoreOptions::default());
    assert!(matches!(kept, Err(RestoreError::Exists(_))), "{kept:?}");
    let overwrite = RestoreOptions {
        overwrite: true,
        bump: 1000,
    };
    let mut damaged = snapshot.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let refused = restore(&folder, &damaged, overwrite);
    assert!(
        matches!(refused, Err(RestoreError::Snapshot(_))),
        "{refused:?}"
    );
    let store = DiskStore::open(&folder).unwrap();
    assert_eq!(everything(&store).await.0, []);
    let in_use = restore(&folder, &snapshot, overwrite);
    assert!(matches!(
        in_use,
        Err(RestoreError::DataDir(OpenError::InUse { .. }))
    ));
    let seen = store.revision().await.unwrap();
    store.close().await;

    let other = folders.next();
    assert_eq!(
        restore(&folder, &snapshot, overwrite).unwrap().0,
        want.1.0 + 1000
    );
    restore(&other, &snapshot, RestoreOptions::default()).unwrap();
    for folder in [&folder, &other] {
        let store = DiskStore::open(folder).unwrap();
        assert_eq!(everything(&store).await.0, want.0);
        let again = store.snapshot().await.unwrap().entries();
        let deadlines = again.filter(|it| it.deadline != 0);
        let deadlines: Vec<_> = deadlines.map(|it| it.entry.key.to_string()).collect();
        assert_eq!(deadlines, ["/events/a"]);
    }
    // Watches cannot be resumed from revisions after the snapshot, and those are not reused.
    let store = DiskStore::open(&folder).unwrap();
    let gone = store.watch("/", seen).await.map(|_| ());
    assert!(matches!(gone, Err(ReadError::Compacted(_))), "{gone:?}");
    let next = store.create("/next", "1".into(), None).await.unwrap();
    assert_eq!(next.0, want.1.0 + 1001);
}

#[tokio::test]
async fn times_to_live_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let store = DiskStore::open(folder.path()).unwrap();
    let moment = Some(Duration::from_millis(1));
    let hour = Some(Duration::from_secs(3600));
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/", start).await.unwrap();
    store.create("/moment", "1".into(), moment).await.unwrap();
    while !matches!(watch.next().await.unwrap(), Event::Delete { .. }) {}
    let kept = store.create("/hour", "1".into(), hour).await.unwrap();
    let short = Some(Duration::from_millis(300));
    let changed = store.create("/short", "1".into(), short).await.unwrap();
    store.update("/short", changed, "2".into()).await.unwrap();
    // Created again without a time to live: the first expiry does not apply.
    let renewed = store.create("/renewed", "1".into(), short).await.unwrap();
    store.delete("/renewed", renewed).await.unwrap();
    store.create("/renewed", "2".into(), None).await.unwrap();
    store.close().await;

    let store = DiskStore::open(folder.path()).unwrap();
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/", start).await.unwrap();
    let event = tokio::time::timeout(DEADLINE, watch.next()).await.unwrap();
    let Event::Delete { previous, .. } = event.unwrap() else {
        panic!("no entry ended")
    };
    assert_eq!((&*previous.key, &previous.value[..]), ("/short", &b"2"[..]));
    let (entries, _) = everything(&store).await;
    let keys: Vec<&str> = entries.iter().map(|entry| &*entry.key).collect();
    assert_eq!(keys, ["/hour", "/renewed"]);
    assert_eq!(entries[0].revision, kept);
}

#[tokio::test]
async fn one_process_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = DiskStore::open(folder.path()).unwrap();
    let error = DiskStore::open(folder.path()).unwrap_err().to_string();
    let want = format!(
        "the directory `{}` is in use by process {}",
        folder.path().display(),
        std::process::id()
    );
    assert_eq!(error, want);
    // Dropping the last handle closes the store.
    drop(store);
    DiskStore::open(folder.path()).unwrap();
}

#[test]
fn makes_a_folder_for_its_owner_alone() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("a/b");
    let store = DiskStore::open(&folder).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for file in std::fs::read_dir(&folder).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
    }
    drop(store);
}

#[test]
fn takes_the_rights_of_others_and_follows_no_links() {
    let folder = tempfile::tempdir().unwrap();
    drop(DiskStore::open(folder.path()).unwrap());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let names = ["store.redb", "lock", "closed"].map(|name| folder.path().join(name));
    for name in &names {
        if name.exists() {
            std::fs::set_permissions(name, std::fs::Permissions::from_mode(0o666)).unwrap();
        }
    }
    drop(DiskStore::open(folder.path()).unwrap());
    for name in names.iter().filter(|name| name.exists()) {
        assert_eq!(mode(name), 0o600, "{}", name.display());
    }

    let elsewhere = tempfile::tempdir().unwrap();
    let victim = elsewhere.path().join("victim");
    for name in ["store.redb", "store.redb.new", "lock", "closed"] {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(&victim, folder.path().join(name)).unwrap();
        let error = DiskStore::open(folder.path()).unwrap_err();
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        assert!(text.contains("is a symbolic link"), "{name}: {text}");
        assert!(!victim.exists(), "{name}");
    }
}

#[test]
fn says_which_folder_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    // Files cannot be created there, not even by root.
    for path in [
        file.as_path(),
        &file.join("below"),
        Path::new("/proc/self/task"),
    ] {
        let error = DiskStore::open(path).unwrap_err();
        let OpenError::DataDir { path: named, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(named, path);
    }
}

#[test]
fn refuses_a_newer_format() {
    let folder = tempfile::tempdir().unwrap();
    drop(DiskStore::open(folder.path()).unwrap());
    let path = folder.path().join("store.redb");
    {
        let database = redb::Database::open(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        let table = redb::TableDefinition::<&str, &[u8]>::new("store");
        let format = 7_u64.to_le_bytes();
        transaction
            .open_table(table)
            .unwrap()
            .insert("format", format.as_slice())
            .unwrap();
        transaction.commit().unwrap();
    }
    let error = DiskStore::open(folder.path()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "`{}` has format 7, and this version reads formats up to 2",
            path.display()
        )
    );
}

#[test]
fn goes_on_after_a_crash_while_it_was_made() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("store.redb.new"), "half of it").unwrap();
    drop(DiskStore::open(folder.path()).unwrap());
    drop(DiskStore::open(folder.path()).unwrap());
    assert!(!folder.path().join("store.redb.new").exists());
}

#[test]
fn refuses_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    drop(DiskStore::open(folder.path()).unwrap());
    let whole = std::fs::read(&path).unwrap();
    let half = &whole[..whole.len() / 2];
    for content in [&b""[..], b"not a store\n", half, &whole[..100]] {
        std::fs::write(&path, content).unwrap();
        let error = DiskStore::open(folder.path()).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    }
    // A database of another program.
    std::fs::remove_file(&path).unwrap();
    drop(redb::Database::create(&path).unwrap());
    let error = DiskStore::open(folder.path()).unwrap_err();
    assert!(
        error.to_string().ends_with("it is not a store of lockgate"),
        "{error}"
    );
}

#[tokio::test]
async fn notices_a_file_that_is_older_than_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    drop(DiskStore::open(folder.path()).unwrap());
    let old = std::fs::read(&path).unwrap();
    let store = DiskStore::open(folder.path()).unwrap();
    store.create("/a", "1".into(), None).await.unwrap();
    store.close().await;
    std::fs::write(&path, old).unwrap();
    let error = DiskStore::open(folder.path()).unwrap_err();
    assert!(
        error.to_string().ends_with("older than when it was closed"),
        "{error}"
    );
}

#[tokio::test]
async fn refuses_a_store_whose_closing_note_is_unreadable() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("closed");
    let store = DiskStore::open(folder.path()).unwrap();
    store.create("/a", "1".into(), None).await.unwrap();
    store.close().await;
    for garbage in [&b"soon\n"[..], b"\xff\xfe", b"-1\n"] {
        std::fs::write(&note, garbage).unwrap();
        let error = DiskStore::open(folder.path()).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    }
    // A crash while it is written leaves it empty, which is ignored.
    std::fs::write(&note, b"").unwrap();
    drop(DiskStore::open(folder.path()).unwrap());
}

/// Deterministic pseudo-random numbers.
fn numbers(mut seed: u64) -> impl Iterator<Item = usize> {
    std::iter::repeat_with(move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed >> 16).unwrap()
    })
}

#[tokio::test]
async fn a_flipped_bit_is_noticed_or_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    let store = DiskStore::open(folder.path()).unwrap();
    for index in 0..300 {
        let value = vec![b'v'; index * 7];
        let key = format!("/pods/{index}");
        store.create(&key, value.into(), None).await.unwrap();
    }
    let want = everything(&store).await;
    store.close().await;
    let whole = std::fs::read(&path).unwrap();
    // All bytes of the header, on which everything depends, and some of the rest.
    let used = whole.iter().rposition(|&byte| byte != 0).unwrap();
    let mut random = numbers(7);
    let rest: Vec<usize> = random
        .by_ref()
        .take(400)
        .map(|number| number % used)
        .collect();
    let mut noticed = 0;
    for offset in (0..320).chain(rest) {
        let bit = random.next().unwrap() % 8;
        let mut flipped = whole.clone();
        flipped[offset] ^= 1 << bit;
        std::fs::write(&path, flipped).unwrap();
        match DiskStore::open(folder.path()) {
            Ok(store) => assert_eq!(everything(&store).await, want, "bit {bit} of byte {offset}"),
            Err(OpenError::Damaged { .. } | OpenError::File { .. }) => noticed += 1,
            Err(error) => panic!("bit {bit} of byte {offset}: {error}"),
        }
    }
    assert!(noticed > 200, "{noticed}");
}

#[derive(Debug, Clone)]
enum Step {
    Write(u8, u8),
    Delete(u8),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_u8..8, any::<u8>()).prop_map(|(key, value)| Step::Write(key, value)),
        2 => (0_u8..8).prop_map(Step::Delete),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..40)
}

async fn write(store: &impl Store, step: &Step) {
    let (Step::Write(key, _) | Step::Delete(key)) = step else {
        return;
    };
    let key = format!("/{key}");
    let (entry, _) = store.get(&key, ReadAt::Latest).await.unwrap();
    let result = match (step, entry) {
        (Step::Write(_, value), None) => store.create(&key, vec![*value].into(), None).await,
        (Step::Write(_, value), Some(entry)) => {
            store
                .update(&key, entry.revision, vec![*value].into())
                .await
        }
        (_, Some(entry)) => store.delete(&key, entry.revision).await.map(|(at, _)| at),
        (_, None) => return,
    };
    result.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// However often it is reopened, it is equivalent to an in-memory store.
    #[test]
    fn reopening_changes_nothing(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let memory = MemoryStore::new();
            let mut disk = DiskStore::open(folder.path()).unwrap();
            for step in steps {
                if matches!(step, Step::Reopen) {
                    drop(disk);
                    disk = DiskStore::open(folder.path()).unwrap();
                }
                write(&memory, &step).await;
                write(&disk, &step).await;
                assert_eq!(everything(&disk).await, everything(&memory).await);
                let start = Revision::START;
                assert_eq!(changes(&disk, start).await, changes(&memory, start).await);
            }
        });
    }
}
