//! Counts and times requests; the handles of each pair of route and status are made once.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
    time::Duration,
};

use hook_common::metrics::api::{REQUEST_DURATION_SECONDS, REQUESTS_TOTAL};
use http::StatusCode;
use metrics::{Counter, Histogram};

/// The metrics of all requests. Routes are patterns of ours, so both labels are closed sets.
#[derive(Default)]
pub(crate) struct Requests {
    handles: RwLock<HashMap<String, HashMap<StatusCode, Handles>>>,
}

#[derive(Clone)]
struct Handles {
    count: Counter,
    duration: Histogram,
}

impl Requests {
    /// Says that a request was answered.
    pub(crate) fn answered(&self, route: &str, status: StatusCode, duration: Duration) {
        let known = {
            let handles = self.handles.read().unwrap_or_else(PoisonError::into_inner);
            let known = handles.get(route).and_then(|routes| routes.get(&status));
            known.inspect(|handles| handles.record(duration)).is_some()
        };
        if !known {
            self.make(route, status).record(duration);
        }
    }

    fn make(&self, route: &str, status: StatusCode) -> Handles {
        let labels = [route, status.as_str()];
        let made = Handles {
            count: REQUESTS_TOTAL.counter(&labels),
            duration: REQUEST_DURATION_SECONDS.histogram(&labels),
        };
        let mut handles = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        let routes = handles.entry(route.to_owned()).or_default();
        routes.entry(status).or_insert(made).clone()
    }
}

impl Handles {
    fn record(&self, duration: Duration) {
        self.count.increment(1);
        self.duration.record(duration);
    }
}
