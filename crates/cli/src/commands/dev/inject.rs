//! Injects the CA of the webhook's certificate into webhook configurations, as cert-manager's
//! cainjector does in a cluster. The injection is part of the write, so that the configuration works
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

/// Sets an empty `caBundle` of webhooks whose Service is routed to the local webhook.
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
        let has_webhooks = match request.kind.group.as_str() {
            GROUP => is_configuration(&request.kind.kind),
            "apiextensions.k8s.io" => request.kind.kind == "CustomResourceDefinition",
            _ => false,
        };
        let Some(object) = request.object.as_ref().filter(|_| has_webhooks) else {
            return;
        };
        let mut object = object.value().clone();
        let mut changed = false;
        for client in clients_mut(&mut object) {
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

/// The Services that the webhook configurations in a manifest reference. Unreadable documents fail later, when
/// they are applied.
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
        let has_webhooks = |kind| is_configuration(kind) || kind == "CustomResourceDefinition";
        if kind.is_some_and(has_webhooks) {
            let clients = clients_mut(&mut object).into_iter();
            services.extend(clients.filter_map(|client| service_of(client)));
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

/// The paths of `clientConfig` in a webhook configuration or a CustomResourceDefinition.
fn clients_mut(object: &mut Value) -> Vec<&mut Value> {
    if object
        .pointer("/spec/conversion/webhook/clientConfig")
        .is_some()
    {
        let client = object.pointer_mut("/spec/conversion/webhook/clientConfig");
        return client.into_iter().collect();
    }
    let webhooks = webhooks_mut(object).iter_mut();
    webhooks
        .filter_map(|webhook| webhook.get_mut("clientConfig"))
        .collect()
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
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
spec: {conversion: {strategy: Webhook, webhook: {clientConfig: {service: {namespace: shop, name: converter}}}}}
";
        let found = services_of(manifest);
        let want = ["shop/hook", "shop/converter"];
        assert_eq!(found, want.map(|name| name.parse::<ServiceName>().unwrap()));
        assert!(services_of("{").is_empty());
    }
}
