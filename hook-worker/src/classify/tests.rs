//! The status table, case by case.

use super::*;

fn check(codes: impl IntoIterator<Item = u16>, expected: (Outcome, Option<ErrorKind>)) {
    for code in codes {
        assert_eq!(status(code), expected, "status {code}");
    }
}

#[test]
fn rs_30_rs_31_every_2xx_is_delivered() {
    check(200..=299, (Outcome::Delivered, None));
}

#[test]
fn del_01_redirects_are_permanent_and_named() {
    check(300..=399, (Outcome::Permanent, Some(ErrorKind::Redirect)));
}

#[test]
fn del_03_rs_36_rs_37_rs_40_passing_troubles_are_retried() {
    check(
        [408, 425, 429, 500, 502, 503, 504, 511, 520, 529, 599],
        (Outcome::Retryable, Some(ErrorKind::HttpStatus)),
    );
}

#[test]
fn del_03_del_04_rs_34_other_client_errors_are_permanent() {
    let passing = [408, 425, 429];
    check(
        (400..=499).filter(|code| !passing.contains(code)),
        (Outcome::Permanent, Some(ErrorKind::HttpStatus)),
    );
}

#[test]
fn rs_28_rs_29_codes_above_599_are_not_read_as_5xx() {
    check(600..=999, (Outcome::Permanent, Some(ErrorKind::HttpStatus)));
}

#[test]
fn rs_12_switching_protocols_is_a_permanent_protocol_error() {
    check(
        [101],
        (Outcome::Permanent, Some(ErrorKind::InvalidResponse)),
    );
}

#[test]
fn only_what_cannot_change_by_waiting_is_permanent() {
    for error in [
        TransportError::Dns,
        TransportError::Timeout,
        TransportError::Connect,
        TransportError::Tls,
        TransportError::Reset,
        TransportError::InvalidResponse,
        TransportError::Internal,
    ] {
        assert_eq!(transport(error).0, Outcome::Retryable, "{error:?}");
    }
    for error in [
        TransportError::BlockedAddress,
        TransportError::InvalidRequest,
    ] {
        assert_eq!(transport(error).0, Outcome::Permanent, "{error:?}");
    }
}

#[test]
fn del_04_only_throttling_answers_may_ask_to_wait() {
    assert!(may_ask_to_wait(429) && may_ask_to_wait(503));
    assert!(!may_ask_to_wait(410) && !may_ask_to_wait(500) && !may_ask_to_wait(200));
}
