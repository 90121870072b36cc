//! Binding a pod to a node, by `pods/NAME/binding` or by the older `bindings`.

use lockgate_api::field::{FieldError, Path, Shown};
use lockgate_go::quote::quote;
use serde_json::{Value, json};

use crate::decode::write::PartBody;
use crate::error::{Outcome, bad_request, conflict, invalid, no_such_resource};
use crate::metadata;
use crate::request::{ObjectPath, Request};
use crate::respond::Reply;
use crate::write::admission::Submission;
use crate::write::evict::success;
use crate::write::update::set_without_admission;
use crate::write::{Persisted, Recipe, Writer, run, strategy};

/// Binds a pod.
pub(crate) async fn bind(writer: &Writer, request: &Request, body: PartBody) -> Outcome<Reply> {
    let PartBody {
        kind,
        object: mut binding,
        options,
    } = body;
    metadata::match_namespace(&mut binding, request.namespace())?;
    // The path of `bindings` names no pod; the binding does.
    let name = match request.name() {
        "" => metadata::text(&binding, "name").to_owned(),
        name => name.to_owned(),
    };
    let mut submission = Submission::create(request, &options)
        .kind(kind)
        .fine_times(true)
        .object(binding);
    submission.name.clone_from(&name);
    let mut recipe = Bind {
        writer,
        namespace: request.namespace(),
        name,
        dry_run: options.is_dry_run(),
    };
    run(&writer.admitter, request, submission, &mut recipe).await
}

struct Bind<'b> {
    writer: &'b Writer,
    namespace: &'b str,
    name: String,
    dry_run: bool,
}

/// The node a binding names.
fn node<'b>(binding: &'b Value, name: &str) -> Outcome<&'b str> {
    let text = |pointer: &str| {
        let found = binding.pointer(pointer).and_then(Value::as_str);
        found.unwrap_or_default()
    };
    let path = Path::root("target");
    let kind = text("/target/kind");
    if !matches!(kind, "" | "Node") {
        let supported = ["Node", "<empty>"];
        let error = FieldError::not_supported(&path.child("kind"), Shown::Text(kind), &supported);
        return Err(invalid("Binding", "", name, &[error]));
    }
    match text("/target/name") {
        "" => {
            let error = FieldError::required(&path.child("name"), "");
            Err(invalid("Binding", "", name, &[error]))
        }
        node => Ok(node),
    }
}

impl Bind<'_> {
    /// Checks that a pod can be bound.
    fn check(&self, pod: &Value, binding: &Value) -> Outcome<()> {
        let name = &self.name;
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
        let (wanted, uid) = (metadata::text(binding, "uid"), metadata::text(pod, "uid"));
        if !wanted.is_empty() && wanted != uid {
            return refused(format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            ));
        }
        Ok(())
    }
}

fn set_node(pod: &mut Value, node: &str, binding: &Value) {
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert(String::from("nodeName"), node.into());
    }
    strategy::mark_scheduled(pod);
    let annotations = binding.pointer("/metadata/annotations");
    let annotations = annotations.and_then(Value::as_object).into_iter().flatten();
    for (key, value) in annotations {
        metadata::change(pod, |metadata| {
            let all = metadata.entry("annotations").or_insert_with(|| json!({}));
            all[key] = value.clone();
        });
    }
}

impl Recipe for Bind<'_> {
    type Output = Reply;

    fn prepare(&mut self, binding: &mut Value) -> Outcome<()> {
        match metadata::text(binding, "name") {
            name if name == self.name => Ok(()),
            _ => Err(bad_request(
                "name in URL does not match name in Binding object",
            )),
        }
    }

    fn name<'n>(&'n self, _: &'n Value) -> &'n str {
        &self.name
    }

    async fn persist(&mut self, binding: Value) -> Outcome<Persisted<Reply>> {
        let node = node(&binding, &self.name)?;
        if self.dry_run {
            return Ok(Persisted::Done(success()));
        }
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
