//! What commands print to stdout, as text for people or JSON for programs.
//!
//! A reader that has gone away (`hook jobs | head`) is no fault: printing then ends the command
//! quietly, as if it had been done.

use std::io::{self, Write as _};

use anyhow::Context as _;
use serde::Serialize;

use crate::exit::Failure;

/// How results are printed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Format {
    Text,
    Json,
}

/// The way to stdout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    format: Format,
}

impl Output {
    pub(crate) const fn new(format: Format) -> Self {
        Self { format }
    }

    /// Prints one result: the text, or the value as one line of JSON.
    pub(crate) fn result(self, text: &str, value: &impl Serialize) -> Result<(), Failure> {
        match self.format {
            Format::Text => self.line(text),
            Format::Json => {
                let json = serde_json::to_string(value).context("writing JSON")?;
                self.line(&json)
            }
        }
    }

    /// Prints what happens along the way; that nobody can read it is no fault.
    pub(crate) fn show(self, text: &str, value: &impl Serialize) {
        let json = || serde_json::to_string(value).unwrap_or_default();
        let line = match self.format {
            Format::Text => text.to_owned(),
            Format::Json => json(),
        };
        let _nobody_reads = writeln!(io::stdout(), "{line}");
    }

    /// Prints one line.
    pub(crate) fn line(self, text: &str) -> Result<(), Failure> {
        self.bytes(format!("{text}\n").as_bytes())
    }

    /// Prints bytes as they are.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
            written => Ok(written.context("printing")?),
        }
    }
}
