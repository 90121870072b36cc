//! The four webhooks, each at a short path and at kubebuilder's default path.

use std::sync::Arc;

use lockgate_webhook::{
    Operation, Registration, Role, Rule, Scope, Webhooks, default_path, mutating, validating,
};

use crate::api::{Assignment, GROUP, Profile, VERSION};
use crate::assignment::{AssignmentMutator, AssignmentValidator};
use crate::lookup::Lookup;
use crate::profile::{ProfileMutator, ProfileRules, ProfileValidator};

/// All webhooks, with the lookup of other objects.
#[must_use]
pub fn webhooks(rules: &ProfileRules) -> Webhooks {
    let lookup: Arc<dyn Lookup> = Arc::clone(&rules.lookup);
    Webhooks::new()
        .with(
            registration(Role::Mutating, "Assignment"),
            mutating::<Assignment, _>(AssignmentMutator),
        )
        .with(
            registration(Role::Mutating, "Profile"),
            mutating::<Profile, _>(ProfileMutator(rules.clone())),
        )
        .with(
            registration(Role::Validating, "Assignment"),
            validating::<Assignment, _>(AssignmentValidator::new(lookup)),
        )
        .with(
            registration(Role::Validating, "Profile"),
            validating::<Profile, _>(ProfileValidator(rules.clone())),
        )
}

fn registration(role: Role, kind: &str) -> Registration {
    let (verb, build): (_, fn(String) -> Registration) = match role {
        Role::Mutating => ("mutate", Registration::mutating),
        Role::Validating => ("validate", Registration::validating),
    };
    let lower = kind.to_lowercase();
    let operations: &[Operation] = match (role, kind) {
        (Role::Validating, "Profile") => &[Operation::Create, Operation::Update, Operation::Delete],
        _ => &[Operation::Create, Operation::Update],
    };
    build(format!("{verb}-{lower}.{GROUP}"))
        .path(format!("/{verb}-{lower}"))
        .alias(default_path(role, GROUP, VERSION, kind))
        .rule(
            Rule::resources([format!("{lower}s")])
                .groups([GROUP])
                .versions([VERSION])
                .operations(operations.iter().cloned())
                .scope(Scope::Namespaced),
        )
        .timeout_seconds(10)
        .admission_review_versions(&["v1", "v1beta1"])
}
