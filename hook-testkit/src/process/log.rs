//! The output of a child process, line by line.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::time::Instant;

use crate::process::Listener;

/// Most bytes of text that are kept; the oldest lines go first.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// Where a line came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Source {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One line of output.
#[derive(Clone, Debug)]
pub struct Line {
    /// When it was read.
    pub at: Instant,
    /// Where it came from.
    pub source: Source,
    /// Its text without the line end.
    pub text: String,
}

impl Line {
    /// The line as JSON, or null when it is something else.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// A field of a JSON log line, whether the format nests the fields or not.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Value> {
        let line = self.json();
        let found = line.get("fields").and_then(|fields| fields.get(name));
        found.or_else(|| line.get(name)).cloned()
    }

    /// A field of a JSON log line that is a text.
    #[must_use]
    pub fn text_field(&self, name: &str) -> Option<String> {
        self.field(name)?.as_str().map(str::to_owned)
    }

    /// The message of a JSON log line.
    #[must_use]
    pub fn message(&self) -> Option<String> {
        self.text_field("message")
    }

    /// The address, if this line reports that `listener` listens.
    pub(super) fn listening(&self, listener: Listener) -> Option<SocketAddr> {
        let name = match listener {
            Listener::Public => "public",
            Listener::Ops => "ops",
        };
        let reports = self.message()? == "listening" && self.text_field("listener")? == name;
        reports.then(|| self.text_field("address"))??.parse().ok()
    }
}

/// The lines of one process; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Log(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<Line>,
    bytes: usize,
    sources_open: usize,
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lines(&self) -> Vec<Line> {
        self.lock().lines.iter().cloned().collect()
    }

    /// How many of the pipes still have a writer.
    pub(super) fn open_sources(&self) -> usize {
        self.lock().sources_open
    }

    fn add(&self, source: Source, text: String) {
        let mut kept = self.lock();
        kept.bytes += text.len();
        kept.lines.push_back(Line {
            at: Instant::now(),
            source,
            text,
        });
        while kept.bytes > BYTES_MAX {
            let Some(oldest) = kept.lines.pop_front() else {
                return;
            };
            kept.bytes -= oldest.text.len();
        }
    }

    /// Reads lines until the pipe ends.
    pub(super) fn collect(
        self,
        source: Source,
        pipe: impl AsyncRead + Unpin,
    ) -> impl Future<Output = ()> {
        self.lock().sources_open += 1;
        async move {
            let mut reader = BufReader::new(pipe);
            let mut line = Vec::new();
            while reader
                .read_until(b'\n', &mut line)
                .await
                .is_ok_and(|n| n > 0)
            {
                let text = String::from_utf8_lossy(&line);
                self.add(source, text.trim_end_matches(['\r', '\n']).to_owned());
                line.clear();
            }
            self.lock().sources_open -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        Line {
            at: Instant::now(),
            source: Source::Stdout,
            text: text.into(),
        }
    }

    #[test]
    fn a_listening_line_is_read_in_both_layouts() {
        let nested = r#"{"level":"INFO","fields":{"message":"listening","listener":"ops","address":"127.0.0.1:7"}}"#;
        let flat = r#"{"message":"listening","listener":"public","address":"[::1]:8"}"#;
        let ops = line(nested).listening(Listener::Ops).unwrap();
        assert_eq!(ops, "127.0.0.1:7".parse().unwrap());
        assert_eq!(line(nested).listening(Listener::Public), None);
        let public = line(flat).listening(Listener::Public).unwrap();
        assert_eq!(public, "[::1]:8".parse().unwrap());
        assert_eq!(
            line("listening on 127.0.0.1:9").listening(Listener::Ops),
            None
        );
    }
}
