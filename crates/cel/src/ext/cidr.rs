//! Networks in CIDR notation, such as `10.0.0.0/8`.

use std::net::IpAddr;

use lockgate_go::number::atoi;
use lockgate_go::quote::quote;

use super::ip::{self, Ip};

/// An address with the length of its network prefix. Bits beyond the prefix are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    ip: Ip,
    bits: u8,
}

/// A string that is not a valid network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CidrError {
    text: String,
    reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    NoSlash,
    Address(lockgate_go::ip::ParseError),
    Zone,
    Bits(String),
    Range,
    Mapped,
}

// UPSTREAM: k8s.io/apiserver/pkg/cel/library/cidr.go has the prefix of most messages twice.
impl std::fmt::Display for CidrError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const PREFIX: &str = "network address parse error during conversion from string: ";
        let text = quote(&self.text);
        f.write_str(PREFIX)?;
        if self.reason == Reason::Mapped {
            return write!(f, "IPv4-mapped IPv6 address {text} is not allowed");
        }
        write!(f, "{PREFIX}netip.ParsePrefix({text}): ")?;
        match &self.reason {
            Reason::NoSlash => f.write_str("no '/'"),
            Reason::Address(error) => error.fmt(f),
            Reason::Zone => f.write_str("IPv6 zones cannot be present in a prefix"),
            Reason::Bits(bits) => write!(f, "bad bits after slash: {}", quote(bits)),
            Reason::Range | Reason::Mapped => f.write_str("prefix length out of range"),
        }
    }
}

impl std::error::Error for CidrError {}

impl Cidr {
    /// `cidr(text)`
    ///
    /// ```
    /// use lockgate_cel::ext::cidr::Cidr;
    /// let network = Cidr::parse("192.168.1.7/24").unwrap();
    /// assert_eq!(network.masked().to_string(), "192.168.1.0/24");
    /// ```
    ///
    /// # Errors
    ///
    /// A string that is not a network, has a zone, or is an IPv4-mapped IPv6 network.
    pub fn parse(text: &str) -> Result<Self, CidrError> {
        Self::read(text).map_err(|reason| CidrError {
            text: text.to_owned(),
            reason,
        })
    }

    fn read(text: &str) -> Result<Self, Reason> {
        let (address, bits) = text.rsplit_once('/').ok_or(Reason::NoSlash)?;
        let parsed = lockgate_go::ip::parse(address.as_bytes()).map_err(Reason::Address)?;
        if parsed.has_zone {
            return Err(Reason::Zone);
        }
        let bad = || Reason::Bits(bits.to_owned());
        if bits.len() > 1 && !bits.starts_with(|c| ('1'..='9').contains(&c)) {
            return Err(bad());
        }
        let bits = atoi(bits).map_err(|_| bad())?;
        let bits = u8::try_from(bits).map_err(|_| Reason::Range)?;
        if u32::from(bits) > width(parsed.address) {
            return Err(Reason::Range);
        }
        if ip::is_mapped(parsed.address) {
            return Err(Reason::Mapped);
        }
        Ok(Self {
            ip: Ip::new(parsed.address),
            bits,
        })
    }

    /// `isCIDR(text)`
    #[must_use]
    pub fn is_valid(text: &str) -> bool {
        Self::parse(text).is_ok()
    }

    /// `ip()`: the address, with the bits beyond the prefix.
    #[must_use]
    pub const fn ip(self) -> Ip {
        self.ip
    }

    /// `prefixLength()`
    #[must_use]
    pub fn prefix_length(self) -> i64 {
        i64::from(self.bits)
    }

    /// The bytes of the prefix, which is the size in cost estimates.
    #[must_use]
    pub fn size(self) -> u64 {
        u64::from(self.bits.div_ceil(8))
    }

