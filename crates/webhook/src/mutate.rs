//! Mutators of typed objects.

use std::future::Future;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::{Context, Operation};
use crate::denial::{Fault, Refusal, Verdict};
use crate::handler::{BoxFuture, Handler};
use crate::object::decode;
use crate::patch::Patch;
use crate::response::Response;
use crate::validate::{into_response, unknown};

/// Mutates objects of the kind `K`.
///
/// Changes the object in place; the framework computes a patch of the changed fields only, and fields unknown to `K`
/// are preserved. A mutator must be idempotent.
pub trait Mutator<K>: Send + Sync + 'static
where
    K: DeserializeOwned + Serialize + Send + Sync,
{
    /// Mutates a created or updated object. The stored object of an update is
    /// [`ctx.old_object()`](Context::old_object).
    fn mutate(&self, ctx: &Context, object: &mut K) -> impl Future<Output = Verdict> + Send;
}

/// Creates the handler of a mutator. Deletions have no object to change and are allowed.
pub fn mutating<K, M>(mutator: M) -> impl Handler
where
    K: DeserializeOwned + Serialize + Send + Sync + 'static,
    M: Mutator<K>,
{
    Mutating {
        mutator,
        kind: PhantomData::<fn() -> K>,
    }
}

struct Mutating<K, M> {
    mutator: M,
    kind: PhantomData<fn() -> K>,
}

impl<K, M> Handler for Mutating<K, M>
where
    K: DeserializeOwned + Serialize + Send + Sync + 'static,
    M: Mutator<K>,
{
    fn handle<'f>(&'f self, ctx: &'f Context) -> BoxFuture<'f, Result<Response, Fault>> {
        Box::pin(async move {
            match change(&self.mutator, ctx).await {
                Ok(patch) => Ok(Response::patch(patch)),
                Err(refusal) => into_response(Err(refusal)),
            }
        })
    }
}

async fn change<K, M>(mutator: &M, ctx: &Context) -> Result<Patch, Refusal>
where
    K: DeserializeOwned + Serialize + Send + Sync,
    M: Mutator<K>,
{
    let text = match (ctx.operation(), ctx.object_text()) {
        (Operation::Other(name), _) => return Err(unknown(name).into()),
        (_, None) => return Ok(Patch::default()),
        (_, Some(text)) => text,
    };
    let mut object: K = decode(text, "object")?;
    let before = write(&object)?;
    mutator.mutate(ctx, &mut object).await?;
    let after = write(&object)?;
    Patch::of_view(text, &before, &after)
}

fn write<K: Serialize>(object: &K) -> Result<String, Refusal> {
    Ok(serde_json::to_string(object)?)
}
