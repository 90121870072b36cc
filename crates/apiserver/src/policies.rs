//! Admission policies in the server: the permission to read parameters, effective policies, and the source of
//! parameters.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use lockgate_admission::engine::Engine;
use lockgate_admission::host::{BoxFuture, Param, ParamError, ParamScope, Params};
use lockgate_admission::object::Object;
use lockgate_api::access::{AccessObject, AccessRequest, Authorizer, User};
use lockgate_api::admission::UserInfo;
use lockgate_api::decode::DecodeError;
use lockgate_api::document::tree;
use lockgate_api::field::{FieldError, FieldErrors, Path};
use lockgate_api::registration::policy::{
    Binding, ParamKind, Policy, Registered, decode_binding, decode_policy,
};
use lockgate_kinds::kind::ServerComponent;
use lockgate_store::{Entry, List, ReadAt, Revision, Store};
use serde_json::Value;

use crate::authz;
use crate::conversion::Converter;
use crate::error::{Outcome, internal};
use crate::metadata;
use crate::registry::{Registry, Resource};

/// The maximum number of parameters cached in decoded form.
const MAX_PARAMS: usize = 4096;

/// Members of this group may write any policy.
const SUPERUSERS: &str = "system:masters";

/// A decoded policy or binding.
#[derive(Debug)]
pub(crate) enum Read {
    Policy(Policy),
    Binding(Binding),
}

/// Decodes a policy or a binding.
pub(crate) fn read(what: Registered, object: &Value) -> Result<Read, DecodeError> {
    let document = tree::read(object);
    match what {
        Registered::Policy(kind) => {
            decode_policy(document.root(), kind).map(|decoded| Read::Policy(decoded.value))
        }
        Registered::Binding(kind) => {
            decode_binding(document.root(), kind).map(|decoded| Read::Binding(decoded.value))
        }
    }
}

/// What is needed to check if a user may read parameters.
pub(crate) struct Access<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) authorizer: &'a dyn Authorizer,
    pub(crate) engine: &'a Engine,
}

/// Checks that the user may read the parameters of a policy or binding. `old` is the stored object.
///
/// UPSTREAM: kubernetes pkg/registry/admissionregistration/*/authz.go
pub(crate) fn authorize_params(
    access: &Access<'_>,
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    user: &UserInfo,
) -> Outcome<FieldErrors> {
    let Some(ServerComponent::Policies(what)) = resource.component() else {
        return Ok(FieldErrors::new());
    };
    let groups = user.groups.as_deref().unwrap_or_default();
    if groups.iter().any(|group| group == SUPERUSERS) {
        return Ok(FieldErrors::new());
    }
    let unreadable = |error: DecodeError| internal(&error.to_string());
    let new = read(what, object).map_err(unreadable)?;
    let old = old.map(|old| read(what, old).map_err(unreadable));
    let (field, refused) = match (new, old.transpose()?) {
        (Read::Policy(new), old) => {
            let Some(kind) = &new.param_kind else {
                return Ok(FieldErrors::new());
            };
            if matches!(&old, Some(Read::Policy(old)) if old.param_kind == new.param_kind) {
                return Ok(FieldErrors::new());
            }
            ("paramKind", reject_kind(access, kind, user))
        }
        (Read::Binding(new), old) => {
            if new.param_ref.is_none() {
                return Ok(FieldErrors::new());
            }
            let same = |old: &Binding| {
                // Upstream compares nested pointers, so only references without them are equal.
                old.param_ref == new.param_ref && old.policy_name == new.policy_name
            };
            if matches!(&old, Some(Read::Binding(old)) if same(old)) {
                return Ok(FieldErrors::new());
            }
            ("paramRef", reject_reference(access, &new, user))
        }
    };
    let spec = Path::root("spec");
    let path = spec.child(field);
    let refused = refused.map(|why| FieldError::forbidden(&path, why));
    Ok(refused.into_iter().collect())
}

fn reject_kind(access: &Access<'_>, kind: &ParamKind, user: &UserInfo) -> Option<String> {
    let (group, _) = kind.group_version();
    let resource = resource_of(access.registry, kind);
    let resource = resource.as_ref().map_or("*", |resource| resource.plural());
    if may(access, user, "get", group, resource, "*", "*") {
        return None;
    }
    Some(format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, \
         apiVersion={})",
        go_user(user),
        kind.kind,
        kind.api_version
    ))
}

fn reject_reference(access: &Access<'_>, binding: &Binding, user: &UserInfo) -> Option<String> {
    let param_ref = binding.param_ref.as_ref()?;
    let verb = if param_ref.name.is_empty() {
        "list"
    } else {
        "get"
    };
    let policies = access.engine.policies(binding.kind);
    let policy = policies.find(&binding.policy_name);
    let kind = policy.as_ref().and_then(|policy| policy.param_kind());
    let (group, _) = kind.map_or(("*", ""), ParamKind::group_version);
    let found = kind.and_then(|kind| resource_of(access.registry, kind));
    let resource = found.as_ref().map_or("*", |resource| resource.plural());
    let (namespace, name) = (&param_ref.namespace, &param_ref.name);
    if may(access, user, verb, group, resource, namespace, name) {
        return None;
    }
    let user = go_user(user);
    let everything = format!(
        "to determine minimum required permissions and user {user} does not have \"{verb}\" \
         permission for all groups, versions and resources"
    );
    Some(match (&policy, kind) {
        (None, _) => format!("unable to get policy {} {everything}", binding.policy_name),
        (Some(_), Some(kind)) if found.is_none() => {
            let kind = format!(
                "&ParamKind{{APIVersion:{},Kind:{},}}",
                kind.api_version, kind.kind
            );
            format!("unable to resolve paramKind {kind} {everything}")
        }
        _ => format!(
            "user {user} does not have \"{verb}\" permission on the object referenced by paramRef"
        ),
    })
}

