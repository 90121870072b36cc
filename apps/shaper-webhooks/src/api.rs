//! The two kinds of shaper, as far as its webhooks read them.
//!
//! Decoding is as lenient as in the original: absent and `null` fields are empty. The API server validates the schema
//! of the CustomResourceDefinitions.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// The API group.
pub const GROUP: &str = "shaper.amahdha.com";
/// The only version so far.
pub const VERSION: &str = "v1alpha1";

/// An Assignment: the machines that boot a profile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// Standard metadata.
    #[serde(default, deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// The desired state.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: AssignmentSpec,
}

/// The spec of an assignment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentSpec {
    /// The selected machines.
    #[serde(default, deserialize_with = "or_default")]
    pub subject_selectors: SubjectSelectors,
    /// The profile, in the assignment's own namespace.
    #[serde(default, deserialize_with = "or_default")]
    pub profile_name: String,
    /// `true` if it applies to machines that no other assignment selects.
    #[serde(default, deserialize_with = "or_default")]
    pub is_default: bool,
}

/// The machine selectors of an assignment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubjectSelectors {
    /// Their architectures; none means any.
    #[serde(default, deserialize_with = "or_default")]
    pub buildarch: Vec<String>,
    /// Their UUIDs.
    #[serde(default, deserialize_with = "or_default")]
    pub uuid_list: Vec<String>,
}

/// An iPXE template with its variables.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Standard metadata.
    #[serde(default, deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// The desired state.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: ProfileSpec,
    /// The status.
    #[serde(default, deserialize_with = "or_default")]
    pub status: ProfileStatus,
}

/// The spec of a profile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileSpec {
    /// A Go template of an iPXE script.
    #[serde(default, deserialize_with = "or_default")]
    pub ipxe_template: String,
    /// The variables of the template.
    #[serde(default, deserialize_with = "or_default")]
    pub additional_content: Vec<AdditionalContent>,
}

/// The status of a profile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileStatus {
    /// The UUID of each exposed content, by the content's name.
    #[serde(default, deserialize_with = "or_default")]
    pub exposed_additional_content: BTreeMap<String, String>,
}

/// A piece of content; exactly one of `inline`, `object_ref` and `webhook` is its source.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdditionalContent {
    /// The variable name in the template.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// `true` if it is served at a separate URL, which the template gets as the value.
    #[serde(default, deserialize_with = "or_default")]
    pub exposed: bool,
    /// The transformations that are applied before serving.
    #[serde(default, deserialize_with = "or_default")]
    pub post_transformations: Vec<Transformer>,
    /// The content itself.
    #[serde(default)]
    pub inline: Option<String>,
    /// An object that contains it.
    #[serde(default)]
    pub object_ref: Option<ObjectRef>,
    /// A service that returns it.
    #[serde(default)]
    pub webhook: Option<WebhookConfig>,
}

/// A transformation of content; exactly one field is set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Transformer {
    /// Converts Butane to Ignition.
    #[serde(default, deserialize_with = "or_default")]
    pub butane_to_ignition: bool,
    /// Sends it to a service.
    #[serde(default)]
    pub webhook: Option<WebhookConfig>,
}

/// A reference to an object of any kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceRef {
    /// The group; empty for the core group.
    #[serde(default, deserialize_with = "or_default")]
    pub group: String,
    /// The version.
    #[serde(default, deserialize_with = "or_default")]
    pub version: String,
    /// The plural, such as `secrets`.
    #[serde(default, deserialize_with = "or_default")]
    pub resource: String,
    /// The namespace.
    #[serde(default, deserialize_with = "or_default")]
    pub namespace: String,
    /// The name.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
}

/// A reference to a field of an object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ObjectRef {
    /// The object.
    #[serde(flatten)]
    pub resource: ResourceRef,
    /// The JSONPath of the field.
    #[serde(default, deserialize_with = "or_default")]
    pub jsonpath: String,
}

