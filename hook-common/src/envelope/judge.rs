//! Turns the fields of one job into a [`NewJob`], and lists everything that is wrong with them.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde_json::value::RawValue;

use super::fields::{Fields, unknown};
use super::{Limits, json, metadata, request_sha256, schedule};
use crate::headers;
use crate::job::{Due, Expiry, Idempotency, Method, NewJob, SIGNING_SECRETS_MAX};
use crate::problem::{Code, Problem, Problems};
use crate::target::{Target, is_printable};
use crate::url_rules::{self, CheckedUrl, Scheme};

/// Most attempts that a job may ask for.
const ATTEMPTS_MAX: u64 = 100;
/// Longest attempt that a job may ask for.
const TIMEOUT_MS_MAX: u64 = 60_000;
/// Longest idempotency key or secret name, in characters.
const NAME_CHARS_MAX: usize = 255;

/// Which of the two shapes a job came in. They differ in where fields are, not in what they mean.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Shape {
    /// All fields in one object.
    Flat,
    /// What is sent is in an object of its own, and the body is text.
    Parameters,
}

impl Shape {
    /// The pointer of the object that holds `url`, `method`, `headers` and the body.
    pub(super) fn base(self) -> &'static str {
        match self {
            Self::Flat => "",
            Self::Parameters => "/parameters",
        }
    }

    pub(super) fn payload_pointer(self) -> String {
        match self {
            Self::Flat => "/payload".to_owned(),
            Self::Parameters => "/parameters/body".to_owned(),
        }
    }
}

/// Judges the fields of one job.
pub(super) struct Judge<'a> {
    /// The whole request, which bodies are slices of.
    pub(super) source: &'a Bytes,
    /// The same as text, for positions.
    pub(super) text: &'a str,
    /// What the operator allows.
    pub(super) limits: &'a Limits,
    /// Where fields are.
    pub(super) shape: Shape,
    /// What was wrong so far.
    pub(super) problems: Problems,
}

