//! Which URLs a job may be sent to, and the one spelling that is kept of each.
//!
//! A URL is judged as the WHATWG parser sees it, because the same parser decides where a delivery
//! goes: forms such as `http:10.0.0.1`, `http://0x7f000001/` or backslashes have no meaning of
//! their own here. What the parser would silently drop or repair (control characters, spaces,
//! trailing dots) is refused or spelled out, so that the URL that is stored is the URL that is
//! sent. Names are not resolved here: the worker judges each address that it connects to.
//!
//! The worker asks [`check`] and [`forbidden`] again at each delivery, for rows made by SQL.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use url::{Host, Url};

use crate::address::{self, AllowNets};
use crate::problem::{Code, Problem};
use crate::target::Target;

/// Longest URL, as given and as normalised.
pub const URL_BYTES_MAX: usize = 8 * 1024;
/// Longest host name, without a trailing dot.
const NAME_BYTES_MAX: usize = 253;
/// Longest user name and password together, so that the header made of them is within its limit.
const USER_INFO_BYTES_MAX: usize = 4 * 1024;
/// Longest part of a host name between dots.
const LABEL_BYTES_MAX: usize = 63;

/// Ports from 1024 on that browsers refuse (the fetch standard's "bad ports"), in order: a line
/// protocol behind them could take a request for commands.
const BAD_PORTS: &[u16] = &[
    1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669,
    6679, 6697, 10080,
];

/// Endings of names that only mean something inside a private network.
const INNER_ENDINGS: &[&str] = &[".localhost", ".local", ".internal", ".svc"];

/// A URL that follows the rules, taken apart.
#[derive(Clone, Eq, PartialEq)]
pub struct CheckedUrl {
    /// The URL in its one spelling, without user info, fragment and trailing dot of the host.
    pub url: String,
    /// The destination key: the host, an IPv6 address without brackets, and as the IPv4 address
    /// that it stands for if it does.
    pub target: Target,
    /// `http` or `https`.
    pub scheme: Scheme,
    /// What the host is.
    pub host: CheckedHost,
    /// The port to connect to, written or implied.
    pub port: u16,
    /// The value of the `authorization` header that the user info stands for. A secret.
    pub basic: Option<String>,
}

/// The schemes that can be sent to.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Scheme {
    /// Clear text.
    Http,
    /// TLS.
    Https,
}

/// A host in the spelling that the `host` header and SNI show.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CheckedHost {
    /// A name: lower case, punycode, no trailing dot.
    Name(String),
    /// An address, however it was written.
    Address(IpAddr),
}

/// Shows no more than the scheme and the host: path, query and user info may be secrets.
impl fmt::Debug for CheckedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedUrl")
            .field("scheme", &self.scheme)
            .field("host", &self.host)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// Judges `text` and brings it into its one spelling.
///
/// Checking the resulting URL again gives the same URL.
///
/// # Errors
/// Says which rule was broken (`url_invalid`, `scheme_forbidden` or `port_forbidden`), with an
/// empty pointer.
pub fn check(text: &str) -> Result<CheckedUrl, Problem> {
    refuse_raw(text)?;
    refuse_scheme(text)?;
    let mut url = Url::parse(text).map_err(|_| invalid("must be an absolute http or https URL"))?;
    let scheme = match url.scheme() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return Err(scheme_forbidden()),
    };
    let host = one_spelling_of_host(&mut url)?;
    let port = url
        .port_or_known_default()
        .ok_or_else(|| invalid("must have a port that is known"))?;
    if !is_allowed_port(port) {
        let detail = "the port must be 80, 443 or 1024 and above, and none that browsers block";
        return Err(Problem::new(Code::PortForbidden, "", detail));
    }
    let basic = take_user_info(&mut url)?;
    url.set_fragment(None);
    if url.as_str().len() > URL_BYTES_MAX {
        return Err(too_long());
    }
    let name = match &host {
        CheckedHost::Name(name) => name.clone(),
        CheckedHost::Address(address) => match mapped(*address) {
            Some(address) => address.to_string(),
            None => bare_host(&url).to_owned(),
        },
    };
    Ok(CheckedUrl {
        target: Target::new(name).map_err(invalid)?,
        url: url.into(),
        scheme,
        host,
        port,
        basic,
    })
}

/// The target of the jobs whose URL has this host; it may be given with its port, or as the URL.
///
/// # Errors
/// No job can have such a URL.
pub fn target_of_host(text: &str) -> Result<Target, Problem> {
    let url = match text.parse() {
        _ if text.contains("://") => text.to_owned(),
        Ok(IpAddr::V6(address)) => format!("http://[{address}]"),
        _ if text.contains(['/', '\\', '@', '?', '#']) => return Err(invalid("must be a host")),
        Ok(IpAddr::V4(_)) | Err(_) => format!("http://{text}"),
    };
    check(&url).map(|checked| checked.target)
}

