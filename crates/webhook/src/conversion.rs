//! Conversion of custom resources between versions.
//!
//! ```text
//!   v1beta1 ──to_hub──►      ──from_hub──► v1beta1
//!                       hub
//!   v2 ───────to_hub──►      ──from_hub──► v2
//! ```
//!
//! One version is the [`Hub`]; every other version is a [`Spoke`] that converts to and from it. [`Conversion`]
//! combines the versions of one kind, and [`Webhooks::converting`](crate::Webhooks::converting) serves them together
//! with the admission webhooks.
//!
//! Fields unknown to both types are preserved, and in the metadata only labels and annotations change: the API server
//! rejects other changes.

mod registration;
mod review;

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::denial::{Fault, Refusal};
use crate::object::decode;
use crate::patch;

pub use registration::{ConversionRegistration, MarkedHub};
pub(crate) use review::answer;
pub use review::{Converted, ConvertedObjects};

/// The metadata fields that a conversion may change.
const CHANGEABLE: [&str; 2] = ["labels", "annotations"];

/// The version of a kind through which all others are converted.
pub trait Hub: DeserializeOwned + Serialize + Send + Sync + 'static {
    /// The kind, as in `CronJob`.
    const KIND: &'static str;
    /// The version with its group, as in `batch.example.com/v1`.
    const API_VERSION: &'static str;
}

/// Another version of the kind of a [`Hub`].
///
/// ```
/// use lockgate_webhook::{Conversion, Fault, Hub, Spoke};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Widget { size: i64 }
///
/// #[derive(Serialize, Deserialize)]
/// struct WidgetV2 { length: i64 }
///
/// impl Hub for Widget {
///     const KIND: &str = "Widget";
///     const API_VERSION: &str = "example.com/v1";
/// }
///
/// impl Spoke for WidgetV2 {
///     type Hub = Widget;
///     const API_VERSION: &str = "example.com/v2";
///
///     fn to_hub(self) -> Result<Widget, Fault> {
///         Ok(Widget { size: self.length })
///     }
///
///     fn from_hub(hub: Widget) -> Result<Self, Fault> {
///         Ok(Self { length: hub.size })
///     }
/// }
///
/// let widgets = Conversion::of::<Widget>("widgets").spoke::<WidgetV2>();
/// let object = r#"{"apiVersion": "example.com/v1", "kind": "Widget", "size": 3}"#;
/// let converted = widgets.convert(object, "example.com/v2")?;
/// assert_eq!(converted["length"], 3);
/// # Ok::<(), Fault>(())
/// ```
pub trait Spoke: DeserializeOwned + Serialize + Send + Sync + 'static {
    /// The version through which this one is converted.
    type Hub: Hub;
    /// The version with its group, as in `batch.example.com/v2`.
    const API_VERSION: &'static str;

    /// Converts to the hub.
    ///
    /// # Errors
    ///
    /// Fails if the object cannot be represented in the hub. The client gets the message.
    fn to_hub(self) -> Result<Self::Hub, Fault>;

    /// Converts from the hub.
    ///
    /// # Errors
    ///
    /// Fails if the object cannot be represented in this version. The client gets the message.
    fn from_hub(hub: Self::Hub) -> Result<Self, Fault>;
}

/// The versions of one kind, and the registration of their conversion.
#[derive(Debug)]
pub struct Conversion {
    kind: &'static str,
    registration: ConversionRegistration,
    versions: Box<dyn Versions>,
}

impl Conversion {
    /// The conversion of the kind of `H`. `resource` is its plural, as in `cronjobs`.
    #[must_use]
    pub fn of<H: Hub>(resource: impl Into<String>) -> ConversionOf<H> {
        ConversionOf {
            registration: ConversionRegistration::new(group_of(H::API_VERSION), resource),
            spokes: Vec::new(),
        }
    }

