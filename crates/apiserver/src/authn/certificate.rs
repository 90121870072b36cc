//! The user of a verified client certificate.

use lockgate_api::admission::UserInfo;
use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{AttributeTypeAndValue, FromDer as _, X509Certificate};

/// The extra key for the certificate of a user.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The subject attribute with the user's UID.
///
/// UPSTREAM: apimachinery pkg/apis/asn1/oid.go
const UID: &str = "1.3.6.1.4.1.57683.2";
const COMMON_NAME: &str = "2.5.4.3";
const ORGANIZATION: &str = "2.5.4.10";

/// A certificate without a readable user. It is rejected, as a missing group may be one that restricts permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("cannot parse the certificate")]
    Certificate,
    #[error("the subject contains a name that is not text")]
    Name,
    #[error("the subject has an empty uid, or more than one")]
    Uid,
}

/// The common name is the username, the organizations are the groups. `None` without a common name.
///
/// UPSTREAM: apiserver pkg/authentication/request/x509/x509.go (`CommonNameUserConversion`)
pub(super) fn user(certificate: &CertificateDer<'_>) -> Result<Option<UserInfo>, Unreadable> {
    let (_, parsed) =
        X509Certificate::from_der(certificate).map_err(|_| Unreadable::Certificate)?;
    let (mut username, mut groups, mut uids) = (String::new(), Vec::new(), Vec::new());
    for attribute in parsed.subject().iter_attributes() {
        match attribute.attr_type().to_id_string().as_str() {
            // Go uses the last one.
            COMMON_NAME => username = text(attribute)?,
            ORGANIZATION => groups.push(text(attribute)?),
            UID => uids.push(text(attribute)?),
            _ => {}
        }
    }
    if username.is_empty() {
        return Ok(None);
    }
    let uid = match uids.as_slice() {
        [] => String::new(),
        [uid] if !uid.is_empty() => uid.clone(),
        _ => return Err(Unreadable::Uid),
    };
    let digest = Sha256::digest(certificate);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let credential = vec![format!("X509SHA256={digest}")];
    Ok(Some(UserInfo {
        username,
        uid,
        groups: Some(groups),
        extra: Some([(CREDENTIAL_ID.to_owned(), credential)].into()),
    }))
}

fn text(attribute: &AttributeTypeAndValue<'_>) -> Result<String, Unreadable> {
    let text = attribute.as_str().map_err(|_| Unreadable::Name)?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    use super::*;

    fn user_of(subject: &[(DnType, DnValue)]) -> Result<Option<UserInfo>, Unreadable> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        user(certificate.der())
    }

    fn uid(value: &str) -> (DnType, DnValue) {
        let oid = vec![1, 3, 6, 1, 4, 1, 57683, 2];
        (DnType::CustomDnType(oid), value.into())
    }

    #[test]
    fn reads_the_subject_as_upstream_does() {
        let ann = (DnType::CommonName, DnValue::from("ann"));
        let group = (DnType::OrganizationName, DnValue::from("dev"));
        let found = user_of(&[ann.clone(), group.clone(), uid("u-1")])
            .unwrap()
            .unwrap();
        assert_eq!(
            (found.username.as_str(), found.uid.as_str()),
            ("ann", "u-1")
        );
        assert_eq!(found.groups.unwrap(), ["dev"]);
        assert_eq!(user_of(&[group]).unwrap(), None);
        assert_eq!(user_of(&[(DnType::CommonName, "".into())]).unwrap(), None);
        assert_eq!(user_of(&[ann.clone(), uid("")]), Err(Unreadable::Uid));
        let wide = rcgen::string::BmpString::try_from("masters").unwrap();
        let unreadable = (DnType::OrganizationName, DnValue::BmpString(wide));
        assert_eq!(user_of(&[ann, unreadable]), Err(Unreadable::Name));
        assert_eq!(
            user(&CertificateDer::from(vec![1, 2])),
            Err(Unreadable::Certificate)
        );
    }
}
