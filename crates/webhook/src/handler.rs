//! The untyped form of a webhook.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::context::Context;
use crate::denial::Fault;
use crate::response::Response;

/// A boxed `Send` future.
pub type BoxFuture<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// Handles reviews.
pub trait Handler: Send + Sync + 'static {
    /// Handles a review.
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

/// Creates a handler from an async closure. It is cloned for every review, so its captures should be cheap to clone: an
/// `Arc`, a sender.
///
/// ```
/// use lockgate_webhook::{Context, Denial, Response, from_fn};
///
/// let handler = from_fn(async |ctx: &Context| {
///     if ctx.namespace() == "kube-system" {
///         return Ok(Response::deny(Denial::forbidden("kube-system is off limits")));
///     }
///     Ok(Response::allow())
/// });
/// ```
pub fn from_fn<F>(function: F) -> impl Handler
where
    F: for<'f> HandlerFn<'f> + Clone + Send + Sync + 'static,
{
    Function(function)
}

/// A closure for [`from_fn`]: `async |ctx: &Context| -> Result<Response, Fault>`.
///
/// Async closures that use captured variables do not implement `Fn`, because each call borrows from the closure; all of
/// them implement `FnOnce`.
pub trait HandlerFn<'f> {
    /// Handles a review.
    fn run(self, ctx: &'f Context) -> impl Future<Output = Result<Response, Fault>> + Send + 'f;
}

impl<'f, F, Fut> HandlerFn<'f> for F
where
    F: FnOnce(&'f Context) -> Fut,
    Fut: Future<Output = Result<Response, Fault>> + Send + 'f,
{
    fn run(self, ctx: &'f Context) -> impl Future<Output = Result<Response, Fault>> + Send + 'f {
        self(ctx)
    }
}

struct Function<F>(F);

impl<F> Handler for Function<F>
where
    F: for<'f> HandlerFn<'f> + Clone + Send + Sync + 'static,
{
    fn handle<'f>(&'f self, ctx: &'f Context) -> BoxFuture<'f, Result<Response, Fault>> {
        Box::pin(self.0.clone().run(ctx))
    }
}
