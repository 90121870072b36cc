//! Binds the functions of Kubernetes' libraries to their names.

use std::sync::Arc;

use lockgate_api::access::Decision;
use lockgate_go::quantity::Quantity;
use lockgate_go::url::Url;

use crate::eval::cost::Argument;
use crate::eval::functions::Implementation;
use crate::ext;
use crate::ext::authorizer::{AuthorizerValue, GroupCheck, ResourceCheck, ResourcePart};
use crate::ext::cidr::Cidr;
use crate::ext::ip::Ip;
use crate::ext::named_format::NamedFormat;
use crate::ext::semver::Semver;
use crate::value::{Error, Map, Opaque, Value};

/// Defines how an argument is converted to a library type.
macro_rules! taken {
    ($name:ident, $variant:ident, $of:ty) => {
        fn $name<'v>(value: &'v Value<'_>) -> Result<&'v $of, Error> {
            match value {
                Value::Opaque(opaque) => match &**opaque {
                    Opaque::$variant(inner) => Ok(inner),
                    _ => Err(Error::no_such_overload()),
                },
                _ => Err(Error::no_such_overload()),
            }
        }
    };
}

taken!(quantity, Quantity, Quantity);
taken!(ip, Ip, Ip);
taken!(cidr, Cidr, Cidr);
taken!(url, Url, Url);
taken!(semver, Semver, Semver);
taken!(format, Format, NamedFormat);
taken!(authorizer, Authorizer, AuthorizerValue);
taken!(group, GroupCheck, GroupCheck);
taken!(resource, ResourceCheck, ResourceCheck);
taken!(decision, Decision, Decision);

fn text<'v>(value: &'v Value<'_>) -> Result<&'v str, Error> {
    value.as_str().ok_or_else(Error::no_such_overload)
}

fn one<'v, 'a>(args: &'v [Value<'a>]) -> Result<&'v Value<'a>, Error> {
    match args {
        [only] => Ok(only),
        _ => Err(Error::no_such_overload()),
    }
}

fn two<'v, 'a>(args: &'v [Value<'a>]) -> Result<(&'v Value<'a>, &'v Value<'a>), Error> {
    match args {
        [a, b] => Ok((a, b)),
        _ => Err(Error::no_such_overload()),
    }
}

fn opaque<'a, T, E: std::fmt::Display>(made: Result<T, E>, wrap: fn(T) -> Opaque) -> Argument<'a> {
    made.map(|inner| wrap(inner).into()).map_err(Error::text)
}

pub(super) fn find(overload: &str) -> Option<Implementation> {
    if let Some(name) = overload.strip_prefix("format.") {
        return named_format(name);
    }
    quantities(overload)
        .or_else(|| networks(overload))
        .or_else(|| urls_and_versions(overload))
        .or_else(|| authorization(overload))
}

fn quantities(overload: &str) -> Option<Implementation> {
    Some(match overload {
        "string_to_quantity" => {
            |_, args| opaque(Quantity::parse(text(one(args)?)?), Opaque::Quantity)
        }
        "is_quantity_string" => |_, args| Ok(Quantity::is_valid(text(one(args)?)?).into()),
        "quantity_sign" => |_, args| Ok(quantity(one(args)?)?.sign().into()),
        "quantity_is_greater_than" => |_, args| {
            let (a, b) = two(args)?;
            Ok(quantity(a)?.compare(quantity(b)?).is_gt().into())
        },
        "quantity_is_less_than" => |_, args| {
            let (a, b) = two(args)?;
            Ok(quantity(a)?.compare(quantity(b)?).is_lt().into())
        },
        "quantity_compare_to" => |_, args| {
            let (a, b) = two(args)?;
            Ok((quantity(a)?.compare(quantity(b)?) as i64).into())
        },
        "quantity_get_float" => {
            |_, args| Ok(Value::Double(quantity(one(args)?)?.as_approximate_float()))
        }
        "quantity_get_int" => |_, args| {
            quantity(one(args)?)?
                .as_integer()
                .map(Value::Int)
                .map_err(Error::text)
        },
        "quantity_is_integer" => |_, args| Ok(quantity(one(args)?)?.is_integer().into()),
        "quantity_add" => |_, args| {
            let (a, b) = two(args)?;
            opaque(quantity(a)?.add(quantity(b)?), Opaque::Quantity)
        },
        "quantity_sub" => |_, args| {
            let (a, b) = two(args)?;
            opaque(quantity(a)?.sub(quantity(b)?), Opaque::Quantity)
        },
        "quantity_add_int" => |_, args| match args {
            [a, Value::Int(b)] => opaque(quantity(a)?.add_int(*b), Opaque::Quantity),
            _ => Err(Error::no_such_overload()),
        },
        "quantity_sub_int" => |_, args| match args {
            [a, Value::Int(b)] => opaque(quantity(a)?.sub_int(*b), Opaque::Quantity),
            _ => Err(Error::no_such_overload()),
        },
        _ => return None,
    })
}

