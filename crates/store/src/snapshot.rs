//! A snapshot of a store at one revision, as a byte stream for backups.
//!
//! ```text
//!   "lockgate snapshot 1\n"  revision  number of entries
//!   length  length of the key  key  record                 for every entry, ordered by key
//!   0  SHA-256 of all preceding bytes
//! ```
//!
//! Integers are little-endian, of 8 bytes in the first line and of 4 elsewhere. Records are those of the disk, with
//! their own checksums.

use std::fmt;
use std::io::{self, Read};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::record::{self, Deadline};
use crate::{Entry, Revision};

const MAGIC: &[u8] = b"lockgate snapshot 1\n";
/// The maximum size of an entry to read: far above any stored entry.
const MAX_RECORD_BYTES: usize = 64 << 20;

/// The read buffer size.
const PIECE: usize = 64 << 10;

/// A snapshot of a store at one revision.
pub struct Snapshot {
    revision: Revision,
    count: u64,
    entries: Box<dyn Iterator<Item = SnapshotEntry> + Send + Sync>,
}

/// An entry of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// The entry.
    pub entry: Entry,
    /// The expiry time, in milliseconds since 1970; zero means never, or unknown.
    pub deadline: u64,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("revision", &self.revision)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Creates a snapshot of entries, ordered by key.
    pub(crate) fn new<I>(revision: Revision, entries: I) -> Self
    where
        I: ExactSizeIterator<Item = (Entry, Deadline)> + Send + Sync + 'static,
    {
        let count = u64::try_from(entries.len()).unwrap_or(u64::MAX);
        let entries = entries.map(|(entry, deadline)| SnapshotEntry { entry, deadline });
        Self {
            revision,
            count,
            entries: Box::new(entries),
        }
    }

    /// The revision of the store.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The number of entries.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sets the deadline of entries without one to the result of `deadline`, unless that is zero.
    #[must_use]
    pub fn expiring(self, deadline: impl Fn(&str) -> u64 + Send + Sync + 'static) -> Self {
        let entries = self.entries.map(move |mut it| {
            if it.deadline == 0 {
                it.deadline = deadline(&it.entry.key);
            }
            it
        });
        Self {
            entries: Box::new(entries),
            ..self
        }
    }

    /// The entries, ordered by key.
    pub fn entries(self) -> impl Iterator<Item = SnapshotEntry> + Send + Sync {
        self.entries
    }

    /// The encoded snapshot, in pieces.
    #[must_use]
    pub fn bytes(self) -> SnapshotBytes {
        SnapshotBytes {
            snapshot: self,
            digest: Sha256::new(),
            part: Part::Head,
            unread: Bytes::new(),
        }
    }
}

/// An encoded snapshot.
#[derive(Debug)]
pub struct SnapshotBytes {
    snapshot: Snapshot,
    digest: Sha256,
    part: Part,
    /// The rest of the current piece.
    unread: Bytes,
}

#[derive(Debug, PartialEq)]
enum Part {
    Head,
    Entries,
    Over,
}

impl SnapshotBytes {
    /// The next piece, of about this size; `None` at the end.
    pub fn next_piece(&mut self, size: usize) -> Option<Bytes> {
        if self.part == Part::Over {
            return None;
        }
        let mut piece = Vec::with_capacity(size);
        if self.part == Part::Head {
            piece.extend_from_slice(MAGIC);
            piece.extend_from_slice(&self.snapshot.revision.0.to_le_bytes());
            piece.extend_from_slice(&self.snapshot.count.to_le_bytes());
            self.part = Part::Entries;
        }
        while piece.len() < size {
            let Some(SnapshotEntry { entry, deadline }) = self.snapshot.entries.next() else {
                piece.extend_from_slice(&0_u32.to_le_bytes());
                self.digest.update(&piece);
                piece.extend_from_slice(&self.digest.finalize_reset());
                self.part = Part::Over;
                return Some(piece.into());
            };
            let record = record::encode(&entry, deadline);
            let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
            piece.extend_from_slice(&length(4 + entry.key.len() + record.len()));
            piece.extend_from_slice(&length(entry.key.len()));
            piece.extend_from_slice(entry.key.as_bytes());
            piece.extend_from_slice(&record);
        }
        self.digest.update(&piece);
        Some(piece.into())
    }
}

impl Read for SnapshotBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.unread.is_empty() {
            self.unread = self.next_piece(PIECE).unwrap_or_default();
        }
        let length = self.unread.len().min(buffer.len());
        let (read, _) = buffer.split_at_mut(length);
        read.copy_from_slice(&self.unread.split_to(length));
        Ok(length)
    }
}

/// An invalid snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file cannot be read.
    #[error("cannot read the snapshot: {0}")]
    Io(#[from] io::Error),
    /// The file is not a snapshot.
    #[error("not a lockgate snapshot, or written by a later version")]
    Foreign,
    /// The snapshot is corrupted.
    #[error("the snapshot is damaged: {0}")]
    Damaged(String),
}

/// Reads and verifies a snapshot. Entries are only verified once the end was returned.
#[derive(Debug)]
pub struct SnapshotReader<R> {
    input: R,
    digest: Sha256,
    revision: Revision,
    count: u64,
    read: u64,
    last: Option<Entry>,
}

impl<R: Read> SnapshotReader<R> {
    /// Reads the header of a snapshot.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is not a snapshot.
    pub fn open(input: R) -> Result<Self, SnapshotError> {
        let mut reader = Self {
            input,
            digest: Sha256::new(),
            revision: Revision::START,
            count: 0,
            read: 0,
            last: None,
        };
        let mut magic = [0; MAGIC.len()];
        match reader.fill(&mut magic) {
            Ok(()) if magic == MAGIC => {}
            Err(SnapshotError::Io(error)) => return Err(error.into()),
            _ => return Err(SnapshotError::Foreign),
        }
        let mut number = [0; 8];
        reader.fill(&mut number)?;
        reader.revision = Revision(u64::from_le_bytes(number));
        reader.fill(&mut number)?;
        reader.count = u64::from_le_bytes(number);
        Ok(reader)
    }

