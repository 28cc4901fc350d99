//! Which headers a job may carry.
//!
//! A header that passes can be sent by any client without being changed, joined or dropped: names
//! are tokens and come once, values are visible ASCII with spaces and tabs inside. Names that
//! frame the message, that belong to this product, or that open a cloud's metadata service are
//! refused. The API asks on the way in, and the worker asks again, for rows made by SQL.

use crate::problem::{Code, Problem, Problems, push_token};

/// Most headers of one job.
pub const COUNT_MAX: usize = 100;
/// Longest value, after trimming.
pub const VALUE_BYTES_MAX: usize = 8 * 1024;
/// Most bytes of names and values together.
pub const TOTAL_BYTES_MAX: usize = 32 * 1024;

/// Most headers that are added to a caller's own.
const ADDED_MAX: usize = 2;
/// Most bytes of the added headers: one value of any length, and what is around it.
const ADDED_BYTES_MAX: usize = VALUE_BYTES_MAX + 64;

/// Names in lower case that a job must not set, because the transport or the worker does.
const RESERVED: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "hook-attempt",
    "host",
    "http2-settings",
    "keep-alive",
    "metadata",
    "metadata-flavor",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Beginnings, in lower case, of names that a job must not set.
const RESERVED_BEGINNINGS: &[&str] = &[":", "proxy-", "webhook-", "x-aws-ec2-metadata-"];

/// Parts of names, in lower case, that mark a value as a secret.
const SECRET_PARTS: &[&str] = &["secret", "token", "key", "signature"];

/// Checks the headers that a caller wants to send, and makes them ready for it.
///
/// Order and spelling of names are kept. White space around a value is not part of it and is
/// trimmed. `basic` is the Basic credential that the URL carried; it becomes an `authorization`
/// header, so a second one is refused.
///
/// # Errors
/// Lists every header that cannot be sent, by pointers below `/headers`.
pub fn check_new(
    headers: Vec<(String, String)>,
    basic: Option<&str>,
) -> Result<Vec<(String, String)>, Problems> {
    let bounds = Bounds {
        count_max: COUNT_MAX,
        bytes_max: TOTAL_BYTES_MAX,
    };
    check_within(headers, basic, bounds)
}

/// Checks the headers of a stored job as [`check_new`] does those of a new one.
///
/// Leaves room for the two that are added on the way in: a credential and a content type.
///
/// # Errors
/// Lists every header that cannot be sent, by pointers below `/headers`.
pub fn check(
    headers: Vec<(String, String)>,
    basic: Option<&str>,
) -> Result<Vec<(String, String)>, Problems> {
    let bounds = Bounds {
        count_max: COUNT_MAX + ADDED_MAX,
        bytes_max: TOTAL_BYTES_MAX + ADDED_BYTES_MAX,
    };
    check_within(headers, basic, bounds)
}

/// Whether the value of this header must not be shown.
#[must_use]
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    matches!(name.as_str(), "authorization" | "cookie")
        || SECRET_PARTS.iter().any(|part| name.contains(part))
}

/// Whether this name is one that a job must not set.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    RESERVED
        .iter()
        .any(|reserved| name.eq_ignore_ascii_case(reserved))
        || RESERVED_BEGINNINGS.iter().any(|beginning| {
            name.get(..beginning.len())
                .is_some_and(|head| head.eq_ignore_ascii_case(beginning))
        })
}

/// What all headers together may amount to.
struct Bounds {
    count_max: usize,
    bytes_max: usize,
}

fn check_within(
    mut headers: Vec<(String, String)>,
    basic: Option<&str>,
    bounds: Bounds,
) -> Result<Vec<(String, String)>, Problems> {
    let mut problems = Problems::default();
    if headers.len() > bounds.count_max {
        let detail = "must have at most 100 headers";
        problems.push(Problem::new(Code::HeaderInvalid, "/headers", detail));
        return Err(problems);
    }
    for (_, value) in &mut headers {
        trim(value);
    }
    for (index, (name, value)) in headers.iter().enumerate() {
        let fault = fault_of_name(name)
            .or_else(|| fault_of_value(value))
            .or_else(|| fault_beside(name, &headers[..index], basic));
        if let Some((code, detail)) = fault {
            problems.push(at_header(code, name, detail));
        }
    }
    let bytes_total: usize = headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if bytes_total > bounds.bytes_max {
        let detail = "all names and values together must have at most 32 KiB";
        problems.push(Problem::new(Code::HeaderInvalid, "/headers", detail));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    if let Some(credential) = basic {
        headers.push(("authorization".to_owned(), credential.to_owned()));
    }
    Ok(headers)
}

/// A problem with one header, at the pointer that names it.
pub(crate) fn at_header(code: Code, name: &str, detail: &'static str) -> Problem {
    let mut pointer = String::from("/headers");
    // A name that is longer than any real one would only blow up the answer.
    if name.len() <= 256 {
        push_token(&mut pointer, name);
    }
    Problem::new(code, pointer, detail)
}

/// Compares a name with those before it. There are few enough for that, see [`COUNT_MAX`].
fn fault_beside(
    name: &str,
    earlier: &[(String, String)],
    basic: Option<&str>,
) -> Option<(Code, &'static str)> {
    if basic.is_some() && name.eq_ignore_ascii_case("authorization") {
        let detail = "the user info of the URL is sent as this header already";
        return Some((Code::HeaderDuplicate, detail));
    }
    let is_same = |(other, _): &(String, String)| name.eq_ignore_ascii_case(other);
    earlier.iter().any(is_same).then_some((
        Code::HeaderDuplicate,
        "a header name may come once, in whatever case",
    ))
}

fn fault_of_name(name: &str) -> Option<(Code, &'static str)> {
    if is_reserved(name) {
        return Some((Code::HeaderReserved, "this header cannot be set"));
    }
    if name.is_empty() || !name.bytes().all(is_token) {
        let detail = "a header name has letters, digits and !#$%&'*+-.^_`|~ only";
        return Some((Code::HeaderInvalid, detail));
    }
    None
}

fn fault_of_value(value: &str) -> Option<(Code, &'static str)> {
    if value.len() > VALUE_BYTES_MAX {
        return Some((Code::HeaderInvalid, "a header value has at most 8 KiB"));
    }
    if !value
        .bytes()
        .all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
    {
        let detail = "a header value has visible ASCII characters, spaces and tabs only";
        return Some((Code::HeaderInvalid, detail));
    }
    None
}

/// Cuts spaces and tabs off both ends, and no other white space: a line break must be seen.
fn trim(value: &mut String) {
    let outer = [' ', '\t'];
    value.truncate(value.trim_end_matches(outer).len());
    let leading = value.len() - value.trim_start_matches(outer).len();
    if leading > 0 {
        value.drain(..leading);
    }
}

/// Whether RFC 9110 allows this byte in a header name.
fn is_token(byte: u8) -> bool {
    matches!(
        byte,
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.'
            | b'^'..=b'`' | b'|' | b'~'
    )
}

#[cfg(test)]
mod tests;
