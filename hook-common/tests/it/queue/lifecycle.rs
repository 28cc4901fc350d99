//! One job's way through its states, step by step.

use std::time::Duration;

use hook_common::{
    job::{Due, ErrorKind, Expiry, Idempotency, Outcome, Status, Tier},
    queue::{Enqueued, Finished, Next},
};

use super::kit::{Kit, Places, enqueue, finish, head, new_job, reap, term};

#[tokio::test]
async fn a_delivered_job_ends_completed_with_its_attempt() {
    let kit = Kit::new().await;
    let ids = kit.enqueue(&["a.test"]).await;
    let mut leased = kit.dequeue(&["a.test"], 10).await;
    assert_eq!(leased.len(), 1);
    let job = leased.pop().unwrap();
    assert_eq!(job.lease.job_id, ids[0]);
    assert_eq!((job.lease.attempt, job.lease.fence), (1, 1));
    assert_eq!(&job.body[..], br#"{"n":12345678901234567890}"#);
    assert_eq!(job.url, "http://a.test/hook");
    assert_eq!(
        kit.queue.job(ids[0], false).await.unwrap().unwrap().status,
        Status::Running.code()
    );

    let finished = kit
        .queue
        .finish(&mut [finish(job, Next::End(Status::Completed))])
        .await
        .unwrap();
    assert_eq!(finished, [Finished::Recorded]);
    assert_eq!(
        kit.places().await,
        Places {
            jobs: 1,
            ready: 0,
            lease: 0,
            finished: 1
        }
    );
    let view = kit.queue.job(ids[0], true).await.unwrap().unwrap();
    assert_eq!((view.status, view.attempt), (Status::Completed.code(), 1));
    assert!(view.finished_at.is_some());
    assert_eq!(
        view.body.as_deref(),
        Some(br#"{"n":12345678901234567890}"#.as_slice())
    );
    let attempts = kit.queue.attempts(ids[0]).await.unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].outcome, Outcome::Delivered.code());
    assert_eq!(
        attempts[0].response_excerpt.as_deref(),
        Some(b"\x00\xff answer".as_slice())
    );
    assert!(attempts[0].response_truncated);
    assert_eq!(attempts[0].worker, "test-worker");
}

#[tokio::test]
async fn ids_sort_by_enqueue_order_within_a_statement_and_across() {
    let kit = Kit::new().await;
    let mut ids = kit.enqueue(&["a.test"; 500]).await;
    ids.extend(kit.enqueue(&["b.test"; 500]).await);
    let mut sorted = ids.clone();
    sorted.sort();
    assert_eq!(ids, sorted);
}

#[tokio::test]
async fn a_retried_job_waits_in_the_degraded_queue_and_keeps_its_history() {
    let kit = Kit::new().await;
    let id = kit.enqueue(&["a.test"]).await[0];
    let job = kit.dequeue(&["a.test"], 1).await.pop().unwrap();
    kit.queue
        .finish(&mut [finish(job, Next::Retry(Duration::from_secs(30)))])
        .await
        .unwrap();
    let view = kit.queue.job(id, false).await.unwrap().unwrap();
    assert_eq!(
        (view.status, view.tier),
        (Status::Available.code(), Tier::DegradedRetry.code())
    );
    assert!(
        kit.dequeue(&["a.test"], 1).await.is_empty(),
        "it is not due yet"
    );

    kit.make_due().await;
    let job = kit.dequeue(&["a.test"], 1).await.pop().unwrap();
    assert_eq!(
        (job.lease.attempt, job.lease.fence, job.lease.tier),
        (2, 2, Tier::DegradedRetry)
    );
    kit.queue
        .finish(&mut [finish(job, Next::End(Status::Failed))])
        .await
        .unwrap();
    let attempts = kit.queue.attempts(id).await.unwrap();
    assert_eq!(
        attempts
            .iter()
            .map(|attempt| attempt.attempt)
            .collect::<Vec<_>>(),
        [1, 2]
    );
    assert_eq!(
        kit.queue.job(id, false).await.unwrap().unwrap().error_kind,
        Some(0)
    );
}

#[tokio::test]
async fn a_late_finish_changes_nothing() {
    let kit = Kit::new().await;
    let id = kit.enqueue(&["a.test"]).await[0];
    let late = kit.dequeue(&["a.test"], 1).await.pop().unwrap();
    kit.expire_leases().await;
    let reaped = kit.queue.reap_leases(10, &reap(10)).await.unwrap();
    assert_eq!((reaped.returned, reaped.failed), (1, 0));
    let owner = kit.dequeue(&["a.test"], 1).await.pop().unwrap();
    assert_eq!((owner.lease.attempt, owner.lease.fence), (2, 2));

    let lost = kit
        .queue
        .finish(&mut [finish(late, Next::End(Status::Completed))])
        .await
        .unwrap();
    assert_eq!(lost, [Finished::LeaseLost]);
    assert_eq!(
        kit.queue.job(id, false).await.unwrap().unwrap().status,
        Status::Running.code()
    );
    let kept = kit
        .queue
        .finish(&mut [finish(owner, Next::End(Status::Failed))])
        .await
        .unwrap();
    assert_eq!(kept, [Finished::Recorded]);
    let attempts = kit.queue.attempts(id).await.unwrap();
    assert_eq!(attempts[0].error_kind, Some(ErrorKind::LeaseExpired.code()));
}

