//! Components of the API server that are built from stored objects.

use lockgate_api::registration::ConfigurationKind;
use lockgate_api::registration::policy::Registered;

/// A component that follows the stored objects of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerComponent {
    /// Webhook dispatch.
    Webhooks(ConfigurationKind),
    /// Admission policies and bindings.
    Policies(Registered),
    /// The labels and phases of namespaces.
    Namespaces,
    /// The rules of roles.
    Roles,
    /// The subjects of role bindings.
    RoleBindings,
    /// Custom resources.
    Definitions,
    /// Allocated cluster IPs, and the Services of webhooks.
    Services,
    /// The endpoints of webhooks behind Services.
    EndpointSlices,
    /// The aggregated API servers.
    ApiServices,
    /// The classification of requests.
    FlowSchemas,
    /// The seats of priority levels.
    PriorityLevels,
    /// The graph of the node authorizer.
    NodeGraph(NodeGraphObject),
}

/// An object in the node authorizer's graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeGraphObject {
    /// A Pod, with the objects that it references.
    Pod,
    /// A PersistentVolume.
    Volume,
    /// A VolumeAttachment.
    Attachment,
}
