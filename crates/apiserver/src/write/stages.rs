//! The order of stages 5 to 7, for every write with an object.
//!
//! ```text
//!   mutate ─► prepare ─► validate ─► persist ─► done
//!                ▲                      │
//!                └── generated name taken ┘
//! ```

use std::future::Future;

use serde_json::Value;

use crate::error::Outcome;
use crate::request::Request;
use crate::write::admission::{Admitter, Submission};

/// The outcome of stage 7.
#[derive(Debug)]
pub(crate) enum Persisted<T> {
    Done(T),
    /// The generated name exists: another one is generated and validated.
    NameTaken,
}

/// The steps of a write that differ between verbs.
pub(crate) trait Recipe: Send {
    /// The result of the write.
    type Output: Send;

    /// Returns true if `persist` may return [`Persisted::NameTaken`].
    fn may_repeat(&self, _object: &Value) -> bool {
        false
    }

    /// Completes the mutated object for validation: sets the server's fields, and applies the rules of the kind.
    fn prepare(&mut self, object: &mut Value) -> Outcome<()>;

    /// The name for validating admission.
    fn name<'n>(&'n self, object: &'n Value) -> &'n str;

    /// The object before the write for validating admission, if mutating admission saw another one.
    fn old(&self) -> Outcome<Option<Value>> {
        Ok(None)
    }

    /// Stores the admitted object, or performs the requested action.
    fn persist(
        &mut self,
        object: Value,
    ) -> impl Future<Output = Outcome<Persisted<Self::Output>>> + Send;
}

/// Runs the stages. Warnings and annotations of admission are recorded whatever the outcome.
pub(crate) async fn run<R: Recipe>(
    admitter: &Admitter,
    request: &Request,
    submission: Submission,
    recipe: &mut R,
) -> Outcome<R::Output> {
    let mut attempt = admitter.begin(request, submission);
    let mut object = attempt.mutate().await?;
    while recipe.may_repeat(&object) {
        let mut candidate = object.clone();
        recipe.prepare(&mut candidate)?;
        let name = recipe.name(&candidate).to_owned();
        let candidate = attempt.validate(candidate, recipe.old()?, &name).await?;
        if let Persisted::Done(output) = recipe.persist(candidate).await? {
            return Ok(output);
        }
    }
    recipe.prepare(&mut object)?;
    let name = recipe.name(&object).to_owned();
    let object = attempt.validate(object, recipe.old()?, &name).await?;
    match recipe.persist(object).await? {
        Persisted::Done(output) => Ok(output),
        Persisted::NameTaken => Err(crate::error::internal(
            "a name that was given was generated",
        )),
    }
}