/// A service that shaper calls.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WebhookConfig {
    /// Host, port and path, without the `https://` prefix.
    #[serde(default, deserialize_with = "or_default")]
    pub url: String,
    /// Its client certificate.
    #[serde(default, rename = "mTLSRef")]
    pub mtls_ref: Option<MtlsRef>,
    /// Its username and password.
    #[serde(default, rename = "basicAuthRef")]
    pub basic_auth_ref: Option<BasicAuthRef>,
}

/// A reference to a client certificate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MtlsRef {
    /// The object.
    #[serde(flatten)]
    pub resource: ResourceRef,
    /// The JSONPath of the key.
    #[serde(default, deserialize_with = "or_default", rename = "clientKeyJSONPath")]
    pub client_key: String,
    /// The JSONPath of the certificate.
    #[serde(
        default,
        deserialize_with = "or_default",
        rename = "clientCertJSONPath"
    )]
    pub client_cert: String,
    /// The JSONPath of the CA bundle; empty for the system's.
    #[serde(default, deserialize_with = "or_default", rename = "caBundleJSONPath")]
    pub ca_bundle: String,
    /// `true` to skip the verification of the server certificate.
    #[serde(
        default,
        deserialize_with = "or_default",
        rename = "tlsInsecureSkipVerify"
    )]
    pub tls_insecure_skip_verify: bool,
}

/// A reference to a username and a password.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BasicAuthRef {
    /// The object.
    #[serde(flatten)]
    pub resource: ResourceRef,
    /// The JSONPath of the username.
    #[serde(default, deserialize_with = "or_default", rename = "usernameJSONPath")]
    pub username: String,
    /// The JSONPath of the password.
    #[serde(default, deserialize_with = "or_default", rename = "passwordJSONPath")]
    pub password: String,
}

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// The metadata that the webhooks read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Unique in the namespace; empty while the server has not generated it.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// The namespace.
    #[serde(default, deserialize_with = "or_default")]
    pub namespace: String,
    /// The path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
    /// Set when the deletion is requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
}

impl Metadata {
    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        Some(self.labels.as_ref()?.get(key)?.as_str())
    }

    /// Returns `true` if it is deleted once its finalizers are removed.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

/// Decodes `null` as the default.
fn or_default<'de, D, T>(reader: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(reader)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_what_is_missing_or_null_as_empty() {
        for object in [
            json!({}),
            json!({"metadata": null, "spec": null}),
            json!({"spec": {"subjectSelectors": null, "profileName": null, "isDefault": null}}),
            json!({"spec": {"subjectSelectors": {"buildarch": null, "uuidList": null}}}),
        ] {
            let read: Assignment = serde_json::from_value(object).unwrap();
            assert_eq!(read, Assignment::default());
        }
        let profile = json!({"spec": {"additionalContent": [
            {"name": "a", "inline": null, "objectRef": null, "webhook": null, "exposed": null}
        ]}, "status": null});
        let read: Profile = serde_json::from_value(profile).unwrap();
        assert_eq!(read.spec.additional_content[0].inline, None);
    }

    #[test]
    fn reads_the_odd_names() {
        let webhook = json!({
            "url": "example.com",
            "mTLSRef": {"name": "n", "clientKeyJSONPath": "k", "clientCertJSONPath": "c",
                "caBundleJSONPath": "b", "tlsInsecureSkipVerify": true},
            "basicAuthRef": {"name": "n", "usernameJSONPath": "u", "passwordJSONPath": "p"},
        });
        let read: WebhookConfig = serde_json::from_value(webhook).unwrap();
        let mtls = read.mtls_ref.unwrap();
        assert_eq!(
            (&*mtls.client_key, &*mtls.client_cert, &*mtls.ca_bundle),
            ("k", "c", "b")
        );
        assert!(mtls.tls_insecure_skip_verify);
        let basic = read.basic_auth_ref.unwrap();
        assert_eq!(
            (&*basic.username, &*basic.password, &*basic.resource.name),
            ("u", "p", "n")
        );
    }
}
