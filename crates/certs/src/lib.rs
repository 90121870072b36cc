//! Certificate authorities and the certificates they issue.
//!
//! The API server signs serving and client certificates with its own CA; `lockgate dev` and tests issue certificates
//! of webhooks. All certificates are issued here, so that key usages, names and validity are defined once.
//!
//! ```
//! use lockgate_certs::{Authority, Leaf};
//!
//! let authority = Authority::new("example-ca")?;
//! let served = authority.issue(&Leaf::server("webhook", ["webhook.default.svc", "127.0.0.1"]))?;
//! assert!(served.certificate_pem.starts_with("-----BEGIN CERTIFICATE-----"));
//! # Ok::<(), lockgate_certs::Error>(())
//! ```

#![warn(missing_docs)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
    date_time_ymd,
};

/// The validity of a CA in days: kubeconfigs and clusters are configured with it manually.
pub const AUTHORITY_DAYS: u32 = 3650;
/// The validity in days of certificates issued by a CA.
pub const LEAF_DAYS: u32 = 365;

/// Sets the validity period, starting an hour ago to allow for clock skew.
fn set_validity(params: &mut CertificateParams, days: u32) {
    good_while(params, Duration::from_secs(86_400) * days);
}

fn good_while(params: &mut CertificateParams, lasts: Duration) {
    let hour = Duration::from_secs(3600);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(hour);
    params.not_after = epoch + now + lasts;
}

/// An error in a key or certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name in a certificate is neither a DNS name nor an IP address.
    #[error("`{name}` is neither a DNS name nor an IP address: {reason}")]
    #[non_exhaustive]
    Name {
        /// The name.
        name: String,
        /// The violated rule.
        reason: String,
    },
    /// The key or certificate is malformed, or there is no entropy source.
    #[error("{0}")]
    Material(rcgen::Error),
}

/// A certificate authority with its key.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    key_pem: String,
}

/// A certificate with its private key, both PEM-encoded as in a `kubernetes.io/tls` Secret.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The certificate.
    pub certificate_pem: String,
    /// Its private key.
    pub key_pem: String,
}

/// The description of a certificate to issue.
#[derive(Debug, Clone)]
pub struct Leaf {
    common_name: String,
    group: Option<String>,
    names: Vec<String>,
    usages: Vec<ExtendedKeyUsagePurpose>,
    /// The first year of validity, and the year at whose beginning the certificate expires.
    years: Option<(i32, i32)>,
}

impl Leaf {
    fn new(common_name: &str, usage: ExtendedKeyUsagePurpose) -> Self {
        Self {
            common_name: common_name.to_owned(),
            group: None,
            names: Vec::new(),
            usages: vec![usage],
            years: None,
        }
    }

    /// A serving certificate for DNS names and IP addresses.
    #[must_use]
    pub fn server<S: Into<String>>(common_name: &str, names: impl IntoIterator<Item = S>) -> Self {
        let mut leaf = Self::new(common_name, ExtendedKeyUsagePurpose::ServerAuth);
        for name in names {
            let name = name.into();
            if !leaf.names.contains(&name) {
                leaf.names.push(name);
            }
        }
        leaf
    }

    /// A client certificate; Kubernetes reads the user from the common name and the group from
    /// the organization. One group at most: rcgen keeps a single organization.
    #[must_use]
    pub fn client(user: &str, group: Option<&str>) -> Self {
        let mut leaf = Self::new(user, ExtendedKeyUsagePurpose::ClientAuth);
        leaf.group = group.map(str::to_owned);
        leaf
    }

    /// Adds the client usage to a serving certificate.
    #[must_use]
    pub fn with_client_auth(mut self) -> Self {
        self.usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        self
    }

    /// Replaces the server usage of a serving certificate by the client usage.
    #[must_use]
    pub fn client_only(mut self) -> Self {
        self.usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self
    }

    /// Limits the validity to the years from `first` until the beginning of `end`.
    #[must_use]
    pub fn valid_in_years(mut self, first: i32, end: i32) -> Self {
        self.years = Some((first, end));
        self
    }

