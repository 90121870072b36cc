//! The webhooks of profiles.
//!
//! The mutating webhook assigns every exposed content a UUID, as a label. The UUID is a capability for reading the
//! content, so it is random, permanent, and cannot be chosen by authors of profiles. The validating webhook enforces
//! this for profiles that bypassed the mutating one.

pub mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lockgate_api::field::{ErrorType, Path};
use lockgate_webhook::{
    Context, Denial, Fault, FieldErrors, Mutator, Object, Refusal, Validator, Verdict,
};

use crate::api::{Metadata, Profile};
use crate::config::ProfileDeletion;
use crate::findings::problem;
use crate::kind::{Concern, concern, is_finalizing, name_of, namespace_of};
use crate::labels;
use crate::lookup::{Lookup, Which};
use crate::uuid::Uuid;

const KIND: &str = "Profile";

/// The settings of both profile webhooks.
#[derive(Clone)]
pub struct ProfileRules {
    /// The lookup of other objects.
    pub lookup: Arc<dyn Lookup>,
    /// Users who may choose UUIDs, because they only restore them.
    pub controllers: Arc<[String]>,
    /// The handling of deletions of profiles in use.
    pub deletion: ProfileDeletion,
}

impl std::fmt::Debug for ProfileRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProfileRules")
            .field("controllers", &self.controllers)
            .field("deletion", &self.deletion)
            .finish_non_exhaustive()
    }
}

impl ProfileRules {
    fn is_controller(&self, ctx: &Context) -> bool {
        self.controllers.contains(&ctx.user().username)
    }

    /// Another profile that has a content with this UUID.
    async fn holder(
        &self,
        ctx: &Context,
        object: &Profile,
        content: Uuid,
    ) -> Result<Option<String>, Fault> {
        let this = (
            namespace_of(ctx, &object.metadata),
            name_of(ctx, &object.metadata),
        );
        let found = self.lookup.profiles_with(&labels::uuid(content)).await?;
        let others = found.into_iter().map(|profile| profile.metadata);
        let mut others = others.filter(|other| (&*other.namespace, &*other.name) != this);
        Ok(others
            .next()
            .map(|other| format!("{}/{}", other.namespace, other.name)))
    }

    /// The known UUIDs of a profile's contents.
    async fn known(
        &self,
        ctx: &Context,
        old: Option<&Profile>,
        object: &Profile,
    ) -> Result<BTreeMap<String, Uuid>, Refusal> {
        let offered = labels::contents(object.metadata.labels.as_ref());
        // The controller restores the UUIDs it recorded, which take precedence.
        if self.is_controller(ctx) {
            let mut known = old.map(remembered).unwrap_or_default();
            known.extend(offered);
            return Ok(known);
        }
        // Labels set by users are ignored once the profile exists.
        if let Some(old) = old {
            return Ok(remembered(old));
        }
        let mut known = BTreeMap::new();
        let exposed: BTreeSet<_> = exposed(object).collect();
        for (name, content) in offered {
            if !exposed.contains(name.as_str()) {
                continue;
            }
            match self.holder(ctx, object, content).await? {
                None => {
                    known.insert(name, content);
                }
                Some(_) => ctx.warn(format!(
                    "metadata.labels: UUID {content} belongs to another profile, `{name}` gets a new one"
                )),
            }
        }
        Ok(known)
    }
}

fn exposed(profile: &Profile) -> impl Iterator<Item = &str> {
    let contents = profile.spec.additional_content.iter();
    contents
        .filter(|content| content.exposed)
        .map(|content| content.name.as_str())
}

/// The UUIDs of the stored profile: its labels, and its status where a label is missing. The status may
/// be stale: content that was unexposed must not get its previous UUID again.
fn remembered(stored: &Profile) -> BTreeMap<String, Uuid> {
    let mut known = labels::contents(stored.metadata.labels.as_ref());
    for name in exposed(stored) {
        let text = stored.status.exposed_additional_content.get(name);
        if let Some(Ok(content)) = text.map(|text| Uuid::parse(text)) {
            known.entry(name.to_owned()).or_insert(content);
        }
    }
    known
}

/// Sets the labels of profiles.
#[derive(Debug)]
pub struct ProfileMutator(pub ProfileRules);

