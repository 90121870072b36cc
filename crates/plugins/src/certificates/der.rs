//! A minimal DER parser for the subject of a certificate request.

use lockgate_go::base64;

/// The subject of a certificate request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) common_name: String,
    pub(crate) organizations: Vec<String>,
}

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OBJECT_ID: u8 = 0x06;
/// The object identifiers `2.5.4.3` and `2.5.4.10`.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// Parses the subject of the PEM data in `spec.request`, which is base64-encoded.
pub(crate) fn subject_of_request(request: &str) -> Result<Subject, &'static str> {
    let not_pem = "PEM block type must be CERTIFICATE REQUEST";
    let text = base64::decode(request).map_err(|_| not_pem)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (_, rest) = text.split_once(BEGIN).ok_or(not_pem)?;
    let (body, _) = rest.split_once(END).ok_or(not_pem)?;
    let body: String = body.split_ascii_whitespace().collect();
    let bytes = base64::decode(&body).map_err(|_| not_pem)?;
    subject(&bytes).ok_or("malformed certificate request")
}

/// Reads consecutive values.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    /// The next value, with its tag.
    fn next(&mut self) -> Option<(u8, &'b [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let length = if first < 0x80 {
            usize::from(first)
        } else {
            let count = usize::from(first & 0x7f);
            if count == 0 || count > 4 {
                return None;
            }
            let (bytes, after) = rest.split_at_checked(count)?;
            rest = after;
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
        };
        let (value, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some((tag, value))
    }

    fn expect(&mut self, tag: u8) -> Option<&'b [u8]> {
        self.next()
            .and_then(|(found, value)| (found == tag).then_some(value))
    }
}

fn subject(bytes: &[u8]) -> Option<Subject> {
    let mut request = Reader(Reader(bytes).expect(SEQUENCE)?);
    let mut info = Reader(request.expect(SEQUENCE)?);
    info.expect(INTEGER)?;
    let mut names = Reader(info.expect(SEQUENCE)?);
    let mut subject = Subject::default();
    while !names.0.is_empty() {
        let mut set = Reader(names.expect(SET)?);
        while !set.0.is_empty() {
            let mut pair = Reader(set.expect(SEQUENCE)?);
            let id = pair.expect(OBJECT_ID)?;
            let (_, value) = pair.next()?;
            let value = String::from_utf8_lossy(value).into_owned();
            if id == ORGANIZATION {
                subject.organizations.push(value);
            } else if id == COMMON_NAME {
                subject.common_name = value;
            }
        }
    }
    Some(subject)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_and_refuses_what_is_cut_off() {
        // SEQUENCE { SEQUENCE { INTEGER 0, SEQUENCE { SET { SEQUENCE { o, "ab" } }, SET { … cn, "c" } } } }
        let name = |id: &[u8], text: &str| {
            let mut pair = vec![OBJECT_ID, 3];
            pair.extend_from_slice(id);
            pair.extend_from_slice(&[0x0c, u8::try_from(text.len()).unwrap()]);
            pair.extend_from_slice(text.as_bytes());
            wrap(SET, &wrap(SEQUENCE, &pair))
        };
        fn wrap(tag: u8, value: &[u8]) -> Vec<u8> {
            let mut bytes = vec![tag, u8::try_from(value.len()).unwrap()];
            bytes.extend_from_slice(value);
            bytes
        }
        let names = [name(ORGANIZATION, "ab"), name(COMMON_NAME, "c")].concat();
        let mut info = vec![INTEGER, 1, 0];
        info.extend(wrap(SEQUENCE, &names));
        let request = wrap(SEQUENCE, &wrap(SEQUENCE, &info));
        let want = Subject {
            common_name: String::from("c"),
            organizations: vec![String::from("ab")],
        };
        assert_eq!(subject(&request), Some(want));
        for length in 0..request.len() {
            assert_eq!(subject(&request[..length]), None, "{length}");
        }
        assert!(subject_of_request("").is_err());
        assert!(subject_of_request("bm8=").is_err());
    }
}
