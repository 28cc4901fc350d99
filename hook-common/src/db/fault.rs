//! What follows from an error of Postgres or of the way to it: the one place that reads SQLSTATEs.

use std::fmt;

/// What a caller can do about a statement that failed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Fault {
    /// Nothing was sent: Postgres cannot be reached, or takes no connections. Try again later.
    Unreachable,
    /// The connection broke after the statement was sent: it may have been committed or not.
    OutcomeUnknown,
    /// The server does not write: a standby, or read-only. Nothing was changed.
    NotWritable,
    /// The server or the pool is used up: connections, memory, disk. Nothing was changed.
    Overloaded,
    /// Somebody else was in the way (deadlock, serialisation, lock timeout). Repeat it.
    Conflict,
    /// Ended by a deadline of the server or by an administrator. Nothing was changed.
    Cancelled,
    /// The prepared statement no longer fits the schema, or the pooler lost it. Nothing was
    /// changed; a new connection helps.
    StaleStatement,
    /// The data was refused (a constraint, a value out of range): the same data never passes.
    Refused,
    /// Our own mistake or the operator's: repeating it cannot help.
    Permanent,
}

impl Fault {
    /// Every fault.
    pub const ALL: &'static [Self] = &[
        Self::Unreachable,
        Self::OutcomeUnknown,
        Self::NotWritable,
        Self::Overloaded,
        Self::Conflict,
        Self::Cancelled,
        Self::StaleStatement,
        Self::Refused,
        Self::Permanent,
    ];

    /// The word in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::NotWritable => "not_writable",
            Self::Overloaded => "overloaded",
            Self::Conflict => "conflict",
            Self::Cancelled => "cancelled",
            Self::StaleStatement => "stale_statement",
            Self::Refused => "refused",
            Self::Permanent => "permanent",
        }
    }

    /// Whether the same statement may pass later.
    #[must_use]
    pub const fn may_pass_later(self) -> bool {
        match self {
            Self::Unreachable
            | Self::OutcomeUnknown
            | Self::NotWritable
            | Self::Overloaded
            | Self::Conflict
            | Self::Cancelled
            | Self::StaleStatement => true,
            Self::Refused | Self::Permanent => false,
        }
    }

    /// Whether the statement has certainly changed nothing.
    #[must_use]
    pub const fn changed_nothing(self) -> bool {
        match self {
            Self::OutcomeUnknown => false,
            Self::Unreachable
            | Self::NotWritable
            | Self::Overloaded
            | Self::Conflict
            | Self::Cancelled
            | Self::StaleStatement
            | Self::Refused
            | Self::Permanent => true,
        }
    }

    /// Judges the error of a statement that may have been sent.
    #[must_use]
    pub fn of(error: &sqlx::Error) -> Self {
        use sqlx::Error as E;
        if let E::Database(refusal) = error {
            let code = refusal.code();
            return code.map_or(Self::Permanent, |code| Self::of_sqlstate(&code));
        }
        if matches!(error, E::PoolTimedOut) {
            return Self::Overloaded;
        }
        // A pool that was replaced, or a `BEGIN` that did not take: nothing else was sent.
        if matches!(error, E::PoolClosed | E::BeginFailed) {
            return Self::Unreachable;
        }
        // The stream was cut, or held what cannot be understood, after something was sent.
        if matches!(error, E::Io(_) | E::Protocol(_) | E::WorkerCrashed) {
            return Self::OutcomeUnknown;
        }
        // What is left are mistakes in our code or in the set-up.
        Self::Permanent
    }

    /// Judges the error of asking for a connection: nothing was sent in any case.
    ///
    /// `near` says whether Postgres has answered anybody within the last seconds; a pool that
    /// gives nothing is full then, and cut off otherwise.
    #[must_use]
    pub fn of_acquire(error: &sqlx::Error, near: bool) -> Self {
        let fault = Self::of(error);
        let cut_off = fault == Self::Overloaded && !near;
        if cut_off || fault == Self::OutcomeUnknown {
            Self::Unreachable
        } else {
            fault
        }
    }

    /// Judges an SQLSTATE.
    #[must_use]
    pub fn of_sqlstate(code: &str) -> Self {
        match code {
            // read_only_sql_transaction; a standby refuses row locks with this one, too.
            "25006" => Self::NotWritable,
            // cannot_connect_now: starting up, shutting down or in recovery.
            "57P03" => Self::Unreachable,
            // admin_shutdown and idle_session_timeout end a statement before its commit.
            "57P01" | "57P05" => Self::Unreachable,
            // crash_shutdown and database_dropped may come at any moment.
            "57P02" | "57P04" => Self::OutcomeUnknown,
            "57014" => Self::Cancelled,
            // serialization_failure, deadlock_detected, lock_not_available.
            "40001" | "40P01" | "55P03" => Self::Conflict,
            // statement_completion_unknown, transaction_resolution_unknown.
            "40003" | "08007" => Self::OutcomeUnknown,
            // feature_not_supported is what a changed result type is reported as; then the
            // statement names that a pooler or a reset has lost, and a connection left inside a
            // failed transaction.
            "0A000" | "26000" | "42P05" | "25P02" | "25P01" | "25001" => Self::StaleStatement,
            // protocol_violation comes from poolers that close a connection.
            "08P01" => Self::Unreachable,
            _ => match code.get(..2).unwrap_or_default() {
                "08" => Self::Unreachable,
                "40" => Self::Conflict,
                // Connections, memory or disk used up; errors of the file system.
                "53" | "58" => Self::Overloaded,
                // Data exceptions, constraints, and values beyond a limit of the server.
                "22" | "23" | "54" => Self::Refused,
                _ => Self::Permanent,
            },
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error in a few words without anything that Postgres said: for `/readyz`.
#[must_use]
pub fn in_short(error: &sqlx::Error) -> String {
    if let sqlx::Error::Database(refusal) = error {
        return refusal.code().map_or_else(
            || "refused".to_owned(),
            |code| format!("refused with SQLSTATE {code}"),
        );
    }
    if let sqlx::Error::Io(error) = error {
        return error.kind().to_string();
    }
    if matches!(error, sqlx::Error::Tls(_)) {
        return "no TLS connection".to_owned();
    }
    if matches!(error, sqlx::Error::PoolTimedOut) {
        return "no connection in time".to_owned();
    }
    Fault::of(error).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstates() {
        let check = |code, fault| assert_eq!(Fault::of_sqlstate(code), fault, "{code}");
        check("25006", Fault::NotWritable);
        check("57P01", Fault::Unreachable);
        check("57P03", Fault::Unreachable);
        check("08006", Fault::Unreachable);
        check("57P02", Fault::OutcomeUnknown);
        check("08007", Fault::OutcomeUnknown);
        check("53300", Fault::Overloaded);
        check("53100", Fault::Overloaded);
        check("40001", Fault::Conflict);
        check("40P01", Fault::Conflict);
        check("55P03", Fault::Conflict);
        check("57014", Fault::Cancelled);
        check("0A000", Fault::StaleStatement);
        check("26000", Fault::StaleStatement);
        check("42P05", Fault::StaleStatement);
        check("22021", Fault::Refused);
        check("23505", Fault::Refused);
        check("54000", Fault::Refused);
        check("42P01", Fault::Permanent);
        check("42501", Fault::Permanent);
        check("28P01", Fault::Permanent);
        check("P0001", Fault::Permanent);
        check("XX000", Fault::Permanent);
        check("", Fault::Permanent);
        check("é", Fault::Permanent);
    }

    #[test]
    fn errors_before_and_after_something_was_sent_are_told_apart() {
        let cut = || sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert_eq!(Fault::of(&cut()), Fault::OutcomeUnknown);
        assert_eq!(Fault::of_acquire(&cut(), true), Fault::Unreachable);
        let full = sqlx::Error::PoolTimedOut;
        assert_eq!(Fault::of_acquire(&full, true), Fault::Overloaded);
        assert_eq!(Fault::of_acquire(&full, false), Fault::Unreachable);
        assert_eq!(Fault::of(&sqlx::Error::RowNotFound), Fault::Permanent);
    }

    #[test]
    fn the_short_form_of_an_error_says_nothing_of_its_contents() {
        let error = sqlx::Error::Io(std::io::Error::other("pa55word"));
        assert!(!in_short(&error).contains("pa55word"));
        let error = sqlx::Error::Protocol("pa55word".to_owned());
        assert_eq!(in_short(&error), "outcome_unknown");
    }
}
