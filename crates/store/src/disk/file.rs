//! The data file: a redb database with three tables.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{
    Builder, Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _, TableDefinition,
    TableError,
};
use tokio::time::Instant;

use super::data_dir::DataDir;
use super::{OpenError, RestoreError, RestoreOptions};
use crate::keys::{EntryEncoding, Keys};
use crate::record::{self, Deadline, Summary};
use crate::state::{State, Undo};
use crate::{Entry, MemoryOptions, Revision, SnapshotEntry, SnapshotReader};

/// The format version that is written, and the latest one that can be read.
pub(super) const FORMAT: u64 = 2;

/// The first format version with history.
const HISTORY_SINCE: u64 = 2;

/// Entries by key, encoded by [`record`].
const ENTRIES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("entries");
/// Recent changes by revision, encoded by [`record`]. Since format 2.
const HISTORY: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("history");
/// Metadata of the store.
const STORE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("store");
const FORMAT_KEY: &str = "format";
const SUMMARY_KEY: &str = "summary";

/// The page cache of the database. Reads are served from memory, so it only needs the pages of a
/// write: the upper levels of the tree, and the leaves of a batch.
const CACHE: usize = 16 << 20;

/// The number of entries per transaction when restoring a snapshot.
const RESTORED: usize = 10_000;

/// The changes of one commit: the new entry of each key, or `None` for a deletion.
pub(super) type Changes = BTreeMap<Arc<str>, Option<(Entry, Deadline)>>;

/// The contents of one transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Commit<'c> {
    pub(super) changes: &'c Changes,
    /// The same changes individually, in order.
    pub(super) history: &'c [Undo],
    /// The oldest revision that is reachable with the history.
    pub(super) oldest: Revision,
    pub(super) summary: Summary,
}

/// The open data file.
#[derive(Debug)]
pub(super) struct DataFile {
    database: Database,
    /// `None` in tests with another storage backend.
    folder: Option<DataDir>,
}

/// The contents of the data file.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) state: State,
    /// The deadlines of expiring entries.
    pub(super) deadlines: HashMap<Arc<str>, Deadline>,
    /// The format version of the file.
    format: u64,
}

