//! The conversion settings of a CustomResourceDefinition.

use lockgate_api::decode::Bytes as WireBytes;
use lockgate_api::registration::hub::{ClientConfig, ServiceReference};
use lockgate_go::base64;
use lockgate_kinds::crd;
use serde_json::Value;

/// The conversion strategy of a CustomResourceDefinition.
#[derive(Debug)]
pub(crate) enum Conversion {
    /// Only the `apiVersion` changes.
    None,
    /// A conversion webhook is called.
    Webhook(ClientConfig),
}

impl Conversion {
    /// Parses the conversion settings of a CustomResourceDefinition.
    pub(crate) fn read(conversion: &crd::Conversion) -> Self {
        let crd::Conversion::Webhook(webhook) = conversion else {
            return Self::None;
        };
        let at = |pointer: &str| webhook.pointer(pointer);
        let text = |pointer: &str| at(pointer).and_then(Value::as_str).map(str::to_owned);
        let service = at("/clientConfig/service").map(|_| ServiceReference {
            namespace: text("/clientConfig/service/namespace").unwrap_or_default(),
            name: text("/clientConfig/service/name").unwrap_or_default(),
            path: text("/clientConfig/service/path"),
            port: at("/clientConfig/service/port")
                .and_then(Value::as_i64)
                .and_then(|port| i32::try_from(port).ok()),
        });
        let bundle = text("/clientConfig/caBundle").and_then(|text| base64::decode(&text).ok());
        Self::Webhook(ClientConfig {
            url: text("/clientConfig/url"),
            service,
            ca_bundle: bundle.map(WireBytes),
        })
    }
}
