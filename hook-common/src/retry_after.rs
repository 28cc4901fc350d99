//! Reads `Retry-After`: a target's wish to be left alone for a while.
//!
//! A number of seconds or an IMF date is a hint. Whatever else a target writes there is ignored,
//! and so are the two date forms that HTTP gave up long ago: a hint is worth nothing when it has
//! to be guessed.

use std::time::Duration;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, Utc};

/// How long every hint is at most: a year, which is far above any setting that bounds it further.
const HINT_MAX_SECONDS: u64 = 365 * 24 * 60 * 60;

const DAYS: [&[u8]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];
const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// The wait that a header value asks for, from `now` on.
///
/// `None` when it is not a hint, or asks for no wait at all.
#[must_use]
pub fn parse(value: &[u8], now: DateTime<Utc>) -> Option<Duration> {
    let value = value.trim_ascii();
    let wait = match seconds(value) {
        Some(seconds) => Duration::from_secs(seconds),
        None => (imf_date(value)? - now).to_std().ok()?,
    };
    let wait = wait.min(Duration::from_secs(HINT_MAX_SECONDS));
    (!wait.is_zero()).then_some(wait)
}

/// A number of any length, cut off at the bound.
fn seconds(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = value.iter().fold(0_u64, |sum, digit| {
        // Never wraps: the bound is far below a tenth of the type's.
        (sum * 10 + u64::from(digit - b'0')).min(HINT_MAX_SECONDS)
    });
    Some(number)
}

/// Reads exactly the form `Sun, 06 Nov 1994 08:49:37 GMT`.
fn imf_date(value: &[u8]) -> Option<DateTime<Utc>> {
    let value: &[u8; 29] = value.try_into().ok()?;
    let marks = [
        (3, b','),
        (4, b' '),
        (7, b' '),
        (11, b' '),
        (16, b' '),
        (19, b':'),
        (22, b':'),
    ];
    if !value.ends_with(b" GMT") || marks.iter().any(|(at, mark)| value[*at] != *mark) {
        return None;
    }
    let month = MONTHS.iter().position(|name| *name == &value[8..11])?;
    let month = u32::try_from(month + 1).ok()?;
    let year = i32::try_from(digits(&value[12..16])?).ok()?;
    let date = NaiveDate::from_ymd_opt(year, month, digits(&value[5..7])?)?;
    let day = DAYS.get(usize::try_from(date.weekday().num_days_from_monday()).ok()?)?;
    if *day != &value[..3] {
        return None;
    }
    // The grammar allows a leap second; nobody's hint depends on it.
    let second = digits(&value[23..25])?;
    let second = if second == 60 { 59 } else { second };
    let time = NaiveTime::from_hms_opt(digits(&value[17..19])?, digits(&value[20..22])?, second)?;
    Some(NaiveDateTime::new(date, time).and_utc())
}

fn digits(text: &[u8]) -> Option<u32> {
    text.iter().try_fold(0, |sum, digit| {
        digit
            .is_ascii_digit()
            .then(|| sum * 10 + u32::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a value read at 08:49:00 on 6 November 1994.
    fn check(value: &[u8], expected: Option<u64>) {
        let now = DateTime::parse_from_rfc3339("1994-11-06T08:49:00Z")
            .unwrap()
            .to_utc();
        let expected = expected.map(Duration::from_secs);
        assert_eq!(parse(value, now), expected, "{}", value.escape_ascii());
    }

    #[test]
    fn rs_42_zero_asks_for_nothing() {
        check(b"0", None);
        check(b"000", None);
    }

    #[test]
    fn rs_45_infinity_is_ignored() {
        check(b"inf", None);
        check(b"Infinity", None);
    }

    #[test]
    fn rs_46_not_a_number_is_ignored() {
        check(b"NaN", None);
    }

    #[test]
    fn rs_48_digits_may_be_many() {
        check(b"99999999999", Some(HINT_MAX_SECONDS));
        check(&[b'9'; 5000], Some(HINT_MAX_SECONDS));
        check(&[&[b'0'; 5000][..], b"7"].concat(), Some(7));
    }

    #[test]
    fn rs_49_a_past_date_asks_for_nothing() {
        check(b"Wed, 21 Oct 2015 07:28:00 GMT", Some(HINT_MAX_SECONDS));
        check(b"Sun, 06 Nov 1994 08:48:59 GMT", None);
        check(b"Sun, 06 Nov 1994 08:49:00 GMT", None);
        check(b"Thu, 01 Jan 1970 00:00:00 GMT", None);
        check(b"Sat, 01 Jan 0000 00:00:00 GMT", None);
    }

    #[test]
    fn rs_51_the_form_of_rfc_850_is_ignored() {
        check(b"Sunday, 06-Nov-94 08:49:37 GMT", None);
    }

    #[test]
    fn rs_52_the_form_of_asctime_is_ignored() {
        check(b"Sun Nov  6 08:49:37 1994", None);
    }

    #[test]
    fn rs_53_what_is_not_text_is_ignored() {
        check(b"\xff\xfe", None);
        check("ÿþ".as_bytes(), None);
    }

    #[test]
    fn seconds_are_read() {
        check(b"1", Some(1));
        check(b"120", Some(120));
        check(b" 120\t", Some(120));
        check(b"0120", Some(120));
    }

    #[test]
    fn dates_are_read() {
        check(b"Sun, 06 Nov 1994 08:49:37 GMT", Some(37));
        check(b"Sun, 06 Nov 1994 08:49:60 GMT", Some(59));
        check(b"Mon, 07 Nov 1994 08:49:00 GMT", Some(86_400));
        check(b"Fri, 31 Dec 9999 23:59:59 GMT", Some(HINT_MAX_SECONDS));
    }

    #[test]
    fn everything_else_is_ignored() {
        let others: [&[u8]; 20] = [
            b"",
            b" ",
            b"-1",
            b"+5",
            b"1.5",
            b"1e3",
            b"0x10",
            b"1 2",
            b"120, 60",
            b"120s",
            b"soon",
            b"Sun, 6 Nov 1994 08:49:37 GMT",
            b"Mon, 06 Nov 1994 08:49:37 GMT",
            b"sun, 06 nov 1994 08:49:37 gmt",
            b"Sun, 06 Nov 1994 08:49:37 UTC",
            b"Sun, 06 Nov 1994 24:00:00 GMT",
            b"Sun, 06 Nov 1994 08:49:61 GMT",
            b"Wed, 30 Feb 1994 08:49:37 GMT",
            b"1994-11-06T08:49:37Z",
            b"Sun, 06 Nov 1994 08:49:+7 GMT",
        ];
        for value in others {
            check(value, None);
        }
        check("١٢٠".as_bytes(), None);
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config {
            failure_persistence: None,
            ..Default::default()
        })]

        #[test]
        fn any_value_is_judged(value in proptest::collection::vec(proptest::num::u8::ANY, 0..40)) {
            let wait = parse(&value, DateTime::UNIX_EPOCH);
            assert!(wait.is_none_or(|wait| wait.as_secs() <= HINT_MAX_SECONDS));
        }

        #[test]
        fn every_date_is_read(seconds in 1..HINT_MAX_SECONDS) {
            let time = DateTime::UNIX_EPOCH + Duration::from_secs(seconds);
            let text = time.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
            let expected = Some(Duration::from_secs(seconds));
            assert_eq!(parse(text.as_bytes(), DateTime::UNIX_EPOCH), expected);
            assert_eq!(parse(seconds.to_string().as_bytes(), DateTime::UNIX_EPOCH), expected);
        }
    }
}