    /// `masked()`: the network with the bits beyond the prefix cleared.
    #[must_use]
    pub fn masked(self) -> Self {
        let cleared = match self.ip.address() {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4((v4.to_bits() & mask).into())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.bits))
                    .unwrap_or(0);
                IpAddr::V6((v6.to_bits() & mask).into())
            }
        };
        Self {
            ip: Ip::new(cleared),
            bits: self.bits,
        }
    }

    /// `containsIP(ip)`: false if the address families differ.
    #[must_use]
    pub fn contains_ip(self, ip: Ip) -> bool {
        ip.family() == self.ip.family()
            && Self {
                ip,
                bits: self.bits,
            }
            .masked()
                == self.masked()
    }

    /// `containsIP(text)`, or `None` if the string is not an address.
    ///
    /// Upstream then returns `no such overload` instead of the parse error.
    #[must_use]
    pub fn contains_ip_text(self, text: &str) -> Option<bool> {
        Ip::parse(text).ok().map(|ip| self.contains_ip(ip))
    }

    /// `containsCIDR(cidr)`
    #[must_use]
    pub fn contains_cidr(self, other: Self) -> bool {
        self.bits <= other.bits && self.contains_ip(other.ip)
    }

    /// `containsCIDR(text)`
    ///
    /// # Errors
    ///
    /// As [`Cidr::parse`].
    pub fn contains_cidr_text(self, text: &str) -> Result<bool, CidrError> {
        Ok(self.contains_cidr(Self::parse(text)?))
    }
}

/// Prints the address and the length of the prefix, as `string(cidr)` does.
impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.ip, self.bits)
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        Cidr::parse(text).unwrap()
    }

    #[test]
    fn masks_and_contains() {
        assert_eq!(cidr("10.1.2.3/8").masked().to_string(), "10.0.0.0/8");
        assert_eq!(
            cidr("2001:db8:ffff::/33").masked().to_string(),
            "2001:db8:8000::/33"
        );
        assert_eq!(cidr("255.255.255.255/0").masked().to_string(), "0.0.0.0/0");
        assert_eq!(cidr("::1/128").masked().to_string(), "::1/128");
        assert_eq!(cidr("10.1.2.3/8").ip().to_string(), "10.1.2.3");
        assert_eq!(cidr("10.0.0.0/9").size(), 2);
        for (network, inner, contains) in [
            ("10.0.0.0/8", "10.9.9.9/32", true),
            ("10.0.0.0/8", "10.0.0.0/8", true),
            ("10.0.0.0/8", "10.0.0.0/7", false),
            ("10.0.0.0/8", "11.0.0.0/9", false),
            ("0.0.0.0/0", "::/0", false),
            ("::/0", "2001:db8::/32", true),
        ] {
            assert_eq!(
                cidr(network).contains_cidr(cidr(inner)),
                contains,
                "{network} {inner}"
            );
        }
        assert_eq!(cidr("10.0.0.0/8").contains_ip_text("10.1.1.1"), Some(true));
        assert_eq!(cidr("10.0.0.0/8").contains_ip_text("::1"), Some(false));
        assert_eq!(cidr("10.0.0.0/8").contains_ip_text("nope"), None);
        assert_ne!(cidr("10.0.0.1/8"), cidr("10.0.0.0/8"));
    }

    #[test]
    fn explains_what_is_no_network() {
        const PREFIX: &str = "network address parse error during conversion from string: ";
        for (text, want) in [
            ("10.0.0.0", "netip.ParsePrefix(\"10.0.0.0\"): no '/'"),
            (
                "10.0.0/8",
                "netip.ParsePrefix(\"10.0.0/8\"): ParseAddr(\"10.0.0\"): IPv4 address too short",
            ),
            (
                "10.0.0.0/",
                "netip.ParsePrefix(\"10.0.0.0/\"): bad bits after slash: \"\"",
            ),
            (
                "10.0.0.0/08",
                "netip.ParsePrefix(\"10.0.0.0/08\"): bad bits after slash: \"08\"",
            ),
            (
                "10.0.0.0/+8",
                "netip.ParsePrefix(\"10.0.0.0/+8\"): bad bits after slash: \"+8\"",
            ),
            (
                "10.0.0.0/33",
                "netip.ParsePrefix(\"10.0.0.0/33\"): prefix length out of range",
            ),
            (
                "fe80::1%eth0/64",
                "netip.ParsePrefix(\"fe80::1%eth0/64\"): IPv6 zones cannot be present in a prefix",
            ),
        ] {
            let error = Cidr::parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("{PREFIX}{PREFIX}{want}"), "{text}");
        }
        let mapped = Cidr::parse("::ffff:10.0.0.0/104").unwrap_err().to_string();
        let want = "IPv4-mapped IPv6 address \"::ffff:10.0.0.0/104\" is not allowed";
        assert_eq!(mapped, format!("{PREFIX}{want}"));
    }
}
