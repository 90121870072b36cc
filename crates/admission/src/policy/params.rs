//! The parameters of bindings, looked up once per request.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/policy/generic/policy_dispatcher.go (CollectParams)

use std::collections::HashMap;
use std::sync::Arc;

use lockgate_api::registration::policy::ParamKind;
use serde_json::Value as Json;

use crate::configuration::{
    CompiledBinding, CompiledPolicy, Labels, NotFound, ParamSource, selects,
};
use crate::host::{Param, ParamError, ParamScope, Params};

/// Looks up parameters and caches them.
pub(super) struct ParamLookup<'p> {
    params: &'p dyn Params,
    /// By kind, namespace and name.
    known: HashMap<[String; 4], Option<Arc<Param>>>,
}

fn key(kind: &ParamKind, namespace: &str, name: &str) -> [String; 4] {
    [&kind.api_version, &kind.kind, namespace, name].map(str::to_owned)
}

/// The error of a parameter lookup.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'")]
    UnknownKind {
        group: String,
        version: String,
        kind: String,
    },
    #[error(
        "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
    )]
    NoNamespace,
    #[error("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")]
    UnexpectedNamespace,
    #[error("no params found for policy binding with `Deny` parameterNotFoundAction")]
    NotFound,
    #[error("{0}")]
    Selector(Box<str>),
    #[error(transparent)]
    Lookup(#[from] ParamError),
}

/// The error for an unknown parameter kind.
pub(super) fn unknown_kind(kind: &ParamKind) -> SourceError {
    let (group, version) = kind.group_version();
    SourceError::UnknownKind {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.kind.clone(),
    }
}

impl<'p> ParamLookup<'p> {
    pub(super) fn new(params: &'p dyn Params) -> Self {
        Self {
            params,
            known: HashMap::new(),
        }
    }

    /// The scope of a parameter kind, if the kind exists.
    pub(super) fn scope(&self, kind: &ParamKind) -> Option<ParamScope> {
        self.params.scope(kind)
    }

    /// The parameters to evaluate a policy with, one evaluation each; `None` is an evaluation without parameters.
    pub(super) async fn collect(
        &mut self,
        policy: &CompiledPolicy,
        binding: &CompiledBinding,
        namespace: &str,
    ) -> Result<Vec<Option<Arc<Param>>>, SourceError> {
        let (Some(kind), Some(source)) = (policy.param_kind(), binding.params()) else {
            return Ok(vec![None]);
        };
        let scope = self.scope(kind).ok_or_else(|| unknown_kind(kind))?;
        let namespace = match scope {
            ParamScope::Namespaced if !source.namespace.is_empty() => &*source.namespace,
            ParamScope::Namespaced if namespace.is_empty() => {
                return Err(SourceError::NoNamespace);
            }
            ParamScope::Namespaced => namespace,
            ParamScope::Cluster if !source.namespace.is_empty() => {
                return Err(SourceError::UnexpectedNamespace);
            }
            ParamScope::Cluster => "",
        };
        let found = self.find(kind, source, namespace).await?;
        if found.is_empty() && source.not_found == NotFound::Deny {
            return Err(SourceError::NotFound);
        }
        Ok(found.into_iter().map(Some).collect())
    }

    async fn find(
        &mut self,
        kind: &ParamKind,
        source: &ParamSource,
        namespace: &str,
    ) -> Result<Vec<Arc<Param>>, SourceError> {
        if !source.name.is_empty() {
            let found = self.get(kind, namespace, &source.name).await?;
            return Ok(found.into_iter().collect());
        }
        let selector = match &source.selector {
            None | Some(Labels::Nothing) => return Ok(Vec::new()),
            Some(Labels::Broken(why)) => return Err(SourceError::Selector(why.clone())),
            Some(Labels::Everything) => None,
            Some(Labels::Selected(selector)) => Some(selector),
        };
        let mut listed = self.params.list(kind, namespace).await?;
        listed.retain(|param| {
            selector.is_none_or(|selector| selects(selector, |key| param.object.label(key)))
        });
        let remembered = listed.into_iter().map(|param| {
            let key = key(kind, &param.namespace, &param.name);
            let known = self.known.entry(key).or_insert(Some(param.clone()));
            known.clone().unwrap_or(param)
        });
        Ok(remembered.collect())
    }

    async fn get(
        &mut self,
        kind: &ParamKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Param>>, SourceError> {
        let key = key(kind, namespace, name);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let found = self.params.get(kind, namespace, name).await?;
        self.known.insert(key, found.clone());
        Ok(found)
    }

    /// A namespace in the form for expressions.
    ///
    /// UPSTREAM: apiserver pkg/admission/plugin/cel/condition.go (CreateNamespaceObject)
    pub(super) async fn namespace(&self, name: &str) -> Result<Option<Arc<Json>>, ParamError> {
        let kind = ParamKind {
            api_version: String::from("v1"),
            kind: String::from("Namespace"),
        };
        let Some(found) = self.params.get(&kind, "", name).await? else {
            return Ok(None);
        };
        let mut namespace = found.object.value().clone();
        if let Some(members) = namespace.as_object_mut() {
            members.retain(|name, _| matches!(name.as_str(), "metadata" | "spec" | "status"));
        }
        if let Some(metadata) = namespace.get_mut("metadata").and_then(Json::as_object_mut) {
            for hidden in ["managedFields", "ownerReferences", "selfLink"] {
                metadata.remove(hidden);
            }
        }
        Ok(Some(Arc::new(namespace)))
    }
}
