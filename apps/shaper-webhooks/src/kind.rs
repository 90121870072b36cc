//! Checks that both webhooks make first.

use lockgate_go::quote::quote;
use lockgate_webhook::{Context, Denial, Refusal};

use crate::api::{GROUP, Metadata, VERSION};

/// The handling of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Concern {
    /// Look at the object.
    Object,
    /// Let it pass: it is about a subresource, which has no specification to check.
    Subresource,
}

/// Tells whether a request is about the kind that a webhook is for.
///
/// # Errors
///
/// It is about another kind: whoever registered the webhook made a mistake.
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

/// Returns `true` if an object that is being deleted only lets go of things: its specification stays, so that
/// rules it can no longer meet must not keep it forever.
pub(crate) fn is_letting_go<S: PartialEq>(old: (&Metadata, &S), new: &S) -> bool {
    old.0.is_terminating() && old.1 == new
}

/// The namespace of a request's object.
pub(crate) fn namespace_of<'c>(ctx: &'c Context, metadata: &'c Metadata) -> &'c str {
    match ctx.namespace() {
        "" => &metadata.namespace,
        namespace => namespace,
    }
}

/// The name of a request's object; empty when the server is still to make one up.
pub(crate) fn name_of<'c>(ctx: &'c Context, metadata: &'c Metadata) -> &'c str {
    match ctx.name() {
        "" => &metadata.name,
        name => name,
    }
}
