//! The worker's settings, read once and checked against each other.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use hook_common::{
    address::AllowNets,
    config::Reader,
    job::{QueueName, Tier},
    retry::RetryPolicy,
    seal::{SealKey, Sealer},
    target::is_printable,
};

use crate::{
    client::{Cleartext, ClientConfig, http1::HeaderCase, pool::PoolLimits},
    policy::{Levels, PolicySettings},
    tls::{Verification, certificates_in},
};

/// How much longer than the attempt a lease lasts by default: time to write the result, twice.
const LEASE_MARGIN: Duration = Duration::from_secs(15);
/// A shorter margin would let leases end while results are still being written.
const LEASE_MARGIN_MIN: Duration = Duration::from_secs(5);
/// Longest attempt, as for a job that sets its own deadline.
const ATTEMPT_TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// Longest name of a worker.
const NAME_CHARS_MAX: usize = 64;
/// A penalised target keeps two slots: one can hang while the other shows that it is back.
const PENALISED_IN_FLIGHT_MAX: usize = 2;

/// Everything a worker is told.
#[derive(Clone)]
pub struct Config {
    /// Shown with each attempt.
    pub name: String,
    /// Queues that this worker serves.
    pub queues: Vec<QueueName>,
    /// Most jobs of one dequeue.
    pub dequeue_batch_max: usize,
    /// How often to look for work that nobody told of.
    pub poll_interval: Duration,
    /// How long a job is leased; `None` follows from the attempt timeout.
    pub lease: Option<Duration>,
    /// Deadline of an attempt whose job gives none.
    pub attempt_timeout: Duration,
    /// Deadline of its TCP and TLS part.
    pub connect_timeout: Duration,
    /// Deadline for the body of an answer.
    pub response_body_timeout: Duration,
    /// Attempts of a job that gives no number.
    pub max_attempts: i16,
    /// When an attempt is repeated.
    pub retry: RetryPolicy,
    /// How often the worst targets are asked for anew.
    pub penalty_refresh: Duration,
    /// How many of them are kept.
    pub penalty_targets_max: usize,
    /// How connections are made, but for the database's own addresses.
    pub client: ClientConfig,
    /// Networks that are open although they are not public.
    pub allow_nets: AllowNets,
    /// Opens what is sealed.
    pub(crate) sealer: Option<Sealer>,
    pub(crate) policy: PolicySettings,
}

impl Config {
    /// Reads the settings.
    ///
    /// What is bad is left with the reader, which refuses to finish then.
    #[must_use]
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let slots = reader.count("HOOK_WORKER_SLOTS", 1..=100_000);
        let target_in_flight_max = reader
            .optional_count("HOOK_TARGET_IN_FLIGHT_MAX", 1..=100_000)
            .unwrap_or_else(|| slots.div_ceil(10).max(4))
            .min(slots);
        let retry = read_retry(reader);
        let config = Self {
            name: read_name(reader),
            queues: read_queues(reader),
            dequeue_batch_max: reader
                .optional_count("HOOK_DEQUEUE_BATCH_MAX", 1..=1000)
                .unwrap_or_else(|| slots.min(50)),
            poll_interval: reader.duration("HOOK_POLL_INTERVAL"),
            lease: reader.optional_duration("HOOK_LEASE"),
            attempt_timeout: reader.duration("HOOK_ATTEMPT_TIMEOUT"),
            connect_timeout: reader.duration("HOOK_CONNECT_TIMEOUT"),
            response_body_timeout: reader.duration("HOOK_RESPONSE_BODY_TIMEOUT"),
            max_attempts: i16::try_from(reader.count("HOOK_MAX_ATTEMPTS", 1..=100))
                .expect("at most 100"),
            penalty_refresh: reader.duration("HOOK_PENALTY_REFRESH"),
            penalty_targets_max: reader.count("HOOK_PENALTY_TARGETS_MAX", 1..=10_000),
            client: read_client(reader),
            allow_nets: reader
                .parsed("HOOK_ALLOW_NETS", "", |text| {
                    AllowNets::parse(text).map_err(|error| error.to_string())
                })
                .unwrap_or_default(),
            policy: PolicySettings {
                slots,
                target_in_flight_max,
                penalised_in_flight_max: PENALISED_IN_FLIGHT_MAX.min(target_in_flight_max),
                slow_after: reader.duration("HOOK_SLOW_AFTER"),
                quick: reader.duration("HOOK_LEND_BELOW"),
                levels: reader
                    .parsed("HOOK_PENALTY_LEVELS", Levels::FORM, Levels::parse)
                    .unwrap_or_default(),
                hold_failures: u32::try_from(reader.count("HOOK_HOLD_FAILURES", 1..=1_000_000))
                    .expect("at most a million"),
                hold_after: reader.duration_or_zero("HOOK_HOLD_AFTER"),
                probe_interval_min: reader.duration("HOOK_PROBE_INTERVAL_MIN"),
                probe_interval_max: reader.duration("HOOK_PROBE_INTERVAL_MAX"),
            },
            retry,
            sealer: read_sealer(reader),
        };
        config.check_relations(reader);
        config
    }

    /// How long a job is leased.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease.unwrap_or(self.attempt_timeout + LEASE_MARGIN)
    }

    /// How much longer than an attempt a lease lasts.
    #[must_use]
    pub fn lease_margin(&self) -> Duration {
        self.lease()
            .saturating_sub(self.attempt_timeout)
            .max(LEASE_MARGIN_MIN)
    }

    /// Slots of this worker.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.policy.slots
    }

    /// The tiers of the queues that this worker serves, lowest to highest.
    #[must_use]
    pub fn tiers(&self) -> RangeInclusive<Tier> {
        let tiers = || self.queues.iter().flat_map(|queue| queue.tiers()).copied();
        let first = tiers().min().unwrap_or(Tier::Primary);
        first..=tiers().max().unwrap_or(Tier::DegradedRetry)
    }

    fn check_relations(&self, reader: &mut Reader<'_>) {
        reader.require(
            self.lease() >= self.attempt_timeout + LEASE_MARGIN_MIN,
            &["HOOK_LEASE", "HOOK_ATTEMPT_TIMEOUT"],
            "a lease of at least the attempt timeout + 5s",
        );
        reader.require(
            self.attempt_timeout <= ATTEMPT_TIMEOUT_MAX,
            &["HOOK_ATTEMPT_TIMEOUT"],
            "a duration of at most 60s",
        );
        reader.require(
            self.connect_timeout <= self.attempt_timeout,
            &["HOOK_CONNECT_TIMEOUT", "HOOK_ATTEMPT_TIMEOUT"],
            "a connect timeout within the attempt timeout",
        );
        reader.require(
            self.dequeue_batch_max <= self.policy.slots,
            &["HOOK_DEQUEUE_BATCH_MAX", "HOOK_WORKER_SLOTS"],
            "no more jobs in a dequeue than there are slots",
        );
        reader.require(
            self.policy.probe_interval_min <= self.policy.probe_interval_max,
            &["HOOK_PROBE_INTERVAL_MIN", "HOOK_PROBE_INTERVAL_MAX"],
            "a shortest pause that is not above the longest",
        );
    }
}

