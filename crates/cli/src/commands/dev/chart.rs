//! Applies rendered charts: objects in any order, without their namespaces, with kinds of operators that are not
//! installed.
//!
//! For each unknown kind it creates a CustomResourceDefinition that preserves unknown fields, so that objects are
//! stored and can be read. A cert-manager Certificate immediately yields its Secret, with the certificate of the
//! webhook.

use std::collections::BTreeSet;

use lockgate_api::document::yaml;
use lockgate_apiserver::{Access, Running};
use serde_json::{Value, json};

use super::authority::Pair;
use crate::commands::CommandError;
use crate::output::Printer;
use crate::text::Source;

/// Applies manifests. A rejected webhook configuration or policy is an error; other rejected objects are
/// warnings.
pub(super) async fn apply(
    running: &Running,
    sources: &[Source],
    pair: &Pair,
) -> Result<(), CommandError> {
    let chart = Chart::read(sources)?;
    for made in chart.generated_prerequisites(&running.access(), pair) {
        let text = made.to_string();
        let applied = running.apply(&text).await;
        if let Err(error) = applied {
            Printer::note(&format!("Warning: cannot define {error}"));
        }
    }
    let mut count = 0;
    for (source, object) in &chart.objects {
        let applied = match running.apply(&object.to_string()).await {
            Ok(applied) => applied,
            Err(error) if rank(object) == LAST => {
                let message = format!("cannot apply `{source}`: {error}");
                return Err(CommandError::invalid_input(message));
            }
            Err(error) => {
                Printer::note(&format!("Warning: not applied: {error}"));
                continue;
            }
        };
        count += 1;
        for warning in &applied.warnings {
            Printer::note(&format!("Warning: {warning}"));
        }
    }
    if !chart.objects.is_empty() {
        let total = chart.objects.len();
        Printer::note(&format!("applied {count} of {total} objects"));
    }
    Ok(())
}

/// The rank of objects that activate webhooks; they are applied last.
const LAST: u8 = 3;

/// The order of installation.
fn rank(object: &Value) -> u8 {
    match (text(object, "/apiVersion"), text(object, "/kind")) {
        ("v1", "Namespace") => 0,
        (version, "CustomResourceDefinition") if version.starts_with("apiextensions.k8s.io/") => 1,
        (version, _) if version.starts_with("admissionregistration.k8s.io/") => LAST,
        _ => 2,
    }
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The objects of all manifests in apply order, with their file names.
#[derive(Debug)]
struct Chart {
    objects: Vec<(String, Value)>,
}

impl Chart {
    fn read(sources: &[Source]) -> Result<Self, CommandError> {
        let mut objects = Vec::new();
        for source in sources {
            let invalid = |error: &dyn std::fmt::Display| {
                CommandError::invalid_input(format!("`{}`: {error}", source.name))
            };
            let documents = yaml::parse_all(&source.text).map_err(|error| invalid(&error))?;
            for document in documents {
                let object: Value = serde_json::from_str(&document.root().to_json())
                    .map_err(|error| invalid(&error))?;
                // Templates that render nothing leave empty documents.
                match object.get("items").and_then(Value::as_array) {
                    _ if object.is_null() => {}
                    Some(items) if text(&object, "/kind") == "List" => {
                        let items = items.iter().cloned();
                        objects.extend(items.map(|item| (source.name.clone(), item)));
                    }
                    _ => objects.push((source.name.clone(), object)),
                }
            }
        }
        objects.sort_by_key(|(_, object)| rank(object));
        Ok(Self { objects })
    }

    /// Prerequisites that the manifests do not contain.
    fn generated_prerequisites(&self, access: &Access, pair: &Pair) -> Vec<Value> {
        let mut made = self.namespaces();
        for definition in self.definitions(|version, kind| access.serves(version, kind)) {
            let (group, kind) = (
                text(&definition, "/spec/group"),
                text(&definition, "/spec/names/kind"),
            );
            Printer::note(&format!(
                "unknown kind {kind} of {group}: objects are stored without further effect"
            ));
            made.push(definition);
        }
        made.extend(
            self.objects
                .iter()
                .filter_map(|(_, object)| secret(object, pair)),
        );
        made
    }

    /// Namespaces that the objects use and the manifests do not contain.
    fn namespaces(&self) -> Vec<Value> {
        let used = self
            .objects
            .iter()
            .map(|(_, object)| text(object, "/metadata/namespace"));
        let used: BTreeSet<&str> = used.filter(|name| !name.is_empty()).collect();
        let is_written = |name: &&str| {
            let mut all = self.objects.iter();
            all.any(|(_, object)| rank(object) == 0 && text(object, "/metadata/name") == *name)
        };
        let missing = used.into_iter().filter(|name| !is_written(name));
        missing
            .map(
                |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
            )
            .collect()
    }

    /// CustomResourceDefinitions for kinds that are neither served nor defined in the manifests.
    fn definitions(&self, is_served: impl Fn(&str, &str) -> bool) -> Vec<Value> {
        let is_defined = |group: &str, kind: &str| {
            let mut all = self.objects.iter().filter(|(_, object)| rank(object) == 1);
            all.any(|(_, object)| {
                text(object, "/spec/group") == group && text(object, "/spec/names/kind") == kind
            })
        };
        let mut known = BTreeSet::new();
        let mut made: Vec<Value> = Vec::new();
        for (_, object) in &self.objects {
            let (version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
            let Some((group, short)) = version.split_once('/') else {
                continue;
            };
            if is_served(version, kind) || is_defined(group, kind) || !known.insert((version, kind))
            {
                continue;
            }
            let namespaced =
                !kind.starts_with("Cluster") || !text(object, "/metadata/namespace").is_empty();
            let same = |one: &&mut Value| {
                text(one, "/spec/group") == group && text(one, "/spec/names/kind") == kind
            };
            match made.iter_mut().find(same) {
                Some(definition) => {
                    if let Some(versions) = definition
                        .pointer_mut("/spec/versions")
                        .and_then(Value::as_array_mut)
                    {
                        versions.push(played_version(short, false));
                    }
                }
                None => made.push(definition(group, short, kind, namespaced)),
            }
        }
        made
    }
}

fn played_version(name: &str, storage: bool) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"name": name, "served": true, "storage": storage, "schema": schema})
}

