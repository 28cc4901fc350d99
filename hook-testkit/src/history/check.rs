//! The comparison of the accounts: each rule, and what a fault excuses.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::*;

impl History {
    /// Names every promise that was broken.
    #[must_use]
    pub fn check(&self) -> Vec<Breach> {
        let mut breaches = Vec::new();
        let jobs: HashMap<&str, &Job> =
            self.jobs.iter().map(|job| (job.id.as_str(), job)).collect();
        let asked: HashMap<&str, &Enqueue> = self
            .enqueues
            .iter()
            .map(|enqueue| (enqueue.key.as_str(), enqueue))
            .collect();
        for enqueue in &self.enqueues {
            check_enqueue(enqueue, &jobs, &mut breaches);
        }
        let mut received: HashMap<&str, Vec<&Delivery>> = HashMap::new();
        for delivery in &self.deliveries {
            received.entry(&delivery.id).or_default().push(delivery);
            if !jobs.contains_key(delivery.id.as_str()) {
                breaches.push(Breach::Unasked(delivery.id.clone()));
            }
        }
        let mut keys = HashSet::new();
        for job in &self.jobs {
            if !keys.insert(&job.key) {
                breaches.push(Breach::KeyTwice(job.key.clone()));
            }
            match asked.get(job.key.as_str()) {
                None => breaches.push(Breach::Unasked(job.id.clone())),
                Some(enqueue) if enqueue.answer == Answer::Refused => {
                    breaches.push(Breach::Unasked(job.id.clone()));
                }
                Some(enqueue) if enqueue.digest != job.digest => {
                    breaches.push(Breach::WrongBytes(job.id.clone()));
                }
                Some(_) => {}
            }
            let received = received.get(job.id.as_str()).map_or(&[][..], Vec::as_slice);
            check_deliveries(job, received, &mut breaches);
            self.check_attempts(job, &mut breaches);
            self.check_backoff(job, received, &mut breaches);
            self.check_end(job, received, &mut breaches);
        }
        if self.counted != self.on_record() {
            breaches.push(Breach::Totals);
        }
        breaches
    }

    /// Requests beyond the first that the receiver took, of all jobs.
    #[must_use]
    pub fn duplicates(&self) -> usize {
        let taken = self
            .deliveries
            .iter()
            .filter(|delivery| was_taken(delivery));
        let ids: Vec<&str> = taken.map(|delivery| delivery.id.as_str()).collect();
        ids.len() - ids.iter().collect::<HashSet<_>>().len()
    }

    /// What the recorded attempts add up to.
    #[must_use]
    pub fn on_record(&self) -> Counts {
        let mut counts = Counts::default();
        for attempt in self.jobs.iter().flat_map(|job| &job.attempts) {
            match attempt.outcome {
                Outcome::Delivered => counts.delivered += 1,
                Outcome::Retryable | Outcome::Lost => counts.retryable += 1,
                Outcome::Permanent => counts.permanent += 1,
            }
        }
        counts
    }

    fn check_attempts(&self, job: &Job, breaches: &mut Vec<Breach>) {
        let mut attempts = job.attempts.clone();
        attempts.sort_by_key(|attempt| attempt.attempt);
        let counted = attempts.iter().map(|attempt| attempt.attempt);
        if !counted.eq(1..=job.attempt) {
            breaches.push(Breach::Miscounted(job.id.clone()));
        }
        if job.attempt > self.limits.attempts_max {
            breaches.push(Breach::TooManyAttempts(job.id.clone()));
        }
        for pair in attempts.windows(2) {
            let (before, after) = (pair[0], pair[1]);
            if after.fence <= before.fence {
                breaches.push(Breach::FenceFell(job.id.clone()));
            }
            match before.outcome {
                Outcome::Delivered | Outcome::Permanent => {
                    breaches.push(Breach::AfterTheEnd(job.id.clone()));
                }
                // Both are times of Postgres; the end of an attempt is measured by its worker.
                Outcome::Retryable => {
                    if after.begun < before.begun + self.limits.backoff_min {
                        breaches.push(Breach::TooSoon(job.id.clone()));
                    }
                }
                Outcome::Lost => {}
            }
        }
        for lost in attempts
            .iter()
            .filter(|attempt| attempt.outcome == Outcome::Lost)
        {
            let over: Duration = self
                .faults_in(lost.begun, lost.ended)
                .map(|fault| fault.until.min(lost.ended) - fault.from.max(lost.begun))
                .sum();
            if self.faults_in(lost.begun, lost.ended).next().is_none() {
                breaches.push(Breach::LostWithoutFault(job.id.clone()));
            } else if lost.ended - lost.begun > self.limits.orphan_max + over {
                breaches.push(Breach::OrphanLate(job.id.clone()));
            }
        }
    }

