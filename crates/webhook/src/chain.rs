//! Chains of mutators or validators.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::denial::{Denial, Refusal, Verdict};
use crate::handler::BoxFuture;
use crate::mutate::Mutator;
use crate::object::Object;
use crate::validate::Validator;

/// Mutators that run in sequence, each on the result of the previous one. The patch is computed once, at the end.
pub struct Mutators<K>(Vec<Box<dyn AnyMutator<K>>>);

impl<K> Default for Mutators<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: DeserializeOwned + Serialize + Send + Sync + 'static> Mutators<K> {
    /// Creates an empty chain.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a mutator.
    #[must_use]
    pub fn then(mut self, mutator: impl Mutator<K>) -> Self {
        self.0.push(Box::new(mutator));
        self
    }
}

impl<K: DeserializeOwned + Serialize + Send + Sync + 'static> Mutator<K> for Mutators<K> {
    async fn mutate(&self, ctx: &Context, object: &mut K) -> Verdict {
        for mutator in &self.0 {
            mutator.mutate(ctx, object).await?;
        }
        Ok(())
    }
}

impl<K> fmt::Debug for Mutators<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} mutators", self.0.len())
    }
}

/// Validators that are all called, so that the client gets every error at once. A fault ends the chain, since no
/// other validator can decide for the failed one.
pub struct Validators<K>(Vec<Box<dyn AnyValidator<K>>>);

impl<K> Default for Validators<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Validators<K> {
    /// Creates an empty chain.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a validator.
    #[must_use]
    pub fn and(mut self, validator: impl Validator<K>) -> Self {
        self.0.push(Box::new(validator));
        self
    }
}

impl<K> fmt::Debug for Validators<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} validators", self.0.len())
    }
}

/// [`Mutator`] as a trait object.
trait AnyMutator<K>: Send + Sync {
    fn mutate<'f>(&'f self, ctx: &'f Context, object: &'f mut K) -> BoxFuture<'f, Verdict>;
}

impl<K, M> AnyMutator<K> for M
where
    K: DeserializeOwned + Serialize + Send + Sync + 'static,
    M: Mutator<K>,
{
    fn mutate<'f>(&'f self, ctx: &'f Context, object: &'f mut K) -> BoxFuture<'f, Verdict> {
        Box::pin(Mutator::mutate(self, ctx, object))
    }
}

/// [`Validator`] as a trait object.
trait AnyValidator<K>: Send + Sync {
    fn create<'f>(&'f self, ctx: &'f Context, object: &'f Object<K>) -> BoxFuture<'f, Verdict>;
    fn update<'f>(
        &'f self,
        ctx: &'f Context,
        old: &'f Object<K>,
        new: &'f Object<K>,
    ) -> BoxFuture<'f, Verdict>;
    fn delete<'f>(&'f self, ctx: &'f Context, object: &'f Object<K>) -> BoxFuture<'f, Verdict>;
    fn connect<'f>(&'f self, ctx: &'f Context, options: &'f Object<K>) -> BoxFuture<'f, Verdict>;
}

impl<K, V> AnyValidator<K> for V
where
    K: DeserializeOwned + Send + Sync + 'static,
    V: Validator<K>,
{
    fn create<'f>(&'f self, ctx: &'f Context, object: &'f Object<K>) -> BoxFuture<'f, Verdict> {
        Box::pin(Validator::create(self, ctx, object))
    }

    fn update<'f>(
        &'f self,
        ctx: &'f Context,
        old: &'f Object<K>,
        new: &'f Object<K>,
    ) -> BoxFuture<'f, Verdict> {
        Box::pin(Validator::update(self, ctx, old, new))
    }

    fn delete<'f>(&'f self, ctx: &'f Context, object: &'f Object<K>) -> BoxFuture<'f, Verdict> {
        Box::pin(Validator::delete(self, ctx, object))
    }

    fn connect<'f>(&'f self, ctx: &'f Context, options: &'f Object<K>) -> BoxFuture<'f, Verdict> {
        Box::pin(Validator::connect(self, ctx, options))
    }
}

/// Calls every validator and merges the results.
async fn join<'f, K>(
    validators: &'f [Box<dyn AnyValidator<K>>],
    ask: impl Fn(&'f dyn AnyValidator<K>) -> BoxFuture<'f, Verdict> + Send,
) -> Verdict {
    let mut denials = Vec::new();
    for validator in validators {
        match ask(&**validator).await {
            Ok(()) => {}
            Err(Refusal::Denied(denial)) => denials.push(*denial),
            Err(fault) => return Err(fault),
        }
    }
    Denial::join(denials).map_or(Ok(()), |denial| Err(denial.into()))
}

impl<K: DeserializeOwned + Send + Sync + 'static> Validator<K> for Validators<K> {
    async fn create(&self, ctx: &Context, object: &Object<K>) -> Verdict {
        join(&self.0, |one| one.create(ctx, object)).await
    }

    async fn update(&self, ctx: &Context, old: &Object<K>, new: &Object<K>) -> Verdict {
        join(&self.0, |one| one.update(ctx, old, new)).await
    }

    async fn delete(&self, ctx: &Context, object: &Object<K>) -> Verdict {
        join(&self.0, |one| one.delete(ctx, object)).await
    }

    async fn connect(&self, ctx: &Context, options: &Object<K>) -> Verdict {
        join(&self.0, |one| one.connect(ctx, options)).await
    }
}