    /// The conversion of the kind of `H`, registered by its attribute `#[conversion(…)]`.
    #[must_use]
    pub fn marked<H: MarkedHub>() -> ConversionOf<H> {
        ConversionOf {
            registration: H::registration(),
            spokes: Vec::new(),
        }
    }

    /// The registration, for manifests.
    #[must_use]
    pub fn registration(&self) -> &ConversionRegistration {
        &self.registration
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The name of its CustomResourceDefinition, as in `cronjobs.batch.example.com`.
    #[must_use]
    pub fn definition_name(&self) -> String {
        self.registration.definition_name()
    }

    /// The path it is served at.
    #[must_use]
    pub fn path(&self) -> &str {
        self.registration.path()
    }

    /// `conversionReviewVersions`, the preferred first.
    #[must_use]
    pub fn review_versions(&self) -> &[String] {
        self.registration.review_versions()
    }

    /// The versions with their group, the hub first.
    #[must_use]
    pub fn api_versions(&self) -> Vec<&'static str> {
        self.versions.api_versions()
    }

    /// Converts one object.
    ///
    /// # Errors
    ///
    /// Fails if the object is not of this kind, or cannot be represented in one of the versions.
    pub fn convert(&self, object: &str, desired: &str) -> Result<Value, Fault> {
        let sent: Value = decode(object, "object").map_err(fault)?;
        let named = |member: &str| sent.get(member).and_then(Value::as_str).unwrap_or_default();
        let (kind, from) = (named("kind"), named("apiVersion"));
        if kind != self.kind {
            let kind_here = self.kind;
            return Err(Fault::new(format!(
                "want an object of kind `{kind_here}`, got `{kind}`"
            )));
        }
        if from == desired && self.api_versions().contains(&from) {
            return Ok(sent);
        }
        let (before, after) = self.versions.convert(object, from, desired)?;
        let mut converted = patch::merge(&sent, &before, &after);
        let Value::Object(members) = &mut converted else {
            return Err(Fault::new("an object is written as a JSON object"));
        };
        members.insert(String::from("apiVersion"), Value::from(desired));
        members.insert(String::from("kind"), Value::from(self.kind));
        if let Some(metadata) = sent.get("metadata") {
            let changed = members.remove("metadata").unwrap_or(Value::Null);
            members.insert(String::from("metadata"), restored(metadata, changed));
        }
        Ok(converted)
    }
}

/// The original metadata, with the labels and annotations of the converted object.
///
/// UPSTREAM: apiextensions-apiserver pkg/apiserver/conversion/webhook_converter.go, restoreObjectMeta
fn restored(sent: &Value, mut changed: Value) -> Value {
    let mut restored = sent.clone();
    if let Value::Object(members) = &mut restored {
        for member in CHANGEABLE {
            match changed.get_mut(member).map(Value::take) {
                None | Some(Value::Null) => members.remove(member),
                Some(value) => members.insert(member.to_owned(), value),
            };
        }
    }
    restored
}

/// A builder of a [`Conversion`].
pub struct ConversionOf<H> {
    registration: ConversionRegistration,
    spokes: Vec<SpokeOf<H>>,
}

impl<H: Hub> ConversionOf<H> {
    /// Adds a version.
    ///
    /// # Panics
    ///
    /// Panics if the version exists already, or has another group than the hub: this is a programming error, detected
    /// at startup.
    #[must_use]
    pub fn spoke<S: Spoke<Hub = H>>(mut self) -> Self {
        let taken = self
            .spokes
            .iter()
            .any(|other| other.api_version == S::API_VERSION);
        assert!(
            !taken && S::API_VERSION != H::API_VERSION,
            "two types are version `{}`",
            S::API_VERSION
        );
        assert_eq!(
            group_of(S::API_VERSION),
            group_of(H::API_VERSION),
            "all versions of a kind have one group"
        );
        self.spokes.push(SpokeOf {
            api_version: S::API_VERSION,
            read: read_spoke::<S>,
            write: |hub| Ok(serde_json::to_value(S::from_hub(hub)?)?),
        });
        self
    }

