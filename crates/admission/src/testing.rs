//! Helpers of the unit tests.

use std::sync::Arc;

use lockgate_api::meta::label_selector::LabelSelector;
use lockgate_api::meta::object::ObjectMeta;
use lockgate_api::registration::hub::{self, ClientConfig};
use lockgate_api::registration::{Configuration, ConfigurationKind, Webhook};
use serde_json::json;

use crate::call::{Caller, Client, ClientError};
use crate::request::{Operation, Request, kind, resource};

/// A caller without clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoCaller;

impl Caller for NoCaller {
    fn client(&self, _: &ClientConfig) -> Result<Arc<dyn Client>, ClientError> {
        Err(ClientError::Other(String::from("nobody is reached here")))
    }
}

/// A configuration of webhooks that match everything, with the failure policy Ignore.
pub(crate) fn ignoring(kind: ConfigurationKind, webhooks: &[&str]) -> Configuration {
    let all = |text: &str| Some(vec![String::from(text)]);
    let webhook = |name: &&str| Webhook {
        name: String::from(*name),
        client_config: ClientConfig {
            url: Some(format!("https://{name}/")),
            ..ClientConfig::default()
        },
        rules: Some(vec![hub::Rule {
            operations: all("*"),
            api_groups: all("*"),
            api_versions: all("*"),
            resources: all("*/*"),
            scope: None,
        }]),
        failure_policy: Some(String::from("Ignore")),
        namespace_selector: Some(LabelSelector::default()),
        object_selector: Some(LabelSelector::default()),
        side_effects: Some(String::from("None")),
        admission_review_versions: all("v1"),
        ..Webhook::default()
    };
    Configuration {
        kind,
        metadata: ObjectMeta {
            name: String::from("c"),
            ..ObjectMeta::default()
        },
        webhooks: Some(webhooks.iter().map(webhook).collect()),
    }
}

/// The creation of a ConfigMap.
pub(crate) fn create() -> Request {
    let mut request = Request::new(
        Operation::Create,
        kind("", "v1", "ConfigMap"),
        resource("", "v1", "configmaps"),
    );
    request.name = String::from("cm");
    request.namespace = String::from("shop");
    request.object = Some(json!({"metadata": {"name": "cm"}}).into());
    request
}