/// Where a lease lies is no proof of it: the next one of the same job may lie in the same place.
#[tokio::test]
async fn a_late_finish_changes_nothing_where_the_new_lease_took_the_place_of_the_old() {
    let kit = Kit::new().await;
    kit.enqueue(&["a.test"]).await;
    let place = async || -> String {
        sqlx::query_scalar("SELECT ctid::text FROM hook.lease")
            .fetch_one(&kit.pool)
            .await
            .unwrap()
    };
    // While the table is empty, this frees its space as a VACUUM does.
    let vacuum = async || {
        let truncate = sqlx::query("TRUNCATE hook.lease");
        truncate.execute(&kit.pool).await.unwrap();
    };
    vacuum().await;
    let late = kit.dequeue(&["a.test"], 1).await.pop().unwrap();
    let its_place = place().await;
    kit.expire_leases().await;
    kit.queue.reap_leases(10, &reap(10)).await.unwrap();
    vacuum().await;
    let owner = kit.dequeue(&["a.test"], 1).await.pop().unwrap();
    assert_eq!(place().await, its_place);
    for (job, expected) in [(late, Finished::LeaseLost), (owner, Finished::Recorded)] {
        let finish = finish(job, Next::End(Status::Completed));
        assert_eq!(kit.queue.finish(&mut [finish]).await.unwrap(), [expected]);
    }
}

#[tokio::test]
async fn a_lease_whose_row_moved_can_still_be_finished() {
    let kit = Kit::new().await;
    kit.enqueue(&["a.test", "a.test"]).await;
    let mut leased = kit.dequeue(&["a.test"], 2).await;
    // A second version of the row lies elsewhere, as after a VACUUM FULL.
    sqlx::query("UPDATE hook.lease SET worker = worker")
        .execute(&kit.pool)
        .await
        .unwrap();
    let mut finishes: Vec<_> = leased
        .drain(..)
        .map(|job| finish(job, Next::End(Status::Completed)))
        .collect();
    let finished = kit.queue.finish(&mut finishes).await.unwrap();
    assert_eq!(finished, [Finished::Recorded, Finished::Recorded]);
    assert_eq!(
        kit.places().await,
        Places {
            jobs: 2,
            ready: 0,
            lease: 0,
            finished: 2
        }
    );
}

#[tokio::test]
async fn a_lost_last_attempt_ends_the_job() {
    let kit = Kit::new().await;
    let mut job = new_job("a.test");
    job.max_attempts = Some(1);
    let id = kit.store(&[enqueue(job)]).await[0];
    drop(kit.dequeue(&["a.test"], 1).await);
    kit.expire_leases().await;
    let reaped = kit.queue.reap_leases(10, &reap(10)).await.unwrap();
    assert_eq!((reaped.returned, reaped.failed), (0, 1));
    let view = kit.queue.job(id, false).await.unwrap().unwrap();
    assert_eq!(view.status, Status::Failed.code());
    assert_eq!(view.error_kind, Some(ErrorKind::LeaseExpired.code()));
}

#[tokio::test]
async fn a_released_job_is_where_it_was_and_its_attempt_is_not_counted() {
    let kit = Kit::new().await;
    let id = kit.enqueue(&["a.test"]).await[0];
    let job = kit.dequeue(&["a.test"], 1).await.pop().unwrap();
    kit.queue
        .finish(&mut [finish(job, Next::Release)])
        .await
        .unwrap();
    let view = kit.queue.job(id, false).await.unwrap().unwrap();
    assert_eq!(
        (view.status, view.attempt, view.tier),
        (0, 0, Tier::Primary.code())
    );
    assert!(kit.queue.attempts(id).await.unwrap().is_empty());
    let again = kit.dequeue(&["a.test"], 1).await.pop().unwrap();
    assert_eq!(
        (again.lease.attempt, again.lease.fence),
        (1, 2),
        "the fence only rises"
    );
}

