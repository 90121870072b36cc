//! The parts of the API server that are made from stored objects.

use lockgate_api::registration::ConfigurationKind;
use lockgate_api::registration::policy::Registered;

/// A part of the server that follows the stored objects of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerPart {
    /// The webhooks that are called.
    Webhooks(ConfigurationKind),
    /// The admission policies and bindings that are enforced.
    Policies(Registered),
    /// The labels and phases of namespaces.
    Namespaces,
    /// The rules of roles.
    Roles,
    /// The subjects of roles.
    RoleBindings,
    /// The custom resources that are served.
    Definitions,
    /// The addresses that are allocated, and those of webhooks behind Services.
    Services,
    /// The endpoints of webhooks behind Services.
    EndpointSlices,
    /// The aggregated API servers.
    ApiServices,
    /// The classification of requests.
    FlowSchemas,
    /// The seats of requests.
    PriorityLevels,
    /// The graph by which nodes are authorized.
    NodeGraph(Related),
}

/// An object that nodes are authorized by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Related {
    /// A Pod, with everything it refers to.
    Pod,
    /// A PersistentVolume.
    Volume,
    /// A VolumeAttachment.
    Attachment,
}
