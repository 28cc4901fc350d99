//! The one recorder of the process.

use std::sync::{Mutex, PoisonError};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use super::{COUNT_BUCKETS, Kind, Metric, SECONDS_BUCKETS, Unit, all, replaced};

/// Renders what the process has recorded; cheap to clone.
#[derive(Clone)]
pub struct Handle(PrometheusHandle);

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handle")
    }
}

impl Handle {
    /// The metrics as Prometheus text.
    #[must_use]
    pub fn render(&self) -> String {
        self.0.render() + &replaced::render()
    }

    /// Folds recorded durations into their buckets; to be called every few seconds, because
    /// they are held one by one until then.
    pub fn upkeep(&self) {
        self.0.run_upkeep();
    }
}

static INSTALLED: Mutex<Option<Handle>> = Mutex::new(None);

/// Makes the recorder of this process and describes every metric; later calls give the same one,
/// so that several services can share a process.
///
/// # Panics
/// When something else has installed a recorder.
pub fn install() -> Handle {
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    installed
        .get_or_insert_with(|| {
            let recorder = builder().build_recorder();
            let handle = Handle(recorder.handle());
            ::metrics::set_global_recorder(recorder)
                .expect("nothing but this module installs a recorder");
            all().for_each(describe);
            handle
        })
        .clone()
}

fn builder() -> PrometheusBuilder {
    let mut builder = PrometheusBuilder::new();
    for metric in all().filter(|metric| metric.kind == Kind::Histogram) {
        let buckets = match metric.unit {
            Unit::Seconds => SECONDS_BUCKETS,
            Unit::Count | Unit::Bytes => COUNT_BUCKETS,
        };
        builder = builder
            .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)
            .expect("the bucket lists are not empty");
    }
    builder
}

fn describe(metric: &Metric) {
    match metric.kind {
        Kind::Counter => ::metrics::describe_counter!(metric.name, metric.help),
        Kind::Gauge => ::metrics::describe_gauge!(metric.name, metric.help),
        Kind::Histogram => ::metrics::describe_histogram!(metric.name, metric.help),
    }
}
