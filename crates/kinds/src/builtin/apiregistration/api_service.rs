//! APIServices.

use crate::at::At;
use crate::cells::{Common, Row, cell, read};
use crate::kind::{
    CHANGE, Context, Finalizers, Kind, Resource, ServerComponent, Written, cluster, sub,
};
use crate::object::{Object, at_mut, fill, get, with};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::names::{check_dns1035_label, check_path_segment, check_subdomain};
use lockgate_api::meta::validation::{NameRules, validate_metadata};
use lockgate_go::base64;
use serde_json::{Value, json};

pub(super) const API_SERVICES: Resource = cluster(
    "apiregistration.k8s.io",
    "v1",
    "apiservices",
    "apiservice",
    "APIService",
    "APIServiceList",
    &ApiService,
)
.in_etcd_as("apiregistration.k8s.io/apiservices")
.categories(&["api-extensions"])
.subresources(&[sub(
    "status",
    "apiregistration.k8s.io",
    "v1",
    "APIService",
    CHANGE,
)])
.conditional_update();

/// The kind `APIService`.
#[derive(Debug)]
pub(super) struct ApiService;

impl Kind for ApiService {
    fn component(&self) -> Option<ServerComponent> {
        Some(ServerComponent::ApiServices)
    }

    fn validate_status(&self, errors: &mut FieldErrors, new: &Written<'_>, _old: &Written<'_>) {
        let at = At::root(new.object(), "status");
        for condition in at.at("conditions").items() {
            condition
                .at("status")
                .known(errors, &["True", "False", "Unknown"]);
        }
    }

    fn prepare_create(&self, value: &mut Value, context: &Context<'_>) {
        // UPSTREAM: kube-aggregator pkg/registry/apiservice/strategy.go (PrepareForCreate)
        with(value, |object| {
            let is_local = get(object, "spec").is_none_or(|spec| get(spec, "service").is_none());
            if is_local {
                let condition = json!({
                    "type": "Available", "status": "True", "reason": "Local",
                    "message": "Local APIServices are always available",
                    "lastTransitionTime": context.now.to_string(),
                });
                object.insert("status".to_owned(), json!({"conditions": [condition]}));
            }
        });
    }

    fn validate_metadata(&self, new: &Written<'_>) -> FieldErrors {
        let metadata = Path::root("metadata");
        let any = NameRules {
            name: check_path_segment,
            prefix: check_path_segment,
        };
        let mut errors = validate_metadata(&new.metadata, any, &metadata);
        let spec = At::root(new.object(), "spec");
        let wanted = format!("{}.{}", spec.at("version").text(), spec.at("group").text());
        let quoted = lockgate_go::quote::quote(&wanted);
        let names = [
            ("name", &new.metadata.name),
            ("generateName", &new.metadata.generate_name),
        ];
        for (member, name) in names {
            if !name.is_empty() && check_path_segment(name).is_empty() && *name != wanted {
                let path = metadata.child(member);
                let detail = format!("must be `spec.version+\".\"+spec.group`: {quoted}");
                // Errors about the prefix come first.
                let is_of_prefix = |error: &&FieldError| error.field == "metadata.generateName";
                let place = match member {
                    "name" => errors.iter().take_while(is_of_prefix).count(),
                    _ => 0,
                };
                errors.insert(place, FieldError::invalid(&path, Shown::Text(name), detail));
            }
        }
        errors
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_metadata_update(new, old);
        match subresource {
            "" => errors.extend(self.validate_create(new, context)),
            "status" => self.validate_status(&mut errors, new, old),
            _ => {}
        }
        errors
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        api_service(errors, new.object());
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn finalizers(&self) -> Finalizers {
        Finalizers::Any
    }

    fn resets_metadata_on_status_update(&self) -> bool {
        true
    }

    fn columns(&self) -> &'static str {
        "Name|Service|Available|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        service_row(object, common)
    }
}

fn defaults(object: &mut Object) {
    if let Some(service) = at_mut(object, &["spec", "service"]) {
        fill(service, "port", 443);
    }
}

fn service_row(object: &Value, common: &Common<'_>) -> Row {
    let service = match object.pointer("/spec/service") {
        Some(service) if service.is_object() => {
            format!(
                "{}/{}",
                read::text(service, "/namespace"),
                read::text(service, "/name")
            )
        }
        _ => String::from("Local"),
    };
    let available = match read::condition(object, "Available") {
        None => String::from("Unknown"),
        Some(condition) => match (
            read::text(condition, "/status"),
            read::text(condition, "/reason"),
        ) {
            (status @ "True", _) | (status, "") => status.to_owned(),
            (status, reason) => format!("{status} ({reason})"),
        },
    };
    Row::of(vec![
        cell(common.name),
        cell(service),
        cell(available),
        cell(common.age.as_str()),
    ])
}

/// UPSTREAM: kube-aggregator pkg/apis/apiregistration/validation/validation.go
fn api_service(errors: &mut FieldErrors, object: &Object) {
    let at = At::root(object, "spec");
    let (group, version) = (at.at("group"), at.at("version"));
    if group.is_empty() && version.text() != "v1" {
        let detail = "only v1 may have an empty group and it better be legacy kube";
        group.required_because(errors, detail);
    }
    group.check_set(errors, check_subdomain);
    version.check(errors, check_dns1035_label);
    for (key, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let priority = at.at(key);
        if !(1..=most).contains(&priority.int()) {
            let detail = format!("must be positive and less than {most}");
            priority.invalid_int(errors, detail);
        }
    }
    let (service, bundle) = (at.at("service"), at.at("caBundle"));
    let insecure = at.at("insecureSkipTLSVerify");
    if !service.is_set() {
        if !bundle.is_empty() {
            let length = base64::decode(bundle.text()).map_or(0, |bytes| bytes.len());
            bundle.invalid_as(
                errors,
                Shown::Text(&format!("{length} bytes")),
                "local APIServices may not have a caBundle",
            );
        }
        if insecure.flag() {
            insecure.invalid(
                errors,
                "local APIServices may not have insecureSkipTLSVerify",
            );
        }
        return;
    }
    service.at("namespace").must_be_set(errors);
    service.at("name").must_be_set(errors);
    let port = service.at("port");
    if !(1..=65535).contains(&port.int()) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        port.invalid_int(errors, detail);
    }
    if insecure.flag() && !bundle.is_empty() {
        insecure.invalid(errors, "may not be true if caBundle is present");
    }
}
