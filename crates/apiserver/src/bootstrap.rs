//! What is there from the start: namespaces, the roles everybody relies on, the server's own service.
//! And what was stored before: everything the server is made from is read again.

use lockgate_api::admission::UserInfo;
use lockgate_kinds::crd;
use lockgate_store::{List, ReadAt, Unavailable, WriteError};
use serde_json::{Value, json};

use crate::controllers;
use crate::effects;
use crate::server::Server;
use crate::stored;
use crate::write::{metadata, strategy};

/// Makes what is missing, and takes note of what is there.
pub(crate) async fn load(server: &Server) -> Result<(), Unavailable> {
    let snapshot = server.registry.snapshot();
    let mut resources: Vec<_> = snapshot
        .resources()
        .iter()
        .filter(|resource| effects::has_any(resource) && resource.is_storage_version())
        .collect();
    // One that is being deleted goes on being emptied, of custom resources too: those come first.
    resources.sort_by_key(|resource| resource.is("", "namespaces"));
    for resource in resources {
        let prefix = server.prefix(resource, "");
        let page = server
            .store
            .list(List::all(&prefix))
            .await
            .map_err(|error| Unavailable(error.to_string()))?;
        for entry in &page.entries {
            let object = stored::parse_entry(entry, resource.shown());
            effects::written(server, resource, &object);
            // A definition may have been stored by a server that ended before it was established.
            if strategy::is_definition(resource) && !is_settled(&object) {
                controllers::settle_definition_later(server, metadata::text(&object, "name"));
            }
        }
    }
    for (group, version, plural, object) in objects() {
        let Some(resource) = snapshot.find(group, version, plural) else {
            continue;
        };
        let mut object = object;
        let key = server.key(
            resource,
            metadata::text(&object, "namespace"),
            metadata::text(&object, "name"),
        );
        if let Ok((Some(_), _)) = server.store.get(&key, ReadAt::Latest).await {
            continue;
        }
        resource.shape.apply_defaults(&mut object);
        metadata::fill(&mut object);
        server.allocate(resource, &mut object);
        strategy::prepare_create(
            resource,
            &mut object,
            &UserInfo::default(),
            server.settings.feature_gates,
        );
        strategy::canonicalize(resource, &mut object);
        // Somebody else may be faster, which is as good.
        if let Err(WriteError::Unavailable(error)) =
            server.insert(resource, &key, &object, None).await
        {
            return Err(error);
        }
    }
    Ok(())
}

/// Whether a definition is served and to stay.
fn is_settled(definition: &Value) -> bool {
    crd::has_status(definition, "Established", "True") && !metadata::is_deleting(definition)
}

fn objects() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let mut objects = Vec::new();
    for name in ["kube-system", "kube-public", "kube-node-lease", "default"] {
        objects.push((
            "",
            "v1",
            "namespaces",
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        ));
    }
    objects.push((
        "",
        "v1",
        "services",
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}], "type": "ClusterIP", "sessionAffinity": "None"},
        }),
    ));
    for (name, value, what) in [
        (
            "system-cluster-critical",
            2_000_000_000_i64,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ] {
        objects.push((
            "scheduling.k8s.io",
            "v1",
            "priorityclasses",
            json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                "value": value, "preemptionPolicy": "PreemptLowerPriority", "description": what,
            }),
        ));
    }
    let discovery = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    let public = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let reviews = json!({"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": ["create"]});
    let own_review = json!({"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]});
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}]);
    for (name, rules, groups) in [
        ("cluster-admin", everything, vec!["system:masters"]),
        (
            "system:discovery",
            json!([{"nonResourceURLs": discovery, "verbs": ["get"]}]),
            vec!["system:authenticated"],
        ),
        (
            "system:basic-user",
            json!([reviews, own_review]),
            vec!["system:authenticated"],
        ),
        (
            "system:public-info-viewer",
            json!([{"nonResourceURLs": public, "verbs": ["get"]}]),
            vec!["system:authenticated", "system:unauthenticated"],
        ),
    ] {
        let labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
        let annotations = json!({"rbac.authorization.kubernetes.io/autoupdate": "true"});
        let metadata = json!({"name": name, "labels": labels, "annotations": annotations});
        objects.push((
            RBAC,
            "v1",
            "clusterroles",
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}),
        ));
        let subjects: Vec<Value> = groups
            .into_iter()
            .map(|group| json!({"apiGroup": RBAC, "kind": "Group", "name": group}))
            .collect();
        objects.push((
            RBAC,
            "v1",
            "clusterrolebindings",
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": metadata,
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
                "subjects": subjects,
            }),
        ));
    }
    objects
}
