//! Rules about the URLs of webhooks.

use std::net::{IpAddr, Ipv4Addr};

use super::{ERROR, NOTE, WARNING, levels};
use crate::finding::Grade;
use crate::rule::Rule;
use crate::set::Hook;

/// Host names of cloud metadata services, which serve instance credentials.
const METADATA_HOSTS: &[&str] = &["metadata.google.internal", "metadata.goog", "instance-data"];

/// The host of the webhook's URL, in lower case and without brackets.
fn host(hook: &Hook) -> Option<String> {
    let url = hook.webhook.client_config.url.as_deref()?;
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host_and_port = authority.rsplit('@').next()?;
    let host = match host_and_port.strip_prefix('[') {
        Some(v6) => v6.split(']').next()?,
        None => host_and_port.split(':').next()?,
    };
    Some(host.trim_end_matches('.').to_ascii_lowercase())
}

pub(super) static W024: Rule = Rule {
    id: "W024",
    title: "URL resolves differently on each API server",
    summary: "Every API server resolves the URL itself. `localhost` is a different host for each of them, and most control planes \
              cannot resolve the DNS names of Services.",
    advice: "Use `clientConfig.service` for webhooks in the cluster, and an externally resolvable name for others.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {url: 'https://webhook.widgets.svc:8443/validate'}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook, port: 8443, path: /validate}}
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
            let Some(host) = host(hook) else {
                continue;
            };
            let is_loopback = host
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback());
            let message = match host.as_str() {
                name if is_loopback || name == "localhost" || name.ends_with(".localhost") => {
                    format!("`{host}` is the host of each API server")
                }
                name if name.ends_with(".svc")
                    || name.contains(".svc.")
                    || name.ends_with(".cluster.local") =>
                {
                    format!("`{host}` is a cluster DNS name, which API servers do not resolve")
                }
                _ => continue,
            };
            report.hook(hook, "clientConfig.url", message);
        }
    },
};

pub(super) static W025: Rule = Rule {
    id: "W025",
    title: "URL to a private address",
    summary: "API servers reach networks that users do not. A user who can write webhook configurations can make them send requests \
              there and read the responses in errors (CVE-2020-8561), for example credentials from a cloud metadata service.",
    advice: "Call a Service or a public name, and restrict write access to webhook configurations.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {url: 'https://169.254.169.254/latest/'}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {url: 'https://hooks.example.com/widgets'}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(WARNING, NOTE, ERROR),
    check: |context, report| {
        for hook in &context.set.hooks {
            let Some(host) = host(hook) else {
                continue;
            };
            let address = host.parse::<IpAddr>().ok();
            let (grade, what) = match address {
                _ if METADATA_HOSTS.contains(&host.as_str()) => {
                    (Grade::Usual, "a cloud metadata service")
                }
                Some(address) if is_link_local(address) => (
                    Grade::Usual,
                    "a link-local address, like those of metadata services",
                ),
                Some(address) if is_private(address) => (Grade::Lower, "a private address"),
                _ => continue,
            };
            report.graded(
                grade,
                hook,
                "clientConfig.url",
                format!("`{host}` is {what}"),
            );
        }
    },
};

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => mapped.is_link_local(),
            None => {
                address.is_unicast_link_local() || address.segments().starts_with(&[0xfd00, 0xec2])
            }
        },
    }
}

fn is_private(address: IpAddr) -> bool {
    let of_v4 = |address: Ipv4Addr| address.is_private() || address.is_unspecified();
    match address {
        IpAddr::V4(address) => of_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => of_v4(mapped),
            None => address.is_unique_local() || address.is_unspecified(),
        },
    }
}
