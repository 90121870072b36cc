//! The settings of the simulation.

use std::time::Duration;

/// The maximum number of nodes.
const NODES_MAX: u16 = 1000;

/// The settings of the simulated cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The name of the node; several nodes are numbered from 0.
    pub node_name: String,
    /// The number of nodes.
    pub nodes: u16,
    /// The time from scheduled to running: short, so that tests do not wait, and not zero, so that they can observe
    /// pending Pods.
    pub start_after: Duration,
    /// The time from running to ready, for Pods with readiness probes.
    pub ready_after: Duration,
    /// The running time of containers in Pods whose restart policy is not `Always`.
    pub complete_after: Duration,
    /// The time that a Pod takes to stop, at most its grace period.
    pub stop_after: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let short = Duration::from_millis(100);
        Self {
            node_name: String::from("lockgate-node"),
            nodes: 1,
            start_after: short,
            ready_after: short,
            complete_after: short,
            stop_after: short,
        }
    }
}

impl Settings {
    /// The names of the nodes.
    pub(crate) fn node_names(&self) -> Vec<String> {
        match self.nodes {
            1 => vec![self.node_name.clone()],
            many => {
                let numbers = 0..many.min(NODES_MAX);
                numbers
                    .map(|number| format!("{}-{number}", self.node_name))
                    .collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_nodes_are_numbered() {
        let mut settings = Settings::default();
        assert_eq!(settings.node_names(), ["lockgate-node"]);
        settings.nodes = 2;
        assert_eq!(
            settings.node_names(),
            ["lockgate-node-0", "lockgate-node-1"]
        );
        settings.nodes = 0;
        assert!(settings.node_names().is_empty());
    }
}
