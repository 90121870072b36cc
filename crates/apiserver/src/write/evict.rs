//! Evicting a pod: admission is asked about the eviction, and not again about the deletion.

use serde_json::{Value, json};

use crate::decode::options::{DeleteOptions, WriteOptions};
use crate::decode::write::PartBody;
use crate::error::{Outcome, bad_request};
use crate::metadata;
use crate::request::{ObjectPath, Request};
use crate::respond::Reply;
use crate::write::admission::Submission;
use crate::write::delete::Deletion;
use crate::write::{Persisted, Recipe, Writer, budget, run};

/// Evicts the pod a request is about.
pub(crate) async fn evict(writer: &Writer, request: &Request, body: PartBody) -> Outcome<Reply> {
    let PartBody {
        kind,
        object: mut eviction,
        options,
    } = body;
    metadata::wipe(&mut eviction);
    metadata::match_namespace(&mut eviction, request.namespace())?;
    let named = metadata::text(&eviction, "name");
    if !named.is_empty() && named != request.name() {
        return Err(bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let submission = Submission::create(request, &options)
        .kind(kind)
        .object(eviction);
    let mut recipe = Eviction {
        writer,
        request,
        options: &options,
    };
    run(&writer.admitter, request, submission, &mut recipe).await
}

struct Eviction<'e> {
    writer: &'e Writer,
    request: &'e Request,
    options: &'e WriteOptions,
}

impl Recipe for Eviction<'_> {
    type Output = Reply;

    fn prepare(&mut self, _: &mut Value) -> Outcome<()> {
        Ok(())
    }

    fn name<'n>(&'n self, _: &'n Value) -> &'n str {
        self.request.name()
    }

    async fn persist(&mut self, eviction: Value) -> Outcome<Persisted<Reply>> {
        let delete_options = eviction.get("deleteOptions").unwrap_or(&Value::Null);
        let mut delete = DeleteOptions::from_value(delete_options)?;
        if self.options.is_dry_run() && delete.dry_run.is_empty() {
            delete.dry_run.clone_from(&self.options.dry_run);
        }
        let path = ObjectPath {
            resource: &self.request.resource,
            namespace: self.request.namespace(),
            name: self.request.name(),
            subresource: "",
        };
        let pod = self.writer.storage.get(path).await?;
        let dry_run = !delete.dry_run.is_empty();
        if !budget::is_free(&pod) {
            budget::charge(self.writer, &pod, dry_run).await?;
        }
        let deletion = Deletion {
            admission_name: None,
            ..Deletion::of(self.writer, self.request)
        };
        deletion.run(delete).await?;
        Ok(Persisted::Done(success()))
    }
}

/// The `Status` of a write that has no object to show.
pub(super) fn success() -> Reply {
    Reply::object(json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    }))
    .created()
}