impl Mutator<Profile> for ProfileMutator {
    async fn mutate(&self, ctx: &Context, object: &mut Profile) -> Verdict {
        if concern(ctx, KIND)? == Concern::Subresource {
            return Ok(());
        }
        let old = ctx.old_object::<Profile>()?.map(Object::into_inner);
        let goes = old
            .as_ref()
            .is_some_and(|old| is_finalizing((&old.metadata, &old.spec), &object.spec));
        if !goes {
            rules::check(&object.spec).report(ctx)?;
        }
        let known = self.0.known(ctx, old.as_ref(), object).await?;
        let present = object.metadata.labels.take();
        let made = labels::of_profile(
            &object.spec,
            present.as_ref().unwrap_or(&BTreeMap::new()),
            &known,
            Uuid::random,
        )?;
        // No labels and empty labels are equivalent; the difference is not worth a patch.
        object.metadata.labels = if made.is_empty() && present.is_none() {
            None
        } else {
            Some(made)
        };
        Ok(())
    }
}

/// Validates profiles.
#[derive(Debug)]
pub struct ProfileValidator(pub ProfileRules);

impl ProfileValidator {
    /// Checks that new labels do not belong to another profile.
    async fn check_labels(
        &self,
        ctx: &Context,
        old: Option<&Profile>,
        object: &Profile,
    ) -> Verdict {
        let mut errors = FieldErrors::default();
        if self.0.is_controller(ctx) {
            return Ok(());
        }
        let known: BTreeSet<_> = old
            .map(remembered)
            .unwrap_or_default()
            .into_values()
            .collect();
        let metadata = Path::root("metadata");
        let path = metadata.child("labels");
        for key in object.metadata.labels.iter().flat_map(BTreeMap::keys) {
            let Some(content) = labels::uuid_in(key).filter(|content| !known.contains(content))
            else {
                continue;
            };
            if let Some(holder) = self.0.holder(ctx, object, content).await? {
                let detail = format!("the UUID belongs to a content of another profile: {holder}");
                errors.push(problem(ErrorType::Duplicate, &path.key(key), key, detail));
            }
        }
        errors.into_verdict()
    }

    /// The assignments that use the profile.
    async fn users(&self, ctx: &Context, metadata: &Metadata) -> Result<Vec<String>, Fault> {
        let (namespace, name) = (namespace_of(ctx, metadata), name_of(ctx, metadata));
        let all = self.0.lookup.assignments(Which::In(namespace)).await?;
        let users = all.into_iter().filter(|assignment| {
            assignment.spec.profile_name == name && !assignment.metadata.is_terminating()
        });
        Ok(users.map(|assignment| assignment.metadata.name).collect())
    }
}

impl Validator<Profile> for ProfileValidator {
    async fn create_or_update(
        &self,
        ctx: &Context,
        old: Option<&Object<Profile>>,
        new: &Object<Profile>,
    ) -> Verdict {
        if concern(ctx, KIND)? == Concern::Subresource {
            return Ok(());
        }
        if !old.is_some_and(|old| is_finalizing((&old.metadata, &old.spec), &new.spec)) {
            rules::check(&new.spec).report(ctx)?;
        }
        self.check_labels(ctx, old.map(|old| &**old), new).await
    }

    async fn delete(&self, ctx: &Context, object: &Object<Profile>) -> Verdict {
        /// The maximum number of assignments in a message.
        const SHOWN: usize = 3;
        if concern(ctx, KIND)? == Concern::Subresource || self.0.deletion == ProfileDeletion::Allow
        {
            return Ok(());
        }
        let users = match self.users(ctx, &object.metadata).await {
            Ok(users) => users,
            // A failed lookup for a warning does not block the deletion.
            Err(fault) if self.0.deletion == ProfileDeletion::Warn => {
                tracing::warn!(
                    uid = ctx.uid(),
                    "cannot look up the users of a profile: {fault:#}"
                );
                return Ok(());
            }
            Err(fault) => return Err(fault.into()),
        };
        if users.is_empty() {
            return Ok(());
        }
        let some: Vec<_> = users.iter().take(SHOWN).map(String::as_str).collect();
        let more = users.len() - some.len();
        let others = if more == 0 {
            String::new()
        } else {
            format!(" and {more} more")
        };
        let text = format!(
            "profile is still referenced by assignments: {}{others}",
            some.join(", ")
        );
        if self.0.deletion == ProfileDeletion::Deny {
            return Err(Denial::forbidden(text).into());
        }
        ctx.warn(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
