//! Every metric of the product: name, type, unit, labels and help text, in one table.
//!
//! A metric is recorded through its constant, never by a name of its own, so that the code, the
//! table and `docs/metrics.md` (made from [`document`]) cannot drift apart. Labels are closed
//! sets; values are given in the order of the table. Hot paths keep the handle that
//! [`Metric::counter`], [`Metric::gauge`] or [`Metric::histogram`] returns.
//!
//! Deliberately absent: anything read from the database at scrape time.

use std::fmt::Write as _;

use ::metrics::{Counter, Gauge, Histogram, Label};

use crate::config::Binary;

pub mod api;
pub mod janitor;
pub mod process;
pub mod replaced;
pub mod worker;

mod install;

#[cfg(test)]
mod tests;

pub use install::{Handle, install};

/// Upper bounds of the buckets of durations, in seconds: 100 µs to 60 s, steps of at most 2.
pub const SECONDS_BUCKETS: &[f64] = &[
    0.0001, 0.0002, 0.0004, 0.0007, 0.001, 0.002, 0.004, 0.007, 0.01, 0.02, 0.04, 0.07, 0.1, 0.2,
    0.4, 0.7, 1.0, 2.0, 4.0, 7.0, 10.0, 20.0, 40.0, 60.0,
];

/// Upper bounds of the buckets of numbers of jobs in a batch.
pub const COUNT_BUCKETS: &[f64] = &[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0,
];

/// What a metric is, and how it is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The exported name.
    pub name: &'static str,
    /// The Prometheus type.
    pub kind: Kind,
    /// What one step of the value stands for.
    pub unit: Unit,
    /// Names of the labels, in the order in which values are given.
    pub labels: &'static [&'static str],
    /// What the value says, in one sentence.
    pub help: &'static str,
}

/// The Prometheus type of a metric.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Only rises, from 0 at the start of the process.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts observations by bucket.
    Histogram,
}

/// What one step of a value stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

impl Metric {
    const fn counter_of(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self::of(Kind::Counter, Unit::Count, name, labels).helped(help)
    }

    const fn gauge_of(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self::of(Kind::Gauge, Unit::Count, name, labels).helped(help)
    }

    const fn seconds_of(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self::of(Kind::Histogram, Unit::Seconds, name, labels).helped(help)
    }

    const fn of(
        kind: Kind,
        unit: Unit,
        name: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            kind,
            unit,
            labels,
            help: "",
        }
    }

    const fn helped(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }

    const fn in_unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// The counter with these label values.
    ///
    /// # Panics
    /// When the metric is no counter or the number of values is wrong.
    pub fn counter(&self, values: &[&str]) -> Counter {
        assert_eq!(self.kind, Kind::Counter, "{}", self.name);
        ::metrics::counter!(self.name, self.labels_with(values))
    }

    /// The gauge with these label values.
    ///
    /// # Panics
    /// When the metric is no gauge or the number of values is wrong.
    pub fn gauge(&self, values: &[&str]) -> Gauge {
        assert_eq!(self.kind, Kind::Gauge, "{}", self.name);
        ::metrics::gauge!(self.name, self.labels_with(values))
    }

    /// The histogram with these label values.
    ///
    /// # Panics
    /// When the metric is no histogram or the number of values is wrong.
    pub fn histogram(&self, values: &[&str]) -> Histogram {
        assert_eq!(self.kind, Kind::Histogram, "{}", self.name);
        ::metrics::histogram!(self.name, self.labels_with(values))
    }

    fn labels_with(&self, values: &[&str]) -> Vec<Label> {
        assert_eq!(
            self.labels.len(),
            values.len(),
            "{} has the labels {:?}",
            self.name,
            self.labels
        );
        self.labels
            .iter()
            .zip(values)
            .map(|(label, value)| Label::new(*label, (*value).to_owned()))
            .collect()
    }
}

impl Kind {
    /// The word that Prometheus uses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Unit {
    /// The unit as a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
        }
    }
}

/// Shows the counters that every process and this binary have from 0 on, before anything is
/// counted, so that the first event is an increase and not a series that appears. Counters with
/// labels appear with their first event.
pub fn begin_at_zero(binary: Binary) {
    let own = |group: &&Group| group.binary.is_none_or(|owner| owner == binary);
    let metrics = GROUPS.iter().filter(own).flat_map(|group| group.metrics);
    for metric in metrics.filter(|metric| metric.labels.is_empty()) {
        match metric.kind {
            Kind::Counter => metric.counter(&[]).increment(0),
            Kind::Gauge | Kind::Histogram => {}
        }
    }
}

/// The metrics of one part of the product.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Who exports them.
    pub title: &'static str,
    /// The program that does; `None` for all.
    pub binary: Option<Binary>,
    /// The metrics.
    pub metrics: &'static [Metric],
}

/// Every metric there is.
pub const GROUPS: &[Group] = &[
    Group {
        title: "Every process",
        binary: None,
        metrics: process::ALL,
    },
    Group {
        title: "hook-api",
        binary: Some(Binary::Api),
        metrics: api::ALL,
    },
    Group {
        title: "hook-worker",
        binary: Some(Binary::Worker),
        metrics: worker::ALL,
    },
    Group {
        title: "hook-janitor",
        binary: Some(Binary::Janitor),
        metrics: janitor::ALL,
    },
];

/// Every metric there is, without the groups.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    GROUPS.iter().flat_map(|group| group.metrics)
}

/// The Unix time by this machine's clock, for gauges that dashboards compare with their own.
///
/// Nothing is ever decided by it: Postgres is the clock.
#[must_use]
pub fn unix_seconds() -> f64 {
    std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0.0, |since| since.as_secs_f64())
}

/// The text of `docs/metrics.md`.
#[must_use]
pub fn document() -> String {
    let mut text = String::from(DOCUMENT_HEAD);
    for group in GROUPS {
        let _infallible = write!(
            text,
            "\n## {}\n\n| metric | type | unit | labels | says |\n|---|---|---|---|---|\n",
            group.title
        );
        for metric in group.metrics {
            let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
            let _infallible = writeln!(
                text,
                "| `{}` | {} | {} | {} | {} |",
                metric.name,
                metric.kind.as_str(),
                metric.unit.as_str(),
                if labels.is_empty() {
                    "–".to_owned()
                } else {
                    labels.join(", ")
                },
                metric.help
            );
        }
    }
    text
}

const DOCUMENT_HEAD: &str = "\
# Metrics

Served as Prometheus text by `GET /metrics` on the ops listener of each process. This page is made
from the table in `hook-common/src/metrics.rs`; a test fails when the two differ
(`UPDATE_DOCS=1 cargo test -p hook-common --test documents` writes it anew).

Durations have buckets from 100 µs to 60 s in steps of at most 2×. Counters start at 0 with the
process, but for those of targets, which show the totals of the database. A gauge of use stands
beside its limit (`hook_gate_in_flight` and `hook_gate_max`). No label holds a body, a header, a
secret, or more of a URL than its host.

`target` appears on the leading janitor only, for the worst `HOOK_METRICS_TARGETS_MAX` targets by
penalty, waiting jobs and the time that they held slots; all others are summed as `other`. That
makes at most seven series for each, whatever the number of targets. A target without penalty,
waiting jobs and attempts in this hour and the one before is not shown. When a target comes into
view or leaves it, `other` neither falls nor jumps, so rates are right; the sum of the values over
all targets is the total only until then.
";
