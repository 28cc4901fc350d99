//! Takes JSON apart without reading the values in it.
//!
//! Values stay the slices that they were written as: nothing is decoded that nobody asked for, and
//! no number or string is changed on its way through. Nesting is bounded by a scan of its own
//! before anything else, so that neither this parser nor one further on can run out of stack.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use serde::Deserializer as _;
use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::problem::{Code, Problem};

/// Deepest nesting of arrays and objects, the outermost included.
const DEPTH_MAX: usize = 128;
/// Members of one object that are looked at: more than any object that can be accepted has.
const MEMBERS_MAX: usize = 128;
/// What JSON allows between tokens.
const WHITE_SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// Reads the request as text, and refuses what no parser should be given.
pub(super) fn text(body: &Bytes) -> Result<&str, Problem> {
    let text = std::str::from_utf8(body).map_err(|error| {
        let (line, column) = position(body, error.valid_up_to());
        fault("is not UTF-8", line, column)
    })?;
    match too_deep(body) {
        None => Ok(text),
        Some(offset) => {
            let (line, column) = position(body, offset);
            Err(fault("is nested deeper than 128 levels", line, column))
        }
    }
}

/// The members of one object, in the order in which they were written.
pub(super) struct Members<'a> {
    /// Names and values; no name comes twice.
    pub(super) list: Vec<(Cow<'a, str>, &'a RawValue)>,
    /// Whether there were more than [`MEMBERS_MAX`]. The others were read, but not kept.
    pub(super) more: bool,
}

/// Splits an object; `whole` is the text that `object` is a part of.
///
/// # Errors
/// `json_invalid`, with the position in `whole`: not JSON, not an object, or a name twice.
pub(super) fn members<'a>(whole: &str, object: &'a str) -> Result<Members<'a>, Problem> {
    if !starts_like_an_object(object) {
        return Err(not_an_object(whole, object));
    }
    let mut reader = serde_json::Deserializer::from_str(object);
    reader
        .deserialize_map(MembersVisitor)
        .and_then(|members| reader.end().map(|()| members))
        .map_err(|error| located(whole, object, &error))
}

/// Whether `text` is JSON, but not an object.
pub(super) fn is_value_but_no_object(text: &str) -> bool {
    !starts_like_an_object(text) && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// The items of an array that was validated before; `None` when it is not an array.
///
/// Stops keeping items beyond `limit + 1`.
pub(super) fn items(array: &RawValue, limit: usize) -> Option<Vec<&RawValue>> {
    if !array.get().starts_with('[') {
        return None;
    }
    serde_json::Deserializer::from_str(array.get())
        .deserialize_seq(ItemsVisitor { limit })
        .ok()
}

/// The text of a string that was validated before.
///
/// `None` when it is not a string, or has half of a surrogate pair, which no UTF-8 text can hold.
pub(super) fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(raw.get()).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// A whole number of at most 18 digits, written without fraction and exponent.
pub(super) fn whole_number(raw: &RawValue) -> Option<u64> {
    let digits = raw.get();
    if digits.len() > 18 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// Whether a line has nothing but white space.
pub(super) fn is_blank(line: &str) -> bool {
    line.trim_matches(WHITE_SPACE).is_empty()
}

/// Where a part starts in the text that it is a slice of.
fn offset_in(whole: &str, part: &str) -> usize {
    part.as_ptr().addr().saturating_sub(whole.as_ptr().addr())
}

/// A `json_invalid` problem in `whole` that starts where `part` does.
pub(super) fn fault_at(detail: &str, whole: &str, part: &str) -> Problem {
    let (line, column) = position(whole.as_bytes(), offset_in(whole, part));
    fault(detail, line, column)
}

fn starts_like_an_object(text: &str) -> bool {
    text.trim_start_matches(WHITE_SPACE).starts_with('{')
}

fn not_an_object(whole: &str, text: &str) -> Problem {
    match serde_json::from_str::<IgnoredAny>(text) {
        Err(error) => located(whole, text, &error),
        Ok(_) => fault_at(
            "is not an object",
            whole,
            text.trim_start_matches(WHITE_SPACE),
        ),
    }
}

/// Turns a parser's error about `part` into a problem with a position in `whole`.
fn located(whole: &str, part: &str, error: &serde_json::Error) -> Problem {
    let (first_line, first_column) = position(whole.as_bytes(), offset_in(whole, part));
    let line = first_line + error.line().saturating_sub(1);
    let column = match error.line() {
        0 | 1 => first_column - 1 + error.column(),
        _ => error.column(),
    };
    let message = error.to_string();
    let reason = message.split(" at line ").next().unwrap_or_default();
    fault(&format!("is not valid: {reason}"), line, column.max(1))
}

fn fault(detail: &str, line: usize, column: usize) -> Problem {
    let detail = format!("the JSON {detail} (line {line}, column {column})");
    Problem::new(Code::JsonInvalid, "", detail)
}

/// Line and column (in bytes) of an offset, both counted from 1.
fn position(text: &[u8], offset: usize) -> (usize, usize) {
    let before = &text[..offset.min(text.len())];
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    let line_start = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    (line, before.len() - line_start + 1)
}

/// The offset of the first bracket that opens one level too many.
///
/// Looks at text that may not be JSON at all: what it finds there is refused later anyway.
fn too_deep(text: &[u8]) -> Option<usize> {
    // Counting is far cheaper than following strings, and nearly every request passes by it.
    let opening = text
        .iter()
        .filter(|byte| matches!(byte, b'[' | b'{'))
        .count();
    if opening <= DEPTH_MAX {
        return None;
    }
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => at = end_of_string(text, at),
            b'[' | b'{' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Some(at);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    None
}

/// The offset of the quotation mark that ends the string that starts at `start`.
pub(super) fn end_of_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(rest) = text.get(at..) {
        match rest.iter().position(|b| matches!(b, b'"' | b'\\')) {
            Some(found) if rest[found] == b'"' => return at + found,
            Some(found) => at += found + 2,
            None => break,
        }
    }
    text.len()
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        // Comparing with a handful of names is cheaper than hashing them; hostile numbers are not.
        const COMPARED_MAX: usize = 16;
        let mut list: Vec<(Cow<'de, str>, &'de RawValue)> = Vec::with_capacity(8);
        let mut hashed = HashSet::new();
        while let Some(BorrowedName(name)) = map.next_key()? {
            let is_known = if list.len() < COMPARED_MAX {
                list.iter().any(|(known, _)| *known == name)
            } else {
                if hashed.is_empty() {
                    hashed.extend(list.iter().map(|(known, _)| known.clone()));
                }
                !hashed.insert(name.clone())
            };
            if is_known {
                return Err(A::Error::custom("a name is given twice in one object"));
            }
            list.push((name, map.next_value()?));
            if list.len() == MEMBERS_MAX {
                break;
            }
        }
        let mut more = false;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            more = true;
        }
        Ok(Members { list, more })
    }
}

/// A name that is borrowed from the input unless it has escapes in it.
struct BorrowedName<'de>(Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for BorrowedName<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = BorrowedName<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(BorrowedName(Cow::Borrowed(name)))
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(BorrowedName(Cow::Owned(name.to_owned())))
    }
}

struct ItemsVisitor {
    limit: usize,
}

impl<'de> Visitor<'de> for ItemsVisitor {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element()? {
            list.push(item);
            if list.len() > self.limit {
                break;
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(list)
    }
}
