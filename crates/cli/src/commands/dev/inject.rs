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

/// Where the webhooks of a configuration are, or the webhook that converts custom resources.
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