/// Says why a URL that follows the rules must still not be reached, if so.
///
/// While nothing is opened, names that belong to private networks are refused without a lookup.
/// Once something is, the address alone decides, which for a name is the worker's to find.
#[must_use]
pub fn forbidden(url: &CheckedUrl, opened: &AllowNets) -> Option<Problem> {
    let detail: Cow<'static, str> = match &url.host {
        CheckedHost::Address(address) if opened.is_allowed(*address) => return None,
        CheckedHost::Address(address) => match address::special_purpose(*address) {
            Some(purpose) => format!("the address is not a public one ({purpose})").into(),
            None => return None,
        },
        CheckedHost::Name(name) if opened.is_empty() && is_inner_name(name) => {
            "the name belongs to a private network".into()
        }
        CheckedHost::Name(_) => return None,
    };
    Some(Problem::new(Code::TargetForbidden, "", detail))
}

/// Refuses what the parser would drop without a word.
fn refuse_raw(text: &str) -> Result<(), Problem> {
    if text.is_empty() {
        return Err(invalid("must not be empty"));
    }
    if text.len() > URL_BYTES_MAX {
        return Err(too_long());
    }
    if text.chars().any(|c| c == ' ' || c.is_control()) {
        return Err(invalid("must not have spaces or control characters"));
    }
    Ok(())
}

/// Refuses any scheme but two before the rest is parsed, so that the answer names the real fault.
fn refuse_scheme(text: &str) -> Result<(), Problem> {
    let Some((scheme, _)) = text.split_once(':') else {
        return Ok(());
    };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    if is_scheme && !is_web {
        return Err(scheme_forbidden());
    }
    Ok(())
}

/// Checks the host, takes a trailing dot off it, and says what it is.
fn one_spelling_of_host(url: &mut Url) -> Result<CheckedHost, Problem> {
    let name = match url.host() {
        Some(Host::Ipv4(address)) => return Ok(CheckedHost::Address(IpAddr::V4(address))),
        Some(Host::Ipv6(address)) => return Ok(CheckedHost::Address(IpAddr::V6(address))),
        Some(Host::Domain(name)) => name,
        None => return Err(invalid("must have a host")),
    };
    let bare = name.strip_suffix('.').unwrap_or(name);
    refuse_name(bare)?;
    let bare = bare.to_owned();
    if bare.len() != name.len() {
        url.set_host(Some(&bare))
            .map_err(|_| invalid("the host is not a valid name"))?;
    }
    Ok(CheckedHost::Name(bare))
}

fn refuse_name(name: &str) -> Result<(), Problem> {
    if name.len() > NAME_BYTES_MAX {
        return Err(invalid("the host name has at most 253 characters"));
    }
    for label in name.split('.') {
        if label.is_empty() {
            return Err(invalid("the host name has an empty part"));
        }
        if label.len() > LABEL_BYTES_MAX {
            let detail = "a part of the host name has at most 63 characters";
            return Err(invalid(detail));
        }
        // The parser accepts more than DNS and certificates know; underscores are in real use.
        let in_use = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
        if !label.bytes().all(in_use) {
            return Err(invalid("the host is not a valid name"));
        }
    }
    Ok(())
}

/// Removes the user info and returns the Basic credential that it stands for.
fn take_user_info(url: &mut Url) -> Result<Option<String>, Problem> {
    let password = url.password().unwrap_or_default();
    if url.username().is_empty() && password.is_empty() {
        return Ok(None);
    }
    let mut pair = percent_decoded(url.username());
    if pair.contains(&b':') {
        return Err(invalid("a user name in the URL cannot have a colon"));
    }
    pair.push(b':');
    pair.extend(percent_decoded(password));
    if pair.len() > USER_INFO_BYTES_MAX {
        return Err(invalid("user info has at most 4 KiB"));
    }
    if pair.iter().any(u8::is_ascii_control) {
        return Err(invalid("user info cannot have control characters"));
    }
    let no_host = |()| invalid("must have a host");
    url.set_username("").map_err(no_host)?;
    url.set_password(None).map_err(no_host)?;
    Ok(Some(format!("Basic {}", STANDARD.encode(pair))))
}

/// Turns each `%` with two hex digits into its byte; everything else stays.
fn percent_decoded(text: &str) -> Vec<u8> {
    let mut rest = text.as_bytes();
    let mut bytes = Vec::with_capacity(rest.len());
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = match (first, tail) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                bytes.push(high << 4 | low);
                rest = &tail[2..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    bytes
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

fn is_allowed_port(port: u16) -> bool {
    matches!(port, 80 | 443 | 1024..) && BAD_PORTS.binary_search(&port).is_err()
}

/// Whether a name can only be meant for the private network of whoever resolves it.
fn is_inner_name(name: &str) -> bool {
    !name.contains('.') || INNER_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// The host as the URL spells it, an IPv6 address without its brackets.
fn bare_host(url: &Url) -> &str {
    url.host_str()
        .unwrap_or_default()
        .trim_start_matches('[')
        .trim_end_matches(']')
}

/// The IPv4 address that an IPv6 address stands for: both lead to the same receiver.
fn mapped(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => address.to_ipv4_mapped(),
    }
}

fn invalid(detail: &'static str) -> Problem {
    Problem::new(Code::UrlInvalid, "", detail)
}

fn too_long() -> Problem {
    invalid("must have at most 8 KiB")
}

fn scheme_forbidden() -> Problem {
    Problem::new(
        Code::SchemeForbidden,
        "",
        "the scheme must be http or https",
    )
}

#[cfg(test)]
mod tests;
