//! The webhooks of assignments.
//!
//! The mutating webhook keeps the labels in sync with the spec, because the data plane finds assignments by label. The
//! validating webhook checks against existing objects. Both apply the static rules, so that errors are reported before
//! anything else happens.

pub mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::try_join_all;
use lockgate_api::field::{ErrorType, Path};
use lockgate_webhook::{Context, Fault, FieldErrors, Mutator, Object, Validator, Verdict};

use crate::api::{Assignment, AssignmentSpec, Metadata};
use crate::findings::problem;
use crate::kind::{Concern, concern, is_finalizing, name_of, namespace_of};
use crate::labels;
use crate::lookup::{Lookup, Which};
use crate::uuid::Uuid;

const KIND: &str = "Assignment";

/// Sets the labels of assignments.
#[derive(Debug)]
pub struct AssignmentMutator;

impl Mutator<Assignment> for AssignmentMutator {
    async fn mutate(&self, ctx: &Context, object: &mut Assignment) -> Verdict {
        if concern(ctx, KIND)? == Concern::Subresource {
            return Ok(());
        }
        let old = ctx.old_object::<Assignment>()?;
        let goes = old.is_some_and(|old| is_finalizing((&old.metadata, &old.spec), &object.spec));
        if !goes {
            rules::check(&object.spec).report(ctx)?;
        }
        let present = object.metadata.labels.take().unwrap_or_default();
        object.metadata.labels = Some(labels::of_assignment(&object.spec, &present));
        Ok(())
    }
}

/// Validates assignments.
pub struct AssignmentValidator {
    lookup: Arc<dyn Lookup>,
}

impl std::fmt::Debug for AssignmentValidator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AssignmentValidator")
    }
}

impl AssignmentValidator {
    /// Creates the validator with a lookup of other objects.
    #[must_use]
    pub fn new(lookup: Arc<dyn Lookup>) -> Self {
        Self { lookup }
    }

    async fn decide(&self, ctx: &Context, object: &Assignment) -> Verdict {
        rules::check(&object.spec).report(ctx)?;
        let this = This {
            namespace: namespace_of(ctx, &object.metadata),
            name: name_of(ctx, &object.metadata),
        };
        let mut errors = FieldErrors::default();
        self.check_profile(&object.spec, this, &mut errors).await?;
        if object.spec.is_default {
            self.check_default(&object.spec, this, &mut errors).await?;
        } else {
            self.check_machines(&object.spec, this, &mut errors).await?;
        }
        errors.into_verdict()
    }

    async fn check_profile(
        &self,
        spec: &AssignmentSpec,
        this: This<'_>,
        errors: &mut FieldErrors,
    ) -> Result<(), Fault> {
        let name = spec.profile_name.as_str();
        if !self.lookup.profile_exists(this.namespace, name).await? {
            let spec = Path::root("spec");
            let path = spec.child("profileName");
            errors.push(problem(ErrorType::NotFound, &path, name, rules::NO_PROFILE));
        }
        Ok(())
    }

    /// Each architecture has at most one default. Specs are considered as well as labels: this object may have bypassed
    /// the mutating webhook, and stored objects may have been created without labels.
    async fn check_default(
        &self,
        spec: &AssignmentSpec,
        this: This<'_>,
        errors: &mut FieldErrors,
    ) -> Result<(), Fault> {
        let others = self.lookup.assignments(Which::All).await?;
        let root = Path::root("spec");
        let selectors = root.child("subjectSelectors");
        let list = selectors.child("buildarch");
        let is_any = spec.subject_selectors.buildarch.is_empty();
        for (place, arch) in labels::archs(spec).enumerate() {
            let label = labels::buildarch(arch);
            let is_for = |other: &&Assignment| {
                let meta = &other.metadata;
                let is_default =
                    other.spec.is_default || meta.label(labels::DEFAULT_ASSIGNMENT).is_some();
                let is_of_arch = || {
                    meta.label(&label).is_some() || labels::archs(&other.spec).any(|a| a == arch)
                };
                is_default && this.is_not(meta) && is_of_arch()
            };
            if let Some(other) = others.iter().find(is_for) {
                let detail = format!(
                    "there is a default assignment for this buildarch already: {}",
                    shown(&other.metadata)
                );
                let path = if is_any { list } else { list.index(place) };
                errors.push(problem(ErrorType::Duplicate, &path, arch, detail));
            }
        }
        Ok(())
    }

