//! `ServiceAccount`: every Pod runs as an existing ServiceAccount, with its token and its image pull secrets.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/serviceaccount/admission.go

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request};
use lockgate_go::quote::quote;
use serde_json::{Value, json};

use crate::fields::{
    annotation, at, is_mirror, items, items_mut, list_mut, map_mut, text, text_at,
};
use crate::lookup::{Lookup, SERVICE_ACCOUNTS, name_of};
use crate::rules::{About, NEW_PODS, Refusal, Rules, UPDATE, Verdict, object};

const DEFAULT_NAME: &str = "default";
const VOLUME_PREFIX: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

/// The number of lookups of the default service account, which a controller may still be creating.
const TRIES_FOR_DEFAULT: u32 = 10;

/// Without vowels, so that names contain no words.
// UPSTREAM: apimachinery pkg/util/rand/rand.go.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

const EPHEMERAL: About = About::core(UPDATE, &["pods/ephemeralcontainers"]);

/// Sets the default ServiceAccount of Pods, and mounts the token.
#[derive(Debug, Clone)]
pub struct ServiceAccount {
    lookup: Arc<dyn Lookup>,
    limit_secrets: bool,
    mount_token: bool,
    wait: Duration,
}

impl ServiceAccount {
    /// Creates the plugin with upstream's defaults.
    pub fn new(lookup: impl Lookup) -> Self {
        Self {
            lookup: Arc::new(lookup),
            limit_secrets: false,
            mount_token: true,
            wait: Duration::from_millis(150),
        }
    }

    /// Restricts Pods to the Secrets listed in their service account, regardless of the annotation
    /// `kubernetes.io/enforce-mountable-secrets`.
    #[must_use]
    pub fn limit_secrets(mut self) -> Self {
        self.limit_secrets = true;
        self
    }

    /// Disables mounting of tokens.
    #[must_use]
    pub fn without_tokens(mut self) -> Self {
        self.mount_token = false;
        self
    }

    async fn account(&self, request: &Request, name: &str) -> Result<Arc<Value>, Refusal> {
        let namespace = request.namespace.as_str();
        let tries = if name == DEFAULT_NAME {
            TRIES_FOR_DEFAULT
        } else {
            1
        };
        let mut problem = format!("serviceaccount {} not found", quote(name));
        for attempt in 0..tries {
            if attempt > 0 {
                tokio::time::sleep(self.wait).await;
            }
            match self.lookup.get(SERVICE_ACCOUNTS, namespace, name).await {
                Ok(Some(account)) => return Ok(account),
                Ok(None) => {}
                Err(error) => {
                    problem = error.to_string();
                    break;
                }
            }
        }
        let message = format!("error looking up service account {namespace}/{name}: {problem}");
        Err(Refusal::forbidden(message))
    }

    /// Denies Secrets that the service account does not list, if it enforces that.
    fn check_secrets(&self, account: &Value, pod: &Value, lists: &[(&str, &str)]) -> Verdict {
        let asked = annotation(account, ENFORCE).is_some_and(parses_as_true);
        if !self.limit_secrets && !asked {
            return Ok(());
        }
        let of = name_of(account);
        let known = names(account, "secrets");
        let unlisted = |what: String| {
            let message = format!(
                "{what} is not allowed because service account {of} does not reference that secret"
            );
            Err(Refusal::forbidden(message))
        };
        let are_all = lists.len() > 1;
        for volume in items(pod, &["spec", "volumes"]).iter().filter(|_| are_all) {
            let Some(source) = at(volume, &["secret"]) else {
                continue;
            };
            let secret = text(source, "secretName");
            if !known.contains(secret) {
                return unlisted(format!("volume with secret.secretName=\"{secret}\""));
            }
        }
        for (list, word) in lists {
            for container in items(pod, &["spec", list]) {
                let name = text(container, "name");
                for env in items(container, &["env"]) {
                    let Some(source) = at(env, &["valueFrom", "secretKeyRef"]) else {
                        continue;
                    };
                    let (variable, secret) = (text(env, "name"), text(source, "name"));
                    if !known.contains(secret) {
                        return unlisted(format!(
                            "{word} {name} with envVar {variable} referencing \
                             secret.secretName=\"{secret}\""
                        ));
                    }
                }
                for env in items(container, &["envFrom"]) {
                    let Some(source) = at(env, &["secretRef"]) else {
                        continue;
                    };
                    let secret = text(source, "name");
                    if !known.contains(secret) {
                        return unlisted(format!(
                            "{word} {name} with envFrom referencing secret.secretName=\"{secret}\""
                        ));
                    }
                }
            }
        }
        let known = names(account, "imagePullSecrets");
        let pulls = items(pod, &["spec", "imagePullSecrets"]).iter().enumerate();
        for (n, secret) in pulls.filter(|_| are_all) {
            let name = text(secret, "name");
            if !known.contains(name) {
                let message = format!(
                    "imagePullSecrets[{n}].name=\"{name}\" is not allowed because service account \
                     {of} does not reference that imagePullSecret"
                );
                return Err(Refusal::forbidden(message));
            }
        }
        Ok(())
    }

