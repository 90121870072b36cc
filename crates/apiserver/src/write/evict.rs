//! Evicting a Pod: admission runs for the eviction, and not again for the deletion.

use lockgate_api::field::{FieldError, Path, Shown};
use serde_json::{Value, json};

use crate::decode::options::{DeleteOptions, WriteOptions};
use crate::decode::write::PartBody;
use crate::error::{Outcome, bad_request, invalid, plain};
use crate::metadata;
use crate::request::{ObjectPath, Request};
use crate::respond::Reply;
use crate::write::admission::Submission;
use crate::write::delete::{Deletion, check_preconditions};
use crate::write::managed_fields::track_part;
use crate::write::update::set_without_admission;
use crate::write::{Persisted, Recipe, Writer, budget, run, strategy};

/// The option that is allowed only for deletions of unreadable objects.
const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// Evicts the requested Pod.
pub(crate) async fn evict(writer: &Writer, request: &Request, body: PartBody) -> Outcome<Reply> {
    let PartBody {
        kind,
        object: mut eviction,
        options,
    } = body;
    metadata::wipe_system_fields(&mut eviction);
    metadata::match_namespace(&mut eviction, request.namespace())?;
    if let Some(warning) = metadata::drop_duplicate_owner_references(&mut eviction, false) {
        request.notes.warn(&warning);
    }
    let tracked = track_part(request, &kind, options.manager(), eviction);
    let submission = Submission::create(request, &options)
        .kind(kind)
        .tracked(tracked);
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

impl Eviction<'_> {
    /// Sets the eviction condition of the Pod, which is visible until the Pod is deleted.
    ///
    /// UPSTREAM: pkg/registry/core/pod/storage/eviction.go (addConditionAndDeletePod)
    async fn set_disruption_condition(
        &self,
        path: ObjectPath<'_>,
        delete: &mut DeleteOptions,
    ) -> Outcome<()> {
        loop {
            let pod = self.writer.storage.get(path).await?;
            if let Some(preconditions) = &delete.preconditions {
                check_preconditions(path, preconditions, &pod)?;
            }
            let set = |pod: &mut Value| {
                let why = ["EvictionByEvictionAPI", "Eviction API: evicting"];
                strategy::set_condition(pod, "DisruptionTarget", Some(why));
                Ok(())
            };
            let announced = set_without_admission(&self.writer.storage, path, &pod, set).await?;
            let Some(announced) = announced else {
                continue;
            };
            if let Some(preconditions) = &mut delete.preconditions
                && let Some(version) = &mut preconditions.resource_version
            {
                metadata::text(&announced, "resourceVersion").clone_into(version);
            }
            return Ok(());
        }
    }
}

impl Recipe for Eviction<'_> {
    type Output = Reply;

    fn prepare(&mut self, eviction: &mut Value) -> Outcome<()> {
        if let Some(warning) = metadata::drop_duplicate_owner_references(eviction, true) {
            self.request.notes.warn(&warning);
        }
        let name = self.request.name();
        if metadata::text(eviction, "name") != name {
            return Err(bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let options = eviction.get("deleteOptions").unwrap_or(&Value::Null);
        if options.get(IGNORE_READ_ERROR) == Some(&Value::Bool(true)) {
            let path = Path::root("deleteOptions");
            let why = "can not be set for pod eviction, try after removing the option";
            let path = path.child(IGNORE_READ_ERROR);
            let error = FieldError::invalid(&path, Shown::Rendered("true"), why);
            return Err(invalid("Eviction", "policy", name, &[error]));
        }
        let told: Vec<&str> = options
            .get("dryRun")
            .and_then(Value::as_array)
            .map(|all| all.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let asked = &self.options.dry_run;
        if !told.is_empty() && !asked.is_empty() && *asked != told {
            return Err(plain(format!(
                "Non-matching dry-run options in request and content: [{}] and [{}]",
                asked.join(" "),
                told.join(" ")
            )));
        }
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
        if !budget::can_ignore_budget(&pod) {
            budget::charge(self.writer, &pod, dry_run).await?;
        }
        if !dry_run {
            self.set_disruption_condition(path, &mut delete).await?;
        }
        let deletion = Deletion {
            admission_name: None,
            ..Deletion::of(self.writer, self.request)
        };
        deletion.run(delete).await?;
        Ok(Persisted::Done(success()))
    }
}

/// The `Status` of a write without an object in the response.
pub(super) fn success() -> Reply {
    Reply::object(json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    }))
    .created()
}
