//! Which answer a request to the ops listener gets.

use std::fs;

use http::{HeaderValue, Method, Request, Response, StatusCode, header};

use super::Surface;
use crate::metrics::process::{DRAINING, MAX_FDS, OPEN_FDS, READY, RESIDENT_BYTES};

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const PROMETHEUS: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Answers one request; never waits.
pub(super) fn answer<B>(surface: &Surface, request: &Request<B>) -> Response<String> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
        let allow = HeaderValue::from_static("GET, HEAD");
        answer.headers_mut().insert(header::ALLOW, allow);
        return answer;
    }
    match request.uri().path() {
        "/livez" => livez(surface),
        "/readyz" => readyz(surface),
        "/metrics" => metrics(surface),
        _ => text(
            StatusCode::NOT_FOUND,
            "there is /livez, /readyz and /metrics\n".to_owned(),
        ),
    }
}

fn livez(surface: &Surface) -> Response<String> {
    let stuck = surface.heartbeats.stuck();
    if stuck.is_empty() {
        return text(StatusCode::OK, "ok\n".to_owned());
    }
    let lines = stuck.iter().map(|stuck| {
        format!(
            "loop {} silent for {} s\n",
            stuck.name,
            stuck.silent_for.as_secs()
        )
    });
    text(StatusCode::SERVICE_UNAVAILABLE, lines.collect())
}

fn readyz(surface: &Surface) -> Response<String> {
    let reasons = surface.readiness.reasons();
    if reasons.is_empty() {
        return text(StatusCode::OK, "ok\n".to_owned());
    }
    text(StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n")
}

fn metrics(surface: &Surface) -> Response<String> {
    let flag = |set: bool| if set { 1.0 } else { 0.0 };
    let readiness = &surface.readiness;
    READY
        .gauge(&[surface.binary])
        .set(flag(readiness.is_ready()));
    DRAINING
        .gauge(&[surface.binary])
        .set(flag(readiness.is_draining()));
    measure_process();
    let mut answer = Response::new(surface.metrics.render());
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, PROMETHEUS);
    answer
}

/// Reads what Linux tells about this process; elsewhere the gauges stay away.
#[expect(
    clippy::cast_precision_loss,
    reason = "bytes and descriptors of one process stay far below 2^52"
)]
fn measure_process() {
    if let Ok(status) = fs::read_to_string("/proc/self/status")
        && let Some(kib) = number_after(&status, "VmRSS:")
    {
        RESIDENT_BYTES.gauge(&[]).set(kib as f64 * 1024.0);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // The directory itself is open while it is read.
        let count = open.count().saturating_sub(1);
        OPEN_FDS.gauge(&[]).set(count as f64);
    }
    if let Ok(limits) = fs::read_to_string("/proc/self/limits")
        && let Some(max) = number_after(&limits, "Max open files")
    {
        MAX_FDS.gauge(&[]).set(max as f64);
    }
}

fn number_after(text: &str, label: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_whitespace().next()?.parse().ok()
}

fn text(status: StatusCode, body: String) -> Response<String> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, TEXT);
    answer
}
