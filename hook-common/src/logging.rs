//! Log lines: where they go, what they look like, and what they never contain.
//!
//! Lines go to stderr, so that stdout belongs to commands. A bare level in `HOOK_LOG` speaks of
//! our own crates; everybody else stays at `warn` unless named, because the libraries below us
//! log SQL, headers and URLs at their lower levels. Ours log none of these at any level.

use std::{io, io::IsTerminal as _, panic};

use tracing::{Subscriber, error, level_filters::LevelFilter};
use tracing_subscriber::{EnvFilter, fmt::MakeWriter, util::SubscriberInitExt as _};

use crate::metrics::process::PANICS_TOTAL;

mod repeats;

#[cfg(test)]
mod tests;

pub use repeats::Repeats;

/// How log lines look.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Format {
    /// Text on a terminal, else JSON.
    #[must_use]
    pub fn for_this_terminal() -> Self {
        if io::stderr().is_terminal() {
            Self::Text
        } else {
            Self::Json
        }
    }

    /// The format with this word, if there is one.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// What is logged, in the notation of `HOOK_LOG`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Filter(String);

/// The filter is not understood.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a level (error, warn, info, debug, trace, off) or a list such as info,hook_worker=debug")]
pub struct BadFilter;

impl Default for Filter {
    fn default() -> Self {
        Self::parse("info").expect("info is a level")
    }
}

impl Filter {
    /// Reads a comma-separated list of levels and `target=level` pairs.
    ///
    /// # Errors
    /// When a part is neither.
    pub fn parse(text: &str) -> Result<Self, BadFilter> {
        // The pool of sqlx warns once for each connection that is lost; `db` says it once for all.
        let mut parts = vec!["sqlx=error".to_owned()];
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            match part.parse::<LevelFilter>() {
                Ok(level) => {
                    // Ours first, others capped; `hook` covers every crate of the product.
                    parts.push(level.min(LevelFilter::WARN).to_string());
                    parts.push(format!("hook={level}"));
                }
                Err(_) => parts.push(part.to_owned()),
            }
        }
        let directives = parts.join(",");
        EnvFilter::builder()
            .parse(&directives)
            .map_err(|_| BadFilter)?;
        Ok(Self(directives))
    }

    fn build(&self) -> EnvFilter {
        EnvFilter::builder()
            .parse(&self.0)
            .expect("the text was parsed when the filter was made")
    }
}

/// Sends log lines and panics of this process to stderr; later calls change nothing, so that
/// several services can share a process.
pub fn init(filter: &Filter, format: Format) {
    let installed = match format {
        Format::Text => text(filter, io::stderr, io::stderr().is_terminal()).try_init(),
        Format::Json => json(filter, io::stderr).try_init(),
    };
    if installed.is_ok() {
        panic::set_hook(Box::new(log_panic));
    }
}

fn text<W>(filter: &Filter, to: W, colours: bool) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    tracing_subscriber::fmt()
        .with_env_filter(filter.build())
        .with_writer(to)
        .with_ansi(colours)
        .finish()
}

/// Fields stand beside the message; the module stays out, because our `target` is a destination.
fn json<W>(filter: &Filter, to: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    tracing_subscriber::fmt()
        .with_env_filter(filter.build())
        .with_writer(to)
        .json()
        .flatten_event(true)
        .with_target(false)
        .with_current_span(false)
        .with_span_list(false)
        .finish()
}

fn log_panic(info: &panic::PanicHookInfo<'_>) {
    PANICS_TOTAL.counter(&[]).increment(1);
    let location = info
        .location()
        .map_or_else(|| "unknown".to_owned(), ToString::to_string);
    let reason = info.payload_as_str().map_or("no reason", constant_part);
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    error!(location, thread, reason, "panic");
}

/// The part of a panic's message that comes from source text: values follow a quote or a colon,
/// and may be somebody's data.
fn constant_part(message: &str) -> &str {
    let end = message.find(['`', '"', '\'', ':', '\n']);
    end.map_or(message, |end| &message[..end])
}
