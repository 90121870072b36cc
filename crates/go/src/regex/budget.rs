//! The memory budget of all compiled patterns of a process.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The budget in bytes for automata; earlier patterns take precedence.
const AUTOMATA: usize = 48 << 20;
/// The total budget in bytes for automata and programs.
const ALL: usize = 64 << 20;

/// The total of all patterns: the limit does not depend on their number.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Memory charged for a pattern, released on drop.
#[derive(Debug)]
pub(super) struct Charge {
    bytes: usize,
    most: usize,
}

impl Charge {
    /// Charges an automaton. `None` if the budget is exhausted.
    pub(super) fn automata(bytes: usize) -> Option<Self> {
        Self::take(bytes, AUTOMATA)
    }

    /// Charges a program.
    pub(super) fn program(bytes: usize) -> Option<Self> {
        Self::take(bytes, ALL)
    }

    /// Charges additional bytes.
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