fn definition(group: &str, version: &str, kind: &str, namespaced: bool) -> Value {
    let singular = kind.to_lowercase();
    // UPSTREAM: apimachinery pkg/api/meta/restmapper.go UnsafeGuessKindToResource
    let plural = match singular.as_str() {
        word if word.ends_with('s') => format!("{word}es"),
        word if word.ends_with('y') => format!("{}ies", &word[..word.len() - 1]),
        word => format!("{word}s"),
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, created by lockgate dev"},
        },
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": singular, "listKind": format!("{kind}List")},
            "scope": if namespaced { "Namespaced" } else { "Cluster" },
            "versions": [played_version(version, true)],
        },
    })
}

/// The Secret of a cert-manager Certificate.
fn secret(certificate: &Value, pair: &Pair) -> Option<Value> {
    let is_certificate = text(certificate, "/apiVersion").starts_with("cert-manager.io/")
        && text(certificate, "/kind") == "Certificate";
    let name = text(certificate, "/spec/secretName");
    if !is_certificate || name.is_empty() {
        return None;
    }
    let namespace = match text(certificate, "/metadata/namespace") {
        "" => "default",
        namespace => namespace,
    };
    Some(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": pair.authority},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(text: &str) -> Chart {
        Chart::read(&[Source::new("chart.yaml", text)]).unwrap()
    }

    fn names(objects: &[Value]) -> Vec<&str> {
        objects
            .iter()
            .map(|object| text(object, "/metadata/name"))
            .collect()
    }

    #[test]
    fn puts_webhooks_last_and_what_others_need_first() {
        let chart = chart(
            "
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: hook}}
---
---
{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Service, metadata: {name: service}}]}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: definition}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
",
        );
        let objects: Vec<Value> = chart
            .objects
            .into_iter()
            .map(|(_, object)| object)
            .collect();
        assert_eq!(names(&objects), ["shop", "definition", "service", "hook"]);
    }

    #[test]
    fn makes_namespaces_and_definitions_that_nobody_wrote() {
        let chart = chart(
            "
{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: known}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: known}}
---
{apiVersion: cert-manager.io/v1, kind: Issuer, metadata: {name: i, namespace: shop}}
---
{apiVersion: cert-manager.io/v1, kind: ClusterIssuer, metadata: {name: c}}
---
{apiVersion: example.com/v1, kind: Policy, metadata: {name: p}}
---
{apiVersion: example.com/v2, kind: Policy, metadata: {name: q}}
---
{apiVersion: defined.example.com/v1, kind: Thing, metadata: {name: t}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.defined.example.com}, spec: {group: defined.example.com, names: {kind: Thing}}}
",
        );
        assert_eq!(names(&chart.namespaces()), ["shop"]);
        let is_served = |version: &str, _: &str| version == "apiextensions.k8s.io/v1";
        let made = chart.definitions(is_served);
        assert_eq!(
            names(&made),
            [
                "issuers.cert-manager.io",
                "clusterissuers.cert-manager.io",
                "policies.example.com"
            ]
        );
        let scopes: Vec<&str> = made.iter().map(|one| text(one, "/spec/scope")).collect();
        assert_eq!(scopes, ["Namespaced", "Cluster", "Namespaced"]);
        assert_eq!(made[2]["spec"]["versions"][1]["name"], "v2");
    }

    #[test]
    fn a_certificate_becomes_a_secret() {
        let pair = Pair {
            certificate: String::from("c"),
            key: String::from("k"),
            authority: String::from("a"),
        };
        let certificate = json!({"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": "s", "namespace": "shop"}, "spec": {"secretName": "tls"}});
        let made = secret(&certificate, &pair).unwrap();
        assert_eq!(
            made["metadata"],
            json!({"name": "tls", "namespace": "shop"})
        );
        assert_eq!(made["stringData"]["ca.crt"], "a");
        assert_eq!(secret(&json!({"kind": "Certificate"}), &pair), None);
    }
}
