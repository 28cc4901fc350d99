//! Keeps the layout honest: where SQL may stand, what pure modules import, how long files are.

use std::{
    fs,
    path::{Path, PathBuf},
};

const CRATES: [&str; 9] = [
    "hook",
    "hook-api",
    "hook-bench",
    "hook-common",
    "hook-janitor",
    "hook-localpg",
    "hook-testkit",
    "hook-worker",
    "tests",
];

/// Longest file without its tests.
const LINES_MAX: usize = 400;

/// A list of settings, one literal each: data that reads best in one piece.
const TABLES: [&str; 1] = ["hook-common/src/config/settings/table.rs"];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_owned()
}

/// Every Rust file of the workspace, with its path from the root and its text.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = CRATES.iter().map(|name| root().join(name)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the workspace") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path
                    .strip_prefix(root())
                    .expect("inside")
                    .display()
                    .to_string();
                found.push((name, fs::read_to_string(&path).expect("a text file")));
            }
        }
    }
    assert!(found.len() > 50, "the sources were not found");
    found
}

fn is_test(name: &str) -> bool {
    name.contains("tests") || name.ends_with("main.rs") && name.starts_with("tests/")
}

#[test]
fn files_are_short_and_begin_with_their_idea() {
    for (name, text) in sources() {
        if !is_test(&name) {
            assert!(text.starts_with("//!"), "{name} does not say what it holds");
            let code = text
                .split("#[cfg(test)]\nmod tests {")
                .next()
                .unwrap_or(&text);
            let lines = code.lines().count();
            assert!(
                lines <= LINES_MAX || TABLES.contains(&name.as_str()),
                "{name} has {lines} lines"
            );
        }
        assert!(
            !name.ends_with("/mod.rs"),
            "{name}: foo.rs beside foo/, never mod.rs"
        );
    }
}

#[test]
fn sql_stands_in_the_queue_and_the_database_module_only() {
    for (name, text) in sources() {
        let may = name.starts_with("hook-common/src/queue")
            || name.starts_with("hook-common/src/db")
            || name == "hook-common/src/migrate.rs"
            || name.starts_with("hook-testkit/")
            // What only load scenarios ask: fillings, floors, comparisons.
            || name.starts_with("hook-bench/src/sql")
            || is_test(&name);
        assert!(
            may || !text.contains("sqlx::query"),
            "{name} has a statement of its own"
        );
    }
}

#[test]
fn pure_modules_know_no_clock_no_network_and_no_database() {
    let pure = [
        "job",
        "target",
        "retry",
        "retry_after",
        "address",
        "headers",
        "url_rules",
        "envelope",
        "problem",
    ];
    for (name, text) in sources() {
        let of_common = name.strip_prefix("hook-common/src/").unwrap_or_default();
        let module = of_common.split(['/', '.']).next().unwrap_or_default();
        let policy =
            name == "hook-worker/src/policy.rs" || name.starts_with("hook-worker/src/heads");
        if pure.contains(&module) || policy {
            for forbidden in [
                "tokio::",
                "sqlx::",
                "metrics::",
                "std::net::Tcp",
                "Instant::now",
            ] {
                assert!(!text.contains(forbidden), "{name} uses {forbidden}");
            }
        }
    }
}
