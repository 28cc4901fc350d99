//! Rebuilds the crate when a migration is added, since the files are embedded in it.

#[expect(clippy::print_stdout, reason = "this is how a build script talks to cargo")]
fn main() {
    println!("cargo:rerun-if-changed=../migrations");
}
