//! Turns the bytes of an enqueue request into validated jobs.
//!
//! The payload of a job is opaque: it is a slice of the request, never decoded and never written
//! anew, so that numbers, escapes and key order arrive as the producer wrote them. Everything
//! around it is read strictly: unknown fields, names given twice and values out of range are
//! refused, all of them at once, because a misspelt option that is ignored is found too late.
//!
//! There is no clock here: "now" and delays stay what they are until Postgres turns them into
//! times. Nothing here recurses into the request.

use bytes::Bytes;

use crate::address::AllowNets;
use crate::job::NewJob;
use crate::problem::{Code, Problem, Problems, Rejection};

mod body;
mod digest;
mod fields;
mod json;
mod judge;
mod legacy;
mod metadata;
mod schedule;

pub use digest::request_sha256;
use fields::Fields;
pub use judge::is_name;
use judge::{Judge, Shape};

/// Most jobs of one batch.
pub const BATCH_JOBS_MAX: usize = 1000;

/// What the operator allows.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Longest body of one job, in bytes. Default 1 MiB.
    pub job_body_max: usize,
    /// Networks that are open besides the public Internet. Default none.
    pub allow_nets: AllowNets,
    /// Whether `http` URLs are refused. Default no.
    pub https_only: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            job_body_max: 1024 * 1024,
            allow_nets: AllowNets::default(),
            https_only: false,
        }
    }
}

/// Reads the body of `POST /v1/jobs`.
///
/// `header_key` is the `Idempotency-Key` header, which stands for the field of that name.
///
/// # Errors
/// Everything that is wrong with the request.
pub fn parse_one(
    request: &Bytes,
    header_key: Option<&str>,
    limits: &Limits,
) -> Result<NewJob, Rejection> {
    let text = json::text(request)?;
    let request = Request {
        source: request,
        text,
        limits,
    };
    request.flat_job(text, header_key).map_err(rejection)
}

/// Reads the body of `POST /v1/jobs/batch`: an object with the array `jobs`.
///
/// # Errors
/// Everything that is wrong with any item, by pointers such as `/jobs/3/url`.
pub fn parse_batch_json(request: &Bytes, limits: &Limits) -> Result<Vec<NewJob>, Rejection> {
    let text = json::text(request)?;
    let members = json::members(text, text)?;
    let mut problems = Problems::default();
    let mut jobs = None;
    for (name, value) in members.list {
        if name == "jobs" {
            jobs = Some(value);
        } else {
            problems.push(fields::unknown(&name));
        }
    }
    let Some(items) = jobs.and_then(|jobs| json::items(jobs, BATCH_JOBS_MAX)) else {
        problems.push(Problem::new(
            Code::FieldInvalid,
            "/jobs",
            "must be an array of jobs",
        ));
        return Err(rejection(problems));
    };
    let request = Request {
        source: request,
        text,
        limits,
    };
    request.batch(items.iter().map(|item| item.get()), problems)
}

/// Reads the body of `POST /v1/jobs/batch` as newline-delimited JSON, one job a line.
///
/// Empty lines are skipped. Pointers are those of the batch in its other form.
///
/// # Errors
/// Everything that is wrong with any line.
pub fn parse_batch_ndjson(request: &Bytes, limits: &Limits) -> Result<Vec<NewJob>, Rejection> {
    let text = json::text(request)?;
    let lines = text.split('\n').filter(|line| !json::is_blank(line));
    Request {
        source: request,
        text,
        limits,
    }
    .batch(lines, Problems::default())
}

/// Reads the body of `POST /webhook`, the older shape.
///
/// There the body is a string, and what is sent are the string's characters. Another JSON value is
/// taken as it was written. A null stands for a field that is not given.
///
/// # Errors
/// Everything that is wrong with the request.
pub fn parse_legacy(
    request: &Bytes,
    header_key: Option<&str>,
    limits: &Limits,
) -> Result<NewJob, Rejection> {
    let text = json::text(request)?;
    let request = Request {
        source: request,
        text,
        limits,
    };
    legacy::job(&request, header_key).map_err(rejection)
}

/// A request that is being read.
struct Request<'a> {
    source: &'a Bytes,
    text: &'a str,
    limits: &'a Limits,
}

impl<'a> Request<'a> {
    /// Reads a job in the form with all fields in one object.
    fn flat_job(&self, object: &'a str, header_key: Option<&str>) -> Result<NewJob, Problems> {
        let members = json::members(self.text, object)?;
        let mut problems = Problems::default();
        let fields = Fields::new(members, &mut problems);
        self.judge(Shape::Flat, problems).job(&fields, header_key)
    }

    /// Reads an item of a batch. There, another JSON value is one bad item among good ones.
    fn item(&self, item: &'a str) -> Result<NewJob, Problems> {
        if json::is_value_but_no_object(item) {
            return Err(Problem::new(Code::FieldInvalid, "", "must be an object").into());
        }
        self.flat_job(item, None)
    }

    fn judge(&self, shape: Shape, problems: Problems) -> Judge<'a> {
        Judge {
            source: self.source,
            text: self.text,
            limits: self.limits,
            shape,
            problems,
        }
    }

    /// Reads all jobs of a batch, or lists what is wrong with each of them.
    fn batch(
        &self,
        items: impl Iterator<Item = &'a str>,
        mut problems: Problems,
    ) -> Result<Vec<NewJob>, Rejection> {
        let mut jobs = Vec::new();
        let mut count = 0;
        for item in items {
            if count == BATCH_JOBS_MAX {
                count += 1;
                break;
            }
            match self.item(item) {
                Ok(job) => jobs.push(job),
                Err(part) => {
                    let room = problems.room_for_job(BATCH_JOBS_MAX);
                    problems.absorb(part, &format!("/jobs/{count}"), room);
                }
            }
            count += 1;
        }
        if !(1..=BATCH_JOBS_MAX).contains(&count) {
            let detail = "must have 1 to 1000 jobs";
            problems.push(Problem::new(Code::FieldInvalid, "/jobs", detail));
        }
        match problems.into_rejection() {
            Some(rejection) => Err(rejection),
            None => Ok(jobs),
        }
    }
}

fn rejection(problems: Problems) -> Rejection {
    problems
        .into_rejection()
        .expect("a job is refused for at least one problem")
}

#[cfg(test)]
mod tests;
