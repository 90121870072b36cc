//! The phases of a call and their durations.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::call::Phase;
use crate::tap::Notes;

/// Shared with the call, and outlives it when its deadline expires.
#[derive(Debug)]
pub(super) struct Clock {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phases: Vec<(Phase, Duration)>,
    current: Phase,
    since: Instant,
    /// The connection a request is being written to.
    notes: Option<Arc<Notes>>,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self {
            state: Mutex::new(State {
                phases: Vec::with_capacity(6),
                current: Phase::Resolve,
                since: Instant::now(),
                notes: None,
            }),
        }
    }

    /// Ends the current phase and begins another.
    pub(super) fn enter(&self, phase: Phase) {
        self.enter_at(phase, Instant::now());
    }

    /// Records that a request is being written to a connection.
    pub(super) fn writing(&self, notes: &Arc<Notes>) {
        self.enter(Phase::Write);
        self.lock().notes = Some(Arc::clone(notes));
    }

    /// Records the start of the response.
    pub(super) fn response_started(&self) {
        self.settle();
        self.enter(Phase::Wait);
        self.enter(Phase::Read);
        self.lock().notes = None;
    }

    /// Checks if the request that is being written has been written completely.
    pub(super) fn settle(&self) {
        let mut state = self.lock();
        let Some(notes) = state.notes.clone() else {
            return;
        };
        let written = notes.last_write().filter(|moment| *moment >= state.since);
        if let Some(moment) = written
            && state.current == Phase::Write
            && !notes.is_blocked()
        {
            state.end_current(moment);
            state.current = Phase::Wait;
        }
    }

    fn enter_at(&self, phase: Phase, moment: Instant) {
        let mut state = self.lock();
        if state.current == phase {
            return;
        }
        state.end_current(moment);
        state.current = phase;
    }

    pub(super) fn current(&self) -> Phase {
        self.lock().current
    }

    /// All phases with their durations, including the current one.
    pub(super) fn stop(&self) -> Vec<(Phase, Duration)> {
        self.settle();
        let mut state = self.lock();
        state.end_current(Instant::now());
        std::mem::take(&mut state.phases)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn end_current(&mut self, moment: Instant) {
        let moment = moment.max(self.since);
        let spent = moment - self.since;
        self.since = moment;
        // The durations of a repeated phase, after a redirect or retry, are added.
        match self
            .phases
            .iter_mut()
            .find(|(phase, _)| *phase == self.current)
        {
            Some((_, total)) => *total += spent,
            None => self.phases.push((self.current, spent)),
        }
    }
}
