//! A binding in the form it is matched in.

use std::fmt;
use std::sync::Arc;

use lockgate_api::registration::policy::{Binding, ParamRef};

use crate::configuration::criteria::Criteria;
use crate::configuration::hook::Labels;

/// A validation action: the consequence of a failed validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The request is refused.
    Deny,
    /// The client is warned.
    Warn,
    /// The audit log is told.
    Audit,
}

impl Action {
    /// The word of the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Deny => "Deny",
            Self::Warn => "Warn",
            Self::Audit => "Audit",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Deny, Self::Warn, Self::Audit]
            .into_iter()
            .find(|known| known.name() == name)
    }
}

/// The `parameterNotFoundAction` of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotFound {
    Allow,
    Deny,
}

/// Where the parameters of a binding are.
#[derive(Debug)]
pub(crate) struct ParamSource {
    pub(crate) name: Box<str>,
    pub(crate) namespace: Box<str>,
    pub(crate) selector: Option<Labels>,
    pub(crate) not_found: NotFound,
}

impl ParamSource {
    fn new(param_ref: &ParamRef) -> Self {
        let not_found = match param_ref.parameter_not_found_action.as_deref() {
            Some("Allow") => NotFound::Allow,
            _ => NotFound::Deny,
        };
        let selector = param_ref.selector.as_ref();
        Self {
            name: param_ref.name.as_str().into(),
            namespace: param_ref.namespace.as_str().into(),
            selector: selector.map(|selector| Labels::new(Some(selector))),
            not_found,
        }
    }
}

/// A binding, compiled.
pub struct CompiledBinding {
    name: Box<str>,
    policy: Arc<str>,
    /// Nothing stands for everything the policy is about.
    pub(crate) criteria: Option<Arc<Criteria>>,
    pub(crate) params: Option<Box<ParamSource>>,
    actions: [Option<Action>; 3],
}

impl CompiledBinding {
    pub(super) fn new(
        binding: &Binding,
        policy: Arc<str>,
        criteria: Option<Arc<Criteria>>,
    ) -> Self {
        let mut actions = [None; 3];
        let known = binding.validation_actions.iter().flatten();
        let known = known.filter_map(|name| Action::from_name(name));
        for (place, action) in actions.iter_mut().zip(known) {
            *place = Some(action);
        }
        let params = binding.param_ref.as_ref();
        Self {
            name: binding.metadata.name.as_str().into(),
            policy,
            criteria,
            params: params.map(|param_ref| Box::new(ParamSource::new(param_ref))),
            actions,
        }
    }

    /// A binding of something that cannot be read.
    pub(super) fn unreadable(name: &str) -> Self {
        Self {
            name: name.into(),
            policy: name.into(),
            criteria: None,
            params: None,
            actions: [Some(Action::Deny), None, None],
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The policy it puts in force.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.policy
    }

    pub(super) fn shared_policy(&self) -> &Arc<str> {
        &self.policy
    }

    /// The validation actions, in the order they were written.
    pub fn actions(&self) -> impl Iterator<Item = Action> {
        self.actions.into_iter().flatten()
    }
}

impl fmt::Debug for CompiledBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompiledBinding").field(&self.name).finish()
    }
}