    fn params(&self) -> Result<CertificateParams, Error> {
        let mut params = CertificateParams::default();
        for name in &self.names {
            params.subject_alt_names.push(match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => {
                    SanType::DnsName(name.as_str().try_into().map_err(|reason: rcgen::Error| {
                        Error::Name {
                            name: name.clone(),
                            reason: reason.to_string(),
                        }
                    })?)
                }
            });
        }
        params.distinguished_name = DistinguishedName::new();
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, &self.common_name);
        if let Some(group) = &self.group {
            name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages.clone_from(&self.usages);
        set_validity(&mut params, LEAF_DAYS);
        if let Some((first, end)) = self.years {
            params.not_before = date_time_ymd(first, 1, 1);
            params.not_after = date_time_ymd(end, 1, 1);
        }
        Ok(params)
    }

    /// Creates a self-signed certificate that is also a CA, like `openssl req -x509`.
    ///
    /// # Errors
    ///
    /// A name is neither a DNS name nor an IP address, or there is no entropy source.
    pub fn self_signed(&self) -> Result<Pair, Error> {
        let mut params = self.params()?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().map_err(Error::Material)?;
        let certificate = params.self_signed(&key).map_err(Error::Material)?;
        Ok(Pair {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        })
    }
}

impl Authority {
    /// Creates a CA with a new key.
    ///
    /// # Errors
    ///
    /// There is no entropy source.
    pub fn new(common_name: &str) -> Result<Self, Error> {
        Self::with_key(common_name, KeyPair::generate().map_err(Error::Material)?)
    }

    /// Creates a new CA certificate for an existing key.
    ///
    /// # Errors
    ///
    /// `key_pem` is not a private key.
    pub fn renew(common_name: &str, key_pem: &str) -> Result<Self, Error> {
        Self::with_key(
            common_name,
            KeyPair::from_pem(key_pem).map_err(Error::Material)?,
        )
    }

    fn with_key(common_name: &str, key: KeyPair) -> Result<Self, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        set_validity(&mut params, AUTHORITY_DAYS);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).map_err(Error::Material)?.pem();
        Ok(Self {
            pem,
            key_pem: key.serialize_pem(),
            issuer: Issuer::new(params, key),
        })
    }

    /// Loads a CA.
    ///
    /// # Errors
    ///
    /// The arguments are not a certificate and its private key.
    pub fn from_pem(certificate_pem: &str, key_pem: &str) -> Result<Self, Error> {
        let key = KeyPair::from_pem(key_pem).map_err(Error::Material)?;
        let issuer = Issuer::from_ca_cert_pem(certificate_pem, key).map_err(Error::Material)?;
        Ok(Self {
            issuer,
            pem: certificate_pem.to_owned(),
            key_pem: key_pem.to_owned(),
        })
    }

    /// The PEM certificate, as in a decoded `caBundle`.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The private key.
    #[must_use]
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// Issues a certificate with a new key.
    ///
    /// # Errors
    ///
    /// A name is neither a DNS name nor an IP address, or there is no entropy source.
    pub fn issue(&self, leaf: &Leaf) -> Result<Pair, Error> {
        let key = KeyPair::generate().map_err(Error::Material)?;
        let certificate = leaf.params()?.signed_by(&key, &self.issuer);
        Ok(Pair {
            certificate_pem: certificate.map_err(Error::Material)?.pem(),
            key_pem: key.serialize_pem(),
        })
    }

    /// Signs a PEM certificate signing request, with its subject and names.
    ///
    /// # Errors
    ///
    /// The request is malformed or requests something unsupported.
    pub fn sign(&self, request_pem: &str, profile: &SigningProfile) -> Result<String, Error> {
        let mut request =
            CertificateSigningRequestParams::from_pem(request_pem).map_err(Error::Material)?;
        let params = &mut request.params;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = Vec::new();
        if profile.server {
            params
                .extended_key_usages
                .push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        if profile.client {
            params
                .extended_key_usages
                .push(ExtendedKeyUsagePurpose::ClientAuth);
        }
        good_while(params, profile.lifetime);
        let certificate = request.signed_by(&self.issuer).map_err(Error::Material)?;
        Ok(certificate.pem())
    }
}

