//! Keys and values in etcd in kube-apiserver's layout.
//!
//! ```text
//!   /core/pods/default/a        ◄─►  /registry/pods/default/a
//!   /custom:shop.io/carts/a/b   ◄─►  /registry/shop.io/carts/a/b
//!   {"apiVersion":"v1",…}       ◄─►  {"kind":"Pod","apiVersion":"v1",…}
//!                               ◄──  {"apiVersion":"v1","kind":"Pod",…}, or the same in protobuf
//! ```
//!
//! UPSTREAM: kubernetes pkg/kubeapiserver/default_storage_factory_builder.go (SpecialDefaultResourcePrefixes),
//! apiserver pkg/server/storage/storage_factory.go, apiextensions-apiserver pkg/apiserver/customresource_handler.go

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use lockgate_api::kube_version::KubeVersion;
use lockgate_go::json;
use lockgate_kinds::protobuf::{Envelope, MAGIC};
use lockgate_store::Layout;
use serde_json::Value;

use crate::encoding;
use crate::registry::{Registry, Resource};

/// The key prefix of CustomResourceDefinitions in this store.
const DEFINITIONS: &str = "/apiextensions.k8s.io/customresourcedefinitions/";

/// The version in which kube-apiserver stores CustomResourceDefinitions.
///
/// UPSTREAM: kubernetes pkg/kubeapiserver/default_storage_factory_builder.go, apiextensions-apiserver
/// pkg/apis/apiextensions/install (the first of its versions)
const DEFINITION_VERSION: &str = "apiextensions.k8s.io/v1beta1";

/// The start of written values.
const KIND: &str = "{\"kind\":\"";

/// The layout of kube-apiserver.
#[derive(Debug)]
pub struct KubernetesLayout {
    /// Prefixes of built-in resources in etcd, by their prefix in this store.
    to_etcd: HashMap<String, String>,
    /// The reverse mapping.
    from_etcd: HashMap<String, String>,
    /// The built-in resources by their prefix in this store.
    resources: HashMap<String, Arc<Resource>>,
    /// Resources by their prefix in this store. CustomResourceDefinitions are added when they are seen.
    kinds: RwLock<HashMap<String, String>>,
}

impl Default for KubernetesLayout {
    fn default() -> Self {
        Self::new()
    }
}

impl KubernetesLayout {
    /// Creates the layout of all built-in resources.
    #[must_use]
    pub fn new() -> Self {
        let registry = Registry::new(KubeVersion::REFERENCE, None);
        let snapshot = registry.snapshot();
        let mut layout = Self {
            to_etcd: HashMap::new(),
            from_etcd: HashMap::new(),
            resources: HashMap::new(),
            kinds: RwLock::default(),
        };
        let mut kinds = HashMap::new();
        for resource in snapshot.storage_versions() {
            let (group, plural) = (resource.storage.0.as_str(), resource.storage.1.as_str());
            let theirs = format!("/{}/", resource.etcd_prefix());
            let ours = encoding::prefix(group, plural, None);
            kinds.insert(ours.clone(), resource.kind().to_owned());
            layout.resources.insert(ours.clone(), Arc::clone(resource));
            layout.from_etcd.insert(theirs.clone(), ours.clone());
            layout.to_etcd.insert(ours, theirs);
        }
        layout.kinds = RwLock::new(kinds);
        layout
    }

    /// Converts the prefix of a resource from this store to etcd.
    fn theirs(&self, ours: &str) -> Option<String> {
        if let Some(theirs) = self.to_etcd.get(ours) {
            return Some(theirs.clone());
        }
        let group = ours.strip_prefix('/')?.strip_prefix(encoding::CUSTOM)?;
        Some(format!("/{group}"))
    }

    fn learn(&self, key: &str, value: &[u8]) {
        if !key.starts_with(DEFINITIONS) {
            return;
        }
        let Some(definition) = encoding::tree(value) else {
            return;
        };
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str);
        let names = (
            text("/spec/group"),
            text("/spec/names/plural"),
            text("/spec/names/kind"),
        );
        if let (Some(group), Some(plural), Some(kind)) = names {
            let prefix = encoding::prefix(&encoding::custom_space(group), plural, None);
            let mut kinds = self.kinds.write().unwrap_or_else(PoisonError::into_inner);
            kinds.insert(prefix, kind.to_owned());
        }
    }
}

