//! Requests that bypass a webhook.

use serde_json::Value;

use crate::context::{Context, Operation};
use crate::denial::{Fault, Refusal};
use crate::handler::{BoxFuture, Handler};
use crate::object::decode;
use crate::response::Response;
use crate::validate::into_response;

/// Allows requests without calling the webhook. Prefer a selector or match condition in the registration, which has
/// the same effect without a call.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use lockgate_webhook::{Guard, Validator, validating};
///
/// struct Strict;
///
/// impl Validator<Pod> for Strict {}
///
/// let handler = Guard::new()
///     .allow_terminating()
///     .exempt_namespace("kube-system")
///     .only_if_changed("/spec")
///     .around(validating::<Pod, _>(Strict));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Guard {
    terminating: bool,
    dry_run: bool,
    users: Vec<String>,
    groups: Vec<String>,
    namespaces: Vec<String>,
    pointers: Vec<String>,
}

impl Guard {
    /// Creates a guard without exemptions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Exempts the removal of finalizers from a terminating object: an UPDATE that changes only `metadata` and
    /// `status`. Otherwise a check that can no longer pass would block the deletion forever.
    #[must_use]
    pub fn allow_terminating(mut self) -> Self {
        self.terminating = true;
        self
    }

    /// Exempts dry runs, for a webhook with unavoidable side effects.
    #[must_use]
    pub fn allow_dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Exempts a user.
    #[must_use]
    pub fn exempt_user(mut self, name: impl Into<String>) -> Self {
        self.users.push(name.into());
        self
    }

    /// Exempts the members of a group.
    #[must_use]
    pub fn exempt_group(mut self, name: impl Into<String>) -> Self {
        self.groups.push(name.into());
        self
    }

    /// Exempts a namespace, including the Namespace object.
    #[must_use]
    pub fn exempt_namespace(mut self, name: impl Into<String>) -> Self {
        self.namespaces.push(name.into());
        self
    }

    /// Exempts an UPDATE unless it changes this field. With several fields, a change of any is not exempt.
    #[must_use]
    pub fn only_if_changed(mut self, pointer: impl Into<String>) -> Self {
        self.pointers.push(pointer.into());
        self
    }

    /// Wraps the handler for all other requests.
    pub fn around<H: Handler>(self, handler: H) -> Guarded<H> {
        Guarded {
            guard: self,
            handler,
        }
    }

    /// Returns `true` if a request bypasses the handler.
    fn bypasses(&self, ctx: &Context) -> Result<bool, Refusal> {
        let user = &ctx.user().username;
        let is_exempt = (self.dry_run && ctx.is_dry_run())
            || self.users.contains(user)
            || self.groups.iter().any(|group| ctx.user_is_in(group))
            || self.namespaces.iter().any(|name| name == ctx.namespace());
        if is_exempt {
            return Ok(true);
        }
        let looks_at_objects = self.terminating || !self.pointers.is_empty();
        let texts = (ctx.old_object_text(), ctx.object_text());
        let (Operation::Update, true, (Some(old), Some(new))) =
            (ctx.operation(), looks_at_objects, texts)
        else {
            return Ok(false);
        };
        let old: Value = decode(old, "oldObject")?;
        let new: Value = decode(new, "object")?;
        let stays = |pointer: &String| old.pointer(pointer) == new.pointer(pointer);
        let unchanged = !self.pointers.is_empty() && self.pointers.iter().all(stays);
        Ok(unchanged || (self.terminating && is_finalizing(&old, &new)))
    }
}

/// Returns `true` if an update of a terminating object changes only its metadata and status.
fn is_finalizing(old: &Value, new: &Value) -> bool {
    let deleting = |object: &Value| {
        let since = object.pointer("/metadata/deletionTimestamp");
        since.is_some_and(|since| !since.is_null())
    };
    let (Some(old_members), Some(new_members)) = (old.as_object(), new.as_object()) else {
        return false;
    };
    let free = |name: &str| matches!(name, "metadata" | "status");
    let mut names = old_members.keys().chain(new_members.keys());
    deleting(old) && names.all(|name| free(name) || old_members.get(name) == new_members.get(name))
}

/// A handler wrapped by a [`Guard`].
#[derive(Debug)]
pub struct Guarded<H> {
    guard: Guard,
    handler: H,
}

impl<H: Handler> Handler for Guarded<H> {
    fn handle<'f>(&'f self, ctx: &'f Context) -> BoxFuture<'f, Result<Response, Fault>> {
        Box::pin(async move {
            match self.guard.bypasses(ctx) {
                Ok(true) => Ok(Response::allow()),
                Ok(false) => self.handler.handle(ctx).await,
                Err(refusal) => into_response(Err(refusal)),
            }
        })
    }
}
