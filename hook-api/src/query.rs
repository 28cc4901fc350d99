//! The part of a URL behind the question mark, read as strictly as a request body.

use chrono::{DateTime, Utc};
use hook_common::{
    job::{JobId, QueueName, Status},
    problem::{Code, Problem, Problems, push_token},
    target::Target,
};
use http::Uri;
use url::form_urlencoded;

use crate::problem::Refusal;

/// Reads parameters one by one and lists everything that is wrong with them.
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
    problems: Problems,
}

impl Query {
    /// Takes the parameters of `uri`; names that are not among `known` are listed as unknown.
    pub(crate) fn of(uri: &Uri, known: &[&str]) -> Self {
        let text = uri.query().unwrap_or_default();
        let mut query = Self {
            pairs: Vec::new(),
            problems: Problems::default(),
        };
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            if !known.contains(&name.as_ref()) {
                query.refuse(Code::UnknownField, &name, "there is no such parameter");
            } else if query.pairs.iter().any(|(other, _)| *other == name) {
                query.refuse(Code::FieldInvalid, &name, "may be given once");
            } else {
                query.pairs.push((name.into_owned(), value.into_owned()));
            }
        }
        query
    }

    /// Ends the reading with everything that was wrong.
    pub(crate) fn finish(self) -> Result<(), Refusal> {
        self.problems
            .into_rejection()
            .map_or(Ok(()), |rejection| Err(rejection.into()))
    }

    /// A value of any kind; an empty one counts as not given.
    pub(crate) fn parsed<T>(
        &mut self,
        name: &str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let (_, text) = self.pairs.iter().find(|(other, _)| other == name)?;
        if text.is_empty() {
            return None;
        }
        let value = parse(text);
        if value.is_none() {
            self.refuse(Code::FieldInvalid, name, expected);
        }
        value
    }

    pub(crate) fn status(&mut self) -> Option<Status> {
        let expected = "must be available, running, completed, failed or cancelled";
        self.parsed("status", expected, Status::from_word)
    }

    pub(crate) fn queue(&mut self) -> Option<QueueName> {
        self.parsed("queue", "must be primary or degraded", QueueName::from_word)
    }

    pub(crate) fn target(&mut self) -> Option<Target> {
        let expected = "must have 1 to 255 printable characters";
        self.parsed("target", expected, |text| Target::new(text).ok())
    }

    pub(crate) fn time(&mut self, name: &str) -> Option<DateTime<Utc>> {
        self.parsed(name, "must be a time such as 2026-01-31T12:00:00Z", time_of)
    }

    pub(crate) fn cursor(&mut self) -> Option<JobId> {
        let expected = "must be the next_cursor of an earlier answer";
        self.parsed("cursor", expected, JobId::parse)
    }

    pub(crate) fn limit(&mut self, default: usize, max: usize) -> usize {
        let limit = |text: &str| text.parse().ok().filter(|n| (1..=max).contains(n));
        self.parsed("limit", "must be a whole number from 1 to 500", limit)
            .unwrap_or(default)
    }

    /// A number of hours, none unless it is given.
    pub(crate) fn hours(&mut self, max: i32) -> i32 {
        let hours = |text: &str| text.parse().ok().filter(|n| (0..=max).contains(n));
        self.parsed("hours", "must be a whole number from 0 to 48", hours)
            .unwrap_or(0)
    }

    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let word = |text: &str| match text {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        };
        self.parsed(name, "must be true or false", word)
            .unwrap_or(false)
    }

    fn refuse(&mut self, code: Code, name: &str, detail: &'static str) {
        let mut pointer = String::new();
        // A name that is longer than any real one would only blow up the answer.
        if name.len() <= 256 {
            push_token(&mut pointer, name);
        }
        self.problems.push(Problem::new(code, pointer, detail));
    }
}

/// A time that Postgres can hold.
pub(crate) fn time_of(text: &str) -> Option<DateTime<Utc>> {
    // In a query, a plus sign that was not encoded has become a space.
    let text = text.replace(' ', "+");
    let time = DateTime::parse_from_rfc3339(&text).ok()?.to_utc();
    (1..=9999)
        .contains(&chrono::Datelike::year(&time))
        .then_some(time)
}
