//! A client with the test profile's limits, and requests for it.

use std::time::Duration;

use bytes::Bytes;
use hook_common::{
    address::AllowNets,
    job::{ErrorKind, JobId, Method, Outcome},
};
use hook_worker::{
    address_guard::AddressGuard,
    client::{Client, ClientConfig},
    delivery::{Deadlines, Report, Request},
};
use tokio::time::Instant;

/// The id of every job here.
pub(crate) const JOB_ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
/// How long an attempt may take where nothing else is said.
pub(crate) const ATTEMPT: Duration = Duration::from_secs(5);
/// How much later than its deadline an attempt may end.
pub(crate) const SLACK: Duration = Duration::from_millis(500);

/// Settings that open loopback addresses.
pub(crate) fn config() -> ClientConfig {
    let nets = AllowNets::parse("127.0.0.0/8,::1/128").expect("these are networks");
    ClientConfig {
        guard: AddressGuard::new(nets, Vec::new()),
        ..ClientConfig::default()
    }
}

/// A client that may reach loopback addresses.
pub(crate) fn client() -> Client {
    Client::new(config()).expect("the settings are good")
}

/// A POST of a small body.
pub(crate) fn request(url: impl Into<String>) -> Request {
    Request {
        job_id: JobId::parse(JOB_ID).expect("the id is one"),
        attempt: 1,
        method: Method::Post,
        url: url.into(),
        headers: vec![("content-type".into(), "application/json".into())],
        body: Bytes::from_static(b"{\"n\":1}"),
        timestamp: 1_700_000_000,
        signatures: None,
    }
}

/// Deadlines for an attempt that may take this long, with the other limits of the contract.
pub(crate) fn deadlines(attempt: Duration) -> Deadlines {
    Deadlines {
        attempt: Instant::now() + attempt,
        connect: Duration::from_secs(2),
        response_body: Duration::from_secs(1),
    }
}

/// One attempt of a small POST.
pub(crate) async fn attempt(client: &Client, url: impl Into<String>) -> Report {
    client.deliver(request(url), deadlines(ATTEMPT)).await
}

/// Asserts what an attempt came to.
#[track_caller]
pub(crate) fn assert_outcome(
    report: &Report,
    outcome: Outcome,
    error_kind: Option<ErrorKind>,
    status: Option<u16>,
) {
    assert_eq!(
        (report.outcome, report.error_kind, report.response_status),
        (outcome, error_kind, status),
        "{report:?}"
    );
}

/// Asserts a 2xx.
#[track_caller]
pub(crate) fn assert_delivered(report: &Report) {
    assert_eq!(report.outcome, Outcome::Delivered, "{report:?}");
    assert_eq!(report.error_kind, None, "{report:?}");
}

/// Asserts a retryable failure without a status.
#[track_caller]
pub(crate) fn assert_retryable(report: &Report, kind: ErrorKind) {
    assert_outcome(report, Outcome::Retryable, Some(kind), None);
}

/// Asserts a permanent failure without a status.
#[track_caller]
pub(crate) fn assert_permanent(report: &Report, kind: ErrorKind) {
    assert_outcome(report, Outcome::Permanent, Some(kind), None);
}
