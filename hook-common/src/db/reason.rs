//! Why a pool is thrown away, and what becomes of those who wait for it.

/// Why a pool is thrown away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reason {
    /// Its connections are dead.
    Unreachable,
    /// Its connections lead to a server that does not write.
    NotWritable,
    /// Its connections hold prepared statements that no longer fit.
    StaleStatements,
    /// Nothing comes out of it while a new connection works.
    Starving,
    /// The server or pooler refused the start-up options.
    StartupOptions,
    /// One of its connections may be inside a transaction that nobody knows of.
    CancelledBegin,
}

impl Reason {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::NotWritable => "not_writable",
            Self::StaleStatements => "stale_statements",
            Self::Starving => "starving",
            Self::StartupOptions => "startup_options",
            Self::CancelledBegin => "cancelled_begin",
        }
    }

    /// Whether those who wait in the old pool's line are sent away. Elsewhere they lose nothing:
    /// what comes back to the old pool is tested, and what they open there is new.
    pub(super) const fn closes_at_once(self) -> bool {
        match self {
            Self::Starving | Self::StartupOptions | Self::CancelledBegin => true,
            Self::Unreachable | Self::NotWritable | Self::StaleStatements => false,
        }
    }
}
