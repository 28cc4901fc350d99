//! What commands print to stdout, as text for people or JSON for programs.
//!
//! A reader that has gone away (`hook jobs | head`) is no fault: printing then ends the command
//! quietly, as if it had been done.

use std::{
    fmt,
    io::{self, Write as _},
};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

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

/// Columns of text, each as wide as its widest cell.
pub(crate) struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(crate) fn new(heads: [&str; COLUMNS]) -> Self {
        Self {
            rows: vec![heads.map(str::to_owned)],
        }
    }

    pub(crate) fn row(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells);
    }
}

impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: [usize; COLUMNS] = std::array::from_fn(width);
        for (index, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(widths);
            let line: Vec<String> = cells
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            let end = if index > 0 { "\n" } else { "" };
            write!(f, "{end}{}", line.join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// A JSON value as a person reads it, in one line and without control characters: what jobs
/// carry comes from strangers.
pub(crate) fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    };
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_have_no_tail() {
        let mut table = Table::new(["A", "LONG", "C"]);
        table.row(["first".to_owned(), "x".to_owned(), String::new()]);
        assert_eq!(table.to_string(), "A      LONG  C\nfirst  x");
    }

    #[test]
    fn a_cell_cannot_move_the_cursor() {
        assert_eq!(cell(&json!("a\u{1b}[2Jb\n")), "a [2Jb ");
        assert_eq!(cell(&json!(null)), "-");
        assert_eq!(cell(&json!(7)), "7");
    }
}
