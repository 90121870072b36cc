//! Calls webhooks over HTTPS, as kube-apiserver's client does.
//!
//! This module turns a client configuration into a client and a review into an answer: it finds the
//! address, checks the certificate, shows credentials, keeps connections, and words every failure
//! as Go's client would. It does not look into reviews, and it does not decide what a failed call
//! means for the request.
//!
//! Everything ends with the deadline of the call. Nothing outlives the [`HttpsCaller`] and its
//! clients: connections close when the last client that may use them is dropped.
//!
//! Deliberate differences from upstream: redirects are not followed unless asked for (a webhook
//! must not choose where the API server connects to), and an answer may have 16 MiB at most.

mod channel;
mod client;
mod clock;
pub mod credentials;
mod proxy;
mod resolve;
mod target;
mod tls;
mod wire;
mod wording;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use lockgate_api::registration::hub::ClientConfig;

use self::channel::Channel;
use self::client::HttpsClient;
use self::credentials::{Credentials, User};
use self::target::{Scheme, Target};
use self::tls::{ClientCertificate, Offer, Roots, Verification};
use crate::call::{Caller, Client, ClientError};

pub(crate) use self::target::split_authority;

pub use self::proxy::Proxies;
pub use self::resolve::{
    ClusterIpResolver, DnsResolver, EndpointResolver, MappedResolver, Service, ServicePort,
    ServiceResolver, Services,
};

/// How long an answer may be, unzipped, in bytes.
pub const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// How the caller names itself.
///
/// UPSTREAM: k8s.io/apiserver pkg/util/webhook/authentication.go (setGlobalDefaults).
const USER_AGENT: &str = "kube-apiserver-admission";

/// What a redirect from a webhook means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Redirects {
    /// It is the answer, and not one that counts as success.
    #[default]
    Refuse,
    /// It is followed up to ten times, as upstream does.
    Follow,
}

/// Settings of an [`HttpsCaller`].
#[derive(Debug, Clone)]
pub struct Settings {
    /// Finds services.
    pub resolver: Arc<dyn ServiceResolver>,
    /// What to show to whom.
    pub credentials: Credentials,
    /// Which proxies to use.
    pub proxies: Proxies,
    /// What redirects mean.
    pub redirects: Redirects,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            resolver: Arc::new(DnsResolver),
            credentials: Credentials::default(),
            proxies: Proxies::default(),
            redirects: Redirects::default(),
        }
    }
}

/// Makes clients that speak HTTPS.
///
/// ```
/// use lockgate_admission::call::Caller;
/// use lockgate_admission::https::{HttpsCaller, Settings};
/// use lockgate_api::decode::Bytes;
/// use lockgate_api::registration::hub::ClientConfig;
///
/// let caller = HttpsCaller::new(Settings::default());
/// let config = ClientConfig {
///     url: Some("https://hooks.example.com/validate".to_owned()),
///     ca_bundle: Some(Bytes(b"garbage".to_vec())),
///     ..ClientConfig::default()
/// };
/// assert_eq!(
///     caller.client(&config).err().unwrap().to_string(),
///     "unable to load root certificates: unable to parse bytes as PEM block",
/// );
/// ```
#[derive(Debug)]
pub struct HttpsCaller {
    settings: Arc<Settings>,
    system_roots: OnceLock<Roots>,
    clients: Interned<ClientKey, HttpsClient>,
    channels: Interned<ChannelKey, Channel>,
    verification: Verification,
}

/// What makes two clients equal: the whole configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ClientKey {
    url: Option<String>,
    service: Option<(String, String, Option<String>, Option<i32>)>,
    ca_bundle: Vec<u8>,
}

/// What makes two clients share connections, beside the address and the server name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ChannelKey {
    ca_bundle: Vec<u8>,
    user: Option<String>,
    client_certificate: Option<ClientCertificate>,
    offer: Offer,
}

impl HttpsCaller {
    /// Makes a caller. Must be used inside a Tokio runtime with time and I/O.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings: Arc::new(settings),
            system_roots: OnceLock::new(),
            clients: Interned::default(),
            channels: Interned::default(),
            verification: Verification::Full,
        }
    }

    /// Believes every certificate, as kubeconfigs with `insecure-skip-tls-verify` ask for. Never for
    /// webhooks, which cannot ask for it.
    #[must_use]
    pub fn trusting_everybody(mut self) -> Self {
        self.verification = Verification::None;
        self
    }

    fn build(&self, key: &ClientKey, config: &ClientConfig) -> Result<HttpsClient, ClientError> {
        let target = Target::of(config)?;
        let user = self.settings.credentials.find(&target.host_port());
        let channel = self
            .channel(key, &target, user.as_deref())
            .map_err(ClientError)?;
        Ok(HttpsClient::new(
            target,
            channel,
            user,
            Arc::clone(&self.settings),
        ))
    }

    fn channel(
        &self,
        key: &ClientKey,
        target: &Target,
        user: Option<&User>,
    ) -> Result<Arc<Channel>, String> {
        if let Some(user) = user {
            user.check()?;
        }
        let client_certificate = user.map(User::client_certificate).transpose()?.flatten();
        let offer = if target.is_loopback_url() && target.scheme == Scheme::Https {
            Offer::Http2
        } else {
            Offer::Http1
        };
        let key = ChannelKey {
            ca_bundle: key.ca_bundle.clone(),
            user: user.map(|user| user.name.clone()),
            client_certificate,
            offer,
        };
        self.channels.get_or_make(&key, || {
            let roots = if key.ca_bundle.is_empty() {
                self.system_roots.get_or_init(Roots::system).clone()
            } else {
                Roots::from_pem(&key.ca_bundle)?
            };
            let tls = tls::client_config(
                roots,
                key.client_certificate.as_ref(),
                offer,
                self.verification,
            )?;
            Ok(Channel::new(tls, offer))
        })
    }
}

impl Caller for HttpsCaller {
    fn client(&self, config: &ClientConfig) -> Result<Arc<dyn Client>, ClientError> {
        let key = ClientKey {
            url: config.url.clone(),
            service: config
                .service
                .clone()
                .map(|service| (service.namespace, service.name, service.path, service.port)),
            ca_bundle: config
                .ca_bundle
                .as_ref()
                .map(|bundle| bundle.0.clone())
                .unwrap_or_default(),
        };
        let client = self
            .clients
            .get_or_make(&key, || self.build(&key, config))?;
        Ok(client)
    }
}

/// Values that live as long as somebody uses them, found by key.
#[derive(Debug)]
struct Interned<K, V> {
    values: Mutex<HashMap<K, Weak<V>>>,
}

impl<K, V> Default for Interned<K, V> {
    fn default() -> Self {
        Self {
            values: Mutex::default(),
        }
    }
}

impl<K: Clone + Eq + Hash, V> Interned<K, V> {
    fn get_or_make<E>(&self, key: &K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = values.get(key).and_then(Weak::upgrade) {
            return Ok(value);
        }
        let value = Arc::new(make()?);
        values.retain(|_, value| value.strong_count() > 0);
        values.insert(key.clone(), Arc::downgrade(&value));
        Ok(value)
    }
}
