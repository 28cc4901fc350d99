//! From text to values; pure, and the error is always the expected form.

use std::{net::SocketAddr, time::Duration};

use ipnet::IpNet;
use url::Url;

/// The form of a duration.
pub const DURATION: &str = "a duration such as 250ms, 5s, 10m, 24h or 7d";
/// The form of a size.
pub const SIZE: &str = "a size such as 65536, 64KiB or 1MiB";
/// The form of a switch.
pub const FLAG: &str = "true or false";
/// The form of an address to listen on.
pub const ADDRESS: &str = "an address and port such as 127.0.0.1:3300 or [::]:3300";
/// The form of a network.
pub const NET: &str = "networks such as 10.0.0.0/8,fd00::/8, without bits beyond the prefix";
/// The form of a proxy.
pub const PROXY: &str = "a URL such as http://proxy.example:3128";
/// The form of the database's URL.
pub const POSTGRES_URL: &str = "a URL such as postgres://user:password@host:5432/database";

/// No duration is longer; more is a slip of the pen, and sums of two cannot overflow.
const DURATION_MAX: Duration = Duration::from_secs(3650 * 86_400);

/// Reads `250ms`, `5s`, `10m`, `24h`, `7d`.
///
/// # Errors
/// The expected form.
pub fn duration(text: &str) -> Result<Duration, &'static str> {
    let (digits, unit) = split_unit(text);
    let number: u64 = digits.parse().map_err(|_| DURATION)?;
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(DURATION),
    };
    let ms = number.checked_mul(unit_ms).ok_or(DURATION)?;
    let duration = Duration::from_millis(ms);
    if duration > DURATION_MAX {
        return Err("a duration of at most 3650d");
    }
    Ok(duration)
}

/// Reads bytes, or a number with `KiB`, `MiB` or `GiB`.
///
/// # Errors
/// The expected form.
pub fn size(text: &str) -> Result<usize, &'static str> {
    let (digits, unit) = split_unit(text);
    let number: usize = digits.parse().map_err(|_| SIZE)?;
    let unit_bytes: usize = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(SIZE),
    };
    number.checked_mul(unit_bytes).ok_or(SIZE)
}

/// Reads `true` and `false`, and nothing that merely looks like them.
///
/// # Errors
/// The expected form.
pub fn flag(text: &str) -> Result<bool, &'static str> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(FLAG),
    }
}

/// Reads an IP address with a port.
///
/// # Errors
/// The expected form.
pub fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| ADDRESS)
}

/// Reads one network; a lone address is a network of one.
///
/// # Errors
/// The expected form. Bits beyond the prefix are refused: `10.0.0.5/8` would open far more than
/// its writer meant.
pub fn net(text: &str) -> Result<IpNet, &'static str> {
    if let Ok(lone) = text.parse::<std::net::IpAddr>() {
        return Ok(IpNet::from(lone));
    }
    let net: IpNet = text.parse().map_err(|_| NET)?;
    if net.trunc() == net {
        Ok(net)
    } else {
        Err(NET)
    }
}

/// Splits a comma-separated list; spaces around items do not matter, empty items do.
///
/// # Errors
/// The expected form.
pub fn list(text: &str) -> Result<Vec<&str>, &'static str> {
    let items: Vec<&str> = text.split(',').map(str::trim).collect();
    if items.iter().any(|item| item.is_empty()) {
        return Err("a comma-separated list without empty items");
    }
    Ok(items)
}

/// Reads the URL of a forward proxy.
///
/// # Errors
/// The expected form.
pub fn proxy(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| PROXY)?;
    let is_origin = matches!(url.path(), "" | "/") && url.query().is_none();
    if url.scheme() != "http" || url.host_str().is_none() || !is_origin {
        return Err(PROXY);
    }
    Ok(url)
}

/// Checks that a text is a URL of Postgres.
///
/// # Errors
/// The expected form.
pub fn postgres_url(text: &str) -> Result<(), &'static str> {
    let url = Url::parse(text).map_err(|_| POSTGRES_URL)?;
    if !matches!(url.scheme(), "postgres" | "postgresql") {
        return Err(POSTGRES_URL);
    }
    // sqlx reads the rest (ports, TLS modes) when it parses the URL for real.
    text.parse::<sqlx::postgres::PgConnectOptions>()
        .map(|_| ())
        .map_err(|_| POSTGRES_URL)
}

fn split_unit(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}
