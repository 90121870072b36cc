//! The older form of the documents, as far as clients need it.
//!
//! kubectl up to 1.28 asks for OpenAPI v2, in protobuf only, before it applies anything. What it looks for
//! is the operation that patches a kind, and which parameters that takes; it knows the schemas of built-in
//! kinds itself. So the document tells the operations and no schemas.
//!
//! UPSTREAM: gnostic-models openapiv2/OpenAPIv2.proto for the numbers of fields.

use super::{Served, group_version_kind};

/// The media type clients ask for.
pub const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// The media type of the answer, which newer clients ask for too. The older name breaks the rules for
/// media types, so no answer may say it.
///
/// UPSTREAM: kube-openapi pkg/handler/handler.go
pub const ANSWERED_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The parameters a patch takes.
const PARAMETERS: [(&str, &str); 4] = [
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
];

/// One document for all resources.
#[must_use]
pub fn document<'s>(resources: impl IntoIterator<Item = Served<'s>>) -> Vec<u8> {
    let parameters: Vec<u8> = PARAMETERS
        .into_iter()
        .flat_map(|(name, ty)| {
            let query = [text(2, "query"), text(4, name), text(6, ty)].concat();
            // A parameter, outside the body, of the query.
            field(8, &field(1, &field(2, &field(3, &query))))
        })
        .collect();
    let paths: Vec<u8> = resources
        .into_iter()
        .filter(|resource| resource.verbs.contains(&"patch"))
        .flat_map(|resource| {
            let kind = [resource.group, resource.version, resource.kind];
            let kind = group_version_kind(kind).to_string();
            let extension = [
                text(1, "x-kubernetes-group-version-kind"),
                field(2, &text(2, &kind)),
            ]
            .concat();
            let patch = [parameters.clone(), field(13, &extension)].concat();
            let path = [text(1, &path(&resource)), field(2, &field(8, &patch))].concat();
            field(2, &path)
        })
        .collect();
    let info = [text(1, "Kubernetes"), text(2, "v1.36.4")].concat();
    [text(1, "2.0"), field(2, &info), field(8, &paths)].concat()
}

fn path(resource: &Served<'_>) -> String {
    let root = match resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    let namespace = if resource.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    format!("{root}{namespace}/{}/{{name}}", resource.plural)
}

fn text(number: u8, value: &str) -> Vec<u8> {
    field(number, value.as_bytes())
}

/// A field of bytes; numbers above 15 are not needed.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 4);
    out.push(number << 3 | 2);
    let mut length = value.len();
    while length > 0x7f {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(value);
    out
}
