//! The settings of the API.

use std::{net::SocketAddr, time::Duration};

use hook_common::{
    address::AllowNets,
    config::{Reader, Secret},
    seal::{SealKey, Sealer},
};

/// What the API is told at start. Units, defaults and consequences stand in the table of settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the API is served.
    pub listen: SocketAddr,
    /// Tokens that may do everything.
    pub tokens: Vec<Secret<String>>,
    /// Tokens that may only enqueue.
    pub enqueue_tokens: Vec<Secret<String>>,
    /// Requests worked on at one time.
    pub in_flight_max: usize,
    /// Client connections at one time.
    pub connections_max: usize,
    /// Time for a request head to arrive, and for the next one to begin.
    pub head_timeout: Duration,
    /// Time for a request body to arrive.
    pub body_timeout: Duration,
    /// Largest request body, in bytes.
    pub body_max: usize,
    /// Largest body of one job, in bytes.
    pub job_body_max: usize,
    /// Waiting jobs beyond which new ones are refused; `None` means no limit.
    pub queue_depth_max: Option<usize>,
    /// How long an idempotency key is remembered.
    pub idempotency_ttl: Duration,
    /// Attempts of a job whose producer gave no number.
    pub max_attempts: i16,
    /// How often the penalised targets are read anew.
    pub penalty_refresh: Duration,
    /// How many of them.
    pub penalty_targets_max: usize,
    /// Networks that deliveries may reach besides public addresses.
    pub allow_nets: AllowNets,
    /// Whether `http` URLs are refused.
    pub https_only: bool,
    /// Seals secrets; `None` without a key.
    pub sealer: Option<Sealer>,
}

impl Config {
    /// Reads the settings; bad ones are left with the reader.
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let listen = reader.address("HOOK_API_LISTEN");
        let tokens = read_tokens(reader, "HOOK_API_TOKENS");
        let enqueue_tokens = read_tokens(reader, "HOOK_API_ENQUEUE_TOKENS");
        let is_guarded = !tokens.is_empty() || reader.flag("HOOK_API_ALLOW_ANONYMOUS");
        reader.require(
            is_guarded || listen.ip().is_loopback(),
            &["HOOK_API_LISTEN"],
            "a loopback address, or HOOK_API_TOKENS, or HOOK_API_ALLOW_ANONYMOUS=true",
        );
        let ops_listen = reader.address("HOOK_OPS_LISTEN");
        reader.require(
            !are_one(listen, ops_listen),
            &["HOOK_API_LISTEN", "HOOK_OPS_LISTEN"],
            "a listener of its own for each of the two",
        );
        let body_max = reader.size("HOOK_API_BODY_MAX", 1024..=1024 * 1024 * 1024);
        let job_body_max = reader.size("HOOK_JOB_BODY_MAX", 0..=512 * 1024 * 1024);
        reader.require(
            job_body_max <= body_max,
            &["HOOK_JOB_BODY_MAX", "HOOK_API_BODY_MAX"],
            "the largest body of a job to fit into the largest request",
        );
        Self {
            listen,
            tokens,
            enqueue_tokens,
            in_flight_max: reader.count("HOOK_API_IN_FLIGHT_MAX", 1..=1_000_000),
            connections_max: reader.count("HOOK_API_CONNECTIONS_MAX", 1..=1_000_000),
            head_timeout: reader.duration("HOOK_API_HEAD_TIMEOUT"),
            body_timeout: reader.duration("HOOK_API_BODY_TIMEOUT"),
            body_max,
            job_body_max,
            queue_depth_max: reader.optional_count("HOOK_QUEUE_DEPTH_MAX", 1..=usize::MAX),
            idempotency_ttl: reader.duration("HOOK_IDEMPOTENCY_TTL"),
            max_attempts: i16::try_from(reader.count("HOOK_MAX_ATTEMPTS", 1..=100)).unwrap_or(100),
            penalty_refresh: reader.duration("HOOK_PENALTY_REFRESH"),
            penalty_targets_max: reader.count("HOOK_PENALTY_TARGETS_MAX", 1..=100_000),
            allow_nets: AllowNets::from(reader.nets("HOOK_ALLOW_NETS")),
            https_only: reader.flag("HOOK_HTTPS_ONLY"),
            sealer: sealer(reader),
        }
    }
}

/// Whether two listeners would want the same port of the same address; port 0 is any free one.
fn are_one(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = |address: SocketAddr| address.ip().is_unspecified();
    one.port() != 0
        && one.port() == other.port()
        && (one.ip() == other.ip() || is_any(one) || is_any(other))
}

fn read_tokens(reader: &mut Reader<'_>, name: &'static str) -> Vec<Secret<String>> {
    let form = "a comma-separated list of tokens of visible ASCII characters";
    reader.list(name, form, |item| {
        let is_sendable = item.bytes().all(|byte| byte.is_ascii_graphic());
        is_sendable.then(|| Secret::new(item.to_owned()))
    })
}

fn sealer(reader: &mut Reader<'_>) -> Option<Sealer> {
    let key = reader.parsed("HOOK_SECRET_KEY", "", |text| {
        SealKey::parse(text).map_err(|_| "base64 of 32 bytes".to_owned())
    });
    let form = "a comma-separated list, each base64 of 32 bytes";
    let old = reader.list("HOOK_SECRET_KEYS_OLD", form, |item| {
        SealKey::parse(item).ok()
    });
    key.map(|key| Sealer::new(&key, &old))
}
