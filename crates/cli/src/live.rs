//! Reads a live cluster: GET requests only, with the kubeconfig that kubectl would use.

use std::path::PathBuf;

use clap::Args;
use http_body_util::BodyExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use lockgate_offline::manifest::Manifest;
use serde_json::Value;

/// The page size of lists.
const PAGE: usize = 500;
/// The maximum number of objects per kind.
const MAX_OBJECTS: usize = 100_000;

/// The prefix of source names for objects of a cluster.
pub const CLUSTER_PREFIX: &str = "cluster:";

/// The cluster to read.
#[derive(Debug, Clone, Default, Args)]
pub struct LiveArgs {
    /// Kubeconfig context of the cluster to read
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// Kubeconfig of the cluster to read [default: with --context, $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// An error while reading a cluster.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The kubeconfig is invalid.
    #[error("cannot use the kubeconfig: {0}")]
    Config(String),
    /// A request failed.
    #[error("cannot read `{path}` from the cluster: {error}")]
    Get {
        /// The path.
        path: String,
        /// The error.
        error: String,
    },
    /// There are too many objects.
    #[error("`{path}` has more than {MAX_OBJECTS} objects")]
    TooMany {
        /// The path.
        path: String,
    },
}

impl LiveArgs {
    /// Returns true if the flags select a cluster.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.context.is_some() || self.kubeconfig.is_some()
    }

    /// Connects to the cluster.
    ///
    /// # Errors
    ///
    /// Fails if the kubeconfig is invalid.
    pub async fn connect(&self) -> Result<Live, LiveError> {
        let failed = |error: &dyn std::fmt::Display| LiveError::Config(error.to_string());
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let read = match &self.kubeconfig {
            Some(file) => Kubeconfig::read_from(file).map_err(|error| failed(&error))?,
            None => Kubeconfig::read().map_err(|error| failed(&error))?,
        };
        let config = kube::Config::from_custom_kubeconfig(read, &options).await;
        let config = config.map_err(|error| failed(&error))?;
        let client = kube::Client::try_from(config).map_err(|error| failed(&error))?;
        Ok(Live { client })
    }
}

