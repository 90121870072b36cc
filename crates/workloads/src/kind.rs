//! The kinds that controllers read or write, and the keys of their objects.

/// A kind that controllers read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are those of the API")]
pub enum Kind {
    CertificateSigningRequest,
    ControllerRevision,
    CronJob,
    DaemonSet,
    Deployment,
    Endpoints,
    EndpointSlice,
    Event,
    Job,
    Lease,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
    StorageClass,
}

/// A kind with its group, plural and name.
type Row = (Kind, &'static str, &'static str, &'static str);

const ROWS: [Row; 21] = [
    (
        Kind::CertificateSigningRequest,
        "certificates.k8s.io",
        "certificatesigningrequests",
        "CertificateSigningRequest",
    ),
    (
        Kind::ControllerRevision,
        "apps",
        "controllerrevisions",
        "ControllerRevision",
    ),
    (Kind::CronJob, "batch", "cronjobs", "CronJob"),
    (Kind::DaemonSet, "apps", "daemonsets", "DaemonSet"),
    (Kind::Deployment, "apps", "deployments", "Deployment"),
    (Kind::Endpoints, "", "endpoints", "Endpoints"),
    (
        Kind::EndpointSlice,
        "discovery.k8s.io",
        "endpointslices",
        "EndpointSlice",
    ),
    (Kind::Event, "", "events", "Event"),
    (Kind::Job, "batch", "jobs", "Job"),
    (Kind::Lease, "coordination.k8s.io", "leases", "Lease"),
    (Kind::Namespace, "", "namespaces", "Namespace"),
    (Kind::Node, "", "nodes", "Node"),
    (
        Kind::PersistentVolume,
        "",
        "persistentvolumes",
        "PersistentVolume",
    ),
    (
        Kind::PersistentVolumeClaim,
        "",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
    ),
    (Kind::Pod, "", "pods", "Pod"),
    (
        Kind::PodDisruptionBudget,
        "policy",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
    ),
    (Kind::ReplicaSet, "apps", "replicasets", "ReplicaSet"),
    (
        Kind::ReplicationController,
        "",
        "replicationcontrollers",
        "ReplicationController",
    ),
    (Kind::Service, "", "services", "Service"),
    (Kind::StatefulSet, "apps", "statefulsets", "StatefulSet"),
    (
        Kind::StorageClass,
        "storage.k8s.io",
        "storageclasses",
        "StorageClass",
    ),
];

impl Kind {
    fn row(self) -> &'static Row {
        let found = ROWS.iter().find(|row| row.0 == self);
        found.expect("every kind has a row, which a test confirms")
    }

    /// The API group; all kinds are of its version `v1`.
    #[must_use]
    pub fn group(self) -> &'static str {
        self.row().1
    }

    /// The plural, as in paths.
    #[must_use]
    pub fn plural(self) -> &'static str {
        self.row().2
    }

    /// The kind name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().3
    }

    /// The `apiVersion` of its objects.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self.group() {
            "" => "v1",
            "apps" => "apps/v1",
            "batch" => "batch/v1",
            "certificates.k8s.io" => "certificates.k8s.io/v1",
            "coordination.k8s.io" => "coordination.k8s.io/v1",
            "discovery.k8s.io" => "discovery.k8s.io/v1",
            "policy" => "policy/v1",
            _ => "storage.k8s.io/v1",
        }
    }

    /// The prefix of its storage keys.
    pub(crate) fn prefix(self) -> String {
        let group = match self.group() {
            "" => "core",
            group => group,
        };
        format!("/{group}/{}/", self.plural())
    }

    /// The storage key of an object.
    pub(crate) fn key(self, namespace: &str, name: &str) -> String {
        let prefix = self.prefix();
        match namespace {
            "" => format!("{prefix}{name}"),
            _ => format!("{prefix}{namespace}/{name}"),
        }
    }

    /// The kind of a storage key, if it is cached. Events are only written, and Leases change too often.
    pub(crate) fn cached(key: &str) -> Option<Self> {
        let (group, rest) = key.strip_prefix('/')?.split_once('/')?;
        let (plural, _) = rest.split_once('/')?;
        let group = if group == "core" { "" } else { group };
        let row = ROWS
            .iter()
            .find(|(_, of, name, _)| (*of, *name) == (group, plural))?;
        (!matches!(row.0, Self::Event | Self::Lease)).then_some(row.0)
    }

    /// The kind of an owner reference.
    pub(crate) fn of_reference(api_version: &str, name: &str) -> Option<Self> {
        let found = ROWS.iter().find(|row| row.3 == name)?;
        (found.0.api_version() == api_version).then_some(found.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_key() {
        for (kind, ..) in ROWS {
            let key = kind.key("ns", "a");
            let found = Kind::cached(&key);
            match kind {
                Kind::Event | Kind::Lease => assert_eq!(found, None),
                _ => assert_eq!(found, Some(kind)),
            }
            let reference = Kind::of_reference(kind.api_version(), kind.name());
            assert_eq!(reference, Some(kind));
        }
        assert_eq!(Kind::cached("/core/secrets/ns/a"), None);
        assert_eq!(Kind::Pod.key("ns", "a"), "/core/pods/ns/a");
        assert_eq!(Kind::Node.key("", "n"), "/core/nodes/n");
    }
}
