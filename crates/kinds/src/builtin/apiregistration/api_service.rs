//! APIServices.

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::kind::{CHANGE, Finalizers, Kind, Resource, cluster, sub};
use crate::object::{Object, at_mut, fill, with};
use serde_json::Value;

pub(super) const API_SERVICES: Resource = cluster(
    "apiregistration.k8s.io",
    "v1",
    "apiservices",
    "apiservice",
    "APIService",
    "APIServiceList",
    &ApiService,
)
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