/// A connection to a cluster.
pub struct Live {
    client: kube::Client,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

/// The resources that configure admission.
const REGISTRATIONS: [&str; 2] = [
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
];
/// Policy resources, by preferred API version.
const POLICIES: [&str; 4] = [
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];
/// Further resources, which the user may not be allowed to read.
const SURROUNDINGS: [&str; 6] = [
    "/api/v1/namespaces",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
];

/// The resources behind webhooks.
const BACKENDS: [&str; 5] = [
    "/api/v1/services",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/daemonsets",
    "/apis/policy/v1/poddisruptionbudgets",
];

/// The objects of a cluster, and the unreadable resources.
#[derive(Debug, Default)]
pub struct Objects {
    /// The objects.
    pub manifests: Vec<Manifest>,
    /// Resources that the user may not read.
    pub notes: Vec<String>,
}

impl Live {
    /// Reads everything that affects admission: webhook configurations, policies with their parameters,
    /// Namespaces, CustomResourceDefinitions and RBAC.
    ///
    /// # Errors
    ///
    /// Configurations or policies cannot be read.
    pub async fn objects(&self) -> Result<Objects, LiveError> {
        let mut objects = Objects::default();
        for path in REGISTRATIONS {
            objects
                .manifests
                .extend(self.list(path).await?.unwrap_or_default());
        }
        for resource in POLICIES {
            for version in ["v1", "v1beta1", "v1alpha1"] {
                let path = format!("/apis/admissionregistration.k8s.io/{version}/{resource}");
                if let Some(found) = self.list(&path).await? {
                    objects.manifests.extend(found);
                    break;
                }
            }
        }
        for path in SURROUNDINGS {
            match self.list(path).await {
                Ok(found) => objects.manifests.extend(found.unwrap_or_default()),
                Err(LiveError::Get { path, error }) => {
                    objects.notes.push(format!("cannot read `{path}`: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
        for (api_version, kind) in param_kinds(&objects.manifests) {
            let path = self.path_of(&api_version, &kind).await?;
            let Some(path) = path else {
                objects
                    .notes
                    .push(format!("the cluster does not serve {api_version} {kind}"));
                continue;
            };
            match self.list(&path).await {
                Ok(found) => objects.manifests.extend(found.unwrap_or_default()),
                Err(error) => objects.notes.push(error.to_string()),
            }
        }
        Ok(objects)
    }

    /// Reads the backends of webhooks: Services, workloads and their disruption budgets.
    ///
    /// # Errors
    ///
    /// There are too many objects.
    pub async fn backends(&self) -> Result<Objects, LiveError> {
        let mut objects = Objects::default();
        for path in BACKENDS {
            match self.list(path).await {
                Ok(found) => objects.manifests.extend(found.unwrap_or_default()),
                Err(LiveError::Get { path, error }) => {
                    objects.notes.push(format!("cannot read `{path}`: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(objects)
    }

    /// The path of all objects of a kind, by discovery.
    async fn path_of(&self, api_version: &str, kind: &str) -> Result<Option<String>, LiveError> {
        let base = match api_version.contains('/') {
            true => format!("/apis/{api_version}"),
            false => format!("/api/{api_version}"),
        };
        let Some(resources) = self.get(&base).await? else {
            return Ok(None);
        };
        let mut resources = resources["resources"].as_array().into_iter().flatten();
        let found = resources.find(|resource| {
            let name = resource["name"].as_str().unwrap_or_default();
            resource["kind"] == kind && !name.contains('/')
        });
        Ok(found.and_then(|found| Some(format!("{base}/{}", found["name"].as_str()?))))
    }

    async fn list(&self, path: &str) -> Result<Option<Vec<Manifest>>, LiveError> {
        let mut manifests = Vec::new();
        let mut token = String::new();
        loop {
            let page = format!("{path}?limit={PAGE}&continue={token}");
            let Some(list) = self.get(&page).await? else {
                return Ok(None);
            };
            let api_version = list["apiVersion"].clone();
            let kind = list["kind"].as_str().unwrap_or_default();
            let kind = kind.strip_suffix("List").unwrap_or(kind).to_owned();
            for item in list["items"].as_array().into_iter().flatten() {
                let mut value = item.clone();
                // Items of a list have no apiVersion and kind.
                if let Some(members) = value.as_object_mut() {
                    members
                        .entry("apiVersion")
                        .or_insert_with(|| api_version.clone());
                    members.entry("kind").or_insert_with(|| kind.clone().into());
                }
                manifests.push(Manifest {
                    value,
                    source: format!("{CLUSTER_PREFIX}{path}"),
                    document: manifests.len() + 1,
                });
            }
            if manifests.len() > MAX_OBJECTS {
                let path = path.to_owned();
                return Err(LiveError::TooMany { path });
            }
            match list["metadata"]["continue"].as_str() {
                Some(next) if !next.is_empty() => token = encoded(next),
                _ => return Ok(Some(manifests)),
            }
        }
    }

    /// The streamed body at a path.
    ///
    /// # Errors
    ///
    /// Fails if the server rejects the request, or does not respond.
    pub async fn stream(&self, path: &str) -> Result<kube::client::Body, LiveError> {
        let failed = |error: String| LiveError::Get {
            path: path.to_owned(),
            error,
        };
        let request = http::Request::get(path).body(kube::client::Body::empty());
        let request = request.map_err(|error| failed(error.to_string()))?;
        let response = self.client.send(request).await;
        let response = response.map_err(|error| failed(error.to_string()))?;
        if response.status() == http::StatusCode::OK {
            return Ok(response.into_body());
        }
        let code = response.status();
        let body = response.into_body().collect().await;
        let body = body.map_err(|error| failed(error.to_string()))?.to_bytes();
        let status: Option<Value> = serde_json::from_slice(&body).ok();
        let message = status
            .as_ref()
            .and_then(|status| status["message"].as_str());
        Err(failed(
            message.map_or_else(|| code.to_string(), str::to_owned),
        ))
    }

    /// The object at a path; `None` if it does not exist.
    async fn get(&self, path: &str) -> Result<Option<Value>, LiveError> {
        let failed = |error: String| LiveError::Get {
            path: path.split('?').next().unwrap_or(path).to_owned(),
            error,
        };
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(|error| failed(error.to_string()))?;
        match self.client.request::<Value>(request).await {
            Ok(value) => Ok(Some(value)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

/// A continue token in a query: base64 with `=`, `+` and `/`.
fn encoded(token: &str) -> String {
    token
        .replace('%', "%25")
        .replace('+', "%2B")
        .replace('/', "%2F")
        .replace('=', "%3D")
}

/// The parameter kinds of policies, except Namespaces.
fn param_kinds(manifests: &[Manifest]) -> Vec<(String, String)> {
    let mut kinds: Vec<(String, String)> = manifests
        .iter()
        .filter_map(|manifest| {
            let kind = &manifest.value["spec"]["paramKind"];
            let text = |member: &str| kind[member].as_str().map(str::to_owned);
            Some((text("apiVersion")?, text("kind")?))
        })
        .collect();
    kinds.sort();
    kinds.dedup();
    kinds.retain(|(_, kind)| kind != "Namespace");
    kinds
}
