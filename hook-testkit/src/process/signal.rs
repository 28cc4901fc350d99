//! Signals that a test sends.

use rustix::process::{Pid, kill_process};

/// A signal that a test sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Signal {
    /// `SIGTERM`
    Terminate,
    /// `SIGINT`
    Interrupt,
    /// `SIGKILL`
    Kill,
    /// `SIGSTOP`
    Stop,
    /// `SIGCONT`
    Continue,
}

impl Signal {
    /// Sends it to a process.
    ///
    /// # Errors
    /// When there is no such process.
    ///
    /// # Panics
    /// When the number is none of a process.
    pub(super) fn send(self, pid: u32) -> rustix::io::Result<()> {
        let number = match self {
            Self::Terminate => rustix::process::Signal::TERM,
            Self::Interrupt => rustix::process::Signal::INT,
            Self::Kill => rustix::process::Signal::KILL,
            Self::Stop => rustix::process::Signal::STOP,
            Self::Continue => rustix::process::Signal::CONT,
        };
        let raw = i32::try_from(pid).expect("a process id fits");
        let pid = Pid::from_raw(raw).expect("a process id is not zero");
        kill_process(pid, number)
    }
}
