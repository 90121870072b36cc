//! The identity Leases of servers: each server renews its own, and all delete expired ones.
//!
//! UPSTREAM: kubernetes pkg/controlplane/apiserver/server.go, pkg/controlplane/controller/apiserverleasegc,
//! component-helpers apimachinery/lease/controller.go

use std::time::Duration;

use lockgate_api::meta::time::Time;
use lockgate_store::List;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::own_object::OwnObject;
use crate::encoding;
use crate::error::{Outcome, read_failed};
use crate::metadata;
use crate::write::Writer;

const NAMESPACE: &str = "kube-system";
/// The label of a server's Lease.
const LABEL: &str = "apiserver.kubernetes.io/identity";
const COMPONENT: &str = "kube-apiserver";
/// The duration of a Lease.
const SECONDS: u64 = 3600;
const RENEWAL: Duration = Duration::from_secs(10);
/// The interval of collecting expired Leases.
const COLLECTION: Duration = Duration::from_secs(3600);

/// The name and the holder of a server's Lease.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(super) name: String,
    pub(super) holder: String,
    hostname: String,
}

impl Identity {
    /// The identity of the server at an address. Upstream's depends on the host only; here each server on a host has
    /// its own.
    pub(crate) fn new(hostname: &str, address: &str) -> Self {
        let mut hashed = Vec::new();
        for part in [hostname, COMPONENT, address] {
            let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
            hashed.extend_from_slice(&length.to_be_bytes());
            hashed.extend_from_slice(part.as_bytes());
        }
        let digest = Sha256::digest(hashed);
        let name = format!("apiserver-{}", base32(digest.get(..16).unwrap_or_default()));
        Self {
            holder: format!("{name}_{}", metadata::new_uid()),
            name,
            hostname: hostname.to_owned(),
        }
    }

    /// Renews the Lease until the server stops.
    pub(super) async fn run(self, writer: Writer) {
        loop {
            if let Err(failure) = self.renew(&writer).await {
                tracing::warn!(error = failure.0.message, "identity lease not renewed");
            }
            tokio::time::sleep(RENEWAL).await;
        }
    }

    async fn renew(&self, writer: &Writer) -> Outcome<()> {
        let lease = place(writer, &self.name)?;
        let spec = json!({
            "holderIdentity": self.holder, "leaseDurationSeconds": SECONDS,
            "renewTime": metadata::now_to_microsecond(),
        });
        let labels = json!({LABEL: COMPONENT, "kubernetes.io/hostname": self.hostname});
        match lease.read().await? {
            None => {
                let object = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": self.name, "namespace": NAMESPACE, "labels": labels},
                    "spec": spec,
                });
                lease.create(object).await?;
            }
            Some((mut object, revision)) => {
                object["metadata"]["labels"] = labels;
                object["spec"] = spec;
                lease.replace(&object, revision).await?;
            }
        }
        Ok(())
    }
}

/// Deletes expired Leases of other servers until the server stops.
pub(super) async fn collect(writer: Writer) {
    loop {
        if let Err(failure) = remove_expired(&writer, metadata::now()).await {
            tracing::warn!(
                error = failure.0.message,
                "expired identity leases not deleted"
            );
        }
        tokio::time::sleep(COLLECTION).await;
    }
}

async fn remove_expired(writer: &Writer, now: Time) -> Outcome<()> {
    let prefix = encoding::prefix("coordination.k8s.io", "leases", Some(NAMESPACE));
    let page = writer.storage.store().list(List::all(&prefix)).await;
    let page = page.map_err(|error| read_failed(error, 0))?;
    for entry in page.entries {
        let lease = encoding::tree(&entry.value).unwrap_or_default();
        if lease["metadata"]["labels"][LABEL] != COMPONENT || !is_expired(&lease, now) {
            continue;
        }
        let name = metadata::text(&lease, "name");
        // A Lease renewed in the meantime has another revision.
        place(writer, name)?.remove(entry.revision).await?;
    }
    Ok(())
}

/// Leases without a renew time are not ours, and expire.
fn is_expired(lease: &Value, now: Time) -> bool {
    let spec = &lease["spec"];
    let renewed = spec["renewTime"]
        .as_str()
        .and_then(|text| Time::parse(text).ok());
    match (renewed, spec["leaseDurationSeconds"].as_i64()) {
        (Some(renewed), Some(seconds)) => {
            renewed.unix_seconds().saturating_add(seconds) < now.unix_seconds()
        }
        _ => true,
    }
}

fn place<'w>(writer: &'w Writer, name: &str) -> Outcome<OwnObject<'w>> {
    OwnObject::new(writer, ("coordination.k8s.io", "leases"), NAMESPACE, name)
}

/// Lower-case base32 without padding.
fn base32(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut text = String::new();
    let (mut rest, mut bits) = (0_u32, 0);
    for byte in bytes {
        rest = rest << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            let digit = (rest >> bits & 31) as usize;
            text.push(char::from(DIGITS[digit]));
        }
    }
    if bits > 0 {
        let digit = (rest << (5 - bits) & 31) as usize;
        text.push(char::from(DIGITS[digit]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_go() {
        assert_eq!(base32(b""), "");
        // From the tests of base32.StdEncoding.
        assert_eq!(base32(b"f"), "my");
        assert_eq!(base32(b"foobar"), "mzxw6ytboi");
        let one = Identity::new("host", "127.0.0.1:6443");
        assert_eq!(one.name.len(), "apiserver-".len() + 26);
        assert_ne!(one.name, Identity::new("host", "127.0.0.1:6444").name);
        assert!(one.holder.starts_with(&format!("{}_", one.name)));
    }

    #[test]
    fn leases_end_by_what_they_say() {
        let lease = |renewed: &str, seconds: i64| json!({"spec": {"renewTime": renewed, "leaseDurationSeconds": seconds}});
        let now = Time::parse("2026-01-01T01:00:00Z").unwrap();
        assert!(!is_expired(
            &lease("2026-01-01T00:00:00.000000Z", 3600),
            now
        ));
        assert!(is_expired(&lease("2025-12-31T23:59:59.000000Z", 3600), now));
        // A clock that is set back does not expire Leases.
        assert!(!is_expired(
            &lease("2030-01-01T00:00:00.000000Z", 3600),
            now
        ));
        assert!(is_expired(&json!({"spec": {}}), now));
        assert!(is_expired(&lease("soon", 3600), now));
    }
}
