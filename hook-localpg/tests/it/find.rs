//! Which Postgres is chosen, and what is said when there is none.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use hook_localpg::find::{FindError, Search};

use crate::support::{place, pretend, script};

fn search(directories: Vec<PathBuf>) -> Search {
    Search {
        named: None,
        directories,
        fetch: None,
    }
}

#[test]
fn the_first_usable_directory_wins() {
    let place = place();
    let empty = place.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let old = pretend(place.path(), "old", "13.9");
    let client_only = pretend(place.path(), "no-initdb", "17.1");
    fs::remove_file(client_only.join("initdb")).unwrap();
    let broken = pretend(place.path(), "broken", "17.1");
    script(&broken.join("postgres"), "exit 127");
    let good = pretend(place.path(), "good", "16.3");
    let better = pretend(place.path(), "better", "17.5");

    let directories = vec![empty, old, client_only, broken, good.clone(), better];
    let found = search(directories).find().unwrap();
    assert_eq!(found.directory(), good);
    assert_eq!(found.major(), 16);
}

#[test]
fn an_error_says_what_was_skipped_and_what_to_install() {
    let place = place();
    let old = pretend(place.path(), "old", "13.9");
    let error = search(vec![old.clone()]).find().unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains(&format!("{} is version 13", old.display())),
        "{text}"
    );
    assert!(text.contains("install postgresql"), "{text}");
    assert!(error.source().is_none());
}

#[test]
fn a_directory_named_by_the_user_is_the_only_one_looked_at() {
    let place = place();
    let good = pretend(place.path(), "good", "16.3");
    let named = pretend(place.path(), "named", "12.1");
    let vars = |name: &str| match name {
        "HOOK_DEV_PG_BIN" => Some(named.display().to_string()),
        "PATH" => Some(good.display().to_string()),
        _ => None,
    };
    let error = Search::from_vars(vars).find().unwrap_err();
    assert!(matches!(&error, FindError::Named { directory, .. } if *directory == named));
    assert!(error.to_string().starts_with("HOOK_DEV_PG_BIN="), "{error}");
}

#[test]
fn the_path_comes_before_the_places_of_packages() {
    let place = place();
    let good = pretend(place.path(), "good", "16.3");
    let vars = |name: &str| match name {
        "HOOK_DEV_PG_BIN" => Some(String::new()),
        "PATH" => Some(format!("relative:/nowhere:{}", good.display())),
        _ => None,
    };
    assert_eq!(Search::from_vars(vars).find().unwrap().directory(), good);
}
