//! Rebuilds the crate when a migration is added, since the files are embedded in it.

fn main() {
    println!("cargo:rerun-if-changed=../migrations");
}
