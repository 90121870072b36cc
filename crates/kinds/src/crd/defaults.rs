//! Defaults of a definition.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apis/apiextensions/v1/defaults.go

use serde_json::{Map, Value as Json, json};

/// The default port of a webhook's Service.
const PORT: i64 = 443;

/// Applies the defaults of a definition.
pub fn defaults(definition: &mut Json) {
    let Some(definition) = definition.as_object_mut() else {
        return;
    };
    if let Some(spec) = object(definition, "spec") {
        default_names(object(spec, "names"));
        default_conversion(spec);
    }
    let stored = definition
        .get("status")
        .and_then(|status| status.get("storedVersions"))
        .and_then(Json::as_array);
    if stored.is_none_or(Vec::is_empty)
        && let Some(version) = storage_version(definition).map(str::to_owned)
    {
        let status = definition
            .entry("status")
            .or_insert_with(super::status::empty);
        if let Some(status) = status.as_object_mut() {
            status.insert("storedVersions".to_owned(), json!([version]));
        }
    }
}

fn object<'j>(parent: &'j mut Map<String, Json>, name: &str) -> Option<&'j mut Map<String, Json>> {
    parent.get_mut(name)?.as_object_mut()
}

/// The storage version.
pub(super) fn storage_version(definition: &Map<String, Json>) -> Option<&str> {
    let versions = definition.get("spec")?.get("versions")?.as_array()?;
    let is_stored = |version: &&Json| version.get("storage") == Some(&Json::Bool(true));
    versions.iter().find(is_stored)?.get("name")?.as_str()
}

fn default_names(names: Option<&mut Map<String, Json>>) {
    let Some(names) = names else { return };
    let text = |names: &Map<String, Json>, name: &str| {
        let value = names.get(name).and_then(Json::as_str);
        value.unwrap_or_default().to_owned()
    };
    let kind = text(names, "kind");
    if kind.is_empty() {
        return;
    }
    if text(names, "singular").is_empty() {
        names.insert("singular".to_owned(), kind.to_lowercase().into());
    }
    if text(names, "listKind").is_empty() {
        names.insert("listKind".to_owned(), format!("{kind}List").into());
    }
}

fn default_conversion(spec: &mut Map<String, Json>) {
    if spec.get("conversion").is_none_or(Json::is_null) {
        spec.insert("conversion".to_owned(), json!({ "strategy": "None" }));
    }
    // UPSTREAM: apiextensions-apiserver pkg/apis/apiextensions/v1/conversion.go: the internal type has no empty
    // webhook.
    if let Some(conversion) = object(spec, "conversion")
        && conversion.get("webhook").is_some_and(is_empty_webhook)
    {
        conversion.remove("webhook");
    }
    let service = spec
        .get_mut("conversion")
        .and_then(|conversion| conversion.pointer_mut("/webhook/clientConfig/service"))
        .and_then(Json::as_object_mut);
    if let Some(service) = service
        && service.get("port").is_none_or(Json::is_null)
    {
        service.insert("port".to_owned(), PORT.into());
    }
}

/// Returns true for a webhook without `clientConfig` and `conversionReviewVersions`.
fn is_empty_webhook(webhook: &Json) -> bool {
    let versions = webhook
        .get("conversionReviewVersions")
        .and_then(Json::as_array);
    webhook.get("clientConfig").is_none_or(Json::is_null) && versions.is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_that_say_nothing_are_dropped() {
        for (webhook, stays) in [
            (json!({}), false),
            (json!({"conversionReviewVersions": []}), false),
            (json!({"clientConfig": null}), false),
            (json!({"conversionReviewVersions": ["v1"]}), true),
            (json!({"clientConfig": {}}), true),
        ] {
            let spec = json!({"conversion": {"strategy": "None", "webhook": webhook}});
            let mut definition = json!({"spec": spec});
            defaults(&mut definition);
            let kept = definition.pointer("/spec/conversion/webhook");
            assert_eq!(kept.is_some(), stays, "{definition}");
        }
    }
}