/// The usages and validity of a certificate for a signing request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SigningProfile {
    /// Adds the extended key usage for server authentication.
    pub server: bool,
    /// Adds the extended key usage for client authentication.
    pub client: bool,
    /// The validity period.
    pub lifetime: Duration,
}

/// Creates a private key without a certificate.
///
/// # Errors
///
/// There is no entropy source.
pub fn private_key_pem() -> Result<String, Error> {
    Ok(KeyPair::generate()
        .map_err(Error::Material)?
        .serialize_pem())
}

#[cfg(test)]
mod tests {
    use x509_parser::extensions::GeneralName;
    use x509_parser::pem::parse_x509_pem;

    use super::*;

    /// The subject, the names, and the usages (server, client, CA) of a certificate.
    fn read(pem: &str) -> (String, Vec<String>, [bool; 3]) {
        let (_, pem) = parse_x509_pem(pem.as_bytes()).unwrap();
        let certificate = pem.parse_x509().unwrap();
        let names = certificate.subject_alternative_name().unwrap();
        let names = names.map_or_else(Vec::new, |names| {
            let names = names.value.general_names.iter();
            names
                .map(|name| match name {
                    GeneralName::DNSName(name) => (*name).to_owned(),
                    GeneralName::IPAddress(address) => format!("{address:?}"),
                    other => panic!("{other:?}"),
                })
                .collect()
        });
        let usage = certificate.extended_key_usage().unwrap();
        let usage = |f: fn(&x509_parser::extensions::ExtendedKeyUsage<'_>) -> bool| {
            usage.as_ref().is_some_and(|usage| f(usage.value))
        };
        (
            certificate.subject().to_string(),
            names,
            [
                usage(|usage| usage.server_auth),
                usage(|usage| usage.client_auth),
                certificate.is_ca(),
            ],
        )
    }

    #[test]
    fn certificates_say_what_they_are_for() {
        let authority = Authority::new("ca").unwrap();
        assert_eq!(
            read(authority.pem()),
            (String::from("CN=ca"), Vec::new(), [false, false, true])
        );
        let server = Leaf::server("web", ["a.example", "127.0.0.1", "a.example"]);
        let names = vec![String::from("a.example"), String::from("[127, 0, 0, 1]")];
        for (leaf, want) in [
            (server.clone(), [true, false, false]),
            (server.clone().with_client_auth(), [true, true, false]),
            (server.clone().client_only(), [false, true, false]),
        ] {
            let pair = authority.issue(&leaf).unwrap();
            let found = read(&pair.certificate_pem);
            assert_eq!(found, (String::from("CN=web"), names.clone(), want));
        }
        let user = authority.issue(&Leaf::client("ann", Some("dev"))).unwrap();
        let (subject, names, usages) = read(&user.certificate_pem);
        assert_eq!(subject, "CN=ann, O=dev");
        assert_eq!((names.len(), usages), (0, [false, true, false]));
        let alone = server.self_signed().unwrap();
        assert_eq!(read(&alone.certificate_pem).2, [true, false, true]);
    }

    #[test]
    fn an_authority_is_loaded_with_its_key() {
        let authority = Authority::new("ca").unwrap();
        let loaded = Authority::from_pem(authority.pem(), authority.key_pem()).unwrap();
        assert!(loaded.issue(&Leaf::client("ann", None)).is_ok());
        let renewed = Authority::renew("ca", authority.key_pem()).unwrap();
        assert_eq!(renewed.key_pem(), authority.key_pem());
        assert!(Authority::from_pem("x", authority.key_pem()).is_err());
        assert!(Authority::renew("ca", "x").is_err());
        let wrong = authority
            .issue(&Leaf::server("web", ["a", "é"]))
            .unwrap_err();
        assert!(matches!(wrong, Error::Name { name, .. } if name == "é"));
    }

    #[test]
    fn validity_is_that_of_the_years() {
        let authority = Authority::new("ca").unwrap();
        let leaf = Leaf::server("web", ["a"]).valid_in_years(2020, 2021);
        let pair = authority.issue(&leaf).unwrap();
        let (_, pem) = parse_x509_pem(pair.certificate_pem.as_bytes()).unwrap();
        assert!(!pem.parse_x509().unwrap().validity().is_valid());
    }
}
