//! Repeats of one idempotency key within one statement, resolved before it is sent.

use std::collections::{HashMap, hash_map::Entry};

use hook_common::queue::Enqueue;

/// Where the answer of a job comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    /// It is stored itself.
    Own,
    /// It repeats the job at this place, which is an `Own`.
    Repeats(usize),
    /// Its key is that of another request in front of it.
    KeyReused,
}

/// Finds the role of each job; `None` when each has its own answer, as is usual.
pub(super) fn roles(jobs: &[Enqueue]) -> Option<Vec<Role>> {
    let mut first: HashMap<&str, (usize, &[u8; 32])> = HashMap::new();
    let mut roles = None;
    for (index, job) in jobs.iter().enumerate() {
        let Some(used) = &job.job.idempotency else {
            continue;
        };
        match first.entry(&used.key) {
            Entry::Vacant(entry) => {
                entry.insert((index, &used.request_sha256));
            }
            Entry::Occupied(entry) => {
                let (at, digest) = *entry.get();
                let roles = roles.get_or_insert_with(|| vec![Role::Own; jobs.len()]);
                roles[index] = if *digest == used.request_sha256 {
                    Role::Repeats(at)
                } else {
                    Role::KeyReused
                };
            }
        }
    }
    roles
}
