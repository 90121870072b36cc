//! The named formats of strings, such as `format.dns1123Label()`.
//!
//! Each format is a validation with Kubernetes' error texts. The validations are written by hand;
//! the regular expressions in the texts only describe them.
// UPSTREAM: k8s.io/apiserver/pkg/cel/library/format.go; the checks are those of
// k8s.io/apimachinery/pkg/util/validation, pkg/api/validate/content and of kube-openapi's strfmt.

use lockgate_go::url::Url;

mod check;
#[cfg(test)]
mod tests;

/// A named format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NamedFormat {
    /// An RFC 1123 DNS label.
    Dns1123Label,
    /// A prefix of a generated name, as a DNS label.
    Dns1123LabelPrefix,
    /// DNS labels separated by dots.
    Dns1123Subdomain,
    /// A prefix of a generated name, as a DNS subdomain.
    Dns1123SubdomainPrefix,
    /// An RFC 1035 DNS label, which starts with a letter.
    Dns1035Label,
    /// A prefix of a generated name, as an RFC 1035 DNS label.
    Dns1035LabelPrefix,
    /// A label key.
    QualifiedName,
    /// A label value.
    LabelValue,
    /// An absolute URI or path.
    Uri,
    /// A UUID, with or without dashes.
    Uuid,
    /// Base64 in the standard alphabet, with padding.
    Byte,
    /// A date.
    Date,
    /// A date with a time and a time zone.
    DateTime,
}

impl NamedFormat {
    /// All formats.
    pub const ALL: [Self; 13] = [
        Self::Dns1123Label,
        Self::Dns1123LabelPrefix,
        Self::Dns1123Subdomain,
        Self::Dns1123SubdomainPrefix,
        Self::Dns1035Label,
        Self::Dns1035LabelPrefix,
        Self::QualifiedName,
        Self::LabelValue,
        Self::Uri,
        Self::Uuid,
        Self::Byte,
        Self::Date,
        Self::DateTime,
    ];

    /// `format.named(name)`
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The name after `format.`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dns1123Label => "dns1123Label",
            Self::Dns1123LabelPrefix => "dns1123LabelPrefix",
            Self::Dns1123Subdomain => "dns1123Subdomain",
            Self::Dns1123SubdomainPrefix => "dns1123SubdomainPrefix",
            Self::Dns1035Label => "dns1035Label",
            Self::Dns1035LabelPrefix => "dns1035LabelPrefix",
            Self::QualifiedName => "qualifiedName",
            Self::LabelValue => "labelValue",
            Self::Uri => "uri",
            Self::Uuid => "uuid",
            Self::Byte => "byte",
            Self::Date => "date",
            Self::DateTime => "datetime",
        }
    }

    /// The maximum length of the format's regular expression, for the cost.
    #[must_use]
    pub const fn max_regex_size(self) -> u64 {
        match self {
            Self::Dns1123Label
            | Self::Dns1123LabelPrefix
            | Self::Dns1035Label
            | Self::Dns1035LabelPrefix => 30,
            Self::Dns1123Subdomain | Self::Dns1123SubdomainPrefix | Self::QualifiedName => 60,
            Self::LabelValue => 40,
            Self::Uri => 1103,
            Self::Uuid => 70,
            Self::Byte => 84,
            Self::Date | Self::DateTime => 71,
        }
    }

    /// `validate(text)`: returns the validation errors.
    ///
    /// ```
    /// use lockgate_cel::ext::named_format::NamedFormat;
    /// assert!(NamedFormat::Dns1123Label.validate("my-name").is_empty());
    /// assert_eq!(NamedFormat::Date.validate("2024-02-30"), ["invalid date"]);
    /// ```
    #[must_use]
    pub fn validate(self, text: &str) -> Vec<String> {
        let bytes = text.as_bytes();
        let unless = |valid: bool, error: &str| {
            if valid {
                Vec::new()
            } else {
                vec![error.to_owned()]
            }
        };
        match self {
            Self::Dns1123Label => check::dns1123_label(bytes),
            Self::Dns1123LabelPrefix => check::dns1123_label(&check::masked(bytes)),
            Self::Dns1123Subdomain => check::dns1123_subdomain(bytes, check::CHARACTERS),
            Self::Dns1123SubdomainPrefix => {
                check::dns1123_subdomain(&check::masked(bytes), check::CHARACTERS)
            }
            Self::Dns1035Label => check::dns1035_label(bytes),
            Self::Dns1035LabelPrefix => check::dns1035_label(&check::masked(bytes)),
            Self::QualifiedName => check::qualified_name(text),
            Self::LabelValue => check::label_value(bytes),
            Self::Uri => match Url::parse_request_uri(text) {
                Ok(_) => Vec::new(),
                Err(error) => vec![error.to_string()],
            },
            Self::Uuid => unless(check::is_uuid(bytes), "does not match the UUID format"),
            Self::Byte => unless(check::is_base64(bytes), "invalid base64"),
            Self::Date => unless(check::is_date(bytes), "invalid date"),
            Self::DateTime => unless(check::is_date_time(text), "invalid datetime"),
        }
    }
}
