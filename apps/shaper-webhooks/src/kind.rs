//! Checks common to both webhooks.

use lockgate_go::quote::quote;
use lockgate_webhook::{Context, Denial, Refusal};

use crate::api::{GROUP, Metadata, VERSION};

/// The handling of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Concern {
    /// Check the object.
    Object,
    /// Allow it: subresources have no spec to check.
    Subresource,
}

/// Checks that a request is for the kind of a webhook.
///
/// # Errors
///
/// Fails for another kind, which is an error in the webhook's registration.
pub(crate) fn concern(ctx: &Context, kind: &str) -> Result<Concern, Refusal> {
    let of = ctx.kind();
    if ctx.sub_resource().is_empty() {
        if (of.group.as_str(), of.version.as_str(), of.kind.as_str()) == (GROUP, VERSION, kind) {
            return Ok(Concern::Object);
        }
    } else if ctx.resource().group == GROUP {
        return Ok(Concern::Subresource);
    }
    let shown = quote(&format!("{}/{}, Kind={}", of.group, of.version, of.kind));
    let message = format!("webhook does not support resource with GroupVersionKind={shown}");
    Err(Denial::bad_request(message).into())
}

/// Returns `true` if an update of a terminating object does not change its spec: rules that it can no longer meet must
/// not block the removal of finalizers.
pub(crate) fn is_finalizing<S: PartialEq>(old: (&Metadata, &S), new: &S) -> bool {
    old.0.is_terminating() && old.1 == new
}

/// The namespace of a request's object.
pub(crate) fn namespace_of<'c>(ctx: &'c Context, metadata: &'c Metadata) -> &'c str {
    match ctx.namespace() {
        "" => &metadata.namespace,
        namespace => namespace,
    }
}

/// The name of a request's object; empty while the server has not generated it.
pub(crate) fn name_of<'c>(ctx: &'c Context, metadata: &'c Metadata) -> &'c str {
    match ctx.name() {
        "" => &metadata.name,
        name => name,
    }
}
