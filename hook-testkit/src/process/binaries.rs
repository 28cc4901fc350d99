//! Makes sure that the programs under test are built from the sources under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The outcome of the one build of this process; a failure is not tried again.
static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();

/// The directory with the programs, built in the profile of the running test.
///
/// `cargo test` builds the programs of a package only for the integration tests of that very
/// package, so that a test elsewhere could run a stale program or none. The build is done once a
/// process and costs a fraction of a second after `cargo test --workspace`. `cargo test` has let go
/// of its build lock by the time that tests run.
///
/// # Panics
/// When the programs do not compile.
pub async fn binaries() -> &'static Path {
    let built = match BUILT.get() {
        Some(built) => built,
        None => tokio::task::spawn_blocking(|| BUILT.get_or_init(build))
            .await
            .expect("the build itself does not panic"),
    };
    match built {
        Ok(directory) => directory,
        Err(message) => panic!("building the programs failed:\n{message}"),
    }
}

fn build() -> Result<PathBuf, String> {
    let directory = profile_directory();
    let profile = directory
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a profile has a name");
    let target = directory.parent().expect("a profile is inside target/");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    // What cargo told this test about its package. Build scripts that look at it would run again,
    // and most of the dependencies would be compiled anew, now and at the next start of the tests.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            build.env_remove(name);
        }
    }
    let built = build
        // The same choice as `cargo test --workspace` makes. Fewer packages, or no tests, would give
        // shared dependencies other features, and all of them would be compiled a second time.
        .args(["build", "--quiet", "--workspace", "--bins", "--tests"])
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .args([
            "--profile",
            if profile == "debug" { "dev" } else { profile },
        ])
        .output()
        .expect("cargo can be run");
    if built.status.success() {
        Ok(directory)
    } else {
        Err(String::from_utf8_lossy(&built.stderr).into_owned())
    }
}

/// The test itself is in `target/<profile>/deps/`, the programs are in `target/<profile>/`.
fn profile_directory() -> PathBuf {
    let test = std::env::current_exe().expect("a process knows its own program");
    test.ancestors()
        .find(|path| path.ends_with("deps"))
        .and_then(Path::parent)
        .expect("a test runs from target/<profile>/deps/")
        .to_path_buf()
}
