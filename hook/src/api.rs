//! A small client of the API: one request, one answer, and what follows from its status.

use std::{fmt, time::Duration};

use anyhow::{Context as _, anyhow};
use clap::Args;
use hook_common::config::{Binary, Reader, Secret, command_line::Vars};
use serde_json::Value;

use crate::{
    exit::{Failure, Kind},
    settings,
};

/// A request that takes longer than this is given up; the API answers within seconds.
const LIMIT: Duration = Duration::from_secs(30);

/// Largest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;

const JSON: &str = "application/json";

/// The flag of every command that asks the API.
#[derive(Args, Debug)]
pub(crate) struct ApiArgs {
    /// The API; default: HOOK_API_URL, else port 3300 of this machine.
    #[arg(long, value_name = "URL", global = true)]
    api_url: Option<String>,
}

/// What follows the `?` of a URL; nothing if no value is set.
#[derive(Debug)]
pub(crate) struct Query(Vec<(&'static str, String)>);

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

impl ApiArgs {
    /// The API that the flag or the environment names.
    pub(crate) fn api(&self) -> Result<Api, Failure> {
        Api::from_vars(&settings::vars([("HOOK_API_URL", self.api_url.as_deref())]))
    }
}

impl Query {
    pub(crate) fn new<const N: usize>(pairs: [(&'static str, Option<String>); N]) -> Self {
        let pairs = pairs.into_iter();
        Self(
            pairs
                .filter_map(|(name, value)| Some((name, value?)))
                .collect(),
        )
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            write!(f, "{mark}{name}={}", segment(value))?;
        }
        Ok(())
    }
}

/// Text as a segment of a path or a value of a query.
pub(crate) fn segment(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
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

    /// Asks a route.
    pub(crate) fn get(&self, route: &str) -> Result<Value, Fault> {
        let request = self.agent.get(format!("{}{route}", self.base));
        let answer = self.authorised(request).call();
        self.judge(answer)
    }

    /// Sends a JSON value to a route; null is no body.
    pub(crate) fn post(&self, route: &str, value: &Value) -> Result<Value, Fault> {
        if value.is_null() {
            let request = self.agent.post(format!("{}{route}", self.base));
            let answer = self.authorised(request).send_empty();
            return self.judge(answer);
        }
        self.post_bytes(route, JSON, value.to_string().as_bytes())
    }

    /// Sends bytes to a route.
    pub(crate) fn post_bytes(
        &self,
        route: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<Value, Fault> {
        let request = self.agent.post(format!("{}{route}", self.base));
        let request = request.header("content-type", content_type);
        let answer = self.authorised(request).send(body);
        self.judge(answer)
    }

    /// Changes what a route leads to.
    pub(crate) fn patch(&self, route: &str, value: &Value) -> Result<Value, Fault> {
        let request = self.agent.patch(format!("{}{route}", self.base));
        let request = request.header("content-type", JSON);
        let answer = self.authorised(request).send(value.to_string().as_bytes());
        self.judge(answer)
    }

    /// Puts a JSON value where a route leads.
    pub(crate) fn put(&self, route: &str, value: &Value) -> Result<Value, Fault> {
        let request = self.agent.put(format!("{}{route}", self.base));
        let request = request.header("content-type", JSON);
        let answer = self.authorised(request).send(value.to_string().as_bytes());
        self.judge(answer)
    }

    /// Deletes what a route leads to.
    pub(crate) fn delete(&self, route: &str) -> Result<Value, Fault> {
        let request = self.agent.delete(format!("{}{route}", self.base));
        let answer = self.authorised(request).call();
        self.judge(answer)
    }

    fn authorised<Body>(&self, request: ureq::RequestBuilder<Body>) -> ureq::RequestBuilder<Body> {
        match &self.token {
            Some(token) => request.header("authorization", format!("Bearer {}", token.expose())),
            None => request,
        }
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
        if status == 204 {
            return Ok(Value::Null);
        }
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
        let others = refusal.errors().into_iter();
        for (pointer, detail) in others.filter(|error| *error != (String::new(), said.to_owned())) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_cannot_leave_its_place_in_the_url() {
        assert_eq!(segment("a/b?c#d é"), "a%2Fb%3Fc%23d%20%C3%A9");
        let query = Query::new([("a", Some("1&b=2".to_owned())), ("c", None)]);
        assert_eq!(query.to_string(), "?a=1%26b%3D2");
        assert_eq!(Query::new([("c", None)]).to_string(), "");
    }
}