    async fn check(&self, request: &Request, pod: &Value, lists: &[(&str, &str)]) -> Verdict {
        let name = account_name(pod);
        if name.is_empty() {
            let (namespace, pod) = (&request.namespace, name_of(pod));
            let message = format!("no service account specified for pod {namespace}/{pod}");
            return Err(Refusal::forbidden(message));
        }
        let account = self.account(request, name).await?;
        self.check_secrets(&account, pod, lists)
    }

    async fn check_new(&self, request: &Request, pod: &Value) -> Verdict {
        if is_mirror(pod) {
            return check_mirror(pod);
        }
        let lists = [
            ("initContainers", "init container"),
            ("containers", "container"),
        ];
        self.check(request, pod, &lists).await
    }
}

/// The name of the ServiceAccount, which also has a deprecated field.
fn account_name(pod: &Value) -> &str {
    let name = text_at(pod, &["spec", "serviceAccountName"]);
    if name.is_empty() {
        text_at(pod, &["spec", "serviceAccount"])
    } else {
        name
    }
}

fn names<'v>(account: &'v Value, list: &str) -> BTreeSet<&'v str> {
    let all = items(account, &[list]).iter();
    all.map(|reference| text(reference, "name")).collect()
}

// UPSTREAM: Go's strconv.ParseBool.
fn parses_as_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "TRUE" | "true" | "True")
}

/// The kubelet creates mirror Pods from files; they must not refer to API objects.
fn check_mirror(pod: &Value) -> Verdict {
    let forbidden = |message: &str| Err(Refusal::forbidden(message));
    if !account_name(pod).is_empty() {
        return forbidden("a mirror pod may not reference service accounts");
    }
    if refers_to_secrets(pod) {
        return forbidden("a mirror pod may not reference secrets");
    }
    let projected = items(pod, &["spec", "volumes"])
        .iter()
        .flat_map(|volume| items(volume, &["projected", "sources"]));
    if projected
        .into_iter()
        .any(|source| at(source, &["serviceAccountToken"]).is_some())
    {
        return forbidden("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

/// The paths of Secret names in volumes.
// UPSTREAM: kubernetes pkg/api/pod/util.go (VisitPodSecretNames).
const SECRETS_OF_VOLUMES: [&[&str]; 10] = [
    &["azureFile", "secretName"],
    &["cephfs", "secretRef"],
    &["cinder", "secretRef"],
    &["flexVolume", "secretRef"],
    &["rbd", "secretRef"],
    &["secret"],
    &["scaleIO", "secretRef"],
    &["iscsi", "secretRef"],
    &["storageos", "secretRef"],
    &["csi", "nodePublishSecretRef"],
];

pub(crate) fn refers_to_secrets(pod: &Value) -> bool {
    let in_container = |container: &Value| {
        let env = items(container, &["env"]).iter();
        let from = items(container, &["envFrom"]).iter();
        env.into_iter()
            .any(|env| at(env, &["valueFrom", "secretKeyRef"]).is_some())
            || from
                .into_iter()
                .any(|from| at(from, &["secretRef"]).is_some())
    };
    let in_volume = |volume: &Value| {
        let projected = items(volume, &["projected", "sources"]).iter();
        let names = |path: &&[&str]| match at(volume, path) {
            Some(Value::String(name)) => !name.is_empty(),
            other => other.is_some(),
        };
        SECRETS_OF_VOLUMES.iter().any(names)
            || projected
                .into_iter()
                .any(|source| at(source, &["secret"]).is_some())
    };
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let mut containers = lists
        .into_iter()
        .flat_map(|list| items(pod, &["spec", list]));
    !items(pod, &["spec", "imagePullSecrets"]).is_empty()
        || containers.any(in_container)
        || items(pod, &["spec", "volumes"]).iter().any(in_volume)
}

/// Mounts the token into every container without a mount at its path.
fn mount_token(pod: &mut Value) -> Verdict {
    let volumes = items(pod, &["spec", "volumes"]).iter();
    let known = volumes.map(|volume| text(volume, "name"));
    let known = known
        .into_iter()
        .find(|name| name.starts_with(VOLUME_PREFIX));
    let is_there = known.is_some();
    let name = known.map_or_else(|| format!("{VOLUME_PREFIX}{}", suffix()), str::to_owned);
    let mut is_needed = false;
    for list in ["initContainers", "containers"] {
        for container in items_mut(pod, &["spec", list]) {
            let mut mounts = items(container, &["volumeMounts"]).iter();
            if mounts.any(|mount| text(mount, "mountPath") == MOUNT_PATH) {
                continue;
            }
            let mount = json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH});
            list_mut(container, &["volumeMounts"])?.push(mount);
            is_needed = true;
        }
    }
    if is_needed && !is_there {
        list_mut(pod, &["spec", "volumes"])?.push(json!({"name": name, "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                }},
                {"downwardAPI": {"items": [{
                    "path": "namespace",
                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                }]}},
            ],
        }}));
    }
    Ok(())
}

