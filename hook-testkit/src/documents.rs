//! Documents that are made from the code and committed: do they still say what the code says?

use std::{env, fs, path::Path};

/// Compares `docs/<file>` with what the code would write, or writes it when `UPDATE_DOCS` is set.
///
/// # Panics
/// When they differ; the message says how to write it anew.
pub fn check(file: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(file);
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, expected).expect("docs can be written");
        return;
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/{file} is out of date: UPDATE_DOCS=1 cargo test --workspace --test documents"
    );
}
