//! The serving certificate of a webhook, and the CA that signs it.

use std::io;
use std::path::Path;

use lockgate_certs::{Error, Leaf};

use crate::commands::serve::ServiceName;

/// The CA of one run of the command.
pub(super) struct Authority(lockgate_certs::Authority);

impl Authority {
    pub(super) fn new() -> Result<Self, Error> {
        lockgate_certs::Authority::new("lockgate dev").map(Self)
    }

    pub(super) fn pem(&self) -> &str {
        self.0.pem()
    }

    /// Issues a certificate for the Services and for localhost.
    pub(super) fn issue(&self, services: &[ServiceName]) -> Result<Pair, Error> {
        let mut names = vec![String::from("localhost"), String::from("127.0.0.1")];
        for ServiceName { namespace, name } in services {
            names.push(format!("{name}.{namespace}.svc"));
            names.push(format!("{name}.{namespace}.svc.cluster.local"));
        }
        let pair = self.0.issue(&Leaf::server("webhook", names))?;
        Ok(Pair {
            certificate: pair.certificate_pem,
            key: pair.key_pem,
            authority: self.pem().to_owned(),
        })
    }
}

/// A certificate and its key, as in a Secret of cert-manager.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) authority: String,
}

impl Pair {
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        std::fs::write(folder.join("ca.crt"), &self.authority)?;
        std::fs::write(folder.join("tls.crt"), &self.certificate)?;
        lockgate_apiserver::private_file::write(&folder.join("tls.key"), &self.key)
    }
}