    /// The revision of the store.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The number of entries.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.count
    }

    /// The next entry; `None` at the end, if all checksums match.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is corrupted.
    pub fn next_entry(&mut self) -> Result<Option<SnapshotEntry>, SnapshotError> {
        let length = self.length()?;
        if length == 0 {
            self.end()?;
            return Ok(None);
        }
        if length > MAX_RECORD_BYTES {
            return Err(damaged("an entry is too long"));
        }
        let mut bytes = vec![0; length];
        self.fill(&mut bytes)?;
        let found = split(&bytes).and_then(|(key, record)| record::decode(key, record));
        let Some((entry, deadline)) = found else {
            return Err(damaged("an entry is not as it was written"));
        };
        let follows = self.last.as_ref().is_none_or(|last| last.key < entry.key);
        if !follows || entry.revision > self.revision || entry.created > entry.revision {
            let why = format!("unexpected key `{}`", entry.key);
            return Err(SnapshotError::Damaged(why));
        }
        self.read += 1;
        self.last = Some(entry.clone());
        Ok(Some(SnapshotEntry { entry, deadline }))
    }

    fn end(&mut self) -> Result<(), SnapshotError> {
        let digest = self.digest.finalize_reset();
        let mut told = [0; 32];
        self.fill(&mut told)?;
        if told != *digest {
            return Err(damaged("its checksum does not match its contents"));
        }
        if self.read != self.count {
            let why = format!("{} of {} entries are there", self.read, self.count);
            return Err(SnapshotError::Damaged(why));
        }
        match self.input.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(damaged("something follows its end")),
        }
    }

    fn length(&mut self) -> Result<usize, SnapshotError> {
        let mut number = [0; 4];
        self.fill(&mut number)?;
        Ok(usize::try_from(u32::from_le_bytes(number)).unwrap_or(usize::MAX))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), SnapshotError> {
        self.input.read_exact(bytes).map_err(|error| {
            if error.kind() == io::ErrorKind::UnexpectedEof {
                damaged("it ends too early")
            } else {
                error.into()
            }
        })?;
        self.digest.update(bytes);
        Ok(())
    }
}

impl<R: Read> Iterator for SnapshotReader<R> {
    type Item = Result<SnapshotEntry, SnapshotError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().transpose()
    }
}

/// Splits an entry into its key and its record.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

fn damaged(why: &str) -> SnapshotError {
    SnapshotError::Damaged(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(count: u64) -> Vec<(Entry, Deadline)> {
        let entry = |number: u64| Entry {
            key: format!("/k/{number:04}").into(),
            value: vec![b'v'; usize::try_from(number).unwrap()].into(),
            created: Revision(number),
            revision: Revision(number + 1),
        };
        (0..count).map(|number| (entry(number), number)).collect()
    }

    fn written(count: u64, piece: usize) -> Vec<u8> {
        let snapshot = Snapshot::new(Revision(count), entries(count).into_iter());
        let mut bytes = snapshot.bytes();
        let pieces = std::iter::from_fn(|| bytes.next_piece(piece));
        pieces.flatten().collect()
    }

    fn read(bytes: &[u8]) -> Result<Vec<(Entry, Deadline)>, SnapshotError> {
        let reader = SnapshotReader::open(bytes)?;
        let entries = reader.map(|read| read.map(|it| (it.entry, it.deadline)));
        entries.collect()
    }

    #[test]
    fn comes_back_as_it_was_written() {
        for (count, piece) in [(0, 1), (1, 1), (300, 100), (300, 1 << 20)] {
            assert_eq!(read(&written(count, piece)).unwrap(), entries(count));
        }
        assert_eq!(written(300, 1), written(300, 4096));
        let snapshot = Snapshot::new(Revision(300), entries(300).into_iter());
        let reader = SnapshotReader::open(snapshot.expiring(|_| 5).bytes()).unwrap();
        let deadlines: Vec<u64> = reader.map(|read| read.unwrap().deadline).collect();
        assert_eq!(deadlines[..3], [5, 1, 2]);
        let bytes = written(7, 100);
        let reader = SnapshotReader::open(&bytes[..]).unwrap();
        assert_eq!((reader.revision(), reader.total()), (Revision(7), 7));
    }

    #[test]
    fn any_flipped_bit_and_any_missing_byte_is_noticed() {
        let bytes = written(3, 100);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&flipped).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{length} bytes");
        }
        let more = [&bytes[..], b"x"].concat();
        assert!(read(&more).is_err());
        for other in ["", "lockgate snapshot 2\n0000000000000000"] {
            let error = read(other.as_bytes()).unwrap_err();
            assert!(matches!(error, SnapshotError::Foreign), "{error}");
        }
    }

    /// Valid checksums are not sufficient: the contents are validated, too.
    #[test]
    fn entries_that_cannot_be_there_are_refused() {
        let mut twice = entries(2);
        twice[1].0.key = twice[0].0.key.clone();
        let mut future = entries(2);
        future[1].0.revision = Revision(9);
        for entries in [twice, future] {
            let snapshot = Snapshot::new(Revision(2), entries.into_iter());
            let bytes = snapshot.bytes().next_piece(1 << 20).unwrap();
            let error = read(&bytes).unwrap_err();
            assert!(error.to_string().contains("unexpected key"), "{error}");
        }
    }
}
