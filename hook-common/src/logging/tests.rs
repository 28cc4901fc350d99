use std::sync::{Arc, Mutex};

use super::*;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// What is written under a filter when ours and a library speak at every level.
fn written(filter: &str) -> String {
    let lines = Lines::default();
    let subscriber = text(&Filter::parse(filter).unwrap(), lines.clone(), false);
    tracing::subscriber::with_default(subscriber, || {
        tracing::trace!(target: "hook_worker::run", "ours trace");
        tracing::info!(target: "hook_api", "ours info");
        tracing::trace!(target: "sqlx::query", "theirs trace");
        tracing::debug!(target: "h2::codec", "theirs debug");
        tracing::warn!(target: "hyper::client", "theirs warn");
    });
    let bytes = lines.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_bare_level_speaks_of_our_crates() {
    let text = written("trace");
    assert!(text.contains("ours trace") && text.contains("ours info"));
    assert!(text.contains("theirs warn"));
    assert!(!text.contains("theirs trace") && !text.contains("theirs debug"));
    let text = written("info");
    assert!(text.contains("ours info") && !text.contains("ours trace"));
    let text = written("off");
    assert!(text.is_empty(), "{text}");
}

#[test]
fn a_library_speaks_when_it_is_named() {
    let text = written("info,sqlx=trace");
    assert!(text.contains("theirs trace") && !text.contains("theirs debug"));
    let text = written("warn,hook_worker=trace");
    assert!(text.contains("ours trace") && !text.contains("ours info"));
}

#[test]
fn nonsense_is_refused() {
    for text in ["hook=loud", "info,=,", "a=b=c"] {
        assert!(Filter::parse(text).is_err(), "{text}");
    }
}

#[test]
fn a_panic_shows_no_values() {
    let check = |message, expected| assert_eq!(constant_part(message), expected);
    check("the gate is open", "the gate is open");
    check("called on an `Err` value: Secret", "called on an ");
    check("the id is known: \"s3cr3t\"", "the id is known");
}

#[test]
fn json_lines_hold_each_name_once() {
    let lines = Lines::default();
    let subscriber = json(&Filter::default(), lines.clone());
    tracing::subscriber::with_default(subscriber, || {
        tracing::info!(target: "hook_worker", target = "example.com", job.id = "7", "finished");
    });
    let bytes = lines.0.lock().unwrap().clone();
    let line = String::from_utf8(bytes).unwrap();
    assert_eq!(line.matches("\"target\"").count(), 1, "{line}");
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["target"], "example.com");
    assert_eq!(value["job.id"], "7");
    assert_eq!(value["message"], "finished");
    assert_eq!(value["level"], "INFO");
}