    fn check_end(&self, job: &Job, received: &[&Delivery], breaches: &mut Vec<Breach>) {
        let last = job.attempts.iter().max_by_key(|attempt| attempt.attempt);
        let over = match job.state {
            State::Unfinished => {
                breaches.push(Breach::Unfinished(job.id.clone()));
                return;
            }
            State::Completed(over) => {
                let taken = received.iter().any(|delivery| was_taken(delivery));
                let on_record = last.is_some_and(|last| last.outcome == Outcome::Delivered);
                if !taken || !on_record {
                    breaches.push(Breach::NeverTaken(job.id.clone()));
                }
                over
            }
            State::Failed(over) => {
                let explained = last.is_some_and(|last| match last.outcome {
                    Outcome::Delivered => false,
                    Outcome::Permanent => true,
                    Outcome::Retryable | Outcome::Lost => last.attempt == self.limits.attempts_max,
                });
                if !explained {
                    breaches.push(Breach::Unexplained(job.id.clone()));
                }
                over
            }
        };
        let lost = |number: u32| {
            let mut attempts = job.attempts.iter();
            attempts.any(|one| one.attempt == number && one.outcome == Outcome::Lost)
        };
        let mut late = received
            .iter()
            .filter(|delivery| delivery.begun > over + SLACK);
        if late.any(|delivery| !lost(delivery.attempt)) {
            breaches.push(Breach::LateRequest(job.id.clone()));
        }
    }

    /// The pause after an answer that its worker saw, by the receiver's clock alone: the answer comes
    /// before the end of the attempt, so that no fault and no busy machine makes the pause shorter.
    fn check_backoff(&self, job: &Job, received: &[&Delivery], breaches: &mut Vec<Breach>) {
        let seen = |delivery: &&&Delivery| {
            let mut attempts = job.attempts.iter();
            attempts.any(|one| {
                one.attempt == delivery.attempt
                    && one.outcome == Outcome::Retryable
                    && one.status.is_some()
                    && one.status == delivery.status
            })
        };
        for before in received.iter().filter(seen) {
            let too_soon = |after: &&Delivery| {
                after.attempt == before.attempt + 1
                    && after.begun < before.begun + self.limits.backoff_min
            };
            if received.iter().any(too_soon) {
                breaches.push(Breach::TooSoon(job.id.clone()));
            }
        }
    }

    /// Faults that overlap this time.
    fn faults_in(&self, from: Duration, until: Duration) -> impl Iterator<Item = &Fault> {
        let faults = self.faults.iter();
        faults.filter(move |fault| fault.from <= until && fault.until >= from)
    }
}

fn was_taken(delivery: &Delivery) -> bool {
    delivery
        .status
        .is_some_and(|status| (200..300).contains(&status))
}

fn check_enqueue(enqueue: &Enqueue, jobs: &HashMap<&str, &Job>, breaches: &mut Vec<Breach>) {
    match &enqueue.answer {
        Answer::Stored(ids) => {
            if ids.iter().collect::<HashSet<_>>().len() > 1 {
                breaches.push(Breach::KeyTwice(enqueue.key.clone()));
            }
            for id in ids {
                match jobs.get(id.as_str()) {
                    Some(job) if job.key == enqueue.key => {}
                    Some(_) | None => breaches.push(Breach::Lost(id.clone())),
                }
            }
        }
        Answer::Refused | Answer::Unknown => {}
        Answer::Unexpected(status) => {
            breaches.push(Breach::Unexpected(enqueue.key.clone(), *status));
        }
    }
}

fn check_deliveries(job: &Job, received: &[&Delivery], breaches: &mut Vec<Breach>) {
    let mut requests: HashMap<u32, Vec<&Delivery>> = HashMap::new();
    for delivery in received {
        let other_bytes = |digest: &String| *digest != job.digest;
        if delivery.digest.as_ref().is_some_and(other_bytes) {
            breaches.push(Breach::WrongBytes(job.id.clone()));
        }
        let before = requests.entry(delivery.attempt).or_default();
        let allowed = match before.as_slice() {
            [] => true,
            // A kept connection that dies before a byte of the answer is replaced once, by a new one.
            [first] => first.kept_connection && first.status.is_none() && !delivery.kept_connection,
            _ => false,
        };
        if !allowed {
            breaches.push(Breach::SentTwice(job.id.clone(), delivery.attempt));
        }
        before.push(delivery);
        let on_record = |attempt: &Attempt| attempt.attempt == delivery.attempt;
        if !job.attempts.iter().any(on_record) {
            breaches.push(Breach::OffRecord(job.id.clone(), delivery.attempt));
        }
    }
}
