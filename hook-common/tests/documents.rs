//! Documents that are made from tables in the code say what the code says.

use std::{env, fs, path::PathBuf};

/// Compares a document with what the code would write, or writes it when `UPDATE_DOCS` is set.
fn check(file: &str, expected: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(file);
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, expected).expect("docs can be written");
        return;
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/{file} is out of date: UPDATE_DOCS=1 cargo test -p hook-common --test documents"
    );
}

#[test]
fn metrics() {
    check("metrics.md", &hook_common::metrics::document());
}

#[test]
fn configuration() {
    check(
        "configuration.md",
        &hook_common::config::document::document(),
    );
}
