//! The older shape of an enqueue request, so that existing producers only change a host name.

use serde_json::value::RawValue;

use super::Request;
use super::fields::{Fields, unknown};
use super::json;
use super::judge::Shape;
use crate::job::NewJob;
use crate::problem::{Code, Problem, Problems};

/// Reads a job in the form `{"parameters": {…}, "metadata": {…}, "max_attempts": n}`.
pub(super) fn job(request: &Request<'_>, header_key: Option<&str>) -> Result<NewJob, Problems> {
    let mut problems = Problems::default();
    let mut fields = Fields::default();
    let mut parameters = None;
    for (name, value) in json::members(request.text, request.text)?.list {
        match name.as_ref() {
            "parameters" => parameters = Some(value),
            "metadata" => fields.metadata = unless_null(value),
            "max_attempts" => fields.max_attempts = unless_null(value),
            _ => problems.push(unknown(&name)),
        }
    }
    let Some(parameters) = parameters.filter(|raw| raw.get().starts_with('{')) else {
        let detail = "must be an object";
        problems.push(Problem::new(Code::FieldInvalid, "/parameters", detail));
        return Err(problems);
    };
    for (name, value) in json::members(request.text, parameters.get())?.list {
        match name.as_ref() {
            "url" => fields.url = Some(value),
            "method" => fields.method = unless_null(value),
            "headers" => fields.headers = unless_null(value),
            "body" if value.get().starts_with('"') => fields.body = Some(value),
            "body" => fields.payload = unless_null(value),
            _ => problems.push(unknown(&name).under("/parameters")),
        }
    }
    request
        .judge(Shape::Parameters, problems)
        .job(&fields, header_key)
}

fn unless_null(raw: &RawValue) -> Option<&RawValue> {
    Some(raw).filter(|raw| raw.get() != "null")
}
