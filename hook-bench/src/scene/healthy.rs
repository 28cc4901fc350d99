//! What the healthy targets saw in one phase.

use crate::{clock, latency::Latency, load::Sent};

/// Times of the healthy jobs of one phase, from the answer to the enqueue to the arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct Healthy {
    pub(crate) all: Latency,
    /// The same for the jobs of each second.
    pub(crate) seconds: Vec<Latency>,
    /// Healthy jobs that arrived within the phase, a second.
    pub(crate) per_second: f64,
    /// Healthy jobs that had not arrived when they were counted.
    pub(crate) missing: usize,
}

impl Healthy {
    /// Puts together when the jobs for which `is_healthy` holds were sent and when they arrived.
    pub(crate) fn of(
        sent: &Sent,
        arrivals: &[Option<u64>],
        is_healthy: impl Fn(u64) -> bool,
    ) -> Self {
        let looked = clock::now();
        let mut all = Vec::new();
        let mut seconds: Vec<Vec<u64>> = Vec::new();
        let (mut arrived_in_time, mut missing) = (0_u32, 0);
        for job in sent.jobs.iter().filter(|job| is_healthy(job.number)) {
            let index = usize::try_from(job.number).unwrap_or(usize::MAX);
            let arrived = arrivals.get(index).copied().flatten();
            missing += usize::from(arrived.is_none());
            arrived_in_time += u32::from(arrived.is_some_and(|at| at <= sent.ended));
            let took = arrived.unwrap_or(looked).saturating_sub(job.answered);
            let second = job.due.saturating_sub(sent.begun) / 1_000_000_000;
            let second = usize::try_from(second).unwrap_or(usize::MAX);
            if seconds.len() <= second {
                seconds.resize(second + 1, Vec::new());
            }
            seconds[second].push(took);
            all.push(took);
        }
        Self {
            all: Latency::of(all),
            seconds: seconds.into_iter().map(Latency::of).collect(),
            per_second: f64::from(arrived_in_time) / sent.seconds(),
            missing,
        }
    }

    /// The p99 of the worst second.
    pub(crate) fn worst_second(&self) -> Option<f64> {
        self.seconds
            .iter()
            .map(|second| second.p99)
            .max_by(f64::total_cmp)
    }

    /// The p99 of all seconds from this one on, each weighing the same; the middle of them.
    pub(crate) fn typical_p99_from(&self, second: usize) -> f64 {
        let mut p99s: Vec<f64> = self.seconds.iter().skip(second).map(|s| s.p99).collect();
        p99s.sort_by(f64::total_cmp);
        p99s.get(p99s.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::SentJob;

    const MS: u64 = 1_000_000;

    #[test]
    fn only_healthy_jobs_count_and_a_missing_one_counts_as_late() {
        let job = |number, due| SentJob {
            number,
            due,
            answered: due + MS,
        };
        let sent = Sent {
            jobs: vec![job(0, 0), job(1, 0), job(2, 1500 * MS), job(3, 1500 * MS)],
            refused: 0,
            begun: 0,
            ended: 2000 * MS,
        };
        let arrivals = [Some(3 * MS), None, Some(1600 * MS), None];
        let healthy = Healthy::of(&sent, &arrivals, |number| number != 1);
        assert_eq!(healthy.seconds.len(), 2);
        assert_eq!(healthy.seconds[0].max, 2.0);
        assert_eq!(healthy.missing, 1);
        assert!(healthy.all.max >= 500.0, "it waits still");
        assert_eq!(healthy.per_second, 1.0);
    }
}
