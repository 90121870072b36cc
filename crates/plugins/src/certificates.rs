//! `CertificateApproval`, `CertificateSigning`, `CertificateSubjectRestriction` and
//! `ClusterTrustBundleAttest`: permissions on signers.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/certificates, pkg/certauthorization

mod der;

use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request};
use lockgate_api::access::Authorizer;
use lockgate_go::quote::quote;
use serde_json::Value;

use crate::access::{ResourceAttributes, authorize};
use crate::fields::{at, text_at};
use crate::rules::{About, CREATE, Refusal, Rules, UPDATE, Verdict, WRITE, object, old_object};

pub(crate) use der::subject_of_request;

const GROUP: &str = "certificates.k8s.io";

/// The signer of client certificates that the API server trusts.
const API_CLIENT: &str = "kubernetes.io/kube-apiserver-client";

const MASTERS: &str = "system:masters";

/// Returns true if the user is allowed the verb on the signer, or on all signers of its domain.
fn is_authorized(
    authorizer: &Arc<dyn Authorizer>,
    request: &Request,
    verb: &str,
    signer: &str,
) -> bool {
    let may_use = |name: &str| {
        let attributes = ResourceAttributes {
            group: GROUP,
            resource: "signers",
            name,
            ..ResourceAttributes::default()
        };
        authorize(authorizer, request, verb, attributes).allowed
    };
    let domain = signer.split('/').next().unwrap_or_default();
    may_use(signer) || may_use(&format!("{domain}/*"))
}

fn signer_of(object: &Value) -> &str {
    text_at(object, &["spec", "signerName"])
}

/// Requires the permission to approve requests of the signer.
#[derive(Debug, Clone)]
pub struct CertificateApproval {
    authorizer: Arc<dyn Authorizer>,
}

impl CertificateApproval {
    /// Creates the plugin.
    #[must_use]
    pub fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer }
    }
}

impl Rules for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn operations(&self) -> &'static [Operation] {
        UPDATE
    }

    fn validates(&self) -> &'static [About] {
        const APPROVALS: About = About {
            operations: UPDATE,
            group: GROUP,
            resources: &["certificatesigningrequests/approval"],
        };
        &[APPROVALS]
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let request = ask.request();
        let signer = signer_of(old_object(request));
        if is_authorized(&self.authorizer, request, "approve", signer) {
            return Ok(());
        }
        Err(Refusal::forbidden(format!(
            "user not permitted to approve requests with signerName {}",
            quote(signer)
        )))
    }
}

/// Requires the permission to sign for the signer.
#[derive(Debug, Clone)]
pub struct CertificateSigning {
    authorizer: Arc<dyn Authorizer>,
}

impl CertificateSigning {
    /// Creates the plugin.
    #[must_use]
    pub fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer }
    }
}

impl Rules for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn operations(&self) -> &'static [Operation] {
        UPDATE
    }

    fn validates(&self) -> &'static [About] {
        const STATUS: About = About {
            operations: UPDATE,
            group: GROUP,
            resources: &["certificatesigningrequests/status"],
        };
        &[STATUS]
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let request = ask.request();
        let (old, new) = (old_object(request), object(request));
        let same = |member: &str| at(old, &["status", member]) == at(new, &["status", member]);
        if same("certificate") && same("conditions") {
            return Ok(());
        }
        let signer = signer_of(old);
        if is_authorized(&self.authorizer, request, "sign", signer) {
            return Ok(());
        }
        Err(Refusal::forbidden(format!(
            "user not permitted to sign requests with signerName {}",
            quote(signer)
        )))
    }
}

/// Denies certificates for the group `system:masters`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CertificateSubjectRestriction;

impl Rules for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn operations(&self) -> &'static [Operation] {
        CREATE
    }

    fn validates(&self) -> &'static [About] {
        const REQUESTS: About = About {
            operations: CREATE,
            group: GROUP,
            resources: &["certificatesigningrequests"],
        };
        &[REQUESTS]
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let request = object(ask.request());
        if signer_of(request) != API_CLIENT {
            return Ok(());
        }
        let subject = subject_of_request(text_at(request, &["spec", "request"]));
        let subject =
            subject.map_err(|error| Refusal::forbidden(format!("failed to parse CSR: {error}")))?;
        if subject.organizations.iter().any(|name| name == MASTERS) {
            return Err(Refusal::forbidden(format!(
                "use of {API_CLIENT} signer with {MASTERS} group is not allowed"
            )));
        }
        Ok(())
    }
}

/// Requires the permission to attest for the signer.
#[derive(Debug, Clone)]
pub struct ClusterTrustBundleAttest {
    authorizer: Arc<dyn Authorizer>,
    on: bool,
}

impl ClusterTrustBundleAttest {
    /// Creates the plugin, with the gate `ClusterTrustBundle`.
    #[must_use]
    pub fn new(authorizer: Arc<dyn Authorizer>, on: bool) -> Self {
        Self { authorizer, on }
    }
}

/// The object without fields that others than its author change.
fn essence(bundle: &Value) -> Value {
    let mut bundle = bundle.clone();
    let metadata = bundle.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata {
        for member in [
            "ownerReferences",
            "finalizers",
            "managedFields",
            "resourceVersion",
            "generation",
        ] {
            metadata.remove(member);
        }
    }
    bundle
}

impl Rules for ClusterTrustBundleAttest {
    fn name(&self) -> &'static str {
        "ClusterTrustBundleAttest"
    }

    fn validates(&self) -> &'static [About] {
        const BUNDLES: About = About {
            operations: WRITE,
            group: GROUP,
            resources: &["clustertrustbundles"],
        };
        &[BUNDLES]
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let request = ask.request();
        let bundle = object(request);
        let is_update = request.operation == Operation::Update;
        if is_update && essence(bundle) == essence(old_object(request)) {
            return Ok(());
        }
        let signer = signer_of(bundle);
        if !self.on
            || signer.is_empty()
            || is_authorized(&self.authorizer, request, "attest", signer)
        {
            return Ok(());
        }
        Err(Refusal::forbidden(format!(
            "user not permitted to attest for signerName {}",
            quote(signer)
        )))
    }
}
