//! The bridge to the admission engine: the facts of a write, and both steps on it.

use lockgate_admission::decision::Decision;
use lockgate_admission::object::Object;
use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request};
use lockgate_api::admission::GroupVersionKind;
use lockgate_kinds::managed_fields::restore_after_admission;
use serde_json::Value;

use crate::call::Call;
use crate::error::Outcome;
use crate::metadata;
use crate::registry::Resource;
use crate::server::Server;
use crate::write::managed_fields::Tracked;

/// What stays the same in every attempt at a write.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) operation: Operation,
    pub(crate) kind: GroupVersionKind,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) options: Option<Object>,
    pub(crate) dry_run: bool,
}

impl Facts {
    /// The facts of a call about an object of a resource itself.
    pub(crate) fn new(
        operation: Operation,
        call: &Call,
        resource: &Resource,
        options: Value,
        dry_run: bool,
    ) -> Self {
        Self {
            operation,
            kind: resource.group_version_kind(),
            name: call.target.name.clone(),
            namespace: call.target.namespace.clone(),
            options: Some(options.into()),
            dry_run,
        }
    }

    fn request(&self, call: &Call, resource: &Resource) -> Request {
        let mut request = Request::new(
            self.operation,
            self.kind.clone(),
            resource.group_version_resource(),
        );
        request.subresource.clone_from(&call.target.subresource);
        request.name.clone_from(&self.name);
        request.namespace.clone_from(&self.namespace);
        request.user = call.user.clone();
        request.options.clone_from(&self.options);
        request.dry_run = self.dry_run;
        request.deadline = call.deadline;
        request
    }
}

/// One attempt at a write on its way through admission.
pub(crate) struct Attempt<'a> {
    server: &'a Server,
    admission: Admission,
    told: bool,
    /// The owners of fields before admission, if they were noted.
    owners: Option<Value>,
    guards_owners: bool,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(
        server: &'a Server,
        call: &Call,
        resource: &Resource,
        facts: &Facts,
        object: Option<Value>,
        old: Option<Object>,
    ) -> Self {
        let mut request = facts.request(call, resource);
        request.object = object.map(Object::new);
        request.old_object = old;
        Self {
            server,
            admission: Admission::new(request),
            told: false,
            owners: None,
            guards_owners: false,
        }
    }

    /// An attempt at an object whose owners were noted. Owners that a webhook spoils are restored.
    pub(crate) fn tracked(
        server: &'a Server,
        call: &Call,
        resource: &Resource,
        facts: &Facts,
        tracked: Tracked,
        old: Option<Object>,
    ) -> Self {
        let owners = metadata::of(&tracked.object)
            .and_then(|metadata| metadata.get("managedFields"))
            .cloned();
        let mut attempt = Self::new(server, call, resource, facts, Some(tracked.object), old);
        attempt.admission.request_mut().fine_times = tracked.fine_times;
        attempt.owners = owners;
        attempt.guards_owners = true;
        attempt
    }

    /// The first step; the object may be another afterwards.
    pub(crate) async fn mutate(&mut self, call: &mut Call) -> Outcome<Value> {
        let decision = self.server.engine.admit(&mut self.admission).await;
        self.conclude(call, decision)?;
        let object = self.admission.take_object();
        let mut object = object.map(Object::into_value).unwrap_or_default();
        let owners = metadata::of(&object).and_then(|metadata| metadata.get("managedFields"));
        // What nobody touched can be read.
        if self.guards_owners
            && owners != self.owners.as_ref()
            && let Some(warning) = restore_after_admission(&mut object, self.owners.as_ref())
        {
            call.notes.warn(&warning);
        }
        Ok(object)
    }

    /// The second step on the final object. May be repeated with another one.
    pub(crate) async fn validate(
        &mut self,
        call: &mut Call,
        object: Option<&Value>,
        name: &str,
    ) -> Outcome<()> {
        let request = self.admission.request_mut();
        if let Some(object) = object {
            request.object = Some(Object::new(object.clone()));
        }
        name.clone_into(&mut request.name);
        let decision = self.server.engine.validate(&mut self.admission).await;
        self.conclude(call, decision)
    }

    /// Both steps, for what has no object that could change.
    pub(crate) async fn decide(mut self, call: &mut Call) -> Outcome<()> {
        let decision = self.server.engine.admit(&mut self.admission).await;
        self.conclude(call, decision)?;
        let decision = self.server.engine.validate(&mut self.admission).await;
        self.conclude(call, decision)?;
        self.finish(call);
        Ok(())
    }

    fn conclude(&mut self, call: &mut Call, decision: Decision) -> Outcome<()> {
        match decision {
            Decision::Allow => Ok(()),
            Decision::Deny(denial) => {
                self.tell(call);
                Err(denial.into())
            }
        }
    }

    /// Tells what was said, be the attempt successful or not.
    pub(crate) fn finish(mut self, call: &mut Call) {
        self.tell(call);
    }

    fn tell(&mut self, call: &mut Call) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        call.notes.add(&self.admission);
        if let Some(observer) = &self.server.settings.observer {
            observer.tell(&self.admission);
        }
    }
}
