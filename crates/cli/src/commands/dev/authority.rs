//! The certificate a webhook serves with, and who signed it.

use std::io;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use crate::commands::serve::ServiceName;

/// An authority that lives as long as the command.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    pub(super) fn new() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "lockgate dev");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);
        Ok(Self {
            issuer,
            certificate,
        })
    }

    /// Its own certificate.
    pub(super) fn pem(&self) -> &str {
        &self.certificate
    }

    /// A certificate for these services, and for this machine.
    pub(super) fn issue(&self, services: &[ServiceName]) -> Result<Pair, rcgen::Error> {
        let mut names = vec![String::from("localhost"), String::from("127.0.0.1")];
        for ServiceName { namespace, name } in services {
            names.push(format!("{name}.{namespace}.svc"));
            names.push(format!("{name}.{namespace}.svc.cluster.local"));
        }
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(names)?.signed_by(&key, &self.issuer)?;
        Ok(Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            authority: self.certificate.clone(),
        })
    }
}

/// A certificate and its key, as cert-manager puts them into a secret.
pub(super) struct Pair {
    certificate: String,
    key: String,
    authority: String,
}

impl Pair {
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        std::fs::write(folder.join("ca.crt"), &self.authority)?;
        std::fs::write(folder.join("tls.crt"), &self.certificate)?;
        lockgate_apiserver::private_file::write(&folder.join("tls.key"), &self.key)
    }
}
