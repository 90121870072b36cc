//! The built-in signers, and the requests that each of them rejects.
//!
//! UPSTREAM: kubernetes pkg/apis/certificates/helpers.go, pkg/controller/certificates/signer/signer.go

use std::collections::BTreeSet;

use lockgate_go::base64;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer as _;

const KIND: &str = "CERTIFICATE REQUEST";

/// A signer that uses the cluster's CA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signer {
    Client,
    KubeletClient,
    KubeletServing,
}

/// The requested subject and alternative names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Requested {
    organizations: Vec<String>,
    common_name: String,
    dns_names: usize,
    emails: usize,
    addresses: usize,
    uris: usize,
}

/// The reason for rejecting a request, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    Organization,
    CommonName,
    NamesRequired,
    NotAllowed(&'static str),
    Usages(&'static str),
    InvalidUsage(String),
    NoClientAuth,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Organization => f.write_str("subject organization is not system:nodes"),
            Self::CommonName => f.write_str("subject common name does not begin with system:node:"),
            Self::NamesRequired => f.write_str("DNS or IP subjectAltName is required"),
            Self::NotAllowed(kind) => write!(f, "{kind} subjectAltNames are not allowed"),
            Self::Usages(auth) => {
                // Sorted, as Go prints a set.
                let mut usages = [*auth, "digital signature", "key encipherment"];
                usages.sort_unstable();
                write!(f, "usages did not match [{}]", usages.join(" "))
            }
            Self::InvalidUsage(usage) => {
                write!(f, "invalid usage for client certificate: {usage}")
            }
            Self::NoClientAuth => {
                f.write_str("missing required usage for client certificate: client auth")
            }
        }
    }
}

impl Requested {
    /// Parses a PKCS#10 request in PEM, and returns it re-encoded without surrounding data: the signed request is the
    /// checked one, even for a more lenient PEM parser.
    pub(super) fn read(pem: &str) -> Option<(Self, String)> {
        let (_, pem) = parse_x509_pem(pem.as_bytes()).ok()?;
        let der = base64::encode(&pem.contents);
        let alone = format!("-----BEGIN {KIND}-----\n{der}\n-----END {KIND}-----\n");
        let (_, request) = X509CertificationRequest::from_der(&pem.contents).ok()?;
        let subject = &request.certification_request_info.subject;
        let mut requested = Self::default();
        for organization in subject.iter_organization() {
            let organization = organization.as_str().ok()?;
            requested.organizations.push(organization.to_owned());
        }
        // Of several common names, Go uses the last one.
        if let Some(name) = subject.iter_common_name().last() {
            name.as_str().ok()?.clone_into(&mut requested.common_name);
        }
        for extension in request.requested_extensions().into_iter().flatten() {
            let ParsedExtension::SubjectAlternativeName(names) = extension else {
                continue;
            };
            for name in &names.general_names {
                match name {
                    GeneralName::DNSName(_) => requested.dns_names += 1,
                    GeneralName::RFC822Name(_) => requested.emails += 1,
                    GeneralName::IPAddress(_) => requested.addresses += 1,
                    GeneralName::URI(_) => requested.uris += 1,
                    _ => {}
                }
            }
        }
        Some((requested, alone))
    }

    fn has_system_nodes_alone(&self) -> Result<(), Refusal> {
        match self.organizations.as_slice() {
            [one] if one == "system:nodes" => Ok(()),
            _ => Err(Refusal::Organization),
        }
    }

    fn is_named_for_a_node(&self) -> Result<(), Refusal> {
        match self.common_name.starts_with("system:node:") {
            true => Ok(()),
            false => Err(Refusal::CommonName),
        }
    }
}

fn none_of(kind: &'static str, count: usize) -> Result<(), Refusal> {
    match count {
        0 => Ok(()),
        _ => Err(Refusal::NotAllowed(kind)),
    }
}

impl Signer {
    /// The signer of a name; `None` if it is not implemented here.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "kubernetes.io/kube-apiserver-client" => Some(Self::Client),
            "kubernetes.io/kube-apiserver-client-kubelet" => Some(Self::KubeletClient),
            "kubernetes.io/kubelet-serving" => Some(Self::KubeletServing),
            _ => None,
        }
    }

    /// Rejects requests that the signer does not sign. The checks have upstream's order, since only one error is
    /// reported.
    pub(super) fn check(self, requested: &Requested, usages: &[String]) -> Result<(), Refusal> {
        match self {
            Self::Client => client_usages(usages),
            Self::KubeletClient => {
                requested.has_system_nodes_alone()?;
                none_of("DNS", requested.dns_names)?;
                none_of("Email", requested.emails)?;
                none_of("IP", requested.addresses)?;
                none_of("URI", requested.uris)?;
                requested.is_named_for_a_node()?;
                node_usages("client auth", usages)
            }
            Self::KubeletServing => {
                requested.has_system_nodes_alone()?;
                if requested.dns_names == 0 && requested.addresses == 0 {
                    return Err(Refusal::NamesRequired);
                }
                none_of("Email", requested.emails)?;
                none_of("URI", requested.uris)?;
                node_usages("server auth", usages)?;
                requested.is_named_for_a_node()
            }
        }
    }
}

/// Kubelets request exactly these usages; key encipherment is for RSA keys only.
fn node_usages(auth: &'static str, usages: &[String]) -> Result<(), Refusal> {
    let asked: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
    let least = BTreeSet::from([auth, "digital signature"]);
    let mut most = least.clone();
    most.insert("key encipherment");
    match asked == least || asked == most {
        true => Ok(()),
        false => Err(Refusal::Usages(auth)),
    }
}

