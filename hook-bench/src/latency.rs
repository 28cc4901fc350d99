//! Percentiles of many times.

use serde::Serialize;

/// What the times of a run look like, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Latency {
    /// Of times in nanoseconds; all zero where there are none.
    pub(crate) fn of(mut nanos: Vec<u64>) -> Self {
        nanos.sort_unstable();
        let at = |percent: usize| {
            let index = (nanos.len() * percent).div_ceil(100).saturating_sub(1);
            nanos.get(index).copied().map_or(0.0, millis)
        };
        Self {
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max: at(100),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "times are far below 2^52 ns")]
fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_rank() {
        let latency = Latency::of((1..=200).rev().map(|n| n * 1_000_000).collect());
        assert_eq!(
            latency,
            Latency {
                p50: 100.0,
                p90: 180.0,
                p99: 198.0,
                max: 200.0
            }
        );
    }

    #[test]
    fn one_time_is_every_percentile_and_none_is_zero() {
        assert_eq!(Latency::of(vec![5_000_000]).p50, 5.0);
        assert_eq!(Latency::of(vec![5_000_000]).max, 5.0);
        assert_eq!(Latency::of(Vec::new()), Latency::default());
    }
}