impl Judge<'_> {
    /// Makes the job, or returns everything that is wrong. `header_key` came as a header.
    pub(super) fn job(
        mut self,
        fields: &Fields<'_>,
        header_key: Option<&str>,
    ) -> Result<NewJob, Problems> {
        let url = self.url(fields.url);
        let method = self.method(fields.method);
        let basic = url.as_ref().and_then(|url| url.basic.as_deref());
        let headers = self.headers(fields, basic);
        let body = self.body(fields);
        let metadata = self.metadata(fields.metadata);
        let target = self.target(fields.target);
        let due = self.due(fields);
        let expires = self.expires(fields);
        if schedule::ends_before_it_starts(due, expires) {
            let field = fields.expires_at.map_or("/ttl_ms", |_| "/expires_at");
            self.refuse(field, "must not be before the job may start");
        }
        let max_attempts = self.number("/max_attempts", fields.max_attempts, 1..=ATTEMPTS_MAX);
        let timeout_ms = self.number("/timeout_ms", fields.timeout_ms, 1..=TIMEOUT_MS_MAX);
        let key = self.idempotency_key(fields.idempotency_key, header_key);
        let signing = self.signing(fields.signing);
        let Some(url) = url.filter(|_| self.problems.is_empty()) else {
            return Err(self.problems);
        };
        let mut job = NewJob {
            target: target.unwrap_or(url.target),
            url: url.url,
            method,
            headers,
            body,
            metadata,
            due,
            expires,
            max_attempts: max_attempts.and_then(|number| i16::try_from(number).ok()),
            timeout: timeout_ms.map(Duration::from_millis),
            idempotency: None,
            signing,
        };
        if let Some(key) = key {
            let request_sha256 = request_sha256(&job);
            job.idempotency = Some(Idempotency {
                key,
                request_sha256,
            });
        }
        Ok(job)
    }

    /// Lists a field that has a value which it cannot have.
    pub(super) fn refuse(
        &mut self,
        pointer: impl Into<String>,
        detail: impl Into<Cow<'static, str>>,
    ) {
        self.problems
            .push(Problem::new(Code::FieldInvalid, pointer, detail));
    }

    /// The pointer of a field that is beside `url`.
    pub(super) fn under_base(&self, field: &str) -> String {
        format!("{}{field}", self.shape.base())
    }

    fn url(&mut self, raw: Option<&RawValue>) -> Option<CheckedUrl> {
        let pointer = self.under_base("/url");
        let Some(text) = raw.and_then(json::string) else {
            self.refuse(pointer, raw.map_or("is required", |_| "must be a string"));
            return None;
        };
        let url = match url_rules::check(&text) {
            Ok(url) => url,
            Err(problem) => {
                self.problems.push(problem.under(&pointer));
                return None;
            }
        };
        if self.limits.https_only && url.scheme == Scheme::Http {
            let problem = Problem::new(Code::HttpsRequired, pointer, "the scheme must be https");
            self.problems.push(problem);
        } else if let Some(problem) = url_rules::forbidden(&url, &self.limits.allow_nets) {
            self.problems.push(problem.under(&pointer));
        }
        Some(url)
    }

    fn method(&mut self, raw: Option<&RawValue>) -> Method {
        let Some(raw) = raw else {
            return Method::Post;
        };
        let word = json::string(raw).map(|text| text.to_ascii_uppercase());
        let method = word.as_deref().and_then(Method::from_word);
        if method.is_none() {
            let pointer = self.under_base("/method");
            self.refuse(pointer, "must be POST, PUT, PATCH, DELETE or GET");
        }
        method.unwrap_or(Method::Post)
    }

    fn headers(&mut self, fields: &Fields<'_>, basic: Option<&str>) -> Vec<(String, String)> {
        let given = fields
            .headers
            .map(|raw| self.header_pairs(raw))
            .unwrap_or_default();
        let is_type = |(name, _): &(String, String)| name.eq_ignore_ascii_case("content-type");
        let has_type = given.iter().any(is_type);
        let mut headers = headers::check_new(given, basic).unwrap_or_else(|problems| {
            let room = Problems::MAX_OF_ONE_JOB;
            self.problems.absorb(problems, self.shape.base(), room);
            Vec::new()
        });
        if !has_type && (fields.payload.is_some() || fields.body.is_some()) {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        headers
    }

    fn header_pairs(&mut self, raw: &RawValue) -> Vec<(String, String)> {
        let Some(members) = self.members(raw, self.under_base("/headers")) else {
            return Vec::new();
        };
        let mut pairs = Vec::with_capacity(members.list.len() + 2);
        for (name, value) in members.list {
            if let Some(value) = json::string(value) {
                pairs.push((name.into_owned(), value.into_owned()));
            } else {
                let detail = "a header value must be a string";
                let problem = headers::at_header(Code::HeaderInvalid, &name, detail);
                self.problems.push(problem.under(self.shape.base()));
            }
        }
        pairs
    }

    /// The members of an object; lists a problem where there is none.
    fn members<'v>(&mut self, raw: &'v RawValue, pointer: String) -> Option<json::Members<'v>> {
        if !raw.get().starts_with('{') {
            self.refuse(pointer, "must be an object");
            return None;
        }
        json::members(self.text, raw.get())
            .map_err(|problem| self.problems.push(problem))
            .ok()
    }

    fn metadata(&mut self, raw: Option<&RawValue>) -> Option<String> {
        let raw = raw?;
        match metadata::check(raw) {
            Ok(()) => return Some(raw.get().to_owned()).filter(|text| text != "{}"),
            Err(metadata::Fault::Field(detail)) => self.refuse("/metadata", detail),
            Err(metadata::Fault::NameTwice) => {
                let detail = "has a name twice in one object of the metadata";
                self.problems
                    .push(json::fault_at(detail, self.text, raw.get()));
            }
        }
        None
    }

    fn target(&mut self, raw: Option<&RawValue>) -> Option<Target> {
        let name = json::string(raw?).ok_or("must be a string");
        match name.and_then(Target::new) {
            Ok(target) => Some(target),
            Err(detail) => {
                self.refuse("/target", detail);
                None
            }
        }
    }

    fn due(&mut self, fields: &Fields<'_>) -> Due {
        if fields.scheduled_at.is_some() && fields.delay_ms.is_some() {
            self.refuse("/delay_ms", "cannot be given together with scheduled_at");
        }
        let time = self.time("/scheduled_at", fields.scheduled_at);
        let delay = self.number("/delay_ms", fields.delay_ms, 0..=schedule::DELAY_MS_MAX);
        match (time, delay) {
            (Some(time), _) => Due::At(time),
            (None, None | Some(0)) => Due::Now,
            (None, Some(delay)) => Due::After(Duration::from_millis(delay)),
        }
    }

    fn expires(&mut self, fields: &Fields<'_>) -> Expiry {
        if fields.expires_at.is_some() && fields.ttl_ms.is_some() {
            self.refuse("/ttl_ms", "cannot be given together with expires_at");
        }
        let time = self.time("/expires_at", fields.expires_at);
        let life = self.number("/ttl_ms", fields.ttl_ms, 1..=schedule::DELAY_MS_MAX);
        match (time, life) {
            (Some(time), _) => Expiry::At(time),
            (None, None) => Expiry::Never,
            (None, Some(life)) => Expiry::After(Duration::from_millis(life)),
        }
    }

    fn time(&mut self, pointer: &str, raw: Option<&RawValue>) -> Option<DateTime<Utc>> {
        let time = json::string(raw?).and_then(|text| schedule::time(&text));
        if time.is_none() {
            let detail = "must be an RFC 3339 time of the years 1970 to 9999";
            self.refuse(pointer, detail);
        }
        time
    }

    fn number(
        &mut self,
        pointer: &str,
        raw: Option<&RawValue>,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let number = json::whole_number(raw?).filter(|number| range.contains(number));
        if number.is_none() {
            let (least, most) = range.into_inner();
            self.refuse(
                pointer,
                format!("must be a whole number from {least} to {most}"),
            );
        }
        number
    }

    fn idempotency_key(
        &mut self,
        raw: Option<&RawValue>,
        header_key: Option<&str>,
    ) -> Option<String> {
        let pointer = "/idempotency_key";
        let key = match (raw.map(json::string), header_key) {
            (None, None) => return None,
            (None, Some(key)) => Some(Cow::Borrowed(key)),
            (Some(key), None) => key,
            (Some(key), Some(other)) if key.as_deref() == Some(other) => key,
            (Some(_), Some(_)) => {
                self.refuse(pointer, "is not the same as in the Idempotency-Key header");
                return None;
            }
        };
        let key = key.filter(|key| is_name(key));
        if key.is_none() {
            self.refuse(pointer, "must be a string of 1 to 255 printable characters");
        }
        key.map(Cow::into_owned)
    }

    fn signing(&mut self, raw: Option<&RawValue>) -> Vec<String> {
        let Some(members) = raw.and_then(|raw| self.members(raw, "/signing".to_owned())) else {
            return Vec::new();
        };
        let mut secrets = None;
        for (name, value) in members.list {
            if name == "secrets" {
                secrets = Some(value);
            } else {
                self.problems.push(unknown(&name).under("/signing"));
            }
        }
        self.secrets(secrets)
    }

    fn secrets(&mut self, raw: Option<&RawValue>) -> Vec<String> {
        let pointer = "/signing/secrets";
        let items = raw
            .and_then(|raw| json::items(raw, SIGNING_SECRETS_MAX))
            .unwrap_or_default();
        if items.is_empty() || items.len() > SIGNING_SECRETS_MAX {
            self.refuse(pointer, "must be an array of 1 to 10 names");
            return Vec::new();
        }
        let mut names = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            match json::string(item).filter(|name| is_name(name)) {
                Some(name) => names.push(name.into_owned()),
                None => {
                    let detail = "must be a string of 1 to 255 printable characters";
                    self.refuse(format!("{pointer}/{index}"), detail);
                }
            }
        }
        names
    }
}

/// Whether `text` has 1 to 255 printable characters.
#[must_use]
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().count() <= NAME_CHARS_MAX && text.chars().all(is_printable)
}
