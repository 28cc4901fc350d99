//! Whether a series rises: a straight line through it, and how far it scatters around that line.

/// What a series did over the time that counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Trend {
    pub(super) mean: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    /// By how much the line rises from its begin to its end.
    pub(super) rise: f64,
    /// How far the series is from the line, as a standard deviation.
    pub(super) scatter: f64,
}

/// A rise below this share of the mean is none.
const RISE_MAX: f64 = 0.05;

impl Trend {
    /// Of times and values; `None` of fewer than three, through which any line would do.
    pub(super) fn of(points: &[(f64, f64)]) -> Option<Self> {
        let (first, last) = (points.first()?.0, points.last()?.0);
        if points.len() < 3 {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "a few hundred samples")]
        let count = points.len() as f64;
        let mean_of = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (time, mean) = (mean_of(&|point| point.0), mean_of(&|point| point.1));
        let spread = mean_of(&|point| (point.0 - time).powi(2));
        let slope = mean_of(&|point| (point.0 - time) * (point.1 - mean)) / spread;
        let off = mean_of(&|point| (point.1 - mean - slope * (point.0 - time)).powi(2));
        let values = || points.iter().map(|point| point.1);
        Some(Self {
            mean,
            least: values().fold(f64::INFINITY, f64::min),
            most: values().fold(f64::NEG_INFINITY, f64::max),
            rise: slope * (last - first),
            scatter: off.sqrt(),
        })
    }

    /// The rise as a share of the mean.
    pub(super) fn relative_rise(&self) -> f64 {
        if self.mean > 0.0 {
            self.rise / self.mean
        } else {
            0.0
        }
    }

    /// How large that share may be: a twentieth, or what is lost in the noise.
    pub(super) fn noise(&self) -> f64 {
        RISE_MAX.max(self.scatter / self.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(value: impl Fn(f64) -> f64) -> Trend {
        let times = (0..60).map(f64::from);
        Trend::of(&times.map(|time| (time, value(time))).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_series_that_goes_up_and_down_is_flat() {
        let saw = series(|time| 100.0 + 40.0 * (time % 6.0));
        assert!(saw.relative_rise() < saw.noise(), "{saw:?}");
        assert_eq!((saw.least, saw.most), (100.0, 300.0));
    }

    #[test]
    fn a_series_that_rises_is_not_flat_however_much_it_goes_up_and_down() {
        let steady = series(|time| 100.0 + 0.2 * time);
        assert!((steady.rise - 11.8).abs() < 0.001 && steady.scatter < 0.001);
        assert!(steady.relative_rise() > steady.noise(), "{steady:?}");
        let saw = series(|time| 100.0 + 40.0 * (time % 6.0) + 3.0 * time);
        assert!(saw.relative_rise() > saw.noise(), "{saw:?}");
    }

    #[test]
    fn nothing_and_falling_are_flat_and_two_points_are_no_series() {
        let nothing = series(|_| 0.0);
        assert!(nothing.relative_rise() <= 0.05);
        let falling = series(|time| 100.0 - time);
        assert!(falling.relative_rise() < falling.noise());
        assert_eq!(Trend::of(&[(0.0, 1.0), (1.0, 2.0)]), None);
    }
}
