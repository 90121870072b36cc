//! The decoded write: the requested change, typed and independent of the wire format.

use std::sync::Arc;

use http::HeaderMap;
use http::header::USER_AGENT;
use lockgate_admission::request::kind;
use lockgate_api::admission::GroupVersionKind;
use lockgate_kinds::protobuf;
use lockgate_kinds::typed::{Type, type_of};
use serde_json::Value;

use crate::decode::body::{self, Expected, ParseError, Parsed};
use crate::decode::options::{DeleteOptions, WriteOptions};
use crate::decode::patch::{Patch, Read};
use crate::decode::selection::Selection;
use crate::encoding::{self, TypeMeta};
use crate::error::{Outcome, bad_request, internal, method_not_allowed};
use crate::http::negotiate;
use crate::http::query::Query;
use crate::http::request_info::Verb;
use crate::registry::shape_error::ShapeError;
use crate::registry::{Resource, Shape, Subresource, api_version};
use crate::request::{Notes, Request};

/// A decoded write.
#[derive(Debug)]
pub(crate) enum Write {
    Create(Body),
    Update(Body),
    Patch(PatchBody),
    Delete(DeleteOptions),
    DeleteCollection(DeleteOptions),
    Scale(ScaleBody),
    Evict(PartBody),
    Bind(PartBody),
    RequestToken(PartBody),
    /// An access review or a token review, which is answered and not stored.
    Review(Body),
}

/// An object and the options of its write.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) object: Value,
    pub(crate) options: WriteOptions,
}

/// A patch and its options.
#[derive(Debug)]
pub(crate) struct PatchBody {
    pub(crate) patch: Patch,
    /// The strict decoding findings in the patch.
    pub(crate) findings: Vec<String>,
    pub(crate) options: WriteOptions,
}

/// An object of a subresource's kind.
#[derive(Debug)]
pub(crate) struct PartBody {
    pub(crate) kind: GroupVersionKind,
    pub(crate) object: Value,
    pub(crate) options: WriteOptions,
}

/// A write to a scale.
#[derive(Debug)]
pub(crate) struct ScaleBody {
    pub(crate) kind: GroupVersionKind,
    pub(crate) ty: Type,
    pub(crate) change: ScaleChange,
    pub(crate) options: WriteOptions,
}

/// The new scale, or a patch.
#[derive(Debug)]
pub(crate) enum ScaleChange {
    Replace(Value),
    Patch {
        patch: Patch,
        /// The strict decoding findings in the patch.
        findings: Vec<String>,
    },
}

/// The encoded form of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoded<'r> {
    pub(crate) headers: &'r HeaderMap,
    pub(crate) query: &'r Query,
    pub(crate) body: &'r [u8],
}

/// Returns true for review resources, whose objects are answered and not stored.
fn is_review(resource: &Resource) -> bool {
    matches!(
        resource.group(),
        "authorization.k8s.io" | "authentication.k8s.io"
    ) && resource.names.verbs == ["create"]
        && !resource.is_custom()
}

/// The kind of a subresource.
pub(crate) fn part_kind(part: &Subresource) -> GroupVersionKind {
    kind(&part.group, &part.version, &part.kind)
}

