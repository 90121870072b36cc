//! Lookups in a cluster.

use kube::api::{ListParams, Request};
use kube::{Client, Config, config};
use lockgate_api::meta::names::is_subdomain;
use lockgate_webhook::BoxFuture;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Lookup, LookupError, Which};
use crate::api::{Assignment, GROUP, Profile, VERSION};
use crate::labels::{self, BUILDARCHS};

/// The page size of lists.
const PAGE: u32 = 500;

/// The scope of a lookup by label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The whole cluster, as the data plane does.
    Cluster,
    /// One namespace for each kind.
    Namespaces {
        /// The namespace of assignments.
        assignments: String,
        /// The namespace of profiles.
        profiles: String,
    },
}

/// Lookups in an API server.
#[derive(Clone)]
pub struct Live {
    client: Client,
    scope: Scope,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live")
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct List<K> {
    #[serde(default)]
    metadata: Position,
    #[serde(default = "Vec::new")]
    items: Vec<K>,
}

#[derive(Deserialize, Default)]
struct Position {
    #[serde(default, rename = "continue")]
    more: Option<String>,
}

impl Live {
    /// Connects to the API server of the surrounding cluster.
    ///
    /// # Errors
    ///
    /// Fails outside of a cluster.
    pub fn in_cluster(scope: Scope) -> Result<Self, LookupError> {
        let config = Config::incluster()
            .map_err(|error| LookupError::new("read the service account", error))?;
        Self::new(config, scope)
    }

    /// Connects to the API server of a kubeconfig.
    ///
    /// # Errors
    ///
    /// Fails if the file is missing or not a kubeconfig.
    pub async fn from_kubeconfig(path: &str, scope: Scope) -> Result<Self, LookupError> {
        let action = format!("read the kubeconfig `{path}`");
        let read = config::Kubeconfig::read_from(path)
            .map_err(|error| LookupError::new(&*action, error))?;
        let config = Config::from_custom_kubeconfig(read, &config::KubeConfigOptions::default())
            .await
            .map_err(|error| LookupError::new(action, error))?;
        Self::new(config, scope)
    }

    fn new(mut config: Config, scope: Scope) -> Result<Self, LookupError> {
        // The environment may set a proxy for external addresses, which cannot reach the API server.
        config.proxy_url = None;
        let client = Client::try_from(config)
            .map_err(|error| LookupError::new("set up a client of the API", error))?;
        Ok(Self { client, scope })
    }

    /// Checks that both kinds can be listed, as the webhooks require.
    ///
    /// # Errors
    ///
    /// Fails if the API server is unreachable or denies the requests.
    pub async fn check(&self) -> Result<(), LookupError> {
        for plural in ["assignments", "profiles"] {
            let path = collection(plural, self.namespace_of(plural));
            let one = ListParams::default().limit(1);
            self.page::<serde_json::Value>(&path, &one).await?;
        }
        Ok(())
    }

    fn namespace_of(&self, plural: &str) -> Option<&str> {
        match &self.scope {
            Scope::Cluster => None,
            Scope::Namespaces { assignments, .. } if plural == "assignments" => Some(assignments),
            Scope::Namespaces { profiles, .. } => Some(profiles),
        }
    }

    /// Requests one page. A kind without a CustomResourceDefinition has no objects.
    async fn page<K: DeserializeOwned>(
        &self,
        path: &str,
        parameters: &ListParams,
    ) -> Result<List<K>, LookupError> {
        let action = || format!("list `{path}`");
        let request = Request::new(path)
            .list(parameters)
            .map_err(|error| LookupError::new(action(), error))?;
        match self.client.request(request).await {
            Err(error) if is_missing(&error) => Ok(List {
                metadata: Position::default(),
                items: Vec::new(),
            }),
            answer => answer.map_err(|error| LookupError::new(action(), error)),
        }
    }

    async fn list<K: DeserializeOwned>(
        &self,
        path: &str,
        selector: Option<String>,
    ) -> Result<Vec<K>, LookupError> {
        let mut parameters = ListParams::default().limit(PAGE);
        parameters.label_selector = selector;
        let mut found = Vec::new();
        loop {
            let page: List<K> = self.page(path, &parameters).await?;
            found.extend(page.items);
            match page.metadata.more.filter(|more| !more.is_empty()) {
                None => return Ok(found),
                more => parameters.continue_token = more,
            }
        }
    }
}

/// The path of a collection, in one namespace or all.
fn collection(plural: &str, namespace: Option<&str>) -> String {
    match namespace {
        None => format!("/apis/{GROUP}/{VERSION}/{plural}"),
        Some(namespace) => format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{plural}"),
    }
}

impl Lookup for Live {
    fn profile_exists<'f>(
        &'f self,
        namespace: &'f str,
        name: &'f str,
    ) -> BoxFuture<'f, Result<bool, LookupError>> {
        Box::pin(async move {
            // An invalid name cannot exist, and must not become part of a path.
            if !is_subdomain(name) || !is_subdomain(namespace) {
                return Ok(false);
            }
            let path = collection("profiles", Some(namespace));
            let action = || format!("get profile `{namespace}/{name}`");
            let request = Request::new(&path)
                .get(name, &kube::api::GetParams::default())
                .map_err(|error| LookupError::new(action(), error))?;
            match self.client.request::<serde_json::Value>(request).await {
                Ok(_) => Ok(true),
                Err(error) if is_missing(&error) => Ok(false),
                Err(error) => Err(LookupError::new(action(), error)),
            }
        })
    }

    fn assignments<'f>(
        &'f self,
        which: Which<'f>,
    ) -> BoxFuture<'f, Result<Vec<Assignment>, LookupError>> {
        Box::pin(async move {
            let (namespace, selector) = match which {
                Which::In(namespace) if !is_subdomain(namespace) => return Ok(Vec::new()),
                Which::In(namespace) => (Some(namespace), None),
                Which::All => (self.namespace_of("assignments"), None),
                Which::With(label) => (self.namespace_of("assignments"), Some(label.to_owned())),
                Which::Unlabelled => {
                    let none = BUILDARCHS.map(|arch| format!("!{}", labels::buildarch(arch)));
                    (self.namespace_of("assignments"), Some(none.join(",")))
                }
            };
            self.list(&collection("assignments", namespace), selector)
                .await
        })
    }

    fn profiles_with<'f>(
        &'f self,
        label: &'f str,
    ) -> BoxFuture<'f, Result<Vec<Profile>, LookupError>> {
        Box::pin(async move {
            let path = collection("profiles", self.namespace_of("profiles"));
            self.list(&path, Some(label.to_owned())).await
        })
    }
}

fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