/// The first two parts of a key, and the rest.
fn split(key: &str) -> Option<(&str, &str)> {
    let (end, _) = key.match_indices('/').nth(2)?;
    key.split_at_checked(end + 1)
}

impl Layout for KubernetesLayout {
    fn encode_key(&self, key: &str) -> String {
        let found = split(key).and_then(|(prefix, rest)| Some((self.theirs(prefix)?, rest)));
        match found {
            Some((prefix, rest)) => format!("{prefix}{rest}"),
            // Nothing is stored under such a key.
            None => format!("/lockgate.io{key}"),
        }
    }

    fn decode_key(&self, key: &str) -> Option<String> {
        if let Some(key) = key.strip_prefix("/lockgate.io/") {
            return Some(format!("/{key}"));
        }
        let mut slashes = key.match_indices('/').skip(1);
        let (one, two) = (slashes.next()?.0, slashes.next().map(|(two, _)| two));
        // A prefix with two parts first: `services/specs`, and groups.
        for end in two.into_iter().chain([one]) {
            let (prefix, rest) = key.split_at_checked(end + 1)?;
            if let Some(ours) = self.from_etcd.get(prefix) {
                return Some(format!("{ours}{rest}"));
            }
        }
        // Groups of CustomResourceDefinitions contain a dot; other keys are kube-apiserver's own.
        let group = key.get(1..one)?;
        let is_custom = group.contains('.') && two.is_some();
        is_custom.then(|| format!("/{}{}", encoding::CUSTOM, key.trim_start_matches('/')))
    }

    fn encode_prefix(&self, prefix: &str) -> Option<String> {
        let (resource, rest) = split(prefix)?;
        Some(format!("{}{rest}", self.theirs(resource)?))
    }

    fn encode_value(&self, key: &str, value: Bytes) -> Bytes {
        self.learn(key, &value);
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
        let kind = split(key).and_then(|(prefix, _)| kinds.get(prefix));
        let members = std::str::from_utf8(&value).ok();
        let members = members.and_then(|text| text.strip_prefix('{'));
        match (kind, members) {
            (Some(kind), Some(members)) => {
                let mut text = String::with_capacity(value.len() + kind.len() + KIND.len() + 2);
                text.push_str("{\"kind\":");
                text.push_str(&json::to_string(kind.as_str()));
                if members != "}" {
                    text.push(',');
                }
                text.push_str(members);
                text.into()
            }
            _ => value,
        }
    }

    fn decode_value(&self, key: &str, value: Bytes) -> Bytes {
        let resource = split(key).and_then(|(prefix, _)| self.resources.get(prefix));
        let value = decode(&value, resource.map(Arc::as_ref)).unwrap_or(value);
        self.learn(key, &value);
        value
    }
}

/// Converts a stored value to this server's format; `None` if it has it already or cannot be decoded.
fn decode(value: &[u8], resource: Option<&Resource>) -> Option<Bytes> {
    if value.starts_with(&MAGIC) {
        let mut object = Envelope::open(value).ok()?.object()?;
        // Kube-apiserver does so on every read.
        if let Some(resource) = resource.filter(|it| object["apiVersion"] == it.api_version()) {
            resource.shape.apply_defaults(&mut object);
        }
        return Some(encoding::encode(&object));
    }
    let text = std::str::from_utf8(value).ok()?;
    // Written by this server: only the kind is removed.
    if let Some((_, members)) = text.strip_prefix(KIND).and_then(|it| it.split_once("\",")) {
        let ours = format!("{{{members}");
        let version = members.strip_prefix("\"apiVersion\":\"");
        let is_definition = version.is_some_and(|it| it.starts_with(DEFINITION_VERSION));
        if !is_definition && encoding::is_stored_form(&ours) {
            return Some(ours.into());
        }
    }
    let mut object = encoding::tree(value).filter(Value::is_object)?;
    object.get("kind")?;
    if object["apiVersion"] == DEFINITION_VERSION {
        definition_to_v1(&mut object);
    }
    Some(encoding::encode(&object))
}

