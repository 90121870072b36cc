//! The raw form of a webhook.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::context::Context;
use crate::denial::Fault;
use crate::response::Response;

/// A future that is moved between threads.
pub type BoxFuture<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// Answers a review.
pub trait Handler: Send + Sync + 'static {
    /// Answers.
    fn handle<'f>(&'f self, ctx: &'f Context) -> BoxFuture<'f, Result<Response, Fault>>;
}

impl<H: Handler + ?Sized> Handler for Arc<H> {
    fn handle<'f>(&'f self, ctx: &'f Context) -> BoxFuture<'f, Result<Response, Fault>> {
        (**self).handle(ctx)
    }
}

impl fmt::Debug for dyn Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

/// A handler that is a function.
///
/// ```
/// use lockgate_webhook::{Denial, Response, from_fn};
///
/// let handler = from_fn(|ctx| {
///     Box::pin(async move {
///         if ctx.namespace() == "kube-system" {
///             return Ok(Response::deny(Denial::forbidden("hands off")));
///         }
///         Ok(Response::allow())
///     })
/// });
/// ```
pub fn from_fn<F>(function: F) -> impl Handler
where
    F: for<'f> Fn(&'f Context) -> BoxFuture<'f, Result<Response, Fault>> + Send + Sync + 'static,
{
    Function(function)
}

struct Function<F>(F);

impl<F> Handler for Function<F>
where
    F: for<'f> Fn(&'f Context) -> BoxFuture<'f, Result<Response, Fault>> + Send + Sync + 'static,
{
    fn handle<'f>(&'f self, ctx: &'f Context) -> BoxFuture<'f, Result<Response, Fault>> {
        (self.0)(ctx)
    }
}