fn networks(overload: &str) -> Option<Implementation> {
    Some(match overload {
        "string_to_ip" => |_, args| opaque(Ip::parse(text(one(args)?)?), Opaque::Ip),
        "is_ip" => |_, args| Ok(Ip::is_valid(text(one(args)?)?).into()),
        "ip_is_canonical" => |_, args| {
            Ip::is_canonical(text(one(args)?)?)
                .map(Value::Bool)
                .map_err(Error::text)
        },
        "ip_family" => |_, args| Ok(ip(one(args)?)?.family().into()),
        "ip_is_unspecified" => |_, args| Ok(ip(one(args)?)?.is_unspecified().into()),
        "ip_is_loopback" => |_, args| Ok(ip(one(args)?)?.is_loopback().into()),
        "ip_is_link_local_multicast" => {
            |_, args| Ok(ip(one(args)?)?.is_link_local_multicast().into())
        }
        "ip_is_link_local_unicast" => |_, args| Ok(ip(one(args)?)?.is_link_local_unicast().into()),
        "ip_is_global_unicast" => |_, args| Ok(ip(one(args)?)?.is_global_unicast().into()),
        "string_to_cidr" => |_, args| opaque(Cidr::parse(text(one(args)?)?), Opaque::Cidr),
        "is_cidr" => |_, args| Ok(Cidr::is_valid(text(one(args)?)?).into()),
        "cidr_ip" => |_, args| Ok(Opaque::Ip(cidr(one(args)?)?.ip()).into()),
        "cidr_masked" => |_, args| Ok(Opaque::Cidr(cidr(one(args)?)?.masked()).into()),
        "cidr_prefix_length" => |_, args| Ok(cidr(one(args)?)?.prefix_length().into()),
        "cidr_contains_ip_ip" => |_, args| {
            let (network, address) = two(args)?;
            Ok(cidr(network)?.contains_ip(*ip(address)?).into())
        },
        "cidr_contains_ip_string" => |_, args| {
            let (network, address) = two(args)?;
            let contained = cidr(network)?.contains_ip_text(text(address)?);
            contained
                .map(Value::Bool)
                .ok_or_else(Error::no_such_overload)
        },
        "cidr_contains_cidr" => |_, args| {
            let (network, other) = two(args)?;
            Ok(cidr(network)?.contains_cidr(*cidr(other)?).into())
        },
        "cidr_contains_cidr_string" => |_, args| {
            let (network, other) = two(args)?;
            let contained = cidr(network)?.contains_cidr_text(text(other)?);
            contained.map(Value::Bool).map_err(Error::text)
        },
        _ => return None,
    })
}

fn urls_and_versions(overload: &str) -> Option<Implementation> {
    Some(match overload {
        "string_to_url" => |_, args| opaque(ext::url::parse(text(one(args)?)?), Opaque::Url),
        "string_jsonpatch_escapeKey_string" => |_, args| {
            Ok(text(one(args)?)?
                .replace('~', "~0")
                .replace('/', "~1")
                .into())
        },
        "is_url_string" => |_, args| Ok(ext::url::is_valid(text(one(args)?)?).into()),
        "url_get_scheme" => |_, args| Ok(url(one(args)?)?.scheme().to_owned().into()),
        "url_get_host" => |_, args| Ok(url(one(args)?)?.host().into()),
        "url_get_hostname" => |_, args| Ok(url(one(args)?)?.hostname().into()),
        "url_get_port" => |_, args| Ok(url(one(args)?)?.port().into()),
        "url_get_escaped_path" => |_, args| Ok(url(one(args)?)?.escaped_path().into()),
        "url_get_query" => |_, args| {
            let mut query = Map::default();
            for (key, values) in url(one(args)?)?.query() {
                query.insert(key.into(), Value::texts(values));
            }
            Ok(Value::Map(Arc::new(query)))
        },
        "string_to_semver" => |_, args| opaque(Semver::parse(text(one(args)?)?), Opaque::Semver),
        "string_bool_to_semver" => |_, args| match args {
            [version, Value::Bool(true)] => {
                opaque(Semver::parse_normalized(text(version)?), Opaque::Semver)
            }
            [version, Value::Bool(false)] => opaque(Semver::parse(text(version)?), Opaque::Semver),
            _ => Err(Error::no_such_overload()),
        },
        "is_semver_string" => |_, args| Ok(Semver::is_valid(text(one(args)?)?).into()),
        "is_semver_string_bool" => |_, args| match args {
            [version, Value::Bool(true)] => Ok(Semver::is_valid_normalized(text(version)?).into()),
            [version, Value::Bool(false)] => Ok(Semver::is_valid(text(version)?).into()),
            _ => Err(Error::no_such_overload()),
        },
        "semver_is_greater_than" => |_, args| {
            let (a, b) = two(args)?;
            Ok(semver(a)?.compare(semver(b)?).is_gt().into())
        },
        "semver_is_less_than" => |_, args| {
            let (a, b) = two(args)?;
            Ok(semver(a)?.compare(semver(b)?).is_lt().into())
        },
        "semver_compare_to" => |_, args| {
            let (a, b) = two(args)?;
            Ok((semver(a)?.compare(semver(b)?) as i64).into())
        },
        "semver_major" => |_, args| Ok(semver(one(args)?)?.major().into()),
        "semver_minor" => |_, args| Ok(semver(one(args)?)?.minor().into()),
        "semver_patch" => |_, args| Ok(semver(one(args)?)?.patch().into()),
        _ => return None,
    })
}

