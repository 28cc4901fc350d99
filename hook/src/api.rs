//! A small client of the API: one request, one answer, and what follows from its status.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use hook_common::config::{Binary, Reader, Secret, command_line::Vars};
use serde_json::Value;

use crate::exit::{Failure, Kind};

/// A request that takes longer than this is given up; the API answers within seconds.
const LIMIT: Duration = Duration::from_secs(30);

/// Largest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The API, as the settings name it.
pub(crate) struct Api {
    agent: ureq::Agent,
    base: String,
    token: Option<Secret<String>>,
}

/// An answer that is not a success.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// The problem document, as far as the answer was one.
    pub(crate) problem: Value,
}

/// What went wrong with a request.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The API answered, and not with a success.
    Refused(Refusal),
    /// There was no answer.
    Silent(anyhow::Error),
}

impl Api {
    /// The API of `HOOK_API_URL`, with the token of `HOOK_API_TOKEN`.
    pub(crate) fn from_vars(vars: &Vars) -> Result<Self, Failure> {
        let mut reader = Reader::new(Binary::Hook, |name| vars.get(name));
        let base = reader.text("HOOK_API_URL").unwrap_or_default();
        let token = reader.secret("HOOK_API_TOKEN");
        reader.finish()?;
        let base = base.trim_end_matches('/').to_owned();
        let is_http = base.starts_with("http://") || base.starts_with("https://");
        if !is_http {
            return Err(Failure::usage(format!(
                "HOOK_API_URL = {base:?}: expected a URL such as http://127.0.0.1:3300"
            )));
        }
        let mut config = ureq::Agent::config_builder()
            .timeout_global(Some(LIMIT))
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("hook/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&base) {
            // A proxy of the environment cannot reach this machine's loopback.
            config = config.proxy(None);
        }
        Ok(Self {
            agent: config.build().into(),
            base,
            token,
        })
    }

    /// Sends a body to a route and gives the answer of a success.
    pub(crate) fn post(
        &self,
        route: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<Value, Fault> {
        let mut request = self.agent.post(format!("{}{route}", self.base));
        request = request.header("content-type", content_type);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {}", token.expose()));
        }
        let answer = request.send(body);
        self.judge(answer)
    }

    fn judge(
        &self,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Value, Fault> {
        let silent = |error: ureq::Error| {
            let error = anyhow::Error::new(error);
            Fault::Silent(error.context(format!("asking the API at {}", self.base)))
        };
        let mut answer = answer.map_err(silent)?;
        let status = answer.status().as_u16();
        let text = answer
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_vec()
            .map_err(silent)?;
        let value = serde_json::from_slice(&text);
        if (200..300).contains(&status) {
            return value
                .context("the API's answer is not JSON")
                .map_err(Fault::Silent);
        }
        Err(Fault::Refused(Refusal {
            status,
            problem: value.unwrap_or(Value::Null),
        }))
    }
}

impl Refusal {
    /// The stable word for what is wrong.
    pub(crate) fn code(&self) -> &str {
        self.problem["code"].as_str().unwrap_or("unknown")
    }

    /// Every error that the answer names: where, and what.
    pub(crate) fn errors(&self) -> Vec<(String, String)> {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let errors = self.problem["errors"].as_array();
        errors
            .into_iter()
            .flatten()
            .map(|error| (word(&error["pointer"]), word(&error["detail"])))
            .collect()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal.status {
            408 | 429 | 500.. => Kind::Unavailable,
            _ => Kind::Refused,
        };
        let detail = refusal.problem["detail"].as_str();
        let title = refusal.problem["title"].as_str();
        let said = detail.or(title).unwrap_or("no reason given");
        let mut text = format!(
            "the API answered {} {}: {said}",
            refusal.status,
            refusal.code()
        );
        for (pointer, detail) in refusal.errors() {
            text.push_str(&format!("\n  {pointer}: {detail}"));
        }
        Self::new(kind, anyhow!(text))
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(refusal) => refusal.into(),
            Fault::Silent(error) => Self::new(Kind::Unavailable, error),
        }
    }
}

/// Whether a URL leads to this machine.
fn is_loopback(base: &str) -> bool {
    let authority = base.split("://").nth(1).unwrap_or_default();
    let authority = authority.split('/').next().unwrap_or_default();
    ["127.", "localhost", "[::1]"]
        .iter()
        .any(|start| authority.starts_with(start))
}
