//! `hook enqueue`: hands jobs to the API, one from the command line or many from a file.
//!
//! What is sent as a payload are the bytes that were typed: they are checked to be JSON and not
//! written anew. A file of jobs goes out in batches, each stored as a whole or not at all; when
//! one is not stored, the message says which lines are and how to go on.

use std::{
    fs,
    io::{self, Read as _},
    time::Duration,
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value, value::RawValue};

use crate::{api::ApiArgs, exit::Failure, migrate::duration, output::Output};

mod lines;

#[derive(Args, Debug)]
pub(crate) struct EnqueueArgs {
    /// Where to deliver: an absolute http or https URL.
    #[arg(required_unless_present = "ndjson", conflicts_with = "ndjson")]
    url: Option<String>,
    /// The body, as JSON; `-` reads it from stdin. Sent exactly as it is written.
    #[arg(
        long,
        value_name = "JSON",
        group = "content",
        conflicts_with = "ndjson"
    )]
    payload: Option<String>,
    /// The body, as text.
    #[arg(
        long,
        value_name = "TEXT",
        group = "content",
        conflicts_with = "ndjson"
    )]
    body: Option<String>,
    /// The body, as the bytes of a file; `-` is stdin.
    #[arg(
        long,
        value_name = "FILE",
        group = "content",
        conflicts_with = "ndjson"
    )]
    body_file: Option<String>,
    /// Enqueue many: a file with one job a line, as the API takes them; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    ndjson: Option<String>,
    /// With --ndjson: leave out this many lines, which have been stored before.
    #[arg(
        long,
        value_name = "LINES",
        default_value_t = 0,
        conflicts_with = "url"
    )]
    skip: usize,
    #[command(flatten)]
    options: JobOptions,
    #[command(flatten)]
    api: ApiArgs,
}

/// What can be said about a single job besides where it goes and what it carries.
#[derive(Args, Debug)]
#[group(id = "options", multiple = true, conflicts_with = "ndjson")]
struct JobOptions {
    /// POST, PUT, PATCH, DELETE or GET.
    #[arg(long)]
    method: Option<String>,
    /// A header to send, as `name: value`; may be given more than once.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// A JSON object that stays with the job and is not sent.
    #[arg(long, value_name = "JSON", value_parser = json)]
    metadata: Option<Value>,
    /// The destination key, in place of the URL's host.
    #[arg(long)]
    target: Option<String>,
    /// First attempt not before this much later.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    delay: Option<Duration>,
    /// No attempt after this.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<Duration>,
    /// Attempts in all.
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// Deadline of one attempt.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// Makes repeating this command harmless.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// A stored secret to sign with; the first is the current one.
    #[arg(long, value_name = "NAME")]
    signing: Vec<String>,
}

/// A job as the API takes it.
#[derive(Serialize)]
struct Job<'a> {
    url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    headers: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signing: Option<Value>,
}

pub(crate) fn run(args: EnqueueArgs, output: Output) -> Result<(), Failure> {
    let api = args.api.api()?;
    if let Some(file) = &args.ndjson {
        return lines::enqueue(&api, file, args.skip, output);
    }
    let job = args.job()?;
    let body = serde_json::to_vec(&job).context("writing JSON")?;
    let answer = api.post_bytes("/v1/jobs", "application/json", &body)?;
    output.result(answer["id"].as_str().unwrap_or_default(), &answer)
}

impl EnqueueArgs {
    fn job(&self) -> Result<Job<'_>, Failure> {
        let options = &self.options;
        let payload = match &self.payload {
            None => None,
            Some(text) => {
                let text = match text.as_str() {
                    "-" => String::from_utf8(read("-")?).map_err(Failure::usage)?,
                    text => text.to_owned(),
                };
                let problem = |error| Failure::usage(format!("--payload is not JSON: {error}"));
                Some(RawValue::from_string(text).map_err(problem)?)
            }
        };
        let headers = options.headers.iter();
        Ok(Job {
            url: self.url.as_deref().unwrap_or_default(),
            payload,
            body: self.body.as_deref(),
            body_base64: match &self.body_file {
                Some(file) => Some(STANDARD.encode(read(file)?)),
                None => None,
            },
            method: options.method.as_deref(),
            headers: headers
                .map(|(name, value)| (name.clone(), value.as_str().into()))
                .collect(),
            metadata: options.metadata.as_ref(),
            target: options.target.as_deref(),
            delay_ms: options.delay.map(|delay| delay.as_millis()),
            ttl_ms: options.ttl.map(|ttl| ttl.as_millis()),
            max_attempts: options.max_attempts,
            timeout_ms: options.timeout.map(|timeout| timeout.as_millis()),
            idempotency_key: options.idempotency_key.as_deref(),
            signing: (!options.signing.is_empty())
                .then(|| serde_json::json!({"secrets": options.signing})),
        })
    }
}

/// The bytes of a file, or of stdin for `-`.
fn read(file: &str) -> Result<Vec<u8>, Failure> {
    let bytes = if file == "-" {
        let mut bytes = Vec::new();
        let read = io::stdin().lock().read_to_end(&mut bytes);
        read.map(|_| bytes)
    } else {
        fs::read(file)
    };
    bytes.map_err(|error| Failure::usage(format!("{file}: {error}")))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected `name: value`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: EnqueueArgs,
    }

    fn body(line: &[&str]) -> String {
        let line = Line::try_parse_from(["enqueue"].iter().chain(line)).unwrap();
        serde_json::to_string(&line.args.job().unwrap()).unwrap()
    }

    #[test]
    fn a_payload_is_sent_as_it_was_typed() {
        assert_eq!(
            body(&[
                "http://a.example/",
                "--payload",
                r#"{"n": 1.0,  "n2":1E400}"#
            ]),
            r#"{"url":"http://a.example/","payload":{"n": 1.0,  "n2":1E400}}"#
        );
    }

    #[test]
    fn options_become_fields_and_absent_ones_do_not() {
        assert_eq!(
            body(&[
                "http://a.example/",
                "--body",
                "text",
                "-H",
                "x-a: 1: 2",
                "--delay",
                "5s",
                "--signing",
                "new",
                "--signing",
                "old",
            ]),
            r#"{"url":"http://a.example/","body":"text","headers":{"x-a":"1: 2"},"delay_ms":5000,"signing":{"secrets":["new","old"]}}"#
        );
        assert_eq!(
            body(&["http://a.example/"]),
            r#"{"url":"http://a.example/"}"#
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused_before_anything_is_sent() {
        for line in [
            &[][..],
            &["http://a.example/", "--ndjson", "-"],
            &["http://a.example/", "--payload", "1", "--body", "2"],
            &["http://a.example/", "-H", "no colon"],
            &["http://a.example/", "--delay", "soon"],
            &["http://a.example/", "--skip", "3"],
        ] {
            let line: Vec<&str> = ["enqueue"].iter().chain(line).copied().collect();
            assert!(Line::try_parse_from(&line).is_err(), "{line:?}");
        }
        let line = Line::try_parse_from(["enqueue", "http://a.example/", "--payload", "{"]);
        assert!(line.unwrap().args.job().is_err());
    }
}
