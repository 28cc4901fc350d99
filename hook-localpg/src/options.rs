//! What a caller may choose about a server.

use std::path::PathBuf;
use std::time::Duration;

use crate::find::Binaries;

/// How to run a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Programs to run.
    pub binaries: Binaries,
    /// Where the data lives.
    pub place: Place,
    /// What a crash of the machine may cost.
    pub durability: Durability,
    /// Whether a private server's data may lie in memory, if there is room: making and removing
    /// the hundreds of files of a database there takes half the time that it takes on a disk.
    pub in_memory: bool,
    /// What to do when somebody else runs a server in this place.
    pub when_running: WhenRunning,
    /// Further settings, as in `postgresql.conf`, name and value. They win over ours.
    pub settings: Vec<(String, String)>,
    /// TCP port; `None` takes the one of the last start or any free one.
    pub port: Option<u16>,
}

impl Options {
    /// A durable server in a private place, on any port.
    pub fn new(binaries: Binaries) -> Self {
        Self {
            binaries,
            place: Place::Private,
            durability: Durability::Full,
            in_memory: false,
            when_running: WhenRunning::Refuse,
            settings: Vec::new(),
            port: None,
        }
    }
}

/// Where the data of a server lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A new directory that is removed together with the server.
    Private,
    /// A directory that is kept, and created if need be.
    ///
    /// When we are root and the server's user cannot reach it, a directory in `/var/tmp` stands in
    /// for it, always the same; [`PgServer::directory`](crate::server::PgServer::directory) tells.
    Kept(PathBuf),
}

/// What a crash of the machine may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Nothing that was committed.
    Full,
    /// Everything, and a crash of the server alone may cost what was committed in its last second.
    Off,
}

/// What to do when another process runs a server in the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenRunning {
    /// Fail with [`StartError::Running`](crate::server::StartError::Running).
    Refuse,
    /// Use that server. It ends with its owner, not with us.
    Reuse,
    /// Wait this long for its end, then start our own.
    Wait(Duration),
}
