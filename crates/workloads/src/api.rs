//! The trait through which controllers write to the API server.

use async_trait::async_trait;
use lockgate_api::admission::UserInfo;
use lockgate_api::meta::status::Status;
use serde_json::Value;

use crate::kind::Kind;

/// The component that sends a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Author {
    /// A controller, with the names of its service account and event source.
    Controller {
        /// The service account in `kube-system`.
        account: &'static str,
        /// The component in events.
        component: &'static str,
    },
    /// The scheduler.
    Scheduler,
    /// The kubelet of a node.
    Kubelet(String),
}

impl Author {
    /// The user of admission requests.
    #[must_use]
    pub fn user(&self) -> UserInfo {
        let (username, groups): (String, &[&str]) = match self {
            Self::Controller { account, .. } => (
                format!("system:serviceaccount:kube-system:{account}"),
                &[
                    "system:serviceaccounts",
                    "system:serviceaccounts:kube-system",
                ],
            ),
            Self::Scheduler => (String::from("system:kube-scheduler"), &[]),
            Self::Kubelet(node) => (format!("system:node:{node}"), &["system:nodes"]),
        };
        let groups = groups.iter().chain(&["system:authenticated"]);
        UserInfo {
            username,
            groups: Some(groups.map(|group| (*group).to_owned()).collect()),
            ..UserInfo::default()
        }
    }

    /// The program name, used as field manager.
    #[must_use]
    pub fn program(&self) -> &'static str {
        match self {
            Self::Controller { .. } => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubelet(_) => "kubelet",
        }
    }

    /// The component in events.
    pub(crate) fn component(&self) -> &'static str {
        match self {
            Self::Controller { component, .. } => component,
            Self::Scheduler => "default-scheduler",
            Self::Kubelet(_) => "kubelet",
        }
    }
}

/// The target of a write.
#[derive(Debug, Clone, Copy)]
pub struct Target<'t> {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for cluster-scoped objects.
    pub namespace: &'t str,
    /// Its name.
    pub name: &'t str,
    /// The uid precondition; empty for none.
    pub uid: &'t str,
    /// The subresource; empty for the object itself.
    pub subresource: &'t str,
}

/// A rejected write.
#[derive(Debug, Clone)]
pub struct Rejected(pub Box<Status>);

impl Rejected {
    pub(crate) fn is_not_found(&self) -> bool {
        self.0.code == 404
    }

    pub(crate) fn is_already_exists(&self) -> bool {
        self.0.reason == "AlreadyExists"
    }

    /// The object was recreated, or has another resourceVersion.
    pub(crate) fn is_conflict(&self) -> bool {
        self.0.reason == "Conflict"
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// The namespace is terminating and accepts no new objects.
    ///
    /// UPSTREAM: core/v1 types.go (NamespaceTerminatingCause)
    pub(crate) fn is_namespace_terminating(&self) -> bool {
        let details = self.0.details.as_ref();
        let causes = details.and_then(|details| details.causes.as_ref());
        let mut causes = causes.into_iter().flatten();
        causes.any(|cause| cause.reason == "NamespaceTerminating")
    }
}

/// An update of an object, retried on conflict.
pub type Edit<'e> = &'e (dyn Fn(&mut Value) + Sync);

/// Writes objects through admission.
#[async_trait]
pub trait Api: Send + Sync + 'static {
    /// Creates an object and returns the stored object.
    ///
    /// # Errors
    ///
    /// The server rejected the request.
    async fn create(&self, by: &Author, kind: Kind, object: Value) -> Result<Value, Rejected>;

    /// Updates an object.
    ///
    /// # Errors
    ///
    /// The server rejected the request, or the object does not exist.
    async fn edit(&self, by: &Author, at: Target<'_>, edit: Edit<'_>) -> Result<Value, Rejected>;

    /// Deletes an object with background propagation, by default with the object's own grace period.
    ///
    /// # Errors
    ///
    /// The server rejected the request, or the object does not exist.
    async fn delete(&self, by: &Author, at: Target<'_>, grace: Option<i64>)
    -> Result<(), Rejected>;

    /// Binds a Pod to a node.
    ///
    /// # Errors
    ///
    /// The server rejected the request, or the Pod is bound or deleted.
    async fn bind(&self, pod: Target<'_>, node: &str) -> Result<(), Rejected>;

    /// Signs the certificate signing request of a client or server with the cluster's CA. `None` without a CA or if
    /// the request cannot be parsed.
    fn sign(&self, request_pem: &str, request: SigningTerms<'_>) -> Option<String>;

    /// Returns when the server's derived state is up to date.
    async fn effects_applied(&self);
}

/// The requested usages and lifetime of a certificate.
#[derive(Debug, Clone, Copy)]
pub struct SigningTerms<'t> {
    /// The usages of the request, such as `client auth`.
    pub usages: &'t [String],
    /// The lifetime in seconds.
    pub seconds: i64,
}
