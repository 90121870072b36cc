//! IP addresses, parsed like Go's `net/netip` and with Kubernetes' restrictions.

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use lockgate_go::quote::quote;

use lockgate_go::ip::{ParseError, parse};

/// An IPv4 or IPv6 address, without a zone and not IPv4-mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ip {
    address: IpAddr,
}

/// A string that is not a valid address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpError {
    text: String,
    reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    Parse(ParseError),
    Zone,
    Mapped,
}

// UPSTREAM: k8s.io/apiserver/pkg/cel/library/ip.go (parseIPAddr).
impl std::fmt::Display for IpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = quote(&self.text);
        match &self.reason {
            Reason::Parse(error) => {
                write!(
                    f,
                    "IP Address {text} parse error during conversion from string: {error}"
                )
            }
            Reason::Zone => write!(f, "IP address {text} with zone value is not allowed"),
            Reason::Mapped => write!(f, "IPv4-mapped IPv6 address {text} is not allowed"),
        }
    }
}

impl std::error::Error for IpError {}

impl Ip {
    pub(super) const fn new(address: IpAddr) -> Self {
        Self { address }
    }

    pub(super) const fn address(self) -> IpAddr {
        self.address
    }

    /// `ip(text)`
    ///
    /// ```
    /// use lockgate_cel::ext::ip::Ip;
    /// assert_eq!(Ip::parse("2001:DB8::0:1").unwrap().to_string(), "2001:db8::1");
    /// ```
    ///
    /// # Errors
    ///
    /// A string that is not an address, has a zone, or is an IPv4-mapped IPv6 address.
    pub fn parse(text: &str) -> Result<Self, IpError> {
        let error = |reason| IpError {
            text: text.to_owned(),
            reason,
        };
        let parsed = parse(text.as_bytes()).map_err(|e| error(Reason::Parse(e)))?;
        if parsed.has_zone {
            return Err(error(Reason::Zone));
        }
        if is_mapped(parsed.address) {
            return Err(error(Reason::Mapped));
        }
        Ok(Self {
            address: parsed.address,
        })
    }

    /// `isIP(text)`
    #[must_use]
    pub fn is_valid(text: &str) -> bool {
        Self::parse(text).is_ok()
    }

    /// `ip.isCanonical(text)`: returns true if the address is in canonical form.
    ///
    /// # Errors
    ///
    /// As [`Ip::parse`].
    pub fn is_canonical(text: &str) -> Result<bool, IpError> {
        Ok(Self::parse(text)?.to_string() == text)
    }

    /// `family()`: 4 or 6.
    #[must_use]
    pub const fn family(self) -> i64 {
        if self.address.is_ipv4() { 4 } else { 6 }
    }

    /// The bytes of the address, which is the size in cost estimates.
    #[must_use]
    pub const fn size(self) -> u64 {
        if self.address.is_ipv4() { 4 } else { 16 }
    }

    /// `isUnspecified()`
    #[must_use]
    pub fn is_unspecified(self) -> bool {
        self.address.is_unspecified()
    }

    /// `isLoopback()`
    #[must_use]
    pub fn is_loopback(self) -> bool {
        self.address.is_loopback()
    }

    /// `isLinkLocalMulticast()`
    #[must_use]
    pub fn is_link_local_multicast(self) -> bool {
        match self.address {
            IpAddr::V4(v4) => matches!(v4.octets(), [224, 0, 0, _]),
            IpAddr::V6(v6) => v6.segments().first().is_some_and(|s| s & 0xff0f == 0xff02),
        }
    }

    /// `isLinkLocalUnicast()`
    #[must_use]
    pub fn is_link_local_unicast(self) -> bool {
        match self.address {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        }
    }

    /// `isGlobalUnicast()`: includes private addresses.
    #[must_use]
    pub fn is_global_unicast(self) -> bool {
        let broadcast = matches!(self.address, IpAddr::V4(v4) if v4.is_broadcast());
        !broadcast
            && !self.is_unspecified()
            && !self.is_loopback()
            && !self.address.is_multicast()
            && !self.is_link_local_unicast()
    }
}

/// Prints the canonical form, as `string(ip)` does.
impl std::fmt::Display for Ip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.address.fmt(f)
    }
}

/// Returns true for an IPv4-mapped IPv6 address.
pub(super) fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}
