//! The bridge to the admission engine: builds admission requests, and runs both steps.

use lockgate_admission::decision::Decision;
use lockgate_admission::engine::Engine;
use lockgate_admission::object::Object;
use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request as AdmissionRequest};
use lockgate_api::admission::GroupVersionKind;
use lockgate_kinds::managed_fields::restore_after_admission;
use serde_json::Value;

use crate::config::Observer;
use crate::decode::options::{DeleteOptions, WriteOptions};
use crate::error::{Outcome, internal};
use crate::metadata;
use crate::request::Request;
use crate::write::managed_fields::Tracked;

/// Submits writes to the admission engine.
#[derive(Debug, Clone)]
pub(crate) struct Admitter {
    pub(crate) engine: Engine,
    /// Observes every admission run.
    pub(crate) observer: Option<Observer>,
}

/// A write for admission.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) operation: Operation,
    pub(crate) kind: GroupVersionKind,
    pub(crate) name: String,
    pub(crate) namespace: String,
    options: Option<Object>,
    dry_run: bool,
    object: Option<Value>,
    old: Option<Object>,
    /// True if admission must not invalidate the managed fields of the object.
    is_tracked: bool,
    fine_times: bool,
}

impl Submission {
    fn new(operation: Operation, request: &Request) -> Self {
        Self {
            operation,
            kind: request.resource.group_version_kind(),
            name: request.name().to_owned(),
            namespace: request.namespace().to_owned(),
            options: None,
            dry_run: false,
            object: None,
            old: None,
            is_tracked: false,
            fine_times: false,
        }
    }

    /// A new object.
    pub(crate) fn create(request: &Request, options: &WriteOptions) -> Self {
        Self {
            options: Some(options.to_object("CreateOptions")),
            dry_run: options.is_dry_run(),
            ..Self::new(Operation::Create, request)
        }
    }

    /// A change of `old`.
    pub(crate) fn update(request: &Request, options: &WriteOptions, old: Object) -> Self {
        Self {
            options: Some(options.to_object("UpdateOptions")),
            dry_run: options.is_dry_run(),
            old: Some(old),
            ..Self::new(Operation::Update, request)
        }
    }

    /// The deletion of `old`.
    pub(crate) fn delete(request: &Request, options: &DeleteOptions, old: Object) -> Self {
        Self {
            options: Some(options.to_value().into()),
            dry_run: options.is_dry_run(),
            old: Some(old),
            ..Self::new(Operation::Delete, request)
        }
    }

    /// A connection.
    pub(crate) fn connect(request: &Request) -> Self {
        Self::new(Operation::Connect, request)
    }

    pub(crate) fn object(mut self, object: Value) -> Self {
        self.object = Some(object);
        self
    }

    /// Sets the kind of the object, if it differs from the resource's.
    pub(crate) fn kind(mut self, kind: GroupVersionKind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets an object with updated managed fields, which admission must not invalidate.
    pub(crate) fn tracked(mut self, tracked: Tracked) -> Self {
        self.is_tracked = true;
        self.fine_times = tracked.fine_times;
        self.object(tracked.object)
    }

    /// Records if managed fields have timestamps with a higher resolution than their JSON, which upstream keeps.
    pub(crate) fn fine_times(mut self, are_fine: bool) -> Self {
        self.fine_times = are_fine;
        self
    }
}

pub(crate) fn managed_fields(object: &Value) -> Option<&Value> {
    metadata::of(object).and_then(|metadata| metadata.get("managedFields"))
}

impl Admitter {
    /// Starts an attempt at a write.
    pub(crate) fn begin<'a>(&'a self, request: &'a Request, submission: Submission) -> Attempt<'a> {
        let Submission {
            operation,
            kind,
            name,
            namespace,
            options,
            dry_run,
            object,
            old,
            is_tracked,
            fine_times,
        } = submission;
        let resource = request.resource.group_version_resource();
        let mut submitted = AdmissionRequest::new(operation, kind, resource);
        submitted.subresource = request.subresource().to_owned();
        submitted.name = name;
        submitted.namespace = namespace;
        submitted.user = request.user().clone();
        submitted.options = options;
        submitted.dry_run = dry_run;
        submitted.deadline = request.deadline;
        submitted.object = object.map(Object::new);
        submitted.old_object = old;
        submitted.fine_times = fine_times;
        let admission = Admission::new(submitted);
        let admission = match &self.observer {
            Some(observer) => observer.prepare(admission),
            None => admission,
        };
        Attempt {
            admitter: self,
            request,
            admission,
            is_tracked,
        }
    }

    /// Runs both steps, for a write without an object.
    pub(crate) async fn decide(&self, request: &Request, submission: Submission) -> Outcome<()> {
        let mut attempt = self.begin(request, submission);
        conclude(self.engine.admit(&mut attempt.admission).await)?;
        conclude(self.engine.validate(&mut attempt.admission).await)
    }
}

/// One attempt at a write during admission. Its warnings and annotations are recorded whatever the outcome.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    admitter: &'a Admitter,
    request: &'a Request,
    admission: Admission,
    /// True if admission must not invalidate the managed fields of the object.
    is_tracked: bool,
}

fn conclude(decision: Decision) -> Outcome<()> {
    match decision {
        Decision::Allow => Ok(()),
        Decision::Deny(denial) => Err(denial.into()),
    }
}

impl Attempt<'_> {
    /// Runs the mutating step.
    pub(crate) async fn mutate(&mut self) -> Outcome<Value> {
        conclude(self.admitter.engine.admit(&mut self.admission).await)?;
        let object = self.admission.take_object();
        let object = object.ok_or_else(|| internal("admission lost the object"))?;
        if self.admission.trace().is_patched() {
            let empties = object.unwritten().and_then(|all| all.downcast_ref());
            self.request
                .notes
                .sent_with(empties.cloned().unwrap_or_default());
        }
        let mut object = object.into_value();
        // An unchanged object can be decoded.
        if let Some(before) = self.admission.take_unpatched()
            && self.is_tracked
        {
            let fields = managed_fields(before.value());
            let is_readable = !self.request.resource.is_custom()
                || metadata::has_readable_managed_fields(&object);
            if is_readable
                && managed_fields(&object) != fields
                && let Some(warning) = restore_after_admission(&mut object, fields)
            {
                self.request.notes.warn(&warning);
            }
        }
        Ok(object)
    }

    /// Runs the validating step on the final object, and returns the object. May be repeated with another one. `old`
    /// replaces the old object of the mutating step.
    pub(crate) async fn validate(
        &mut self,
        object: Value,
        old: Option<Value>,
        name: &str,
    ) -> Outcome<Value> {
        let request = self.admission.request_mut();
        if let Some(old) = old {
            request.old_object = Some(Object::new(old));
        }
        request.object = Some(Object::new(object));
        name.clone_into(&mut request.name);
        conclude(self.admitter.engine.validate(&mut self.admission).await)?;
        self.take_object()
    }

    fn take_object(&mut self) -> Outcome<Value> {
        let object = self.admission.take_object().map(Object::into_value);
        object.ok_or_else(|| internal("admission lost the object"))
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.request.notes.add(&self.admission);
        if let Some(observer) = &self.admitter.observer {
            observer.notify(&self.admission);
        }
    }
}
