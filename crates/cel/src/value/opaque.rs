//! Values of library types.

use lockgate_api::access::Decision;
use lockgate_go::quantity::Quantity;
use lockgate_go::url::Url;

use super::{Equality, Value};
use crate::ext::authorizer::{AuthorizerValue, GroupCheck, PathCheck, ResourceCheck};
use crate::ext::cidr::Cidr;
use crate::ext::ip::Ip;
use crate::ext::named_format::NamedFormat;
use crate::ext::semver::Semver;

/// An opaque value, handled by functions only.
#[derive(Debug, Clone)]
pub enum Opaque {
    /// A resource quantity.
    Quantity(Quantity),
    /// An IP address.
    Ip(Ip),
    /// A network.
    Cidr(Cidr),
    /// A URL.
    Url(Url),
    /// A semantic version.
    Semver(Semver),
    /// A named format.
    Format(NamedFormat),
    /// The authorizer, with its user.
    Authorizer(AuthorizerValue),
    /// A check of a non-resource path.
    PathCheck(PathCheck),
    /// A check of an API group.
    GroupCheck(GroupCheck),
    /// A check of a resource.
    ResourceCheck(ResourceCheck),
    /// The result of a check.
    Decision(Decision),
}

impl Opaque {
    /// The name of the value's type.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Self::PathCheck(_) => "kubernetes.authorization.PathCheck",
            Self::GroupCheck(_) => "kubernetes.authorization.GroupCheck",
            Self::ResourceCheck(_) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    pub(crate) fn go_type(&self) -> &'static str {
        match self {
            Self::Quantity(q) if q.is_computed() => "*cel.Quantity",
            Self::Quantity(_) => "cel.Quantity",
            Self::Ip(_) => "cel.IP",
            Self::Cidr(_) => "cel.CIDR",
            Self::Url(_) => "cel.URL",
            Self::Semver(_) => "cel.Semver",
            Self::Format(_) => "cel.Format",
            Self::Authorizer(_) => "library.authorizerVal",
            Self::PathCheck(_) => "library.pathCheckVal",
            Self::GroupCheck(_) => "library.groupCheckVal",
            Self::ResourceCheck(_) => "library.resourceCheckVal",
            Self::Decision(_) => "library.decisionVal",
        }
    }

    /// The Go type of upstream's native value, if there is one.
    pub(crate) fn plain_go_type(&self) -> Option<&'static str> {
        match self {
            Self::Quantity(_) => Some("*resource.Quantity"),
            Self::Ip(_) => Some("netip.Addr"),
            Self::Cidr(_) => Some("netip.Prefix"),
            Self::Url(_) => Some("*url.URL"),
            Self::Semver(_) => Some("semver.Version"),
            Self::Format(_) => Some("cel.Format"),
            _ => None,
        }
    }

    /// The size in cost rules, for types with one.
    pub(crate) fn size(&self) -> Option<u64> {
        match self {
            Self::Ip(ip) => Some(ip.size()),
            Self::Cidr(cidr) => Some(cidr.size()),
            _ => None,
        }
    }

    /// The length of a format's pattern.
    pub(crate) fn pattern_size(&self) -> Option<u64> {
        match self {
            Self::Format(format) => Some(format.max_regex_size()),
            _ => None,
        }
    }

    /// The value as in messages.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Quantity(quantity) => quantity.to_string(),
            Self::Ip(ip) => ip.to_string(),
            Self::Cidr(cidr) => cidr.to_string(),
            Self::Url(url) => url.to_string(),
            Self::Semver(semver) => semver.to_string(),
            Self::Format(format) => format.name().to_owned(),
            other => other.type_name().to_owned(),
        }
    }

    /// Library-specific equality; values of different types are not comparable.
    pub(crate) fn equals(&self, other: &Value<'_>) -> Equality {
        let Value::Opaque(other) = other else {
            return Equality::Undefined;
        };
        match (self, &**other) {
            (Self::Quantity(a), Self::Quantity(b)) if !b.is_computed() => {
                a.compare(b).is_eq().into()
            }
            (Self::Ip(a), Self::Ip(b)) => (a == b).into(),
            (Self::Cidr(a), Self::Cidr(b)) => (a == b).into(),
            (Self::Url(a), Self::Url(b)) => (a.to_string() == b.to_string()).into(),
            (Self::Semver(a), Self::Semver(b)) => a.compare(b).is_eq().into(),
            (Self::Format(a), Self::Format(b)) => (a == b).into(),
            _ => Equality::Undefined,
        }
    }
}
