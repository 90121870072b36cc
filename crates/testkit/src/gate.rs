//! A signal that an answer waits for.

use std::sync::Arc;

use tokio::sync::watch;

/// Closed until somebody opens it; stays open then.
#[derive(Debug, Clone)]
pub struct Gate {
    sender: Arc<watch::Sender<bool>>,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        Self {
            sender: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Lets everybody through who waits and who comes later.
    pub fn open(&self) {
        self.sender.send_replace(true);
    }

    /// Waits until the gate is open.
    pub async fn passed(&self) {
        let mut receiver = self.sender.subscribe();
        // The sender lives as long as this gate, so waiting ends only when it opens.
        let _ = receiver.wait_for(|open| *open).await;
    }
}