/// Converts a CustomResourceDefinition to v1: fields common to all versions are copied to each version.
///
/// UPSTREAM: apiextensions-apiserver pkg/apis/apiextensions/{v1beta1,v1}/conversion.go
fn definition_to_v1(definition: &mut Value) {
    definition["apiVersion"] = "apiextensions.k8s.io/v1".into();
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    spec.remove("version");
    let common = [
        ("schema", spec.remove("validation")),
        ("subresources", spec.remove("subresources")),
        (
            "additionalPrinterColumns",
            spec.remove("additionalPrinterColumns"),
        ),
    ];
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(false)) {
        spec.remove("preserveUnknownFields");
    }
    let versions = spec.get_mut("versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        let Some(version) = version.as_object_mut() else {
            continue;
        };
        for (member, value) in &common {
            if let (Some(value), None) = (value, version.get(*member)) {
                version.insert((*member).to_owned(), value.clone());
            }
        }
        let columns = version.get_mut("additionalPrinterColumns");
        for column in columns.and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(column) = column.as_object_mut()
                && let Some(path) = column.remove("JSONPath")
            {
                column.insert(String::from("jsonPath"), path);
            }
        }
    }
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) {
        let client = conversion.remove("webhookClientConfig");
        let reviews = conversion.remove("conversionReviewVersions");
        if conversion.get("strategy").and_then(Value::as_str) == Some("Webhook") {
            let mut webhook = serde_json::Map::new();
            for (member, value) in [
                ("clientConfig", client),
                ("conversionReviewVersions", reviews),
            ] {
                if let Some(value) = value {
                    webhook.insert(member.to_owned(), value);
                }
            }
            conversion.insert(String::from("webhook"), webhook.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use lockgate_kinds::protobuf;
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_those_of_kube_apiserver() {
        let layout = KubernetesLayout::new();
        for (ours, theirs) in [
            ("/core/pods/default/a", "/pods/default/a"),
            ("/core/services/default/a", "/services/specs/default/a"),
            ("/core/endpoints/default/a", "/services/endpoints/default/a"),
            ("/core/nodes/a", "/minions/a"),
            ("/core/replicationcontrollers/x/a", "/controllers/x/a"),
            ("/networking.k8s.io/ingresses/x/a", "/ingress/x/a"),
            ("/apps/deployments/x/a", "/deployments/x/a"),
            ("/coordination.k8s.io/leases/x/a", "/leases/x/a"),
            (
                "/apiextensions.k8s.io/customresourcedefinitions/carts.shop.io",
                "/apiextensions.k8s.io/customresourcedefinitions/carts.shop.io",
            ),
            (
                "/apiregistration.k8s.io/apiservices/v1.",
                "/apiregistration.k8s.io/apiservices/v1.",
            ),
            ("/custom:shop.io/carts/x/a", "/shop.io/carts/x/a"),
            ("/custom:shop.io/carts/a", "/shop.io/carts/a"),
        ] {
            assert_eq!(layout.encode_key(ours), theirs);
            assert_eq!(layout.decode_key(theirs).as_deref(), Some(ours));
        }
        assert_eq!(
            layout.encode_prefix("/core/pods/default/").as_deref(),
            Some("/pods/default/")
        );
        assert_eq!(layout.encode_prefix("/"), None);
        assert_eq!(layout.encode_prefix("/apps/"), None);
        // Kube-apiserver's own keys: allocations, and running servers.
        for theirs in [
            "/ranges/serviceips",
            "/masterleases/10.0.0.1",
            "/unknown/a/b",
        ] {
            assert_eq!(layout.decode_key(theirs), None, "{theirs}");
        }
    }

    #[test]
    fn every_built_in_resource_has_keys_of_its_own() {
        let layout = KubernetesLayout::new();
        assert!(layout.to_etcd.len() > 40);
        for (ours, theirs) in &layout.to_etcd {
            assert_eq!(layout.from_etcd.get(theirs), Some(ours));
            let key = format!("{ours}x/a");
            let encoded = layout.encode_key(&key);
            assert_eq!(layout.decode_key(&encoded), Some(key));
        }
    }

    #[test]
    fn values_have_their_kind_and_come_back_as_they_were() {
        let layout = KubernetesLayout::new();
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "x"}, "data": {"k": "\"v\",\n"},
        });
        let ours = encoding::encode(&object);
        let key = "/core/configmaps/x/a";
        let theirs = layout.encode_value(key, ours.clone());
        let read: Value = serde_json::from_slice(&theirs).unwrap();
        assert_eq!(read, object);
        assert_eq!(layout.decode_value(key, theirs), ours);
        // With the key order of Go's maps, with the newline of its encoder, and in protobuf.
        let other = format!("{object}\n");
        assert_eq!(layout.decode_value(key, other.into()), ours);
        let protobuf = protobuf::encode(&object).unwrap();
        assert_eq!(layout.decode_value(key, protobuf.into()), ours);
        // Undecodable values are kept: reads report them as corrupt.
        for bad in ["", "{", "k8s\0", "[]", "{\"kind\":\"ConfigMap\",", "null"] {
            assert_eq!(layout.decode_value(key, bad.into()), bad);
        }
    }

    #[test]
    fn definitions_are_read_as_kube_apiserver_stores_them() {
        let layout = KubernetesLayout::new();
        let key = format!("{DEFINITIONS}carts.shop.io");
        let stored = json!({
            "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1beta1",
            "metadata": {"name": "carts.shop.io"},
            "spec": {
                "group": "shop.io", "version": "v1", "scope": "Namespaced",
                "names": {"plural": "carts", "kind": "Cart"},
                "validation": {"openAPIV3Schema": {"type": "object"}},
                "subresources": {"status": {}},
                "versions": [
                    {"name": "v1", "served": true, "storage": true,
                     "additionalPrinterColumns": [{"name": "n", "type": "string", "JSONPath": ".n"}]},
                    {"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "nullable": true}}},
                ],
                "conversion": {
                    "strategy": "Webhook", "webhookClientConfig": {"url": "https://x/"}, "conversionReviewVersions": ["v1"],
                },
                "preserveUnknownFields": false,
            },
            "status": {"storedVersions": ["v1"]},
        });
        let wanted = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "metadata": {"name": "carts.shop.io"},
            "spec": {
                "group": "shop.io", "scope": "Namespaced",
                "names": {"plural": "carts", "kind": "Cart"},
                "versions": [
                    {"name": "v1", "served": true, "storage": true,
                     "schema": {"openAPIV3Schema": {"type": "object"}}, "subresources": {"status": {}},
                     "additionalPrinterColumns": [{"name": "n", "type": "string", "jsonPath": ".n"}]},
                    {"name": "v2", "served": true, "storage": false,
                     "schema": {"openAPIV3Schema": {"type": "object", "nullable": true}}, "subresources": {"status": {}}},
                ],
                "conversion": {
                    "strategy": "Webhook",
                    "webhook": {"clientConfig": {"url": "https://x/"}, "conversionReviewVersions": ["v1"]},
                },
            },
            "status": {"storedVersions": ["v1"]},
        });
        let read = layout.decode_value(&key, stored.to_string().into());
        let read: Value = serde_json::from_slice(&read).unwrap();
        assert_eq!(read, wanted);
        // Its objects are identified by their kind.
        let kinds = layout.kinds.read().unwrap();
        let kind = kinds.get("/custom:shop.io/carts/");
        assert_eq!(kind.map(String::as_str), Some("Cart"));
    }

    #[test]
    fn kinds_of_definitions_are_learned() {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "carts.shop.io"},
            "spec": {"group": "shop.io", "names": {"plural": "carts", "kind": "Cart"}},
        });
        let cart = json!({"apiVersion": "shop.io/v1", "kind": "Cart", "metadata": {"name": "a"}});
        let key = format!("{DEFINITIONS}carts.shop.io");
        let (ours, cart_key) = (encoding::encode(&cart), "/custom:shop.io/carts/a");
        let written = KubernetesLayout::new();
        let stored = written.encode_value(&key, encoding::encode(&definition));
        let other = KubernetesLayout::new();
        other.decode_value(&key, stored);
        for layout in [written, other] {
            let theirs = layout.encode_value(cart_key, ours.clone());
            assert_eq!(serde_json::from_slice::<Value>(&theirs).unwrap(), cart);
            assert_eq!(layout.decode_value(cart_key, theirs), ours);
        }
    }
}
