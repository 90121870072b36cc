//! Binds a Pod to a node, through `pods/NAME/binding` or the deprecated `bindings`.

use lockgate_api::field::{FieldError, Path, Shown};
use lockgate_go::quote::quote;
use serde_json::{Value, json};

use crate::decode::write::PartBody;
use crate::error::{Outcome, bad_request, conflict, no_such_resource, plain};
use crate::metadata;
use crate::request::{Notes, ObjectPath, Request};
use crate::respond::Reply;
use crate::write::admission::Submission;
use crate::write::evict::success;
use crate::write::managed_fields::track_part;
use crate::write::update::{precondition_failed, set_without_admission};
use crate::write::{Persisted, Recipe, Writer, run, strategy};

/// Binds a pod.
pub(crate) async fn bind(writer: &Writer, request: &Request, body: PartBody) -> Outcome<Reply> {
    let PartBody {
        kind,
        object: mut binding,
        options,
    } = body;
    metadata::match_namespace(&mut binding, request.namespace())?;
    if let Some(warning) = metadata::drop_duplicate_owner_references(&mut binding, false) {
        request.notes.warn(&warning);
    }
    if request.name().is_empty() && metadata::text(&binding, "name").is_empty() {
        return Err(bad_request("Name parameter required."));
    }
    // The path of `bindings` contains no Pod; the binding does.
    let name = match request.name() {
        "" => metadata::text(&binding, "name").to_owned(),
        name => name.to_owned(),
    };
    let tracked = track_part(request, &kind, options.manager(), binding);
    let mut submission = Submission::create(request, &options)
        .kind(kind)
        .tracked(tracked);
    submission.name.clone_from(&name);
    let mut recipe = Bind {
        writer,
        namespace: request.namespace(),
        name,
        notes: &request.notes,
        dry_run: options.is_dry_run(),
    };
    run(&writer.admitter, request, submission, &mut recipe).await
}

struct Bind<'b> {
    writer: &'b Writer,
    namespace: &'b str,
    name: String,
    notes: &'b Notes,
    dry_run: bool,
}

/// The target node of a binding.
fn node(binding: &Value) -> Outcome<&str> {
    let text = |pointer: &str| {
        let found = binding.pointer(pointer).and_then(Value::as_str);
        found.unwrap_or_default()
    };
    let path = Path::root("target");
    let (kind, node) = (text("/target/kind"), text("/target/name"));
    let mut errors = Vec::new();
    if !matches!(kind, "" | "Node") {
        let supported = ["Node", "<empty>"];
        let error = FieldError::not_supported(&path.child("kind"), Shown::Text(kind), &supported);
        errors.push(error.to_string());
    }
    if node.is_empty() {
        errors.push(FieldError::required(&path.child("name"), "").to_string());
    }
    // Upstream's errors have no status.
    match errors.as_slice() {
        [] => Ok(node),
        [error] => Err(plain(error.clone())),
        several => Err(plain(format!("[{}]", several.join(", ")))),
    }
}

impl Bind<'_> {
    /// Checks that a pod can be bound.
    fn check(&self, pod: &Value, binding: &Value) -> Outcome<()> {
        let name = &self.name;
        let registry = if self.dry_run { "" } else { "/registry" };
        let key = format!("{registry}/pods/{}/{name}", self.namespace);
        for (what, member) in [("UID", "uid"), ("ResourceVersion", "resourceVersion")] {
            let wanted = metadata::text(binding, member);
            let found = metadata::text(pod, member);
            if !wanted.is_empty() && wanted != found {
                let why = precondition_failed(&key, what, wanted, found);
                return Err(conflict("", "pods", name, &why));
            }
        }
        let refused = |why: String| Err(conflict("", "pods/binding", name, &why));
        if metadata::is_deleting(pod) {
            return refused(format!(
                "pod {name} is being deleted, cannot be assigned to a host"
            ));
        }
        let current = pod.pointer("/spec/nodeName").and_then(Value::as_str);
        if let Some(current) = current.filter(|node| !node.is_empty()) {
            return refused(format!(
                "pod {name} is already assigned to node {}",
                quote(current)
            ));
        }
        let gates = pod
            .pointer("/spec/schedulingGates")
            .and_then(Value::as_array);
        if gates.is_some_and(|gates| !gates.is_empty()) {
            return refused(format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        Ok(())
    }
}

fn set_node(pod: &mut Value, node: &str, binding: &Value) {
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert(String::from("nodeName"), node.into());
    }
    if let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("nominatedNodeName");
    }
    strategy::set_condition(pod, "PodScheduled", None);
    for member in ["annotations", "labels"] {
        let texts = metadata::of(binding).and_then(|metadata| metadata.get(member));
        for (key, value) in texts.and_then(Value::as_object).into_iter().flatten() {
            metadata::change(pod, |metadata| {
                let all = metadata.entry(member).or_insert_with(|| json!({}));
                all[key] = value.clone();
            });
        }
    }
}

impl Recipe for Bind<'_> {
    type Output = Reply;

    fn prepare(&mut self, binding: &mut Value) -> Outcome<()> {
        if let Some(warning) = metadata::drop_duplicate_owner_references(binding, true) {
            self.notes.warn(&warning);
        }
        if metadata::text(binding, "name") != self.name {
            return Err(bad_request(
                "name in URL does not match name in Binding object",
            ));
        }
        node(binding).map(drop)
    }

    fn name<'n>(&'n self, _: &'n Value) -> &'n str {
        &self.name
    }

    async fn persist(&mut self, binding: Value) -> Outcome<Persisted<Reply>> {
        let node = node(&binding)?;
        let snapshot = self.writer.registry.snapshot();
        let pods = snapshot
            .find("", "v1", "pods")
            .ok_or_else(no_such_resource)?;
        let path = ObjectPath {
            resource: pods,
            namespace: self.namespace,
            name: &self.name,
            subresource: "",
        };
        let storage = &self.writer.storage;
        loop {
            let pod = storage.get(path).await?;
            self.check(&pod, &binding)?;
            if self.dry_run {
                return Ok(Persisted::Done(success()));
            }
            let set = |pod: &mut Value| {
                set_node(pod, node, &binding);
                Ok(())
            };
            let bound = set_without_admission(storage, path, &pod, set).await?;
            if bound.is_some() {
                return Ok(Persisted::Done(success()));
            }
        }
    }
}
