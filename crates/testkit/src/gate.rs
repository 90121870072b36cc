//! A signal that responses can wait for.

use std::sync::Arc;

use tokio::sync::watch;

/// Closed initially; stays open once opened.
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

    /// Releases all current and future waiters.
    pub fn open(&self) {
        self.sender.send_replace(true);
    }

    /// Waits until the gate is open.
    pub async fn passed(&self) {
        let mut receiver = self.sender.subscribe();
        // The sender lives as long as this gate, so this returns only when it opens.
        let _ = receiver.wait_for(|open| *open).await;
    }
}
