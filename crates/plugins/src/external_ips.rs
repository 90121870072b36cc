//! `DenyServiceExternalIPs` and `ExternalIPRanger`: restrict external IPs of Services.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/network/denyserviceexternalips/admission.go. The second
//! is OpenShift's `network.openshift.io/ExternalIPRanger`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_api::field::{FieldError, Path, Shown};
use serde::Deserialize;
use serde_json::Value;

use crate::config::ConfigError;
use crate::fields::items;
use crate::rules::{About, Refusal, Rules, Verdict, WRITE, object, old_object};

const SERVICES: About = About::core(WRITE, &["services"]);

/// The external IPs of a Service.
fn addresses(service: &Value) -> impl Iterator<Item = &str> {
    let all = items(service, &["spec", "externalIPs"]).iter();
    all.map(|address| address.as_str().unwrap_or_default())
}

/// Denies new external IPs of a Service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DenyServiceExternalIPs;

fn check_known(service: &Value, known: &BTreeSet<&str>) -> Verdict {
    if addresses(service).all(|address| known.contains(address)) {
        return Ok(());
    }
    Err(Refusal::forbidden(
        "Use of external IPs is denied by admission control",
    ))
}

impl Rules for DenyServiceExternalIPs {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    fn validates(&self) -> &'static [About] {
        &[SERVICES]
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let known = addresses(old_object(ask.request())).collect();
        check_known(object(ask.request()), &known)
    }
}

/// The configuration of [`ExternalIPRanger`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// Networks, such as `10.0.0.0/8`. A prefix `!` excludes a network. An empty list denies all external IPs.
    #[serde(default, rename = "externalIPNetworkCIDRs")]
    pub external_ip_network_cidrs: Vec<String>,
}

/// A network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let bits = bits.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        (bits <= most).then_some(Self { address, bits })
    }

    fn contains(self, address: IpAddr) -> bool {
        let shift = |width: u32| width - self.bits;
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let difference = network.to_bits() ^ address.to_bits();
                difference.checked_shr(shift(32)).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let difference = network.to_bits() ^ address.to_bits();
                difference.checked_shr(shift(128)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// Denies external IPs outside of the allowed networks.
#[derive(Debug, Clone)]
pub struct ExternalIPRanger {
    networks: Arc<Networks>,
}

#[derive(Debug)]
struct Networks {
    allowed: Vec<Network>,
    denied: Vec<Network>,
}

impl ExternalIPRanger {
    /// Creates the plugin.
    ///
    /// # Errors
    ///
    /// Fails if a network is invalid.
    pub fn new(config: &Configuration) -> Result<Self, ConfigError> {
        let mut networks = Networks {
            allowed: Vec::new(),
            denied: Vec::new(),
        };
        for text in &config.external_ip_network_cidrs {
            let (list, cidr) = match text.strip_prefix('!') {
                Some(cidr) => (&mut networks.denied, cidr),
                None => (&mut networks.allowed, text.as_str()),
            };
            let network = Network::parse(cidr);
            let no_network = || ConfigError(format!("`{text}` is not a network"));
            list.push(network.ok_or_else(no_network)?);
        }
        Ok(Self {
            networks: Arc::new(networks),
        })
    }

    fn check(&self, service: &Value, known: &BTreeSet<&str>) -> Verdict {
        let Networks { allowed, denied } = &*self.networks;
        let spec = Path::root("spec");
        let list = spec.child("externalIPs");
        let mut errors: Vec<FieldError> = Vec::new();
        let new = addresses(service).enumerate();
        for (n, address) in new.filter(|(_, address)| !known.contains(address)) {
            if allowed.is_empty() {
                errors.push(FieldError::forbidden(
                    &list,
                    "externalIPs have been disabled",
                ));
                break;
            }
            let path = list.index(n);
            let within = |networks: &[Network], address| {
                networks.iter().any(|network| network.contains(address))
            };
            match address.parse() {
                Err(_) => {
                    let detail = "externalIPs must be a valid address";
                    errors.push(FieldError::invalid(&path, Shown::Text(address), detail));
                }
                Ok(ip) if !within(allowed, ip) || within(denied, ip) => {
                    errors.push(FieldError::forbidden(&path, "externalIP is not allowed"));
                }
                Ok(_) => {}
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Refusal::invalid(&errors))
    }
}

impl Rules for ExternalIPRanger {
    fn name(&self) -> &'static str {
        "ExternalIPRanger"
    }

    fn validates(&self) -> &'static [About] {
        &[SERVICES]
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let known = addresses(old_object(ask.request())).collect();
        self.check(object(ask.request()), &known)
    }
}
