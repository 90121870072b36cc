//! Rules about the `caBundle` of a webhook.

use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{WARNING, levels};
use crate::finding::Grade;
use crate::rule::{Context, Reporter, Rule};
use crate::set::{Hook, Set};

const DAY_SECONDS: i64 = 24 * 60 * 60;
/// The remaining validity below which a certificate causes a warning.
const SOON_DAYS: i64 = 30;
/// The maximum size of a bundle, which is part of every list and watch of the configurations.
const LARGE_BYTES: usize = 64 * 1024;
/// Annotations of controllers that inject the bundle.
const INJECTED: &[&str] = &[
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
    "service.beta.openshift.io/inject-cabundle",
];
/// UPSTREAM: Go crypto/x509 rejects these.
const SHA1: &[&str] = &["1.2.840.113549.1.1.5", "1.2.840.10045.4.1"];

pub(super) static W023: Rule = Rule {
    id: "W023",
    title: "missing, expired or invalid caBundle",
    summary: "An API server verifies the webhook's certificate with the CAs in `caBundle`, or with the system's CAs if it is empty. No \
              system CA signs certificates of Services, and CAs expire: then every call fails.",
    advice: "Let cert-manager or the webhook itself keep `caBundle` current, and rotate CAs before they expire.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: widgets
  annotations: {cert-manager.io/inject-ca-from: widgets/webhook}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(WARNING, WARNING, WARNING),
    check: |context, report| {
        for hook in &context.set.hooks {
            let bundle = hook.webhook.client_config.ca_bundle.as_ref();
            match bundle
                .map(|bundle| bundle.0.as_slice())
                .filter(|bundle| !bundle.is_empty())
            {
                Some(bundle) => check_certificate(context, hook, bundle, report),
                None if hook.service().is_some() && !is_injected(context.set, hook.object) => {
                    let message =
                        String::from("no caBundle: calls of the Service fail until it is injected");
                    report.graded(Grade::Lower, hook, "clientConfig", message);
                }
                None => {}
            }
        }
    },
};

fn is_injected(set: &Set, object: usize) -> bool {
    set.info(object).is_some_and(|info| {
        INJECTED
            .iter()
            .any(|key| info.annotations.contains_key(*key))
    })
}

fn check_certificate(context: &Context<'_>, hook: &Hook, bundle: &[u8], report: &mut Reporter<'_>) {
    const FIELD: &str = "clientConfig.caBundle";
    if bundle.len() > LARGE_BYTES {
        let message = format!("the bundle is {} KiB large", bundle.len() / 1024);
        report.graded(Grade::Lower, hook, FIELD, message);
    }
    let blocks: Vec<Vec<u8>> = Pem::iter_from_buffer(bundle)
        .filter_map(Result::ok)
        .filter(|block| block.label == "CERTIFICATE")
        .map(|block| block.contents)
        .collect();
    let certificates: Vec<X509Certificate<'_>> = blocks
        .iter()
        .filter_map(|der| X509Certificate::from_der(der).ok())
        .map(|(_, certificate)| certificate)
        .collect();
    if certificates.is_empty() {
        report.graded(
            Grade::Higher,
            hook,
            FIELD,
            String::from("the bundle contains no PEM certificate"),
        );
        return;
    }
    let expiry = |certificate: &X509Certificate<'_>| certificate.validity().not_after.timestamp();
    // A bundle is valid as long as one of its CAs is.
    let last = certificates.iter().map(expiry).max().unwrap_or_default();
    let days = (last - context.now).div_euclid(DAY_SECONDS);
    if context.now > 0 && last <= context.now {
        let message = format!(
            "every CA in the bundle has expired, the last one {} days ago",
            (context.now - last) / DAY_SECONDS
        );
        report.graded(Grade::Higher, hook, FIELD, message);
    } else if context.now > 0 && days < SOON_DAYS {
        report.hook(
            hook,
            FIELD,
            format!("the last CA in the bundle expires in {days} days"),
        );
    }
    for certificate in &certificates {
        let subject = certificate.subject();
        let algorithm = certificate.signature_algorithm.algorithm.to_id_string();
        let self_signed = subject.as_raw() == certificate.issuer().as_raw();
        if !certificate.is_ca() && !self_signed {
            let message = format!(
                "`{subject}` is not a CA certificate: it is valid only for a webhook that serves exactly this certificate"
            );
            report.graded(Grade::Lower, hook, FIELD, message);
        }
        if SHA1.contains(&algorithm.as_str()) && !self_signed {
            report.hook(
                hook,
                FIELD,
                format!("`{subject}` is signed with SHA-1, which API servers reject"),
            );
        }
    }
}
