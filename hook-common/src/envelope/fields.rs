//! The fields of a job, as they were written.

use serde_json::value::RawValue;

use super::json::Members;
use crate::problem::{Code, Problem, Problems, push_token};

/// The fields of a job as they were written.
#[derive(Default)]
pub(super) struct Fields<'a> {
    pub(super) url: Option<&'a RawValue>,
    pub(super) method: Option<&'a RawValue>,
    pub(super) headers: Option<&'a RawValue>,
    pub(super) payload: Option<&'a RawValue>,
    pub(super) body: Option<&'a RawValue>,
    pub(super) body_base64: Option<&'a RawValue>,
    pub(super) metadata: Option<&'a RawValue>,
    pub(super) target: Option<&'a RawValue>,
    pub(super) scheduled_at: Option<&'a RawValue>,
    pub(super) delay_ms: Option<&'a RawValue>,
    pub(super) expires_at: Option<&'a RawValue>,
    pub(super) ttl_ms: Option<&'a RawValue>,
    pub(super) max_attempts: Option<&'a RawValue>,
    pub(super) timeout_ms: Option<&'a RawValue>,
    pub(super) idempotency_key: Option<&'a RawValue>,
    pub(super) signing: Option<&'a RawValue>,
}

impl<'a> Fields<'a> {
    /// Sorts members into fields and reports those that are none.
    pub(super) fn new(members: Members<'a>, problems: &mut Problems) -> Self {
        let mut fields = Self::default();
        for (name, value) in members.list {
            match fields.slot(&name) {
                Some(slot) => *slot = Some(value),
                None => problems.push(unknown(&name)),
            }
        }
        if members.more {
            let detail = "there are more fields than a job can have";
            problems.push(Problem::new(Code::UnknownField, "", detail));
        }
        fields
    }

    fn slot(&mut self, name: &str) -> Option<&mut Option<&'a RawValue>> {
        Some(match name {
            "url" => &mut self.url,
            "method" => &mut self.method,
            "headers" => &mut self.headers,
            "payload" => &mut self.payload,
            "body" => &mut self.body,
            "body_base64" => &mut self.body_base64,
            "metadata" => &mut self.metadata,
            "target" => &mut self.target,
            "scheduled_at" => &mut self.scheduled_at,
            "delay_ms" => &mut self.delay_ms,
            "expires_at" => &mut self.expires_at,
            "ttl_ms" => &mut self.ttl_ms,
            "max_attempts" => &mut self.max_attempts,
            "timeout_ms" => &mut self.timeout_ms,
            "idempotency_key" => &mut self.idempotency_key,
            "signing" => &mut self.signing,
            _ => return None,
        })
    }
}

/// An `unknown_field` problem that names the field.
pub(super) fn unknown(name: &str) -> Problem {
    let mut pointer = String::new();
    // A name that is longer than any real one would only blow up the answer.
    if name.len() <= 256 {
        push_token(&mut pointer, name);
    }
    Problem::new(Code::UnknownField, pointer, "there is no such field")
}