fn read_name(reader: &mut Reader<'_>) -> String {
    let name = reader.parsed("HOOK_WORKER_NAME", "", |text| {
        let fits = text.chars().count() <= NAME_CHARS_MAX && text.chars().all(is_printable);
        let form = || format!("1 to {NAME_CHARS_MAX} printable characters");
        fits.then(|| text.to_owned()).ok_or_else(form)
    });
    name.unwrap_or_else(own_name)
}

fn read_queues(reader: &mut Reader<'_>) -> Vec<QueueName> {
    let expected = "primary, degraded or both, comma-separated";
    reader.list("HOOK_WORKER_QUEUES", expected, QueueName::from_word)
}

fn read_retry(reader: &mut Reader<'_>) -> RetryPolicy {
    let schedule = reader.durations("HOOK_RETRY_SCHEDULE");
    let retry_after_max = reader.duration("HOOK_RETRY_AFTER_MAX");
    RetryPolicy::new(schedule, retry_after_max).unwrap_or_else(|error| {
        reader.require(
            false,
            &["HOOK_RETRY_SCHEDULE"],
            &format!("a schedule that is used up slowly; this one {error}"),
        );
        RetryPolicy::new(vec![LEASE_MARGIN], LEASE_MARGIN).expect("one delay is a schedule")
    })
}

fn read_client(reader: &mut Reader<'_>) -> ClientConfig {
    let idle_max = reader.count("HOOK_IDLE_CONNECTIONS_MAX", 0..=100_000);
    ClientConfig {
        dns_servers: reader.addresses("HOOK_DNS_SERVERS"),
        egress_ca_file: reader.parsed("HOOK_EGRESS_CA_FILE", "", |text| {
            let path = PathBuf::from(text);
            match certificates_in(&path) {
                Ok(_) => Ok(path),
                Err(error) => Err(format!("a PEM file with certificates ({error:#})")),
            }
        }),
        egress_proxy: reader.parsed("HOOK_EGRESS_PROXY", "", |text| {
            text.parse()
                .map_err(|error: crate::egress_proxy::NotAProxy| error.to_string())
        }),
        cleartext: if reader.flag("HOOK_HTTPS_ONLY") {
            Cleartext::Refused
        } else {
            Cleartext::Allowed
        },
        verification: if reader.flag("HOOK_EGRESS_INSECURE_TLS") {
            Verification::Off
        } else {
            Verification::Full
        },
        header_case: if reader.flag("HOOK_TITLE_CASE_HEADERS") {
            HeaderCase::Title
        } else {
            HeaderCase::Lower
        },
        pool: PoolLimits {
            idle_max,
            age_max: reader.duration("HOOK_CONNECTION_AGE_MAX"),
            ..PoolLimits::default()
        },
        ..ClientConfig::default()
    }
}

fn read_sealer(reader: &mut Reader<'_>) -> Option<Sealer> {
    let expected = "base64 of 32 bytes";
    let current = reader.parsed("HOOK_SECRET_KEY", expected, |text| {
        SealKey::parse(text).map_err(|error| error.to_string())
    })?;
    let old = reader.list("HOOK_SECRET_KEYS_OLD", expected, |item| {
        SealKey::parse(item).ok()
    });
    Some(Sealer::new(&current, &old))
}

/// The host's name and the process id: unique among the workers of a database, and says where to
/// look.
fn own_name() -> String {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let host = host.trim();
    let host = if host.is_empty() { "worker" } else { host };
    format!(
        "{}-{}",
        host.chars().take(50).collect::<String>(),
        std::process::id()
    )
}
