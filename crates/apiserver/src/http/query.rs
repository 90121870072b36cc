//! The query of a request as a list of decoded pairs.

/// Decoded pairs, in order. A pair that cannot be decoded is skipped, as in Go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the text after `?`.
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';'));
        Self(
            pairs
                .filter_map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    Some((unescape(key, true)?, unescape(value, true)?))
                })
                .collect(),
        )
    }

    /// The first value of a key.
    pub(crate) fn first(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|pair| pair.0 == key)
            .map(|(_, value)| value.as_str())
    }

    /// All values of a key.
    pub(crate) fn all<'q>(&'q self, key: &'q str) -> impl Iterator<Item = &'q str> {
        let same = move |pair: &&(String, String)| pair.0 == key;
        self.0.iter().filter(same).map(|(_, value)| value.as_str())
    }

    /// The first value of a key, if any.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.first(key).unwrap_or_default()
    }

    /// Parses a boolean as upstream does: everything except false values is true.
    ///
    /// UPSTREAM: apimachinery pkg/runtime/converter.go (Convert_Slice_string_To_bool)
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.first(key)
            .map(|value| !value.eq_ignore_ascii_case("false") && value != "0")
    }
}

/// Decodes `%41`, and `+` as a space. Invalid UTF-8 is rejected.
pub(crate) fn unescape(text: &str, plus_is_blank: bool) -> Option<String> {
    if !text.contains(['%', '+']) {
        return Some(text.to_owned());
    }
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
                u8::try_from(high * 16 + low).ok()?
            }
            b'+' if plus_is_blank => b' ',
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_pairs() {
        let query = Query::parse("a=1&b=x%20y+z&a=2&bad=%zz&flag&semi;colon=1");
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(query.text("b"), "x y z");
        assert_eq!(query.first("bad"), None);
        assert_eq!(query.first("flag"), Some(""));
        assert_eq!(query.flag("flag"), Some(true));
        assert_eq!(query.first("semi"), None);
    }

    #[test]
    fn reads_yes_and_no() {
        for (text, want) in [
            ("w=1", true),
            ("w=true", true),
            ("w=False", false),
            ("w=0", false),
        ] {
            assert_eq!(Query::parse(text).flag("w"), Some(want), "{text}");
        }
        assert_eq!(Query::default().flag("w"), None);
    }
}
