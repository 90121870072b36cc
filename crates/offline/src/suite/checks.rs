//! Checks without expectations: mutations are independent of their order, idempotent, and remove no fields.

use lockgate_admission::decision::Decision;
use lockgate_admission::host::Kinds as _;
use lockgate_admission::object::Object;
use lockgate_admission::request::Request;
use lockgate_api::registration::{Configuration, ConfigurationKind};
use serde::Deserialize;

use super::world::World;
use crate::chain::{Run, Tracing};
use crate::diff;
use crate::explanation::blame;

/// The maximum number of tested orders.
const MAX_ORDERS: usize = 120;

/// The checks of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Checks {
    /// Mutating webhooks yield the same object in every order.
    pub order: bool,
    /// Running mutations on their own result changes nothing.
    pub idempotence: bool,
    /// No webhook or policy removes a field that the client sent.
    pub preservation: bool,
}

impl Checks {
    /// Runs the checks and returns the failures.
    pub(super) async fn check(self, world: &World, request: &Request, run: &Run) -> Vec<String> {
        let mut failures = Vec::new();
        if !run.decision.is_allowed() {
            return failures;
        }
        if self.preservation {
            failures.extend(removed(request, run));
        }
        if self.idempotence {
            failures.extend(idempotence(world, request, run).await);
        }
        if self.order {
            failures.extend(order(world, request, run).await);
        }
        failures
    }
}

fn removed(request: &Request, run: &Run) -> Vec<String> {
    let (Some(sent), Some(left)) = (&request.object, &run.object) else {
        return Vec::new();
    };
    let gone = diff::fields(sent.value(), left);
    let gone = gone.into_iter().filter(|change| change.after.is_none());
    let blamed = blame(&run.admission);
    gone.map(|change| {
        let mut by = blamed.iter().filter(|it| it.after.is_none());
        let by = by.find(|it| change.path.starts_with(&it.field) || it.field == change.path);
        let by = by.map_or("a mutation", |it| it.by.as_str());
        format!("field preservation: {by} removes `{}`", change.path)
    })
    .collect()
}

async fn idempotence(world: &World, request: &Request, run: &Run) -> Option<String> {
    let object = run.object.as_ref()?;
    let mut again = request.clone();
    again.object = Some(Object::new(object.clone()));
    let kind = again.kind.clone();
    let second = world.chain().run(again, Tracing::Verdicts).await;
    if let Decision::Deny(denial) = &second.decision {
        return Some(format!(
            "idempotence: the result of mutations is denied when it is sent again: {}",
            denial.status.message
        ));
    }
    let left = second.object.as_ref()?;
    if world.kinds().semantically_equal(&kind, object, left) {
        return None;
    }
    let diff = diff::unified(object, left);
    Some(format!(
        "idempotence: mutations change their own result (- once, + twice):\n{diff}"
    ))
}

async fn order(world: &World, request: &Request, run: &Run) -> Option<String> {
    let object = run.object.as_ref()?;
    let all = &world.cluster().configurations;
    let is_mutating = |it: &&Configuration| it.kind == ConfigurationKind::Mutating;
    let mutating: Vec<&Configuration> = all.iter().filter(is_mutating).collect();
    if mutating.len() < 2 {
        return None;
    }
    for order in orders(mutating.len()) {
        let mut configurations: Vec<Configuration> = all
            .iter()
            .filter(|it| it.kind != ConfigurationKind::Mutating)
            .cloned()
            .collect();
        // Webhooks are called in the order of their configurations' names.
        for (place, &at) in order.iter().enumerate() {
            let mut configuration = (*mutating.get(at)?).clone();
            let name = configuration.metadata.name;
            configuration.metadata.name = format!("{place:03}-{name}");
            configurations.push(configuration);
        }
        let chain = world.reordered(configurations);
        let other = chain.run(request.clone(), Tracing::Verdicts).await;
        let names = || {
            let names = order.iter().filter_map(|at| mutating.get(*at));
            let names: Vec<&str> = names.map(|it| it.metadata.name.as_str()).collect();
            names.join(", ")
        };
        if let Decision::Deny(denial) = &other.decision {
            return Some(format!(
                "order: the request is denied with webhooks in the order {}: {}",
                names(),
                denial.status.message
            ));
        }
        let left = other.object.as_ref()?;
        if !world
            .kinds()
            .semantically_equal(&request.kind, object, left)
        {
            let diff = diff::unified(object, left);
            return Some(format!(
                "order: the object depends on the order of webhooks; with {} (-) it is another (+):\n{diff}",
                names()
            ));
        }
    }
    None
}

/// Permutations of a number of items except the current order: all of them for few items, otherwise rotations and the
/// reverse.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count <= 5 {
        let mut all = vec![Vec::new()];
        for _ in 0..count {
            let longer = all.iter().flat_map(|order: &Vec<usize>| {
                let rest = (0..count).filter(|at| !order.contains(at));
                rest.map(|at| {
                    let mut order = order.clone();
                    order.push(at);
                    order
                })
            });
            all = longer.collect();
        }
        all.retain(|order| !order.is_sorted());
        return all;
    }
    let mut all: Vec<Vec<usize>> = Vec::new();
    for by in 0..count.min(MAX_ORDERS / 2) {
        let mut order: Vec<usize> = (0..count).collect();
        order.rotate_left(by);
        let reversed = order.iter().rev().copied().collect();
        all.push(order);
        all.push(reversed);
    }
    all.retain(|order| !order.is_sorted());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_every_order_of_few_and_some_of_many() {
        assert_eq!(orders(2), [[1, 0]]);
        assert_eq!(orders(3).len(), 5);
        assert_eq!(orders(5).len(), 119);
        assert!(orders(100).len() <= MAX_ORDERS);
    }
}
