//! Many jobs, one a line, in batches that the API stores as a whole.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
};

use anyhow::{Context as _, anyhow};

use crate::{
    api::{Api, Fault, Refusal},
    exit::{Failure, Kind},
    output::Output,
};

/// Jobs of one request; the API takes no more.
const BATCH_JOBS_MAX: usize = 1000;

/// Bytes of one request, below the API's usual limit. A single longer line goes out alone.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Lines that go out together.
#[derive(Debug, Default)]
struct Batch {
    body: Vec<u8>,
    /// Where each job stands in the file, counted from 1.
    line_numbers: Vec<usize>,
}

/// Enqueues every line of a file (`-` is stdin) but for the first `skip`.
pub(super) fn enqueue(api: &Api, file: &str, skip: usize, output: Output) -> Result<(), Failure> {
    let reader: Box<dyn BufRead> = if file == "-" {
        Box::new(io::stdin().lock())
    } else {
        let opened = File::open(file);
        let opened = opened.map_err(|error| Failure::usage(format!("{file}: {error}")))?;
        Box::new(BufReader::new(opened))
    };
    let mut batch = Batch::default();
    for (index, line) in reader.split(b'\n').enumerate() {
        let line = line.with_context(|| format!("reading {file}"))?;
        if index < skip || line.trim_ascii().is_empty() {
            continue;
        }
        if batch.is_full_before(&line) {
            std::mem::take(&mut batch).send(api, output)?;
        }
        batch.add(&line, index + 1);
    }
    batch.send(api, output)
}

impl Batch {
    fn is_full_before(&self, line: &[u8]) -> bool {
        self.line_numbers.len() >= BATCH_JOBS_MAX
            || (!self.body.is_empty() && self.body.len() + line.len() >= BATCH_BYTES_MAX)
    }

    fn add(&mut self, line: &[u8], number: usize) {
        self.body.extend_from_slice(line);
        self.body.push(b'\n');
        self.line_numbers.push(number);
    }

    fn send(self, api: &Api, output: Output) -> Result<(), Failure> {
        let Some(first) = self.line_numbers.first() else {
            return Ok(());
        };
        let answer = api
            .post_bytes("/v1/jobs/batch", "application/x-ndjson", &self.body)
            .map_err(|fault| self.failure(fault, first - 1))?;
        for job in answer["jobs"].as_array().into_iter().flatten() {
            output.result(job["id"].as_str().unwrap_or_default(), job)?;
        }
        Ok(())
    }

    /// Says what is wrong by line of the file, and from where to go on.
    fn failure(&self, fault: Fault, stored: usize) -> Failure {
        let go_on = match stored {
            0 => "no line is stored".to_owned(),
            stored => format!(
                "every line up to {stored} is stored; go on with --skip {stored} when it is mended"
            ),
        };
        match fault {
            Fault::Silent(error) => {
                let error = error.context(
                    "no answer: the lines from here on may be stored or not, unless each has an \
                     idempotency_key",
                );
                Failure::new(Kind::Unavailable, error.context(go_on))
            }
            Fault::Refused(refusal) => {
                let lines = self.by_line(&refusal);
                let failure = Failure::from(refusal);
                if lines.is_empty() {
                    return failure.with_note(&go_on);
                }
                let error = anyhow!("the API refused the batch:\n{lines}{go_on}");
                Failure::new(Kind::Refused, error)
            }
        }
    }

    /// The errors of single jobs; nothing if there are none.
    fn by_line(&self, refusal: &Refusal) -> String {
        let mut text = String::new();
        for (pointer, detail) in refusal.errors() {
            let mut parts = pointer.splitn(4, '/').skip(2);
            let number = parts.next().and_then(|index| index.parse::<usize>().ok());
            let number = number.and_then(|index| self.line_numbers.get(index));
            let field = parts.next().unwrap_or_default();
            match number {
                Some(number) => text.push_str(&format!("  line {number}: {field}: {detail}\n")),
                None => text.push_str(&format!("  {pointer}: {detail}\n")),
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_are_named_by_line_of_the_file() {
        let mut batch = Batch::default();
        for number in [4, 6, 7] {
            batch.add(b"{}", number);
        }
        let refusal = Refusal {
            status: 422,
            problem: json!({"errors": [
                {"pointer": "/jobs/1/url", "detail": "is required"},
                {"pointer": "/jobs/2/headers/x", "detail": "is odd"},
                {"pointer": "/jobs/9/url", "detail": "is elsewhere"},
            ]}),
        };
        assert_eq!(
            batch.by_line(&refusal),
            "  line 6: url: is required\n  line 7: headers/x: is odd\n  /jobs/9/url: is elsewhere\n"
        );
        let failure = batch.failure(Fault::Refused(refusal), 3);
        assert_eq!(failure.kind(), Kind::Refused);
        assert!(failure.to_string().contains("--skip 3"), "{failure}");
    }

    #[test]
    fn a_batch_is_full_by_jobs_or_by_bytes() {
        let mut batch = Batch::default();
        let long = vec![b'x'; BATCH_BYTES_MAX + 1];
        assert!(
            !batch.is_full_before(&long),
            "a long line must go out alone"
        );
        batch.add(b"{}", 1);
        assert!(batch.is_full_before(&long));
        assert!(!batch.is_full_before(b"{}"));
        for number in 2..=BATCH_JOBS_MAX {
            batch.add(b"{}", number);
        }
        assert!(batch.is_full_before(b"{}"));
    }
}
