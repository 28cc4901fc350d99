//! Wrong wall clocks: a small library that is loaded into a process and moves its clock.
//!
//! It is compiled once per run by the C compiler that links this crate's programs, so nothing has
//! to be installed. Only the wall clock is moved; the clock that timers run by is left alone, as it
//! is on a machine whose time is set wrong.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::process::ProcessBuilder;

/// The variable that says by how many seconds the clock is wrong.
const OFFSET: &str = "SKEWED_CLOCK_SECONDS";

/// Asks the kernel itself, so that there is no function behind these ones to be found first.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    const char *text = getenv("SKEWED_CLOCK_SECONDS");
    return text ? atol(text) : 0;
}

int clock_gettime(clockid_t which, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, which, now);
    if (result == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE))
        now->tv_sec += offset();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return result;
}

time_t time(time_t *out) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (out)
        *out = exact.tv_sec;
    return exact.tv_sec;
}
"#;

impl ProcessBuilder {
    /// Moves the process's wall clock by so many seconds.
    ///
    /// # Panics
    /// When the library cannot be compiled.
    #[must_use]
    pub fn skewed_clock(self, seconds: i64) -> Self {
        let library = library().to_string_lossy().into_owned();
        self.set("LD_PRELOAD", library)
            .set(OFFSET, seconds.to_string())
    }
}

/// The compiled library.
fn library() -> &'static PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = tempfile::Builder::new()
            .prefix("hook-skew-")
            .tempdir()
            .expect("a temporary folder")
            // The processes of the whole run load it.
            .keep();
        let (source, library) = (folder.join("skew.c"), folder.join("skew.so"));
        std::fs::write(&source, SOURCE).expect("the source is written");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .status()
            .expect("the C compiler runs: it has linked this program");
        assert!(compiled.success(), "the library compiles");
        library
    })
}
