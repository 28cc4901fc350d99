//! What goes wrong, and in which order.

use std::time::Duration;

use hook_testkit::{process::Program, proxy::Mode};
use rand::{Rng as _, rngs::StdRng, seq::SliceRandom as _};

/// What is done, and for how long where it lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Kill(Program),
    TerminateWorker,
    FreezeWorker(Duration),
    EndSessions,
    KillBackend,
    CrashPostgres,
    FailOver,
    Cut(Program),
    Partition(Program, Mode, Duration),
    HangUps,
}

impl Act {
    /// What it is, whatever its details.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Kill(Program::Api) => "kill -9 of an api",
            Self::Kill(Program::Worker) => "kill -9 of a worker",
            Self::Kill(_) => "kill -9 of a janitor",
            Self::TerminateWorker => "SIGTERM of a worker",
            Self::FreezeWorker(_) => "SIGSTOP of a worker",
            Self::EndSessions => "end of all sessions",
            Self::KillBackend => "kill -9 of a backend",
            Self::CrashPostgres => "immediate stop of Postgres",
            Self::FailOver => "failover",
            Self::Cut(_) => "cut",
            Self::Partition(..) => "partition",
            Self::HangUps => "hang-ups",
        }
    }

    /// Whether it may keep Postgres from seeing that a worker is gone.
    pub(crate) fn disturbs_postgres(self) -> bool {
        match self {
            Self::Kill(_) | Self::TerminateWorker | Self::FreezeWorker(_) | Self::HangUps => false,
            Self::EndSessions
            | Self::KillBackend
            | Self::CrashPostgres
            | Self::FailOver
            | Self::Cut(_)
            | Self::Partition(..) => true,
        }
    }
}

/// So many rounds, in an order of its own each. What takes long, among it a failover with a copy of
/// the whole server, is in every third only.
pub(crate) fn schedule(rng: &mut StdRng, rounds: usize, lease: Duration) -> Vec<Act> {
    let mut acts = Vec::new();
    for round in 0..rounds {
        let services = [Program::Api, Program::Worker, Program::Janitor];
        let mut service = || services[rng.random_range(0..3)];
        let (cut, frozen, half_open, slow) = (service(), service(), service(), service());
        let mut short = || Duration::from_millis(rng.random_range(200..2_000));
        let mut these = vec![
            Act::TerminateWorker,
            Act::FreezeWorker(short()),
            Act::FreezeWorker(short()),
            Act::KillBackend,
            Act::CrashPostgres,
            Act::Cut(cut),
            Act::Partition(frozen, Mode::Freeze, short()),
            Act::Partition(half_open, Mode::HalfOpen, short()),
            Act::Partition(slow, Mode::Delay(Duration::from_millis(30)), short()),
            Act::HangUps,
        ];
        these.extend([Act::Kill(Program::Worker); 6]);
        these.extend([Act::Kill(Program::Api); 5]);
        these.extend([Act::Kill(Program::Janitor); 3]);
        these.extend([Act::EndSessions; 3]);
        match round % 3 {
            // Longer than any lease.
            0 => these.push(Act::FreezeWorker(lease + Duration::from_secs(1))),
            2 => these.push(Act::FailOver),
            _ => {}
        }
        these.shuffle(rng);
        acts.extend(these);
    }
    acts
}
