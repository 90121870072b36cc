//! A compiled binding.

use std::fmt;
use std::sync::Arc;

use lockgate_api::registration::policy::{Binding, ParamRef};
use triomphe::ThinArc;

use crate::configuration::criteria::Criteria;
use crate::configuration::hook::Labels;

/// A validation action: the consequence of a failed validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The request is denied.
    Deny,
    /// The client is warned.
    Warn,
    /// Adds an audit annotation.
    Audit,
}

impl Action {
    /// The name in the API.
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

/// The source of a binding's parameters.
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

/// The contents of a binding except its name, shared by bindings with equal contents.
#[derive(Debug)]
pub(super) struct BindingSpec {
    policy: Arc<str>,
    criteria: Option<Arc<Criteria>>,
    params: Option<ParamSource>,
    actions: [Option<Action>; 3],
}

/// The identity of terms.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct BindingSpecKey {
    policy: Arc<str>,
    /// The address of shared criteria, which is unique while terms refer to them.
    criteria: Option<usize>,
    params: Option<Box<str>>,
    actions: [Option<Action>; 3],
}

impl BindingSpec {
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
        Self {
            policy,
            criteria,
            params: binding.param_ref.as_ref().map(ParamSource::new),
            actions,
        }
    }

    pub(super) fn key(&self) -> BindingSpecKey {
        let params = self.params.as_ref();
        BindingSpecKey {
            policy: Arc::clone(&self.policy),
            criteria: self.criteria.as_ref().map(|it| Arc::as_ptr(it).addr()),
            params: params.map(|params| format!("{params:?}").into()),
            actions: self.actions,
        }
    }
}

/// A compiled binding: its terms, followed by its name in the same allocation, since there can be hundreds of
/// thousands. Clones share it.
#[derive(Clone)]
pub struct CompiledBinding(ThinArc<Arc<BindingSpec>, u8>);

impl CompiledBinding {
    pub(super) fn new(name: &str, spec: Arc<BindingSpec>) -> Self {
        Self(ThinArc::from_header_and_slice(spec, name.as_bytes()))
    }

    /// The binding of an undecodable policy or binding.
    pub(super) fn unreadable(name: &str) -> Self {
        let spec = BindingSpec {
            policy: name.into(),
            criteria: None,
            params: None,
            actions: [Some(Action::Deny), None, None],
        };
        Self::new(name, Arc::new(spec))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        std::str::from_utf8(&self.0.slice).expect("the bytes of a name, as `new` got it")
    }

    /// The name of its policy.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.spec().policy
    }

    fn spec(&self) -> &BindingSpec {
        &self.0.header.header
    }

    pub(super) fn shared_policy(&self) -> &Arc<str> {
        &self.spec().policy
    }

    /// Its criteria. `None` means everything the policy matches.
    pub(crate) fn criteria(&self) -> Option<&Arc<Criteria>> {
        self.spec().criteria.as_ref()
    }

    /// The source of its parameters.
    pub(crate) fn params(&self) -> Option<&ParamSource> {
        self.spec().params.as_ref()
    }

    /// The validation actions, in the order of the binding.
    pub fn actions(&self) -> impl Iterator<Item = Action> {
        self.spec().actions.into_iter().flatten()
    }
}

impl fmt::Debug for CompiledBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompiledBinding")
            .field(&self.name())
            .finish()
    }
}