fn client_usages(usages: &[String]) -> Result<(), Refusal> {
    let is_known = |usage: &str| {
        matches!(
            usage,
            "client auth" | "digital signature" | "key encipherment"
        )
    };
    if let Some(other) = usages.iter().find(|usage| !is_known(usage)) {
        return Err(Refusal::InvalidUsage(other.clone()));
    }
    match usages.iter().any(|usage| usage == "client auth") {
        true => Ok(()),
        false => Err(Refusal::NoClientAuth),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Requested {
        Requested {
            organizations: vec![String::from("system:nodes")],
            common_name: String::from("system:node:one"),
            ..Requested::default()
        }
    }

    fn refused(signer: Signer, requested: &Requested, usages: &[&str]) -> String {
        let usages: Vec<String> = usages.iter().map(|usage| (*usage).to_owned()).collect();
        match signer.check(requested, &usages) {
            Ok(()) => String::new(),
            Err(refusal) => refusal.to_string(),
        }
    }

    const SIGNATURE: &str = "digital signature";
    const CLIENT: &str = "client auth";
    const SERVER: &str = "server auth";
    const KEYS: &str = "key encipherment";

    #[test]
    fn signers_have_names() {
        assert_eq!(
            Signer::of("kubernetes.io/kubelet-serving"),
            Some(Signer::KubeletServing)
        );
        assert_eq!(Signer::of("example.com/own"), None);
        assert_eq!(Signer::of("kubernetes.io/legacy-unknown"), None);
    }

    #[test]
    fn only_nodes_get_the_certificates_of_kubelets() {
        let refused = |requested: Requested, usages: &[&str]| {
            refused(Signer::KubeletClient, &requested, usages)
        };
        let usages = [SIGNATURE, CLIENT];
        assert_eq!(refused(node(), &usages), "");
        assert_eq!(refused(node(), &[SIGNATURE, KEYS, CLIENT]), "");
        for (organizations, common_name, want) in [
            (
                &["dev"][..],
                "system:node:one",
                "subject organization is not system:nodes",
            ),
            (
                &[],
                "system:node:one",
                "subject organization is not system:nodes",
            ),
            (
                &["system:nodes", "system:masters"],
                "system:node:one",
                "subject organization is not system:nodes",
            ),
            (
                &["system:nodes"],
                "jane",
                "subject common name does not begin with system:node:",
            ),
        ] {
            let requested = Requested {
                organizations: organizations.iter().map(|one| (*one).to_owned()).collect(),
                common_name: common_name.to_owned(),
                ..Requested::default()
            };
            assert_eq!(refused(requested, &usages), want);
        }
        let named = |change: fn(&mut Requested)| {
            let mut requested = node();
            change(&mut requested);
            refused(requested, &usages)
        };
        assert_eq!(
            named(|it| it.dns_names = 1),
            "DNS subjectAltNames are not allowed"
        );
        assert_eq!(
            named(|it| it.emails = 1),
            "Email subjectAltNames are not allowed"
        );
        assert_eq!(
            named(|it| it.addresses = 1),
            "IP subjectAltNames are not allowed"
        );
        assert_eq!(
            named(|it| it.uris = 1),
            "URI subjectAltNames are not allowed"
        );
        for usages in [&[CLIENT][..], &[SIGNATURE, CLIENT, SERVER], &[]] {
            assert_eq!(
                refused(node(), usages),
                "usages did not match [client auth digital signature key encipherment]"
            );
        }
    }

    #[test]
    fn the_certificate_of_a_serving_kubelet_has_names() {
        let refused = |requested: Requested, usages: &[&str]| {
            refused(Signer::KubeletServing, &requested, usages)
        };
        let usages = [SIGNATURE, KEYS, SERVER];
        let named = |change: fn(&mut Requested)| {
            let mut requested = node();
            requested.dns_names = 1;
            change(&mut requested);
            requested
        };
        assert_eq!(refused(named(|_| {}), &usages), "");
        assert_eq!(
            refused(named(|it| (it.dns_names, it.addresses) = (0, 1)), &usages),
            ""
        );
        assert_eq!(
            refused(node(), &usages),
            "DNS or IP subjectAltName is required"
        );
        assert_eq!(
            refused(named(|it| it.emails = 1), &usages),
            "Email subjectAltNames are not allowed"
        );
        assert_eq!(
            refused(named(|it| it.uris = 1), &usages),
            "URI subjectAltNames are not allowed"
        );
        // Usages are checked before the common name.
        let stranger = |it: &mut Requested| it.common_name = String::from("jane");
        assert_eq!(
            refused(named(stranger), &[SIGNATURE, CLIENT]),
            "usages did not match [digital signature key encipherment server auth]"
        );
        assert_eq!(
            refused(named(stranger), &usages),
            "subject common name does not begin with system:node:"
        );
    }

    #[test]
    fn clients_of_the_server_are_clients_and_nothing_else() {
        let anybody = Requested::default();
        let refused = |usages: &[&str]| refused(Signer::Client, &anybody, usages);
        assert_eq!(refused(&[CLIENT]), "");
        assert_eq!(refused(&[KEYS, SIGNATURE, CLIENT]), "");
        assert_eq!(
            refused(&[CLIENT, SERVER]),
            "invalid usage for client certificate: server auth"
        );
        assert_eq!(
            refused(&[SIGNATURE]),
            "missing required usage for client certificate: client auth"
        );
    }
}
