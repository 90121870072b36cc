//! Webhook configurations from YAML or JSON, validated as by an API server.

use lockgate_api::decode::strict_error;
use lockgate_api::document::yaml;
use lockgate_api::field::aggregate;
use lockgate_api::registration::validation::validate;
use lockgate_api::registration::{Configuration, codec};

use crate::conditions::RegistrationChecker;

/// An invalid webhook configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// The text is neither YAML nor JSON.
    #[error("document {document}: {message}")]
    Syntax {
        /// The index of the document, from 1.
        document: usize,
        /// The error.
        message: String,
    },
    /// The document is of another kind.
    #[error("document {document}: `{found}` is not a webhook configuration of v1 or v1beta1")]
    Kind {
        /// The index of the document, from 1.
        document: usize,
        /// The `apiVersion` and `kind` of the document.
        found: String,
    },
    /// A field has a value of the wrong type, is unknown or duplicated.
    #[error("document {document}: {message}")]
    Decode {
        /// The index of the document, from 1.
        document: usize,
        /// The error.
        message: String,
    },
    /// An API server would reject the object.
    #[error("{kind} {name:?} is invalid: {errors}")]
    Invalid {
        /// The kind of the object.
        kind: &'static str,
        /// The name of the object.
        name: String,
        /// All field errors.
        errors: String,
    },
}

/// Parses webhook configurations from a stream of YAML or JSON documents, with defaults applied.
///
/// # Errors
///
/// Fails with the first document that an API server would reject: unknown fields are errors, as in `kubectl apply`.
pub fn from_yaml(text: &str) -> Result<Vec<Configuration>, ConfigurationError> {
    let mut configurations = Vec::new();
    let documents = yaml::parse_all(text).map_err(|error| ConfigurationError::Syntax {
        document: 1,
        message: error.message,
    })?;
    for (document, parsed) in (1..).zip(&documents) {
        let root = parsed.root();
        if root.is_null() {
            continue;
        }
        let text = |member: &str| {
            let found = root.get(member).and_then(|value| value.as_str());
            found.map(str::to_owned).unwrap_or_default()
        };
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (kind, version) =
            codec::identify(&api_version, &kind).ok_or_else(|| ConfigurationError::Kind {
                document,
                found: format!("{api_version} {kind}"),
            })?;
        let decoded = codec::decode(root, kind, version).map_err(|error| {
            let message = error.message;
            ConfigurationError::Decode { document, message }
        })?;
        if !decoded.findings.is_empty() {
            let message = strict_error(&decoded.findings);
            return Err(ConfigurationError::Decode { document, message });
        }
        let errors = validate(&decoded.value, version, RegistrationChecker::REFERENCE);
        if !errors.is_empty() {
            return Err(ConfigurationError::Invalid {
                kind: kind.name(),
                name: decoded.value.metadata.name,
                errors: aggregate(&errors),
            });
        }
        configurations.push(decoded.value);
    }
    Ok(configurations)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {url: 'https://hooks.example.com/images'}
  rules:
  - {operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}
  sideEffects: None
  admissionReviewVersions: [v1]
";

    #[test]
    fn reads_every_document_with_its_defaults() {
        let two = format!(
            "{GOOD}---\n{}",
            GOOD.replace("name: images}", "name: more}")
        );
        let read = from_yaml(&two).unwrap();
        let names = read.iter().map(|each| each.metadata.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["images", "more"]);
        assert_eq!(
            read[0].webhooks()[0].failure_policy.as_deref(),
            Some("Fail")
        );
        assert!(from_yaml("").unwrap().is_empty());
    }

    #[test]
    fn says_what_an_api_server_would_not_take() {
        for (text, want) in [
            (String::from("a: ["), "document 1: "),
            (
                String::from("{apiVersion: v1, kind: Pod}"),
                "document 1: `v1 Pod` is not a webhook configuration of v1 or v1beta1",
            ),
            (
                GOOD.replace("sideEffects", "sideEffect"),
                "document 1: strict decoding error: unknown field \"webhooks[0].sideEffect\"",
            ),
            (GOOD.replace("[CREATE]", "CREATE"), "document 1: "),
            (
                GOOD.replace("name: images.example.com", "name: images"),
                "ValidatingWebhookConfiguration \"images\" is invalid: webhooks[0].name: ",
            ),
        ] {
            let error = from_yaml(&text).unwrap_err().to_string();
            assert!(error.starts_with(want), "{error}");
        }
    }
}
