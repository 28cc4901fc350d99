//! The committed description of the API says what the code says.

use std::{env, fs, path::Path};

#[test]
fn openapi() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    let expected = hook_api::openapi::text();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, expected).expect("docs can be written");
        return;
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/openapi.json is out of date: UPDATE_DOCS=1 cargo test -p hook-api --test documents"
    );
}