fn may(
    access: &Access<'_>,
    user: &UserInfo,
    verb: &str,
    group: &str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> bool {
    let user = authz::user(user);
    let request = AccessRequest {
        user: &user,
        verb,
        object: AccessObject::Resource {
            group,
            resource,
            subresource: "",
            namespace,
            name,
            field_selector: "",
            label_selector: "",
        },
    };
    access.authorizer.authorize(&request).allowed
}

/// A user in Go's format.
fn go_user(user: &UserInfo) -> String {
    let User {
        name,
        uid,
        groups,
        extra,
    } = authz::user(user);
    let extra = extra
        .iter()
        .map(|(key, values)| format!("{key}:[{}]", values.join(" ")));
    let extra: Vec<String> = extra.collect();
    format!(
        "&{{{name} {uid} [{}] map[{}]}}",
        groups.join(" "),
        extra.join(" ")
    )
}

fn resource_of(registry: &Registry, kind: &ParamKind) -> Option<Arc<Resource>> {
    let (group, version) = kind.group_version();
    let snapshot = registry.snapshot();
    snapshot.by_kind(group, version, &kind.kind).cloned()
}

/// Makes a policy or binding effective.
pub(crate) fn enforce(engine: &Engine, read: &Read) {
    match read {
        Read::Policy(policy) => engine.policies(policy.kind).upsert_policy(policy),
        Read::Binding(binding) => engine.policies(binding.kind).upsert_binding(binding),
    }
}

/// Removes a policy or binding.
pub(crate) fn remove(engine: &Engine, what: Registered, name: &str) {
    match what {
        Registered::Policy(kind) => engine.policies(kind).remove_policy(name),
        Registered::Binding(kind) => engine.policies(kind).remove_binding(name),
    }
}

/// Policy parameters, from the store. Each version is parsed once.
pub(crate) struct StoredParams {
    registry: Arc<Registry>,
    store: Arc<dyn Store>,
    converter: Arc<Converter>,
    known: Mutex<Known>,
}

/// Parsed parameters by resource and key.
type Known = HashMap<(String, String), KnownParam>;

/// A parsed parameter with its source.
struct KnownParam {
    revision: Revision,
    /// A CustomResourceDefinition affects the conversion of its objects, and its resources are recreated when it
    /// changes.
    resource: Arc<Resource>,
    param: Arc<Param>,
}

impl StoredParams {
    pub(crate) fn new(
        registry: Arc<Registry>,
        store: Arc<dyn Store>,
        converter: Arc<Converter>,
    ) -> Self {
        Self {
            registry,
            store,
            converter,
            known: Mutex::default(),
        }
    }

    fn resource(&self, kind: &ParamKind) -> Result<Arc<Resource>, ParamError> {
        resource_of(&self.registry, kind)
            .ok_or_else(|| ParamError::new("the kind is no longer served"))
    }

    async fn param(
        &self,
        resource: &Arc<Resource>,
        entry: &Entry,
    ) -> Result<Arc<Param>, ParamError> {
        let known_as = (resource.api_version().to_owned(), entry.key.to_string());
        {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = known.get(&known_as)
                && known.revision == entry.revision
                && Arc::ptr_eq(&known.resource, resource)
            {
                return Ok(Arc::clone(&known.param));
            }
        }
        let object = self.converter.decode(entry, resource).await;
        let object = object.map_err(|failure| ParamError::new(failure.0.message))?;
        let param = Arc::new(Param {
            namespace: metadata::text(&object, "namespace").to_owned(),
            name: metadata::text(&object, "name").to_owned(),
            object: Object::new(object),
            is_built_in: !resource.is_custom(),
        });
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_PARAMS {
            known.clear();
        }
        let parsed = KnownParam {
            revision: entry.revision,
            resource: Arc::clone(resource),
            param: Arc::clone(&param),
        };
        known.insert(known_as, parsed);
        Ok(param)
    }
}

impl Params for StoredParams {
    fn scope(&self, kind: &ParamKind) -> Option<ParamScope> {
        let resource = resource_of(&self.registry, kind)?;
        Some(if resource.names.namespaced {
            ParamScope::Namespaced
        } else {
            ParamScope::Cluster
        })
    }

    fn get<'f>(
        &'f self,
        kind: &'f ParamKind,
        namespace: &'f str,
        name: &'f str,
    ) -> BoxFuture<'f, Result<Option<Arc<Param>>, ParamError>> {
        Box::pin(async move {
            let resource = self.resource(kind)?;
            let key = resource.key(namespace, name);
            let read = self.store.get(&key, ReadAt::Latest).await;
            let (entry, _) = read.map_err(ParamError::new)?;
            match entry {
                None => Ok(None),
                Some(entry) => self.param(&resource, &entry).await.map(Some),
            }
        })
    }

    fn list<'f>(
        &'f self,
        kind: &'f ParamKind,
        namespace: &'f str,
    ) -> BoxFuture<'f, Result<Vec<Arc<Param>>, ParamError>> {
        Box::pin(async move {
            let resource = self.resource(kind)?;
            let prefix = resource.key_prefix(namespace);
            let page = self.store.list(List::all(&prefix)).await;
            let entries = page.map_err(ParamError::new)?.entries;
            let mut params = Vec::with_capacity(entries.len());
            for entry in &entries {
                params.push(self.param(&resource, entry).await?);
            }
            Ok(params)
        })
    }
}
