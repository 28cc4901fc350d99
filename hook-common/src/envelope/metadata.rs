//! Judges `metadata`: an object that is stored as written and given back to people and programs.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::value::RawValue;

use super::json;

/// Longest metadata, as written.
const BYTES_MAX: usize = 16 * 1024;

/// What is wrong with a metadata value.
pub(super) enum Fault {
    /// A rule of the field is broken.
    Field(&'static str),
    /// A name comes twice in one object, so that two readers could see two different things.
    NameTwice,
}

/// Checks metadata that was validated as JSON before, and nested within bounds.
pub(super) fn check(raw: &RawValue) -> Result<(), Fault> {
    let text = raw.get();
    if !text.starts_with('{') {
        return Err(Fault::Field("must be an object"));
    }
    if text.len() > BYTES_MAX {
        return Err(Fault::Field("must have at most 16 KiB"));
    }
    walk(text)
}

/// Visits every string: no NUL in any, and no name twice in one object.
///
/// Values are not decoded, because a number such as `1e999999` is fine here and nowhere else.
fn walk(text: &str) -> Result<(), Fault> {
    // One entry for each open bracket; the names so far where it is an object.
    let mut open: Vec<Option<HashSet<Cow<'_, str>>>> = Vec::new();
    let mut name_follows = false;
    let mut at = 0;
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'{' => open.push(Some(HashSet::new())),
            b'[' => open.push(None),
            b'}' | b']' => drop(open.pop()),
            b'"' => {
                let end = json::end_of_string(text.as_bytes(), at);
                let string = decoded(&text[at..=end]);
                if string.contains('\0') {
                    return Err(Fault::Field("must not have NUL characters"));
                }
                if let (true, Some(Some(names))) = (name_follows, open.last_mut())
                    && !names.insert(string)
                {
                    return Err(Fault::NameTwice);
                }
                at = end;
            }
            _ => {}
        }
        name_follows = match byte {
            b'{' => true,
            b',' => matches!(open.last(), Some(Some(_))),
            b' ' | b'\t' | b'\n' | b'\r' => name_follows,
            _ => false,
        };
        at += 1;
    }
    Ok(())
}

/// The text of a quoted string; as written where half of a surrogate pair cannot be decoded.
fn decoded(quoted: &str) -> Cow<'_, str> {
    let inner = &quoted[1..quoted.len() - 1];
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    match serde_json::from_str(quoted) {
        Ok(text) => Cow::Owned(text),
        Err(_) if has_escaped_nul(inner) => Cow::Borrowed("\0"),
        Err(_) => Cow::Borrowed(inner),
    }
}

/// Whether a `\u0000` is written in a string that cannot be decoded as a whole.
fn has_escaped_nul(inner: &str) -> bool {
    let mut rest = inner;
    while let Some(found) = rest.find('\\') {
        if rest[found..].starts_with("\\u0000") {
            return true;
        }
        // The character after a backslash has one byte in valid JSON.
        rest = &rest[found + 2..];
    }
    false
}
