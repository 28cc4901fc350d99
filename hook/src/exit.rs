//! How a command fails: with which exit code, and what it says.

use std::{
    fmt,
    io::{self, Write as _},
    process::ExitCode,
};

use hook_common::config::BadSettings;

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    error: anyhow::Error,
}

/// The exit codes that scripts can rely on; 0 is success.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// Our own machinery, or the machine, failed.
    Fault,
    /// What was typed or set cannot be meant.
    Usage,
    /// The API understood and said no; the same request will be refused again.
    Refused,
    /// Nobody answered, or not ready; the same request may work later.
    Unavailable,
}

impl Failure {
    pub(crate) fn new(kind: Kind, error: impl Into<anyhow::Error>) -> Self {
        Self {
            kind,
            error: error.into(),
        }
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Kind::Usage, anyhow::anyhow!("{message}"))
    }

    /// Says more, in front of what went wrong.
    pub(crate) fn with_note(self, note: &str) -> Self {
        Self {
            kind: self.kind,
            error: self.error.context(note.to_owned()),
        }
    }

    #[cfg(test)]
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Tells the person, and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let _nobody_listens = writeln!(io::stderr(), "hook: {self}");
        ExitCode::from(self.kind.code())
    }
}

impl Kind {
    const fn code(self) -> u8 {
        match self {
            Self::Fault => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Unavailable => 4,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Kind::Fault, error)
    }
}

impl From<BadSettings> for Failure {
    fn from(bad: BadSettings) -> Self {
        Self::new(Kind::Usage, bad)
    }
}
