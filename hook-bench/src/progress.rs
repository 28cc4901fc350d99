//! What a scenario says on stderr while it runs.

use std::{
    fmt,
    io::{self, Write as _},
};

/// Tells the person who waits what is being done.
pub(crate) fn say(what: impl fmt::Display) {
    let _nobody_reads = writeln!(io::stderr(), "bench: {what}");
}