impl Encoded<'_> {
    /// Decodes a write to a resource.
    pub(crate) fn write(self, request: &Request) -> Outcome<Write> {
        let (resource, notes) = (&request.resource, &request.notes);
        match request.target().verb {
            Verb::Create if is_review(resource) => self.create(resource, notes).map(Write::Review),
            Verb::Create if resource.is("", "bindings") => {
                let options = self.create_options()?;
                let binding = kind("", "v1", "Binding");
                self.part_body(binding, options, notes).map(Write::Bind)
            }
            Verb::Create => {
                resource.check_accepts_objects()?;
                self.create(resource, notes).map(Write::Create)
            }
            Verb::Update => self.update(resource, notes).map(Write::Update),
            Verb::Patch => self.patch(resource).map(Write::Patch),
            Verb::Delete => self.delete_options().map(Write::Delete),
            Verb::DeleteCollection => {
                // UPSTREAM: apiserver pkg/endpoints/handlers/delete.go: list options are validated first.
                Selection::read(self.query, resource)?;
                self.delete_options().map(Write::DeleteCollection)
            }
            Verb::Get | Verb::List | Verb::Watch | Verb::Unknown | Verb::Proxy => {
                Err(method_not_allowed())
            }
        }
    }

    /// Decodes a write to a subresource.
    ///
    /// `status`, `finalize`, `approval`, `ephemeralcontainers` and `resize` have the kind of the object
    /// itself and are updates of it.
    pub(crate) fn part_write(self, request: &Request, part: &Subresource) -> Outcome<Write> {
        let (resource, notes) = (&request.resource, &request.notes);
        let has_own_kind = part.kind != resource.kind() || part.group != resource.group();
        match (request.target().verb, part.name.as_str()) {
            (Verb::Update, "scale") => {
                let options = self.update_options()?;
                let sent = self.part_body(part_kind(part), options, notes)?;
                Ok(Write::Scale(ScaleBody {
                    ty: part_type(&sent.kind)?,
                    kind: sent.kind,
                    change: ScaleChange::Replace(sent.object),
                    options: sent.options,
                }))
            }
            (Verb::Patch, "scale") => {
                let PatchBody {
                    patch,
                    findings,
                    options,
                } = self.patch(resource)?;
                let kind = part_kind(part);
                Ok(Write::Scale(ScaleBody {
                    ty: part_type(&kind)?,
                    kind,
                    change: ScaleChange::Patch { patch, findings },
                    options,
                }))
            }
            (Verb::Update, _) if !has_own_kind => self.update(resource, notes).map(Write::Update),
            (Verb::Patch, _) if !has_own_kind => self.patch(resource).map(Write::Patch),
            (Verb::Create, name @ ("eviction" | "binding" | "token")) => {
                let options = self.create_options()?;
                let sent = self.part_body(part_kind(part), options, notes)?;
                Ok(match name {
                    "eviction" => Write::Evict(sent),
                    "binding" => Write::Bind(sent),
                    _ => Write::RequestToken(sent),
                })
            }
            _ => Err(method_not_allowed()),
        }
    }

    fn agent(self) -> String {
        let agent = self.headers.get(USER_AGENT);
        let agent = agent.and_then(|value| value.to_str().ok());
        agent.unwrap_or_default().to_owned()
    }

    fn create_options(self) -> Outcome<WriteOptions> {
        Ok(WriteOptions::of_create(self.query)?.by(&self.agent()))
    }

    fn update_options(self) -> Outcome<WriteOptions> {
        Ok(WriteOptions::of_update(self.query)?.by(&self.agent()))
    }

    fn create(self, resource: &Arc<Resource>, notes: &Notes) -> Outcome<Body> {
        let options = self.create_options()?;
        let object = self.object(Expected::of(resource), &options, notes)?;
        Ok(Body { object, options })
    }

    fn update(self, resource: &Arc<Resource>, notes: &Notes) -> Outcome<Body> {
        let options = self.update_options()?;
        let object = self.object(Expected::of(resource), &options, notes)?;
        Ok(Body { object, options })
    }

    fn patch(self, resource: &Resource) -> Outcome<PatchBody> {
        let patch_type = negotiate::patch_type(self.headers, resource.is_custom())?;
        let options = WriteOptions::of_patch(self.query, patch_type)?.by(&self.agent());
        let Read { patch, findings } =
            Patch::read(self.body, patch_type, options.field_validation())?;
        Ok(PatchBody {
            patch,
            findings,
            options,
        })
    }

    /// Decodes the body as an object of a kind. Unknown fields are reported as warnings.
    fn object(
        self,
        expected: Expected<'_>,
        options: &WriteOptions,
        notes: &Notes,
    ) -> Outcome<Value> {
        let sent = negotiate::body_encoding(self.headers, expected.shape.accepted())?;
        let decoded = body::decode(self.body, sent, expected, options.field_validation())?;
        for warning in &decoded.warnings {
            notes.warn(warning);
        }
        notes.sent_with(decoded.empties);
        Ok(decoded.object)
    }

    fn part_body(
        self,
        kind: GroupVersionKind,
        options: WriteOptions,
        notes: &Notes,
    ) -> Outcome<PartBody> {
        let shape = Shape::Plain(part_type(&kind)?);
        let expected = Expected {
            group: &kind.group,
            version: &kind.version,
            kind: &kind.kind,
            shape: &shape,
        };
        let mut object = self.object(expected, &options, notes)?;
        let type_meta = TypeMeta {
            api_version: &api_version(&kind.group, &kind.version),
            kind: &kind.kind,
        };
        encoding::set_type(&mut object, type_meta);
        Ok(PartBody {
            kind,
            object,
            options,
        })
    }

    /// The options of a delete, from the body if there is one.
    fn delete_options(self) -> Outcome<DeleteOptions> {
        if self.body.is_empty() {
            return DeleteOptions::from_query(self.query);
        }
        let sent = negotiate::body_encoding(self.headers, &negotiate::ACCEPTED)?;
        let undecodable = |error: ParseError| bad_request(error.to_string());
        let parsed = Parsed::read(self.body, sent).map_err(undecodable)?;
        let found = parsed.type_meta().map_err(undecodable)?;
        if !found.kind.is_empty() && found.kind != "DeleteOptions" {
            return Err(bad_request(body::not_delete_options(&found)));
        }
        let ty = type_of("meta.k8s.io", "v1", "DeleteOptions")
            .ok_or_else(|| internal("the type of DeleteOptions is unknown"))?;
        let options = match &parsed {
            Parsed::Document(document) => ty
                .decode(document.root())
                .map(|decoded| decoded.value)
                .map_err(ShapeError::from),
            Parsed::Protobuf(envelope) => {
                protobuf::decode(ty, envelope.raw).map_err(ShapeError::from)
            }
        };
        let options = options.map_err(|error| bad_request(error.to_string()))?;
        DeleteOptions::from_value(&options)
    }
}

fn part_type(kind: &GroupVersionKind) -> Outcome<Type> {
    type_of(&kind.group, &kind.version, &kind.kind)
        .ok_or_else(|| internal("the type of the subresource is unknown"))
}
