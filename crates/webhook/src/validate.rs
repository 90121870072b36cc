//! Validators of typed objects.

use std::future::Future;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use crate::context::{Context, Operation};
use crate::denial::{Denial, Fault, Refusal, Verdict};
use crate::handler::{BoxFuture, Handler};
use crate::object::Object;
use crate::response::Response;

/// Validates objects of the kind `K`. Methods that are not implemented allow the request.
///
/// Implement the methods as `async fn`. Warnings and audit annotations are added to the [`Context`].
///
/// A check that is common to creates and updates is implemented once:
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use lockgate_webhook::{Context, Denial, Object, Validator, Verdict};
///
/// struct Small;
///
/// impl Validator<ConfigMap> for Small {
///     async fn create_or_update(
///         &self,
///         _: &Context,
///         _: Option<&Object<ConfigMap>>,
///         new: &Object<ConfigMap>,
///     ) -> Verdict {
///         match &new.data {
///             Some(data) if data.len() > 100 => Err(Denial::forbidden("too many keys").into()),
///             _ => Ok(()),
///         }
///     }
/// }
/// ```
pub trait Validator<K>: Send + Sync + 'static
where
    K: DeserializeOwned + Send + Sync + 'static,
{
    /// Validates a created object, or an updated one with the stored object. Called if [`create`](Self::create) or
    /// [`update`](Self::update) is not implemented.
    fn create_or_update(
        &self,
        ctx: &Context,
        old: Option<&Object<K>>,
        new: &Object<K>,
    ) -> impl Future<Output = Verdict> + Send {
        let _ = (ctx, old, new);
        async { Ok(()) }
    }

    /// Validates a creation.
    fn create(&self, ctx: &Context, object: &Object<K>) -> impl Future<Output = Verdict> + Send {
        self.create_or_update(ctx, None, object)
    }

    /// Validates an update.
    fn update(
        &self,
        ctx: &Context,
        old: &Object<K>,
        new: &Object<K>,
    ) -> impl Future<Output = Verdict> + Send {
        self.create_or_update(ctx, Some(old), new)
    }

    /// Validates a deletion.
    fn delete(&self, ctx: &Context, object: &Object<K>) -> impl Future<Output = Verdict> + Send {
        let _ = (ctx, object);
        async { Ok(()) }
    }

    /// Validates a connection, such as `kubectl exec`. `K` is then the kind of the options, such as `PodExecOptions`.
    fn connect(&self, ctx: &Context, options: &Object<K>) -> impl Future<Output = Verdict> + Send {
        let _ = (ctx, options);
        async { Ok(()) }
    }
}

/// Creates the handler of a validator.
pub fn validating<K, V>(validator: V) -> impl Handler
where
    K: DeserializeOwned + Send + Sync + 'static,
    V: Validator<K>,
{
    Validating {
        validator,
        kind: PhantomData::<fn() -> K>,
    }
}

struct Validating<K, V> {
    validator: V,
    kind: PhantomData<fn() -> K>,
}

impl<K, V> Handler for Validating<K, V>
where
    K: DeserializeOwned + Send + Sync + 'static,
    V: Validator<K>,
{
    fn handle<'f>(&'f self, ctx: &'f Context) -> BoxFuture<'f, Result<Response, Fault>> {
        Box::pin(async move { into_response(ask(&self.validator, ctx).await) })
    }
}

/// Calls the method for the operation, with its objects.
pub(crate) async fn ask<K, V>(validator: &V, ctx: &Context) -> Verdict
where
    K: DeserializeOwned + Send + Sync + 'static,
    V: Validator<K>,
{
    match ctx.operation() {
        Operation::Create => {
            let object = present(ctx.object()?, ctx, "object")?;
            validator.create(ctx, &object).await
        }
        Operation::Update => {
            let old = present(ctx.old_object()?, ctx, "oldObject")?;
            let new = present(ctx.object()?, ctx, "object")?;
            validator.update(ctx, &old, &new).await
        }
        Operation::Delete => {
            let object = present(ctx.old_object()?, ctx, "oldObject")?;
            validator.delete(ctx, &object).await
        }
        Operation::Connect => {
            let options = present(ctx.object()?, ctx, "object")?;
            validator.connect(ctx, &options).await
        }
        Operation::Other(name) => Err(unknown(name).into()),
    }
}

/// The object that the operation requires.
pub(crate) fn present<T>(object: Option<T>, ctx: &Context, member: &str) -> Result<T, Refusal> {
    object.ok_or_else(|| {
        let message = format!("a review of {} comes with {member}", ctx.operation());
        Denial::bad_request(message).into()
    })
}

pub(crate) fn unknown(operation: &str) -> Denial {
    Denial::bad_request(format!("operation `{operation}` is not known"))
}

pub(crate) fn into_response(verdict: Verdict) -> Result<Response, Fault> {
    match verdict {
        Ok(()) => Ok(Response::allow()),
        Err(Refusal::Denied(denial)) => Ok(Response::deny(*denial)),
        Err(Refusal::Fault(fault)) => Err(fault),
    }
}
