//! Pods, PodTemplates and Bindings.

mod defaults;
pub(in crate::builtin) mod disabled;
mod image;
mod strategy;
mod table;
mod validation;
pub(in crate::builtin) mod warnings;

use crate::at::At;
use crate::builtin::template::containers;
use crate::cells::{Common, Row, cell, read};
use crate::checks::ip_warning;
use crate::kind::{
    CHANGE, CREATE, Context, Deletion, FieldSelector, Generation, Kind, NAME, NAMESPACE, NewStatus,
    NodeGraphObject, PROXY, Resource, SPEC, STREAM, ServerComponent, Written, absent, first_of,
    flag_selector, namespaced, select, sub,
};
use crate::object::with;
pub(in crate::builtin) use defaults::{labels_default, template as template_defaults};
use lockgate_api::field::{FieldErrors, Path};
use serde_json::Value;
pub use strategy::{grace_period, quality_of_service};
pub(in crate::builtin) use validation::{
    overhead_amounts, port_or_name, taint_effect, template, template_metadata_again, tolerations,
};

pub(super) const PODS: Resource = namespaced("", "v1", "pods", "pod", "Pod", "PodList", &Pod)
    .short(&["po"])
    .categories(&["all"])
    .subresources(&[
        sub("attach", "", "v1", "PodAttachOptions", STREAM),
        sub("binding", "", "v1", "Binding", CREATE),
        sub("ephemeralcontainers", "", "v1", "Pod", CHANGE),
        sub("eviction", "policy", "v1", "Eviction", CREATE),
        sub("exec", "", "v1", "PodExecOptions", STREAM),
        sub("log", "", "v1", "Pod", &["get"]),
        sub("portforward", "", "v1", "PodPortForwardOptions", STREAM),
        sub("proxy", "", "v1", "PodProxyOptions", PROXY),
        sub("resize", "", "v1", "Pod", CHANGE),
        sub("status", "", "v1", "Pod", CHANGE),
    ])
    .generation(SPEC)
    .graceful();

pub(super) const POD_TEMPLATES: Resource = namespaced(
    "",
    "v1",
    "podtemplates",
    "podtemplate",
    "PodTemplate",
    "PodTemplateList",
    &PodTemplate,
)
.generation(Generation::Members(&["template"]));

pub(super) const BINDINGS: Resource = namespaced(
    "",
    "v1",
    "bindings",
    "binding",
    "Binding",
    "BindingList",
    &Binding,
)
.verbs(CREATE);

const SELECTABLE: &[FieldSelector] = &[
    NAME,
    NAMESPACE,
    select("spec.nodeName", &["spec", "nodeName"]),
    // The field name of v1beta1.
    select("spec.host", &["spec", "nodeName"]),
    select("spec.restartPolicy", &["spec", "restartPolicy"]),
    select("spec.schedulerName", &["spec", "schedulerName"]),
    select("spec.serviceAccountName", &["spec", "serviceAccountName"]),
    flag_selector("spec.hostNetwork", &["spec", "hostNetwork"]),
    select("status.phase", &["status", "phase"]),
    first_of(
        "status.podIP",
        &[&["status", "podIPs", "0", "ip"], &["status", "podIP"]],
    ),
    absent("status.podIPs"),
    select("status.nominatedNodeName", &["status", "nominatedNodeName"]),
];

/// The kind `Pod`.
#[derive(Debug)]
pub(super) struct Pod;