impl DataFile {
    /// Opens the data file of a directory, creating it if necessary.
    pub(super) fn open(
        folder: DataDir,
        options: &MemoryOptions,
    ) -> Result<(Self, Loaded), OpenError> {
        let path = folder.data();
        if !path.try_exists().map_err(|error| io_failed(&path, error))? {
            folder.make_data(|file| {
                let database = builder().create_file(file);
                let database = database.map_err(|error| failed(&path, error.into()))?;
                initialize(&database).map_err(|error| failed(&path, error))
            })?;
        }
        let mut database = builder();
        let repaired = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&repaired);
        database.set_repair_callback(move |_| told.store(true, Ordering::Relaxed));
        let mut database = database
            .open(&path)
            .map_err(|error| failed(&path, error.into()))?;
        // After a crash, all checksums were verified to find the last complete commit. After a clean
        // shutdown none were, and any mismatch is corruption.
        let repaired = repaired.load(Ordering::Relaxed);
        if !repaired {
            let sound = database
                .check_integrity()
                .map_err(|error| failed(&path, error.into()))?;
            if !sound {
                return Err(damaged(&path, "its checksums do not match its contents"));
            }
        }
        let loaded = load(&database, &path, options)?;
        upgrade(&database, &loaded).map_err(|error| failed(&path, error))?;
        match folder.clean_shutdown_revision() {
            Ok(Some(closed)) if loaded.state.revision < closed => {
                return Err(damaged(&path, "it is older than when it was closed"));
            }
            Ok(_) => {}
            // Without the clean-shutdown file, a loss cannot be detected.
            Err(error) => {
                let why = format!("cannot read the revision in the clean-shutdown file: {error}");
                return Err(damaged(&path, &why));
            }
        }
        let file = Self {
            database,
            folder: Some(folder),
        };
        Ok((file, loaded))
    }

    /// A file on another storage backend, for tests.
    #[cfg(test)]
    pub(super) fn on(backend: impl redb::StorageBackend) -> Result<(Self, Loaded), OpenError> {
        let path = Path::new("test");
        let is_new = backend.len().map_err(|error| io_failed(path, error))? == 0;
        let database = builder()
            .create_with_backend(backend)
            .map_err(|error| failed(path, error.into()))?;
        if is_new {
            initialize(&database).map_err(|error| failed(path, error))?;
        }
        let loaded = load(&database, path, &MemoryOptions::default())?;
        upgrade(&database, &loaded).map_err(|error| failed(path, error))?;
        let folder = None;
        Ok((Self { database, folder }, loaded))
    }

    /// Commits changes, and returns when they are synced to disk.
    pub(super) fn commit(&self, commit: Commit<'_>) -> Result<(), redb::Error> {
        let Commit {
            changes,
            history,
            oldest,
            summary,
        } = commit;
        let transaction = self.database.begin_write()?;
        {
            let mut entries = transaction.open_table(ENTRIES)?;
            for (key, change) in changes {
                match change {
                    Some((entry, deadline)) => {
                        let bytes = record::encode(entry, *deadline);
                        entries.insert(key.as_bytes(), bytes.as_slice())?;
                    }
                    None => {
                        entries.remove(key.as_bytes())?;
                    }
                }
            }
            let mut kept = transaction.open_table(HISTORY)?;
            for undo in history.iter().filter(|undo| undo.revision > oldest) {
                let bytes = record::encode_change(undo.revision, &undo.key, undo.before.as_ref());
                kept.insert(undo.revision.0, bytes.as_slice())?;
            }
            while kept
                .first()?
                .is_some_and(|(first, _)| first.value() <= oldest.0)
            {
                kept.pop_first()?;
            }
            let mut store = transaction.open_table(STORE)?;
            store.insert(SUMMARY_KEY, summary.encode().as_slice())?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Closes the file cleanly.
    pub(super) fn close(self, revision: Revision) {
        let Self { database, folder } = self;
        drop(database);
        if let Some(folder) = folder {
            // Without the clean-shutdown file, a later loss is not detected, but nothing is lost.
            let _ = folder.write_clean_shutdown(revision);
        }
    }
}

/// Creates the data file of a directory from a snapshot.
pub(super) fn restore(
    folder: &DataDir,
    mut snapshot: SnapshotReader<impl Read>,
    options: RestoreOptions,
    told: &mut dyn FnMut(u64),
) -> Result<Revision, RestoreError> {
    let path = folder.data();
    let unusable = |error| RestoreError::DataDir(io_failed(&path, error));
    if path.try_exists().map_err(unusable)? && !options.overwrite {
        return Err(RestoreError::Exists(folder.path().to_owned()));
    }
    let failed = |error: redb::Error| RestoreError::DataDir(failed(&path, error));
    let revision = Revision(snapshot.revision().0.saturating_add(options.bump));
    let summary = Summary {
        revision,
        entries: snapshot.total(),
    };
    let fill = |file| -> Result<(), RestoreError> {
        let database = builder().create_file(file);
        let database = database.map_err(|error| failed(error.into()))?;
        initialize(&database).map_err(failed)?;
        let mut written = 0;
        loop {
            let part = snapshot.by_ref().take(RESTORED);
            let part: Vec<SnapshotEntry> = part.collect::<Result<_, _>>()?;
            let is_last = part.len() < RESTORED;
            put(&database, &part, is_last.then_some(summary)).map_err(failed)?;
            written += u64::try_from(part.len()).unwrap_or(u64::MAX);
            told(written);
            if is_last {
                return Ok(());
            }
        }
    };
    // The clean-shutdown file is from the previous store.
    folder.remove_clean_shutdown().map_err(unusable)?;
    folder.make_data(fill)?;
    Ok(revision)
}

fn put(
    database: &Database,
    part: &[SnapshotEntry],
    summary: Option<Summary>,
) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut entries = transaction.open_table(ENTRIES)?;
        for SnapshotEntry { entry, deadline } in part {
            let bytes = record::encode(entry, *deadline);
            entries.insert(entry.key.as_bytes(), bytes.as_slice())?;
        }
        if let Some(summary) = summary {
            let mut store = transaction.open_table(STORE)?;
            store.insert(SUMMARY_KEY, summary.encode().as_slice())?;
        }
    }
    transaction.commit()?;
    Ok(())
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE);
    builder
}

/// Creates the tables of an empty store.
fn initialize(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        transaction.open_table(ENTRIES)?;
        transaction.open_table(HISTORY)?;
        let mut store = transaction.open_table(STORE)?;
        store.insert(FORMAT_KEY, FORMAT.to_le_bytes().as_slice())?;
        let summary = Summary {
            revision: Revision::START,
            entries: 0,
        };
        store.insert(SUMMARY_KEY, summary.encode().as_slice())?;
    }
    transaction.commit()?;
    Ok(())
}

