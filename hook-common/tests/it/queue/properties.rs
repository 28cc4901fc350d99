//! Random histories: whatever happens in whatever order, every job is in exactly one place.

use std::{collections::HashMap, time::Duration};

use hook_common::{
    job::{JobId, Status},
    queue::{Finished, LeasedJob, Next},
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use super::kit::{Kit, finish, reap};

const TARGETS: [&str; 4] = ["a.test", "b.test", "c.test", "d.test"];

/// What the test believes about a job.
#[derive(Debug, Default)]
struct Model {
    ended: bool,
    attempt: i32,
    fence: i64,
}

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "one history, told from its start to its end"
)]
async fn random_operations_keep_every_job_in_exactly_one_place() {
    let seed = rand::rng().random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let kit = Kit::new().await;
    let mut model: HashMap<JobId, Model> = HashMap::new();
    let mut held: Vec<LeasedJob> = Vec::new();
    for step in 0..300 {
        match rng.random_range(0..8) {
            0 | 1 => {
                let target = TARGETS[rng.random_range(0..TARGETS.len())];
                for id in kit.enqueue(&vec![target; rng.random_range(1..4)]).await {
                    model.insert(id, Model::default());
                }
            }
            2 | 3 => {
                for job in kit.dequeue(&TARGETS, rng.random_range(1..5)).await {
                    let known = model
                        .get_mut(&job.lease.job_id)
                        .expect("only stored jobs are leased");
                    assert!(
                        !known.ended,
                        "seed {seed} step {step}: a final job was leased"
                    );
                    assert!(
                        job.lease.fence > known.fence,
                        "seed {seed} step {step}: the fence rises"
                    );
                    assert_eq!(
                        job.lease.attempt,
                        known.attempt + 1,
                        "seed {seed} step {step}"
                    );
                    (known.fence, known.attempt) = (job.lease.fence, job.lease.attempt);
                    held.push(job);
                }
            }
            4 | 5 if !held.is_empty() => {
                let job = held.swap_remove(rng.random_range(0..held.len()));
                let (id, fence) = (job.lease.job_id, job.lease.fence);
                let next = match rng.random_range(0..4) {
                    0 => Next::Retry(Duration::ZERO),
                    1 => Next::Release,
                    2 => Next::End(Status::Failed),
                    _ => Next::End(Status::Completed),
                };
                let finished = kit.queue.finish(&mut [finish(job, next)]).await.unwrap();
                let known = model.get_mut(&id).expect("held jobs are known");
                let current = known.fence == fence && !known.ended;
                if finished[0] == Finished::Recorded {
                    assert!(
                        current,
                        "seed {seed} step {step}: a stale finish was accepted"
                    );
                    known.ended = matches!(next, Next::End(_));
                    known.attempt -= i32::from(next == Next::Release);
                }
            }
            6 => {
                kit.expire_leases().await;
                kit.queue.reap_leases(100, &reap(1000)).await.unwrap();
            }
            7 if !model.is_empty() => {
                let ids: Vec<JobId> = model.keys().copied().collect();
                let id = ids[rng.random_range(0..ids.len())];
                let known = model.get_mut(&id).expect("it was just listed");
                if rng.random_bool(0.5) {
                    known.ended |= kit.queue.cancel(id).await.unwrap();
                } else if kit.queue.retry(id).await.unwrap() {
                    assert!(
                        known.ended,
                        "seed {seed} step {step}: only a final job is put back"
                    );
                    (known.ended, known.attempt) = (false, 0);
                }
            }
            _ => {}
        }
        let places = kit.places().await;
        let expected = i64::try_from(model.len()).unwrap();
        assert_eq!(places.jobs, expected, "seed {seed} step {step}");
        assert_eq!(
            places.ready + places.lease + places.finished,
            expected,
            "seed {seed} step {step}: {places:?}"
        );
        let ended = i64::try_from(model.values().filter(|known| known.ended).count()).unwrap();
        assert_eq!(
            places.finished, ended,
            "seed {seed} step {step}: {places:?}"
        );
    }
}