    /// Serves it at another path than `/convert`. Several kinds may share one.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.registration = self.registration.at_path(path);
        self
    }

    /// Sets `conversionReviewVersions`. This framework supports `v1` and `v1beta1`.
    #[must_use]
    pub fn review_versions(mut self, versions: &[&str]) -> Self {
        self.registration = self.registration.with_review_versions(versions);
        self
    }

    /// Converts one object, like [`Conversion::convert`].
    ///
    /// # Errors
    ///
    /// Fails if the object is not of this kind, or cannot be represented in one of the versions.
    pub fn convert(self, object: &str, desired: &str) -> Result<Value, Fault> {
        Conversion::from(self).convert(object, desired)
    }
}

impl<H> fmt::Debug for ConversionOf<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConversionOf")
            .field("registration", &self.registration)
            .finish_non_exhaustive()
    }
}

impl<H: Hub> From<ConversionOf<H>> for Conversion {
    fn from(conversion: ConversionOf<H>) -> Self {
        Self {
            kind: H::KIND,
            registration: conversion.registration,
            versions: Box::new(HubAndSpokes {
                spokes: conversion.spokes,
            }),
        }
    }
}

/// The group of `group/version`.
#[must_use]
pub fn group_of(api_version: &'static str) -> &'static str {
    api_version
        .split_once('/')
        .map_or("", |(group, _version)| group)
}

/// The versions of one kind, with erased types.
trait Versions: Send + Sync {
    fn api_versions(&self) -> Vec<&'static str>;

    /// The object as serialised by its own type, and by the desired one.
    fn convert(&self, object: &str, from: &str, desired: &str) -> Result<(Value, Value), Fault>;
}

impl fmt::Debug for dyn Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.api_versions()).finish()
    }
}

struct HubAndSpokes<H> {
    spokes: Vec<SpokeOf<H>>,
}

struct SpokeOf<H> {
    api_version: &'static str,
    /// Decodes an object of this version: its own serialisation, and the hub.
    read: fn(&str) -> Result<(Value, H), Fault>,
    write: fn(H) -> Result<Value, Fault>,
}

impl<H: Hub> HubAndSpokes<H> {
    fn spoke(&self, api_version: &str) -> Result<&SpokeOf<H>, Fault> {
        let found = self
            .spokes
            .iter()
            .find(|spoke| spoke.api_version == api_version);
        found.ok_or_else(|| {
            let kind = H::KIND;
            Fault::new(format!("`{kind}` has no version `{api_version}` here"))
        })
    }
}

impl<H: Hub> Versions for HubAndSpokes<H> {
    fn api_versions(&self) -> Vec<&'static str> {
        let spokes = self.spokes.iter().map(|spoke| spoke.api_version);
        std::iter::once(H::API_VERSION).chain(spokes).collect()
    }

    fn convert(&self, object: &str, from: &str, desired: &str) -> Result<(Value, Value), Fault> {
        let (before, hub) = if from == H::API_VERSION {
            let hub: H = decode(object, "object").map_err(fault)?;
            (serde_json::to_value(&hub)?, hub)
        } else {
            (self.spoke(from)?.read)(object)?
        };
        let after = if desired == H::API_VERSION {
            serde_json::to_value(hub)?
        } else {
            (self.spoke(desired)?.write)(hub)?
        };
        Ok((before, after))
    }
}

fn read_spoke<S: Spoke>(object: &str) -> Result<(Value, S::Hub), Fault> {
    let typed: S = decode(object, "object").map_err(fault)?;
    Ok((serde_json::to_value(&typed)?, typed.to_hub()?))
}

/// A conversion has no denials: every error is a fault.
fn fault(refusal: Refusal) -> Fault {
    match refusal {
        Refusal::Denied(denial) => Fault::new(denial.to_string()),
        Refusal::Fault(fault) => fault,
    }
}