    /// Each machine has at most one assignment.
    async fn check_machines(
        &self,
        spec: &AssignmentSpec,
        this: This<'_>,
        errors: &mut FieldErrors,
    ) -> Result<(), Fault> {
        let texts = &spec.subject_selectors.uuid_list;
        let machines: Vec<_> = texts.iter().map(|text| Uuid::parse(text)).collect();
        let others = self
            .candidates(machines.iter().flatten().copied().collect())
            .await?;
        let mut holders = BTreeMap::new();
        for other in others.iter().filter(|other| this.is_not(&other.metadata)) {
            for machine in labels::machines(other) {
                holders.entry(machine).or_insert(&other.metadata);
            }
        }
        let root = Path::root("spec");
        let selectors = root.child("subjectSelectors");
        let list = selectors.child("uuidList");
        for (place, (text, machine)) in texts.iter().zip(machines).enumerate() {
            if let Some(holder) = machine.ok().and_then(|machine| holders.get(&machine)) {
                let detail = format!(
                    "assignment cannot reference a subject selector referenced by another assignment: {}",
                    shown(holder)
                );
                let path = list.index(place);
                errors.push(problem(ErrorType::Duplicate, &path, text, detail));
            }
        }
        Ok(())
    }

    /// The candidates that may select one of these machines: found by label, and all assignments without labels.
    async fn candidates(&self, machines: BTreeSet<Uuid>) -> Result<Vec<Assignment>, Fault> {
        /// The number of concurrent lookups.
        const AT_ONCE: usize = 16;
        /// Above this number of machines, listing all assignments is cheaper than lookups by label.
        const MANY: usize = 64;
        if machines.len() > MANY {
            return Ok(self.lookup.assignments(Which::All).await?);
        }
        let mut found = Vec::new();
        if !machines.is_empty() {
            found = self.lookup.assignments(Which::Unlabelled).await?;
        }
        let wanted: Vec<_> = machines.into_iter().map(labels::uuid).collect();
        for some in wanted.chunks(AT_ONCE) {
            let questions = some
                .iter()
                .map(|label| self.lookup.assignments(Which::With(label)));
            found.extend(try_join_all(questions).await?.into_iter().flatten());
        }
        Ok(found)
    }
}

impl Validator<Assignment> for AssignmentValidator {
    async fn create_or_update(
        &self,
        ctx: &Context,
        old: Option<&Object<Assignment>>,
        new: &Object<Assignment>,
    ) -> Verdict {
        let is_unasked = concern(ctx, KIND)? == Concern::Subresource
            || old.is_some_and(|old| is_finalizing((&old.metadata, &old.spec), &new.spec));
        if is_unasked {
            return Ok(());
        }
        self.decide(ctx, new).await
    }

    async fn delete(&self, ctx: &Context, _: &Object<Assignment>) -> Verdict {
        concern(ctx, KIND).map(drop)
    }
}

/// The object of a request.
#[derive(Debug, Clone, Copy)]
struct This<'c> {
    namespace: &'c str,
    name: &'c str,
}

impl This<'_> {
    fn is_not(self, other: &Metadata) -> bool {
        (other.namespace.as_str(), other.name.as_str()) != (self.namespace, self.name)
    }
}

fn shown(metadata: &Metadata) -> String {
    format!("{}/{}", metadata.namespace, metadata.name)
}

#[cfg(test)]
mod tests;
