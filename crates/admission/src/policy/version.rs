//! The objects of a request in the version that a policy matched.

use serde_json::Value as Json;

use lockgate_cel::admission::Variables;

use crate::conditions::{ConditionInputs, Conditions, ConditionsTrace};
use crate::decision::FailurePolicy;
use crate::host::{ConvertError, Kinds};
use crate::matching::{Matcher, Target};
use crate::object::Object;
use crate::request::Request;
use crate::webhook::Versioned;

/// Both objects in one version, and the request variables of expressions.
pub(super) struct Version {
    pub(super) target: Target,
    pub(super) versioned: Versioned,
    /// True once a policy has replaced the object, even with an equal one.
    pub(super) is_dirty: bool,
    /// The facts for match conditions, with the requested resource.
    conditions: ConditionInputs,
    /// The facts for all other expressions, with the matched resource, if it differs.
    body: Option<ConditionInputs>,
}

/// The error of converting objects to the matched version.
#[derive(Debug, thiserror::Error)]
pub(super) enum VersionError {
    #[error("the matched version is no longer served")]
    Gone,
    #[error(transparent)]
    Convert(#[from] ConvertError),
}

/// The versions of one request.
#[derive(Default)]
pub(super) struct Versions(Vec<Version>);

impl Versions {
    /// The target's version of the object, converted on first use.
    pub(super) async fn get(
        &mut self,
        kinds: &dyn Kinds,
        matcher: &mut Matcher<'_>,
        request: &Request,
        target: Target,
    ) -> Result<usize, VersionError> {
        if let Some(at) = self.0.iter().position(|known| known.target == target) {
            return Ok(at);
        }
        let resolved = matcher.resolve(target, request);
        let (resource, kind) = resolved.ok_or(VersionError::Gone)?;
        let (resource, kind) = (resource.clone(), kind.clone());
        let versioned = Versioned::new(kinds, request, &kind).await?;
        let conditions = matcher.facts(request, &kind, &request.resource);
        let body = (resource != request.resource).then(|| matcher.facts(request, &kind, &resource));
        self.0.push(Version {
            target,
            versioned,
            is_dirty: false,
            conditions,
            body,
        });
        Ok(self.0.len() - 1)
    }

    pub(super) fn at(&mut self, at: usize) -> Option<&mut Version> {
        self.0.get_mut(at)
    }
}

impl Version {
    pub(super) fn replace_object(&mut self, object: Object) {
        self.versioned.object = Some(object);
        self.is_dirty = true;
        self.conditions.forget();
        if let Some(facts) = &mut self.body {
            facts.forget();
        }
    }

    pub(super) fn check_conditions(
        &mut self,
        conditions: &Conditions,
        params: Option<&Json>,
        policy: FailurePolicy,
    ) -> ConditionsTrace {
        let object = self.versioned.object.as_ref();
        let old_object = self.versioned.old_object.as_ref();
        conditions.evaluate_with(&mut self.conditions, object, old_object, params, policy)
    }

    pub(super) fn is_recording(&self) -> bool {
        self.conditions.is_recording()
    }

    /// The variables of expressions other than match conditions.
    pub(super) fn variables(&self) -> Variables<'_> {
        let facts = self.body.as_ref().unwrap_or(&self.conditions);
        let object = self.versioned.object.as_ref();
        let old_object = self.versioned.old_object.as_ref();
        facts.variables(object, old_object)
    }
}
