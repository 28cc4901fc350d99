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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hook_common::{
        job::{Due, Expiry, Idempotency, Method, NewJob, Tier},
        target::Target,
    };

    use super::*;

    fn job(key: Option<(&str, u8)>) -> Enqueue {
        Enqueue {
            job: NewJob {
                url: "https://example.com/".to_owned(),
                target: Target::new("example.com").unwrap(),
                method: Method::Post,
                headers: Vec::new(),
                body: Bytes::new(),
                metadata: None,
                due: Due::Now,
                expires: Expiry::Never,
                max_attempts: None,
                timeout: None,
                idempotency: key.map(|(key, digest)| Idempotency {
                    key: key.to_owned(),
                    request_sha256: [digest; 32],
                }),
                signing: Vec::new(),
            },
            tier: Tier::Primary,
            headers_sealed: None,
        }
    }

    #[test]
    fn jobs_without_repeats_have_no_roles() {
        let jobs = [
            job(None),
            job(Some(("a", 1))),
            job(None),
            job(Some(("b", 1))),
        ];
        assert_eq!(roles(&jobs), None);
    }

    #[test]
    fn a_repeat_points_to_the_first_and_another_request_is_told_apart() {
        let jobs = [
            job(Some(("a", 1))),
            job(None),
            job(Some(("a", 2))),
            job(Some(("a", 1))),
        ];
        assert_eq!(
            roles(&jobs).unwrap(),
            [Role::Own, Role::Own, Role::KeyReused, Role::Repeats(0)]
        );
    }
}