impl Kind for Pod {
    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        match subresource {
            "" => &[&["status"]],
            "status" => &[
                &["metadata", "deletionTimestamp"],
                &["metadata", "ownerReferences"],
                &["spec"],
            ],
            _ => &[],
        }
    }

    fn component(&self) -> Option<ServerComponent> {
        Some(ServerComponent::NodeGraph(NodeGraphObject::Pod))
    }

    fn new_status(&self) -> NewStatus {
        // The strategy resets it.
        NewStatus::Sent
    }

    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        warnings::of_pod(new.object(), &new.metadata.name)
    }

    fn warnings_on_status_update(&self, new: &Written<'_>) -> Vec<String> {
        let status = At::root(new.object(), "status");
        let mut warnings = Vec::new();
        for key in ["podIPs", "hostIPs"] {
            for address in status.at(key).items() {
                let ip = address.at("ip");
                warnings.extend(ip_warning(&ip.path, ip.text()));
            }
        }
        warnings
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults::pod);
    }

    fn warnings_on_prepare(&self, value: &Value) -> Vec<String> {
        let annotations = Path::root("metadata");
        let annotations = annotations.child("annotations");
        let noted = strategy::app_armor(value).into_iter();
        noted
            .map(|noted| {
                let place = annotations.key(&noted.key);
                format!(
                    "{place}: deprecated since v1.30; use the \"appArmorProfile\" field instead"
                )
            })
            .collect()
    }

    fn prepare_create(&self, value: &mut Value, context: &Context<'_>) {
        with(value, |pod| disabled::drop_from_pod(pod, None));
        strategy::prepare_create(value, context);
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        let Some(old) = old.as_object() else {
            return;
        };
        with(value, |pod| disabled::drop_from_pod(pod, Some(old)));
        with(value, |pod| match subresource {
            "status" => strategy::prepare_status_update(pod, old),
            "ephemeralcontainers" => strategy::prepare_ephemeral_containers(pod, old),
            "resize" => strategy::prepare_resize(pod, old),
            _ => {}
        });
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        validation::create(errors, new.object());
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        _context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_metadata_update(new, old);
        if matches!(subresource, "" | "ephemeralcontainers" | "resize") {
            errors.extend(self.validate_metadata(new));
        }
        let (new, old) = (new.object(), old.object());
        match subresource {
            "" => validation::update(&mut errors, new, old),
            "ephemeralcontainers" => {
                validation::ephemeral_containers(&mut errors, new, old);
            }
            "resize" => validation::resize(&mut errors, new, old),
            "status" => validation::status_update(&mut errors, new, old),
            _ => {}
        }
        errors
    }

    fn columns(&self) -> &'static str {
        "Name|Ready|Status|Restarts|Age|+IP|+Node|+Nominated Node|+Readiness Gates"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        table::row(object, common)
    }

    fn field_selectors(&self) -> Option<&'static [FieldSelector]> {
        Some(SELECTABLE)
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object()
    }
}

/// The kind `PodTemplate`.
#[derive(Debug)]
pub(super) struct PodTemplate;

impl Kind for PodTemplate {
    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        warnings::of_template(&At::root(new.object(), "template"))
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> Vec<String> {
        if new.metadata.generation == old.metadata.generation {
            return Vec::new();
        }
        self.warnings_on_create(new, context)
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, |object| template_defaults(object, "template"));
    }

    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        with(value, |object| {
            disabled::drop_from_template(object, None, &["template"]);
        });
    }

    fn prepare_update(
        &self,
        _subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        with(value, |object| {
            disabled::drop_from_template(object, old.as_object(), &["template"]);
        });
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        validation::pod_template(errors, new.object(), old.map(Written::object));
    }

    fn columns(&self) -> &'static str {
        "Name|Containers|Images|Pod Labels"
    }

    fn row(&self, object: &Value, _common: &Common<'_>) -> Row {
        template_row(object)
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object()
    }
}

/// The kind `Binding`, which is not stored.
#[derive(Debug)]
pub(super) struct Binding;

impl Kind for Binding {}

fn template_row(object: &Value) -> Row {
    let [names, images] = containers(object, "/template/spec/containers");
    Row::of(vec![
        cell(read::text(object, "/metadata/name")),
        names,
        images,
        cell(read::labels(object, "/template/metadata/labels")),
    ])
}