fn named_format(name: &str) -> Option<Implementation> {
    macro_rules! formats {
        ($($name:literal => $format:ident),*) => {
            match name {
                $($name => Some(|_, _| Ok(Opaque::Format(NamedFormat::$format).into())),)*
                _ => None,
            }
        };
    }
    formats! {
        "dns1123Label" => Dns1123Label,
        "dns1123LabelPrefix" => Dns1123LabelPrefix,
        "dns1123Subdomain" => Dns1123Subdomain,
        "dns1123SubdomainPrefix" => Dns1123SubdomainPrefix,
        "dns1035Label" => Dns1035Label,
        "dns1035LabelPrefix" => Dns1035LabelPrefix,
        "qualifiedName" => QualifiedName,
        "labelValue" => LabelValue,
        "uri" => Uri,
        "uuid" => Uuid,
        "byte" => Byte,
        "date" => Date,
        "datetime" => DateTime
    }
}

fn part<'a>(args: &[Value<'a>], part: ResourcePart) -> Argument<'a> {
    let (check, value) = two(args)?;
    Ok(Opaque::ResourceCheck(resource(check)?.with(part, text(value)?)).into())
}

fn authorization(overload: &str) -> Option<Implementation> {
    Some(match overload {
        "format-validate" => |_, args| {
            let (named, value) = two(args)?;
            let wrong = format(named)?.validate(text(value)?);
            Ok(if wrong.is_empty() {
                Value::Optional(None)
            } else {
                Value::some(Value::texts(wrong))
            })
        },
        "format-named" => |_, args| {
            let found = NamedFormat::from_name(text(one(args)?)?);
            Ok(found.map_or(Value::Optional(None), |f| {
                Value::some(Opaque::Format(f).into())
            }))
        },
        "authorizer_path" => |_, args| {
            let (asker, path) = two(args)?;
            opaque(authorizer(asker)?.path(text(path)?), Opaque::PathCheck)
        },
        "authorizer_group" => |_, args| {
            let (asker, name) = two(args)?;
            Ok(Opaque::GroupCheck(authorizer(asker)?.group(text(name)?)).into())
        },
        "authorizer_serviceaccount" => |_, args| match args {
            [asker, namespace, name] => opaque(
                authorizer(asker)?.service_account(text(namespace)?, text(name)?),
                Opaque::Authorizer,
            ),
            _ => Err(Error::no_such_overload()),
        },
        "groupcheck_resource" => |_, args| {
            let (check, name) = two(args)?;
            opaque(group(check)?.resource(text(name)?), Opaque::ResourceCheck)
        },
        "resourcecheck_subresource" => |_, args| part(args, ResourcePart::Subresource),
        "resourcecheck_namespace" => |_, args| part(args, ResourcePart::Namespace),
        "resourcecheck_name" => |_, args| part(args, ResourcePart::Name),
        "authorizer_fieldselector" => |_, args| part(args, ResourcePart::FieldSelector),
        "authorizer_labelselector" => |_, args| part(args, ResourcePart::LabelSelector),
        "pathcheck_check" => |_, args| match args {
            [Value::Opaque(check), verb] => match &**check {
                Opaque::PathCheck(check) => Ok(Opaque::Decision(check.check(text(verb)?)).into()),
                _ => Err(Error::no_such_overload()),
            },
            _ => Err(Error::no_such_overload()),
        },
        "resourcecheck_check" => |_, args| {
            let (check, verb) = two(args)?;
            Ok(Opaque::Decision(resource(check)?.check(text(verb)?)).into())
        },
        "decision_allowed" => |_, args| Ok(decision(one(args)?)?.allowed.into()),
        "decision_errored" => |_, args| Ok(decision(one(args)?)?.error.is_some().into()),
        "decision_error" => |_, args| {
            Ok(decision(one(args)?)?
                .error
                .clone()
                .unwrap_or_default()
                .into())
        },
        "decision_reason" => |_, args| Ok(decision(one(args)?)?.reason.clone().into()),
        _ => return None,
    })
}
