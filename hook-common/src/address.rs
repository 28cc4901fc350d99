//! Which network addresses a delivery may reach.
//!
//! The rule is "public unicast, or opened by the operator". Everything that the IANA registers as
//! special, everything that wraps an IPv4 address in an IPv6 one, and the well-known inner service
//! of a cloud on a public address is refused. The judgement is on an address alone: whoever
//! connects must ask about the very address that it is about to use.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use thiserror::Error;

/// A block of addresses that is not public unicast: first address, prefix length, what it is for.
type Block<A> = (A, u8, &'static str);

/// Special-purpose IPv4 blocks. Blocks inside a listed one are not listed again.
const SPECIAL_V4: &[Block<Ipv4Addr>] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this network"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private use"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "shared by carriers"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    // One cloud's agent, DNS and health probe, on a public address.
    (
        Ipv4Addr::new(168, 63, 129, 16),
        32,
        "a cloud's inner service",
    ),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private use"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "protocol assignments"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation"),
    (Ipv4Addr::new(192, 31, 196, 0), 24, "AS112"),
    (Ipv4Addr::new(192, 52, 193, 0), 24, "multicast tunnels"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "6to4 relays"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private use"),
    (Ipv4Addr::new(192, 175, 48, 0), 24, "AS112"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmarks"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    // The limited broadcast address is the last of these.
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// Special-purpose IPv6 blocks that deserve a name outside `2000::/3`, and all of those inside it.
const SPECIAL_V6: &[Block<Ipv6Addr>] = &[
    (Ipv6Addr::UNSPECIFIED, 128, "unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (v6([0, 0, 0, 0, 0, 0xffff, 0, 0]), 96, "IPv4-mapped"),
    (v6([0, 0, 0, 0, 0xffff, 0, 0, 0]), 96, "IPv4-translated"),
    (Ipv6Addr::UNSPECIFIED, 96, "IPv4-compatible"),
    (v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0]), 96, "NAT64"),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0]), 48, "local NAT64"),
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0]), 64, "discard"),
    (v6([0x100, 0, 0, 1, 0, 0, 0, 0]), 64, "dummy prefix"),
    // Teredo, ORCHID, benchmarks, AMT, AS112 and anycast services are all in here.
    (
        v6([0x2001, 0, 0, 0, 0, 0, 0, 0]),
        23,
        "protocol assignments",
    ),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0]), 32, "documentation"),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0]), 16, "6to4"),
    (v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0]), 48, "AS112"),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0]), 20, "documentation"),
    (v6([0x5f00, 0, 0, 0, 0, 0, 0, 0]), 16, "segment routing"),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0]), 7, "unique local"),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0]), 10, "link-local"),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0]), 10, "site-local"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0]), 8, "multicast"),
];

/// The only part of IPv6 that is handed out as global unicast.
const GLOBAL_UNICAST_V6: (Ipv6Addr, u8) = (v6([0x2000, 0, 0, 0, 0, 0, 0, 0]), 3);

/// What `address` is reserved for; `None` means public unicast.
#[must_use]
pub fn special_purpose(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => SPECIAL_V4
            .iter()
            .find(|(base, bits, _)| within_v4(v4, *base, *bits))
            .map(|(_, _, purpose)| *purpose),
        IpAddr::V6(v6) => SPECIAL_V6
            .iter()
            .find(|(base, bits, _)| within_v6(v6, *base, *bits))
            .map(|(_, _, purpose)| *purpose)
            .or_else(|| {
                let (base, bits) = GLOBAL_UNICAST_V6;
                (!within_v6(v6, base, bits)).then_some("not assigned")
            }),
    }
}

/// Whether `address` is public unicast.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    special_purpose(address).is_none()
}

/// The networks that an operator has opened besides the public Internet.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AllowNets(Vec<IpNet>);

/// An entry of the setting that is not a network.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("'{0}' is not a network: write an address and a prefix length, such as 10.0.0.0/8")]
pub struct NotANetwork(pub String);

impl From<Vec<IpNet>> for AllowNets {
    fn from(nets: Vec<IpNet>) -> Self {
        Self(nets)
    }
}

impl AllowNets {
    /// Reads comma-separated networks; an address alone is a network of one.
    ///
    /// # Errors
    /// Names the first entry that is not a network.
    pub fn parse(text: &str) -> Result<Self, NotANetwork> {
        text.split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
            .map(|entry| {
                IpNet::from_str(entry)
                    .map(|net| net.trunc())
                    .or_else(|_| IpAddr::from_str(entry).map(IpNet::from))
                    .map_err(|_| NotANetwork(entry.to_owned()))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether nothing has been opened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a delivery may connect to `address`: it is public unicast, or opened.
    ///
    /// An IPv4-mapped address reaches the IPv4 address inside it, so a network that opens the
    /// inner address opens the mapped one too. No other embedding is looked into.
    #[must_use]
    pub fn is_allowed(&self, address: IpAddr) -> bool {
        is_public(address) || self.opens(address) || self.opens(address.to_canonical())
    }

    fn opens(&self, address: IpAddr) -> bool {
        self.0.iter().any(|net| net.contains(&address))
    }
}

const fn v6(segments: [u16; 8]) -> Ipv6Addr {
    let [a, b, c, d, e, f, g, h] = segments;
    Ipv6Addr::new(a, b, c, d, e, f, g, h)
}

fn within_v4(address: Ipv4Addr, base: Ipv4Addr, bits: u8) -> bool {
    (address.to_bits() ^ base.to_bits()) >> (32 - u32::from(bits)) == 0
}

fn within_v6(address: Ipv6Addr, base: Ipv6Addr, bits: u8) -> bool {
    (address.to_bits() ^ base.to_bits()) >> (128 - u32::from(bits)) == 0
}

#[cfg(test)]
mod tests;
