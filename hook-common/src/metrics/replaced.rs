//! Series that come and go: whole sets, replaced at one stroke.
//!
//! The recorder keeps a series for ever once it has been set. That is wrong for gauges that only
//! the leading janitor may show, and for targets that stop being among the worst. A set is
//! published under a name, replaced by the next one of that name, and withdrawn; `/metrics` shows
//! the sets behind what the recorder has.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::Metric;

/// One series of a set.
#[derive(Clone, Debug)]
pub struct Series {
    /// The metric.
    pub metric: &'static Metric,
    /// Values of its labels, in the order of the table.
    pub labels: Vec<String>,
    /// The value.
    pub value: f64,
}

impl Series {
    /// A series of `metric`, which must not be set in any other way.
    ///
    /// # Panics
    /// When the number of label values is wrong.
    #[must_use]
    pub fn new(metric: &'static Metric, labels: &[&str], value: f64) -> Self {
        assert_eq!(metric.labels.len(), labels.len(), "{}", metric.name);
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        Self {
            metric,
            labels,
            value,
        }
    }
}

static SETS: Mutex<BTreeMap<&'static str, String>> = Mutex::new(BTreeMap::new());

/// Shows these series in place of the set that was published under this name before.
pub fn publish(set: &'static str, series: &[Series]) {
    lock().insert(set, text_of(series));
}

/// Shows nothing under this name any more.
pub fn withdraw(set: &'static str) {
    lock().remove(set);
}

/// All published sets as Prometheus text.
pub(super) fn render() -> String {
    lock().values().map(String::as_str).collect()
}

fn lock() -> MutexGuard<'static, BTreeMap<&'static str, String>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Series of one metric stand together under one heading, wherever they are in the list.
fn text_of(series: &[Series]) -> String {
    let mut metrics: BTreeMap<&str, Vec<&Series>> = BTreeMap::new();
    for one in series {
        metrics.entry(one.metric.name).or_default().push(one);
    }
    let mut text = String::new();
    for (name, series) in metrics {
        let metric = series[0].metric;
        let _infallible = writeln!(text, "# HELP {name} {}", metric.help);
        let _infallible = writeln!(text, "# TYPE {name} {}", metric.kind.as_str());
        for one in series {
            text.push_str(name);
            let pairs = metric.labels.iter().zip(&one.labels);
            for (index, (label, value)) in pairs.enumerate() {
                text.push(if index == 0 { '{' } else { ',' });
                let _infallible = write!(text, "{label}=\"{}\"", escaped(value));
            }
            if !metric.labels.is_empty() {
                text.push('}');
            }
            let _infallible = writeln!(text, " {}", one.value);
        }
        text.push('\n');
    }
    text
}

/// A label value as the text format wants it.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::janitor::{QUEUE_OLDEST_DUE_AGE_SECONDS, TARGET_WAITING_JOBS};

    #[test]
    fn series_of_one_metric_stand_under_one_heading_with_their_values_escaped() {
        let text = text_of(&[
            Series::new(&TARGET_WAITING_JOBS, &["a\"b\\c\nd"], 7.0),
            Series::new(&QUEUE_OLDEST_DUE_AGE_SECONDS, &["primary"], 0.25),
            Series::new(&TARGET_WAITING_JOBS, &["other"], 12_345_678.0),
        ]);
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        assert!(lines[0].starts_with("# HELP hook_queue_oldest_due_age_seconds "));
        assert_eq!(lines[1], "# TYPE hook_queue_oldest_due_age_seconds gauge");
        assert_eq!(
            lines[2],
            "hook_queue_oldest_due_age_seconds{queue=\"primary\"} 0.25"
        );
        assert_eq!(lines[4], "# TYPE hook_target_waiting_jobs gauge");
        assert_eq!(
            lines[5..],
            [
                "hook_target_waiting_jobs{target=\"a\\\"b\\\\c\\nd\"} 7",
                "hook_target_waiting_jobs{target=\"other\"} 12345678",
            ]
        );
    }

    #[test]
    fn a_set_replaces_the_one_before_and_goes_when_it_is_withdrawn() {
        let set = |value| [Series::new(&TARGET_WAITING_JOBS, &["replaced"], value)];
        publish("test", &set(1.0));
        publish("test", &set(2.0));
        assert!(render().contains("{target=\"replaced\"} 2\n"));
        assert!(!render().contains("{target=\"replaced\"} 1\n"));
        withdraw("test");
        assert!(!render().contains("replaced"));
    }
}