/// Five random characters, so that the name is unique.
fn suffix() -> String {
    let mut seed = RandomState::new().hash_one(MOUNT_PATH);
    let count = ALPHABET.len() as u64;
    let mut letters = String::with_capacity(5);
    for _ in 0..5 {
        let place = usize::try_from(seed % count).unwrap_or_default();
        letters.extend(ALPHABET.get(place).map(|letter| char::from(*letter)));
        seed /= count;
    }
    letters
}

impl Rules for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn mutates(&self) -> &'static [About] {
        &[NEW_PODS]
    }

    fn validates(&self) -> &'static [About] {
        &[NEW_PODS, EPHEMERAL]
    }

    async fn mutate(&self, ask: &mut Admission, pod: &mut Value) -> Verdict {
        let request = ask.request();
        if is_mirror(pod) {
            return check_mirror(pod);
        }
        let mut name = account_name(pod).to_owned();
        if name.is_empty() {
            name = String::from(DEFAULT_NAME);
        }
        let spec = map_mut(pod, &["spec"])?;
        for member in ["serviceAccountName", "serviceAccount"] {
            spec.insert(member.to_owned(), Value::String(name.clone()));
        }
        let account = self.account(request, &name).await?;
        let automount = |of: &Value, path: &[&str]| at(of, path).and_then(Value::as_bool);
        let automount = automount(pod, &["spec", "automountServiceAccountToken"])
            .or_else(|| automount(&account, &["automountServiceAccountToken"]));
        if self.mount_token && automount.unwrap_or(true) {
            mount_token(pod)?;
        }
        let secrets = items(&account, &["imagePullSecrets"]);
        if items(pod, &["spec", "imagePullSecrets"]).is_empty() && !secrets.is_empty() {
            let named = secrets
                .iter()
                .map(|secret| json!({"name": text(secret, "name")}));
            *list_mut(pod, &["spec", "imagePullSecrets"])? = named.collect();
        }
        self.check_new(request, pod).await
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let request = ask.request();
        if request.operation == Operation::Create {
            return self.check_new(request, object(request)).await;
        }
        let lists = [("ephemeralContainers", "ephemeral container")];
        let checked = self.check(request, object(request), &lists).await;
        // UPSTREAM: on this subresource errors are returned without a status.
        checked.map_err(|refusal| match refusal {
            Refusal::Forbidden(text, _) => Refusal::Plain(text),
            other => other,
        })
    }
}
