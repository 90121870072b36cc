//! `DenyEscalatingExec` and `DenyExecOnPrivileged`: deny exec into Pods with host access.
//!
//! Both were removed from Kubernetes in 1.21.

use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Operation;
use lockgate_go::quote::quote;
use serde_json::Value;

use crate::fields::{is_on, items};
use crate::lookup::{Lookup, PODS};
use crate::rules::{About, Refusal, Rules, Verdict};

const CONNECT: &[Operation] = &[Operation::Connect];

/// The Pods to which exec is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closed {
    /// Pods with a privileged container.
    Privileged,
    /// Also Pods in a host namespace.
    Escalating,
}

/// Denies connections to Pods with a privileged container, and, unless configured for these only, to Pods that share
/// the host's network, PID or IPC namespace.
#[derive(Debug, Clone)]
pub struct DenyEscalatingExec {
    closed: Closed,
    lookup: Arc<dyn Lookup>,
}

impl DenyEscalatingExec {
    /// `DenyEscalatingExec`.
    pub fn new(lookup: impl Lookup) -> Self {
        Self {
            closed: Closed::Escalating,
            lookup: Arc::new(lookup),
        }
    }

    /// `DenyExecOnPrivileged`.
    pub fn on_privileged(lookup: impl Lookup) -> Self {
        Self {
            closed: Closed::Privileged,
            lookup: Arc::new(lookup),
        }
    }

    /// The reason to deny access to a pod.
    fn objection(&self, pod: &Value) -> Option<&'static str> {
        let shared = [
            (
                "hostNetwork",
                "cannot exec into or attach to a container using host network",
            ),
            (
                "hostPID",
                "cannot exec into or attach to a container using host pid",
            ),
            (
                "hostIPC",
                "cannot exec into or attach to a container using host ipc",
            ),
        ];
        let of_node = shared
            .into_iter()
            .find(|(member, _)| self.closed == Closed::Escalating && is_on(pod, &["spec", member]));
        if let Some((_, objection)) = of_node {
            return Some(objection);
        }
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        let mut containers = lists
            .into_iter()
            .flat_map(|list| items(pod, &["spec", list]));
        containers
            .any(|container| is_on(container, &["securityContext", "privileged"]))
            .then_some("cannot exec into or attach to a privileged container")
    }
}

impl Rules for DenyEscalatingExec {
    fn name(&self) -> &'static str {
        match self.closed {
            Closed::Escalating => "DenyEscalatingExec",
            Closed::Privileged => "DenyExecOnPrivileged",
        }
    }

    fn operations(&self) -> &'static [Operation] {
        CONNECT
    }

    fn validates(&self) -> &'static [About] {
        const { &[About::core(CONNECT, &["pods/exec", "pods/attach"])] }
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let request = ask.request();
        let name = request.name.as_str();
        let found = self.lookup.get(PODS, &request.namespace, name).await;
        let pod = match found {
            Ok(Some(pod)) => pod,
            Ok(None) => {
                let message = format!("pods {} not found", quote(name));
                return Err(Refusal::forbidden(message));
            }
            Err(error) => return Err(Refusal::forbidden(error.to_string())),
        };
        match self.objection(&pod) {
            None => Ok(()),
            Some(objection) => Err(Refusal::forbidden(objection)),
        }
    }
}
