//! The caller: one client per client configuration, with shared connections where possible.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use lockgate_api::registration::hub::ClientConfig;

use crate::call::{Caller, Client, ClientError};
use crate::channel::Channel;
use crate::client::HttpsClient;
use crate::credentials::User;
use crate::settings::{Redirects, Settings};
use crate::target::{Scheme, Target};
use crate::tls::{self, ClientCertificate, Offer, Roots, Verification};

/// Creates HTTPS clients.
///
/// ```
/// use lockgate_webhook_client::call::Caller;
/// use lockgate_webhook_client::{HttpsCaller, Settings};
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

/// The identity of a client: its entire configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ClientKey {
    url: Option<String>,
    service: Option<(String, String, Option<String>, Option<i32>)>,
    ca_bundle: Vec<u8>,
}

/// The part of the pool's key in addition to address and server name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ChannelKey {
    ca_bundle: Vec<u8>,
    user: Option<String>,
    client_certificate: Option<ClientCertificate>,
    offer: Offer,
}

impl HttpsCaller {
    /// Creates a caller. Must be used inside a Tokio runtime with time and I/O.
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

    /// Accepts every certificate, as kubeconfigs with `insecure-skip-tls-verify` require. Never for webhooks, which
    /// have no such setting.
    #[must_use]
    pub fn trusting_everybody(mut self) -> Self {
        self.verification = Verification::None;
        self
    }

    fn build(&self, key: &ClientKey, config: &ClientConfig) -> Result<HttpsClient, ClientError> {
        let target = Target::of(config)?;
        let user = self.settings.credentials.find(&target.host_port());
        let channel = self.channel(key, &target, user.as_deref())?;
        // A client certificate is for the webhook, not for redirect targets.
        let elsewhere = match self.settings.redirects {
            Redirects::Follow if user.is_some() => self.channel(key, &target, None)?,
            _ => Arc::clone(&channel),
        };
        Ok(HttpsClient::new(
            target,
            (channel, elsewhere),
            user,
            Arc::clone(&self.settings),
        ))
    }

    fn channel(
        &self,
        key: &ClientKey,
        target: &Target,
        user: Option<&User>,
    ) -> Result<Arc<Channel>, ClientError> {
        if let Some(user) = user {
            user.check().map_err(unusable)?;
        }
        let client_certificate = user.map(User::client_certificate).transpose();
        let client_certificate = client_certificate.map_err(unusable)?.flatten();
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
                Roots::from_pem(&key.ca_bundle).map_err(unusable)?
            };
            let tls = tls::client_config(
                roots,
                key.client_certificate.as_ref(),
                offer,
                self.verification,
            )
            .map_err(unusable)?;
            Ok(Channel::new(tls, offer))
        })
    }
}

fn unusable(error: impl std::error::Error) -> ClientError {
    ClientError::Credentials(error.to_string())
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

/// Interned values by key, kept while in use.
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
