//! Bounded waits for blocking code.
//!
//! This crate runs outside any async runtime, and a runtime's clock may be paused by a test; a
//! deadline here must pass all the same, so it is kept on the operating system's clock.

use std::io;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// How long to pause between two looks at a condition.
const STEP: Duration = Duration::from_millis(10);

/// How long a program may be busy being written.
const BUSY_LIMIT: Duration = Duration::from_secs(5);

/// Looks at `condition` until it holds; false when it still does not after `limit`.
#[expect(
    clippy::disallowed_types,
    reason = "no runtime here, and its clock may be paused"
)]
pub(crate) fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = std::time::Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() >= limit {
            return false;
        }
        pause(STEP);
    }
}

/// Lets some time pass.
#[expect(
    clippy::disallowed_methods,
    reason = "the one sleep of this blocking crate"
)]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// Waits for a child to end; false when it still runs after `limit`.
pub(crate) fn wait_for_exit(child: &mut Child, limit: Duration) -> bool {
    // An error means that there is no such child any more, which is what we wait for.
    wait_until(limit, || !matches!(child.try_wait(), Ok(None)))
}

/// Starts a command whose program may have been written just now. A process that another thread is
/// starting at that moment still has the file open, and until it runs its own program Linux refuses.
fn spawn(command: &mut Command) -> io::Result<Child> {
    let is_busy = |spawned: &io::Result<Child>| {
        spawned
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::ExecutableFileBusy)
    };
    let mut spawned = command.spawn();
    wait_until(BUSY_LIMIT, || {
        let busy = is_busy(&spawned);
        if busy {
            spawned = command.spawn();
        }
        !busy
    });
    spawned
}

/// Runs a command that prints little, and kills it when it takes longer than `limit`.
pub(crate) fn output_within(command: &mut Command, limit: Duration) -> io::Result<Output> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = spawn(command)?;
    if !wait_for_exit(&mut child, limit) {
        child.kill()?;
        child.wait()?;
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!(
                "{} did not end within {limit:?}",
                command.get_program().display()
            ),
        ));
    }
    child.wait_with_output()
}
