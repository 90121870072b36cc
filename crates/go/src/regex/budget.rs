//! The memory of all compiled patterns of a process.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of automata, for the patterns that come first.
const AUTOMATA: usize = 48 << 20;
/// Bytes of automata and programs.
const ALL: usize = 64 << 20;

/// The total for all patterns: many patterns have no more memory than few.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Memory that a pattern takes, until it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    bytes: usize,
    most: usize,
}

impl Charge {
    /// Room for automata. None if there is none.
    pub(super) fn automata(bytes: usize) -> Option<Self> {
        Self::take(bytes, AUTOMATA)
    }

    /// Room for a program.
    pub(super) fn program(bytes: usize) -> Option<Self> {
        Self::take(bytes, ALL)
    }

    /// As much more.
    pub(super) fn and(mut self, bytes: usize) -> Option<Self> {
        let mut more = Self::take(bytes, self.most)?;
        self.bytes += std::mem::take(&mut more.bytes);
        Some(self)
    }

    fn take(bytes: usize, most: usize) -> Option<Self> {
        let taken = TAKEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
            taken.checked_add(bytes).filter(|&sum| sum <= most)
        });
        taken.ok().map(|_| Self { bytes, most })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}
