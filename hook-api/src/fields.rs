//! The fields of a small JSON object, read as strictly as an enqueue request.

use std::{fmt, ops::RangeInclusive};

use chrono::{DateTime, Utc};
use hook_common::{
    envelope::is_name,
    problem::{Code, Problem, Problems, push_token},
    target::Target,
};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;

use crate::{problem::Refusal, query::time_of};

/// Takes fields one by one; what nobody took is unknown.
pub(crate) struct Fields {
    list: Vec<(String, Value)>,
    problems: Problems,
}

impl Fields {
    /// Takes a JSON object apart.
    pub(crate) fn of(body: &[u8]) -> Result<Self, Refusal> {
        let Pairs(list) = serde_json::from_slice(body).map_err(|error| {
            let message = error.to_string();
            let reason = message.split(" at line ").next().unwrap_or_default();
            let (line, column) = (error.line(), error.column());
            let detail = format!("the JSON is not valid: {reason} (line {line}, column {column})");
            Problem::new(Code::JsonInvalid, "", detail)
        })?;
        Ok(Self {
            list,
            problems: Problems::default(),
        })
    }

    /// Ends the reading with everything that was wrong.
    pub(crate) fn finish(mut self) -> Result<(), Refusal> {
        for (name, _) in std::mem::take(&mut self.list) {
            self.refuse(Code::UnknownField, &name, "there is no such field");
        }
        self.problems
            .into_rejection()
            .map_or(Ok(()), |rejection| Err(rejection.into()))
    }

    /// A field that may be null, which clears what it stands for: `None` when it is not given.
    pub(crate) fn clearable<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Self, &'static str) -> Option<T>,
    ) -> Option<Option<T>> {
        let at = self.list.iter().position(|(other, _)| other == name)?;
        if self.list[at].1.is_null() {
            self.list.swap_remove(at);
            return Some(None);
        }
        read(self, name).map(Some)
    }

    /// A whole number within `range`.
    pub(crate) fn whole(
        &mut self,
        name: &'static str,
        range: RangeInclusive<usize>,
    ) -> Option<usize> {
        let detail = format!(
            "must be a whole number from {} to {}",
            range.start(),
            range.end()
        );
        self.value(name, detail, |value| {
            let number = usize::try_from(value.as_u64()?).ok()?;
            range.contains(&number).then_some(number)
        })
    }

    /// A number above zero.
    pub(crate) fn positive(&mut self, name: &'static str, max: f64) -> Option<f64> {
        let detail = format!("must be a number above 0 and at most {max}");
        self.value(name, detail, |value| {
            value
                .as_f64()
                .filter(|number| *number > 0.0 && *number <= max)
        })
    }

    /// A word out of a list.
    pub(crate) fn word<T>(
        &mut self,
        name: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        self.value(name, expected.to_owned(), |value| {
            value.as_str().and_then(parse)
        })
    }

    /// The name of a target.
    pub(crate) fn target(&mut self, name: &'static str) -> Option<Target> {
        let expected = "must have 1 to 255 printable characters";
        self.word(name, expected, |text| Target::new(text).ok())
    }

    /// A time.
    pub(crate) fn time(&mut self, name: &'static str) -> Option<DateTime<Utc>> {
        self.word(name, "must be a time such as 2026-01-31T12:00:00Z", time_of)
    }

    /// An idempotency key, which may stand in a header instead.
    pub(crate) fn key(&mut self, name: &'static str, header: Option<&str>) -> Option<String> {
        let expected =
            "must be a string of 1 to 255 printable characters, as in the header if there is one";
        if let (Some(key), false) = (header, self.list.iter().any(|(other, _)| other == name)) {
            self.list.push((name.to_owned(), key.into()));
        }
        self.word(name, expected, |text| {
            let is_same = header.is_none_or(|key| key == text);
            (is_name(text) && is_same).then(|| text.to_owned())
        })
    }

    /// A text that must be given.
    pub(crate) fn required_text(&mut self, name: &'static str) -> Option<String> {
        if !self.list.iter().any(|(other, _)| other == name) {
            self.refuse(Code::FieldInvalid, name, "is required");
            return None;
        }
        self.word(name, "must be a string", |text| Some(text.to_owned()))
    }

    fn value<T>(
        &mut self,
        name: &'static str,
        detail: String,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        let at = self.list.iter().position(|(other, _)| other == name)?;
        let (_, value) = self.list.swap_remove(at);
        let read = read(&value);
        if read.is_none() {
            self.problems
                .push(Problem::new(Code::FieldInvalid, format!("/{name}"), detail));
        }
        read
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

/// The members of an object, each name once.
struct Pairs(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor)
    }
}

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Pairs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
        /// More names than any object here can have; comparing them all stays cheap.
        const NAMES_MAX: usize = 64;
        let mut pairs: Vec<(String, Value)> = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            if pairs.iter().any(|(other, _)| *other == name) {
                return Err(A::Error::custom("a name is given twice in one object"));
            }
            if pairs.len() == NAMES_MAX {
                return Err(A::Error::custom("there are too many names in one object"));
            }
            pairs.push((name, value));
        }
        Ok(Pairs(pairs))
    }
}
