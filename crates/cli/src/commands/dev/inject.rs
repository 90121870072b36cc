//! Giving webhook configurations the authority of the webhook's certificate, as cert-manager's
//! injector does in a cluster. Here it happens while the configuration is written, so that it is good
//! when the write returns.

use lockgate_admission::decision::Decision;
use lockgate_admission::host::BoxFuture;
use lockgate_admission::plugin::{Admission, Plugin};
use lockgate_admission::request::Operation;
use lockgate_api::document::yaml;
use lockgate_api::registration::{ConfigurationKind, GROUP};
use lockgate_go::base64;
use serde_json::{Value, json};

use super::authority::Authority;
use crate::commands::serve::ServiceName;

/// Fills in `caBundle` where a webhook's service leads to us and nothing is there.
pub(super) struct CaInjector {
    services: Vec<ServiceName>,
    bundle: String,
}

impl CaInjector {
    pub(super) fn new(services: &[ServiceName], authority: &Authority) -> Self {
        Self {
            services: services.to_vec(),
            bundle: base64::encode(authority.pem().as_bytes()),
        }
    }

    fn inject(&self, admission: &mut Admission) {
        let request = admission.request();
        let is_configuration = request.kind.group == GROUP && is_configuration(&request.kind.kind);
        let Some(object) = request.object.as_ref().filter(|_| is_configuration) else {
            return;
        };
        let mut object = object.value().clone();
        let mut changed = false;
        for webhook in webhooks_mut(&mut object) {
            let Some(client) = webhook.get_mut("clientConfig") else {
                continue;
            };
            let is_ours = service_of(client).is_some_and(|found| self.services.contains(&found));
            let bundle = client.get("caBundle").and_then(Value::as_str);
            if is_ours && bundle.is_none_or(str::is_empty) {
                client["caBundle"] = json!(self.bundle);
                changed = true;
            }
        }
        if changed {
            admission.set_object(object);
        }
    }
}

impl Plugin for CaInjector {
    fn name(&self) -> &'static str {
        "CertificateAuthorityInjector"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    fn admits(&self) -> bool {
        true
    }

    fn admit<'f>(&'f self, admission: &'f mut Admission) -> BoxFuture<'f, Decision> {
        Box::pin(async move {
            self.inject(admission);
            Decision::Allow
        })
    }
}

/// The services that the webhook configurations of a manifest name. What cannot be read is found out
/// when it is applied.
pub(super) fn services_of(manifest: &str) -> Vec<ServiceName> {
    let Ok(documents) = yaml::parse_all(manifest) else {
        return Vec::new();
    };
    let mut services = Vec::new();
    for document in documents {
        let Ok(mut object) = serde_json::from_str::<Value>(&document.root().to_json()) else {
            continue;
        };
        let kind = object.get("kind").and_then(Value::as_str);
        if kind.is_some_and(is_configuration) {
            let webhooks = webhooks_mut(&mut object).iter();
            services
                .extend(webhooks.filter_map(|webhook| service_of(webhook.get("clientConfig")?)));
        }
    }
    services
}

fn is_configuration(kind: &str) -> bool {
    let kinds = ConfigurationKind::ALL;
    kinds.iter().any(|known| known.name() == kind)
}

fn webhooks_mut(configuration: &mut Value) -> &mut [Value] {
    let webhooks = configuration
        .get_mut("webhooks")
        .and_then(Value::as_array_mut);
    webhooks.map_or(&mut [], Vec::as_mut_slice)
}

fn service_of(client_config: &Value) -> Option<ServiceName> {
    let service = client_config.get("service")?;
    let text = |member: &str| Some(service.get(member)?.as_str()?.to_owned());
    Some(ServiceName {
        namespace: text("namespace")?,
        name: text("name")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_services_of_configurations() {
        let manifest = "
apiVersion: v1
kind: ConfigMap
webhooks: [{clientConfig: {service: {namespace: no, name: no}}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
webhooks:
- clientConfig: {service: {namespace: shop, name: hook, path: /m}}
- clientConfig: {url: 'https://example.com'}
";
        let found = services_of(manifest);
        assert_eq!(found, ["shop/hook".parse::<ServiceName>().unwrap()]);
        assert!(services_of("{").is_empty());
    }
}