/// Upgrades a file of an earlier version to the current format.
fn upgrade(database: &Database, loaded: &Loaded) -> Result<(), redb::Error> {
    if loaded.format == FORMAT {
        return Ok(());
    }
    let transaction = database.begin_write()?;
    {
        transaction.open_table(HISTORY)?;
        let mut store = transaction.open_table(STORE)?;
        store.insert(FORMAT_KEY, FORMAT.to_le_bytes().as_slice())?;
    }
    transaction.commit()?;
    Ok(())
}

fn load(database: &Database, path: &Path, options: &MemoryOptions) -> Result<Loaded, OpenError> {
    let encoding = EntryEncoding::new(options);
    let failed = |error: redb::Error| failed(path, error);
    let transaction = database
        .begin_read()
        .map_err(|error| failed(error.into()))?;
    let store = transaction.open_table(STORE).map_err(|error| match error {
        TableError::Storage(error) => failed(error.into()),
        _ => damaged(path, "it is not a store of lockgate"),
    })?;
    let format = store
        .get(FORMAT_KEY)
        .map_err(|error| failed(error.into()))?;
    let format = format
        .and_then(|format| format.value().try_into().ok())
        .map(u64::from_le_bytes)
        .ok_or_else(|| damaged(path, "it does not say its format"))?;
    if format > FORMAT {
        return Err(OpenError::Newer {
            path: path.to_owned(),
            format,
        });
    }
    let summary = store
        .get(SUMMARY_KEY)
        .map_err(|error| failed(error.into()))?
        .and_then(|summary| Summary::decode(summary.value()))
        .ok_or_else(|| damaged(path, "its summary is not as it was written"))?;
    let entries = transaction
        .open_table(ENTRIES)
        .map_err(|error| failed(error.into()))?;
    let mut keys = Keys::new();
    let mut deadlines = HashMap::new();
    for item in entries.iter().map_err(|error| failed(error.into()))? {
        let (key, value) = item.map_err(|error| failed(error.into()))?;
        let key = key.value();
        let Some((entry, deadline)) = record::decode(key, value.value()) else {
            let key = String::from_utf8_lossy(key);
            return Err(damaged(path, &format!("`{key}` is not as it was written")));
        };
        if entry.revision > summary.revision || entry.created > entry.revision {
            let key = String::from_utf8_lossy(key);
            return Err(damaged(path, &format!("`{key}` is from the future")));
        }
        if deadline != 0 {
            deadlines.insert(Arc::clone(&entry.key), deadline);
        }
        keys.insert(encoding.entry(entry));
    }
    if u64::try_from(keys.len()) != Ok(summary.entries) {
        let why = format!("{} of {} entries are there", keys.len(), summary.entries);
        return Err(damaged(path, &why));
    }
    let mut state = State::new(summary.revision, keys, encoding);
    if format >= HISTORY_SINCE {
        let changes = load_history(&transaction, path)?;
        state = state
            .with_history(changes, Instant::now(), options)
            .ok_or_else(|| damaged(path, "its history does not lead to its entries"))?;
    }
    Ok(Loaded {
        state,
        deadlines,
        format,
    })
}

fn load_history(transaction: &ReadTransaction, path: &Path) -> Result<Vec<Undo>, OpenError> {
    let failed = |error: redb::Error| failed(path, error);
    let table = transaction
        .open_table(HISTORY)
        .map_err(|error| failed(error.into()))?;
    let mut changes = Vec::new();
    for item in table.iter().map_err(|error| failed(error.into()))? {
        let (revision, bytes) = item.map_err(|error| failed(error.into()))?;
        let revision = Revision(revision.value());
        let change = record::decode_change(revision, bytes.value());
        changes.push(change.ok_or_else(|| {
            let why = format!("the change at revision {revision} is not as it was written");
            damaged(path, &why)
        })?);
    }
    Ok(changes)
}

fn damaged(path: &Path, why: &str) -> OpenError {
    OpenError::Damaged {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}

fn io_failed(path: &Path, source: io::Error) -> OpenError {
    OpenError::File {
        path: path.to_owned(),
        source,
    }
}

/// Converts a database error.
fn failed(path: &Path, error: redb::Error) -> OpenError {
    match error {
        redb::Error::Io(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
            damaged(path, "it ends too early")
        }
        redb::Error::Io(source) if source.kind() == io::ErrorKind::InvalidData => {
            damaged(path, &source.to_string())
        }
        redb::Error::Io(source) => io_failed(path, source),
        redb::Error::Corrupted(why) => damaged(path, &why),
        other => damaged(path, &other.to_string()),
    }
}
