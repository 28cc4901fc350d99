//! What schemas are put together from: numbers, texts, lists, and the words of this product.

use hook_common::job::{ErrorKind, QueueName, Status};
use serde_json::{Map, Value, json};

/// An object with exactly these members.
pub(crate) fn object(members: &[(&str, Value)]) -> Value {
    let mut schema = optional(members);
    schema["required"] = members.iter().map(|(name, _)| *name).collect();
    schema
}

/// An object that has any of these members and no other.
pub(crate) fn optional(members: &[(&str, Value)]) -> Value {
    let members = members.iter().cloned();
    let properties: Map<_, _> = members
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect();
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

pub(crate) fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

pub(crate) fn nullable(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

pub(crate) fn words<T: Copy>(all: &[T], word: impl Fn(T) -> &'static str) -> Value {
    let words: Vec<_> = all.iter().map(|one| word(*one)).collect();
    json!({"type": "string", "enum": words})
}

pub(crate) fn whole(min: u64, max: u64) -> Value {
    json!({"type": "integer", "minimum": min, "maximum": max})
}

pub(crate) fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

pub(crate) fn text() -> Value {
    json!({"type": "string"})
}

/// A point in time, RFC 3339.
pub(crate) fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

/// The id of a job.
pub(crate) fn id() -> Value {
    json!({"type": "string", "maxLength": 64})
}

/// The destination key.
pub(crate) fn target() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 255})
}

pub(crate) fn name() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 255})
}

pub(crate) fn url() -> Value {
    json!({"type": "string", "format": "uri", "maxLength": 8192, "examples": ["https://example.com/hooks"]})
}

pub(crate) fn method() -> Value {
    json!({"type": "string", "pattern": "^([Pp][Oo][Ss][Tt]|[Pp][Uu][Tt]|[Pp][Aa][Tt][Cc][Hh]|[Dd][Ee][Ll][Ee][Tt][Ee]|[Gg][Ee][Tt])$", "default": "POST"})
}

pub(crate) fn headers() -> Value {
    json!({"type": "object", "additionalProperties": text(), "maxProperties": 100})
}

pub(crate) fn metadata() -> Value {
    json!({"type": "object", "description": "At most 16 KiB; kept and given back, never sent."})
}

/// One of the queues.
pub(crate) fn queue() -> Value {
    words(QueueName::ALL, QueueName::as_str)
}

/// Where a job stands.
pub(crate) fn status() -> Value {
    words(Status::ALL, Status::as_str)
}

pub(crate) fn error_kind() -> Value {
    words(ErrorKind::ALL, ErrorKind::as_str)
}