#[tokio::test]
async fn expired_jobs_end_without_an_attempt() {
    let kit = Kit::new().await;
    let mut job = new_job("a.test");
    job.expires = Expiry::After(Duration::ZERO);
    let ids = kit.store(&[enqueue(job.clone()), enqueue(job)]).await;
    let leased = kit.dequeue(&["a.test"], 1).await.pop().unwrap();
    assert!(leased.expired);
    let mut unattempted = finish(leased, Next::EndUnattempted);
    unattempted.record.error_kind = Some(ErrorKind::Expired);
    kit.queue.finish(&mut [unattempted]).await.unwrap();
    assert_eq!(kit.queue.reap_expired(10).await.unwrap().failed, 1);
    for id in ids {
        let view = kit.queue.job(id, false).await.unwrap().unwrap();
        assert_eq!((view.status, view.attempt), (Status::Failed.code(), 0));
        assert_eq!(view.error_kind, Some(ErrorKind::Expired.code()));
        assert!(kit.queue.attempts(id).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn scheduled_jobs_wait_for_their_time() {
    let kit = Kit::new().await;
    let mut job = new_job("a.test");
    job.due = Due::After(Duration::from_millis(300));
    kit.store(&[enqueue(job)]).await;
    assert!(kit.dequeue(&["a.test"], 1).await.is_empty());
    let swept = kit
        .queue
        .sweep(None, Tier::Primary..=Tier::DegradedRetry, 10)
        .await
        .unwrap();
    assert_eq!(swept.len(), 1);
    assert!(swept[0].due_in > Duration::ZERO && swept[0].due_in <= Duration::from_millis(300));
    kit.make_due().await;
    assert_eq!(kit.dequeue(&["a.test"], 1).await.len(), 1);
}

#[tokio::test]
async fn a_lease_outlasts_the_timeout_of_its_own_job() {
    let kit = Kit::new().await;
    let mut job = new_job("a.test");
    job.timeout = Some(Duration::from_secs(60));
    kit.store(&[enqueue(job), enqueue(new_job("b.test"))]).await;
    let heads = [
        head("a.test", Tier::Primary, 1),
        head("b.test", Tier::Primary, 1),
    ];
    let leased = kit
        .queue
        .dequeue(&heads, 2, &term(Duration::from_secs(30)))
        .await
        .unwrap();
    assert_eq!(leased.jobs.len(), 2);
    let seconds: Vec<i32> = sqlx::query_scalar(
        "SELECT extract(epoch FROM leased_until - leased_at)::int FROM hook.lease ORDER BY 1",
    )
    .fetch_all(&kit.pool)
    .await
    .unwrap();
    assert_eq!(seconds, [30, 75]);
}

#[tokio::test]
async fn heads_are_served_in_their_order_and_within_their_takes() {
    let kit = Kit::new().await;
    kit.enqueue(&["a.test", "a.test", "a.test", "b.test", "b.test", "c.test"])
        .await;
    let heads = [
        head("b.test", Tier::Primary, 1),
        head("a.test", Tier::Primary, 2),
        head("c.test", Tier::Primary, 5),
    ];
    let leased = kit
        .queue
        .dequeue(&heads, 3, &term(Duration::from_secs(30)))
        .await
        .unwrap();
    let mut targets: Vec<&str> = leased.jobs.iter().map(|job| job.target.as_str()).collect();
    targets.sort_unstable();
    assert_eq!(
        targets,
        ["a.test", "a.test", "b.test"],
        "c.test is not even looked at"
    );
}

#[tokio::test]
async fn a_low_water_mark_hides_what_is_due_before_it() {
    let kit = Kit::new().await;
    kit.enqueue(&["a.test"]).await;
    let run_at = kit
        .queue
        .sweep(None, Tier::Primary..=Tier::Primary, 1)
        .await
        .unwrap()[0]
        .run_at;
    let mut marked = head("a.test", Tier::Primary, 5);
    marked.low = Some(run_at + chrono::TimeDelta::microseconds(1));
    assert!(
        kit.queue
            .dequeue(&[marked], 5, &term(Duration::from_secs(30)))
            .await
            .unwrap()
            .jobs
            .is_empty()
    );
    marked.low = Some(run_at);
    assert_eq!(
        kit.queue
            .dequeue(&[marked], 5, &term(Duration::from_secs(30)))
            .await
            .unwrap()
            .jobs
            .len(),
        1
    );
}

#[tokio::test]
async fn a_sweep_walks_every_head_once_in_bounded_steps() {
    let kit = Kit::new().await;
    let names: Vec<String> = (0..25).map(|n| format!("t{n}.test")).collect();
    let mut jobs: Vec<_> = names.iter().map(|name| enqueue(new_job(name))).collect();
    for name in &names[..5] {
        let mut degraded = enqueue(new_job(name));
        degraded.tier = Tier::DegradedFirst;
        jobs.extend([degraded, enqueue(new_job(name))]);
    }
    kit.store(&jobs).await;
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let swept = kit
            .queue
            .sweep(after, Tier::Primary..=Tier::DegradedRetry, 7)
            .await
            .unwrap();
        assert!(swept.len() <= 7);
        seen.extend(swept.iter().map(|head| (head.tier, head.target_id)));
        match swept.last() {
            Some(last) if swept.len() == 7 => after = Some((last.tier, last.target_id)),
            Some(_) | None => break,
        }
    }
    assert_eq!(seen.len(), 30);
    let mut unique = seen.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique, seen, "each head once, in order");
    let degraded = kit
        .queue
        .sweep(None, Tier::DegradedFirst..=Tier::DegradedRetry, 100)
        .await
        .unwrap();
    assert_eq!(degraded.len(), 5);
}

#[tokio::test]
async fn a_cancelled_job_is_final_and_only_a_waiting_one_can_be() {
    let kit = Kit::new().await;
    let ids = kit.enqueue(&["a.test", "b.test"]).await;
    assert!(kit.queue.cancel(ids[0]).await.unwrap());
    assert!(!kit.queue.cancel(ids[0]).await.unwrap());
    let _running = kit.dequeue(&["a.test", "b.test"], 5).await;
    assert!(!kit.queue.cancel(ids[1]).await.unwrap(), "it is running");
    assert_eq!(
        kit.queue.job(ids[0], false).await.unwrap().unwrap().status,
        Status::Cancelled.code()
    );
}

#[tokio::test]
async fn a_retry_by_hand_counts_from_zero_keeps_history_and_leaves_the_ring() {
    let kit = Kit::new().await;
    let id = kit.enqueue(&["a.test"]).await[0];
    let job = kit.dequeue(&["a.test"], 1).await.pop().unwrap();
    assert!(!kit.queue.retry(id).await.unwrap(), "it is running");
    kit.queue
        .finish(&mut [finish(job, Next::End(Status::Failed))])
        .await
        .unwrap();
    assert!(kit.queue.retry(id).await.unwrap());
    let view = kit.queue.job(id, true).await.unwrap().unwrap();
    assert_eq!((view.status, view.attempt), (Status::Available.code(), 0));
    assert!(view.body.is_some());
    assert_eq!(kit.queue.attempts(id).await.unwrap().len(), 1);
    let job = kit.dequeue(&["a.test"], 1).await.pop().unwrap();
    assert_eq!(
        (job.lease.attempt, job.lease.fence),
        (1, 2),
        "the fence goes on rising"
    );
    assert_eq!(&job.body[..], br#"{"n":12345678901234567890}"#);
    kit.queue
        .finish(&mut [finish(job, Next::End(Status::Completed))])
        .await
        .unwrap();
    assert_eq!(kit.queue.attempts(id).await.unwrap().len(), 2);
    let buckets: Vec<i16> = sqlx::query_scalar(
        "SELECT bucket FROM hook.job UNION SELECT bucket FROM hook.finished UNION SELECT bucket FROM hook.attempt",
    )
    .fetch_all(&kit.pool)
    .await
    .unwrap();
    assert_eq!(buckets, [-1]);
}

#[tokio::test]
async fn an_idempotency_key_stores_one_job_until_it_expires() {
    let kit = Kit::new().await;
    let keyed = |digest: u8| {
        let mut job = new_job("a.test");
        job.idempotency = Some(Idempotency {
            key: "k".into(),
            request_sha256: [digest; 32],
        });
        enqueue(job)
    };
    let first = kit.store(&[keyed(1)]).await[0];
    let jobs = [keyed(2), enqueue(new_job("b.test"))];
    let ttl = Duration::from_secs(3600);
    let second = kit.queue.enqueue(&jobs, ttl).await.unwrap();
    assert_eq!(second[0], Enqueued::KeyTaken);
    assert!(
        matches!(second[1], Enqueued::Stored(_)),
        "the others are stored all the same"
    );
    let uses = kit.queue.key_uses(&["k", "unknown"]).await.unwrap();
    assert_eq!(uses.len(), 1);
    assert_eq!(
        (uses[0].job_id, uses[0].request_sha256.as_slice()),
        (first.0, [1; 32].as_slice())
    );
    assert_eq!(kit.queue.enqueue_all(&jobs, ttl).await.unwrap(), None);
    assert_eq!(kit.places().await.jobs, 2, "all or nothing stored nothing");

    sqlx::query("UPDATE hook.idempotency SET expires_at = now() - interval '1 second'")
        .execute(&kit.pool)
        .await
        .unwrap();
    assert!(kit.queue.key_uses(&["k"]).await.unwrap().is_empty());
    assert!(matches!(
        kit.queue.enqueue(&[keyed(2)], ttl).await.unwrap()[0],
        Enqueued::Stored(_)
    ));
    assert!(
        kit.queue
            .enqueue_all(&[keyed(3)], ttl)
            .await
            .unwrap()
            .is_none()
    );
}
