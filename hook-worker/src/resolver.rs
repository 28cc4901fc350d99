//! Names to addresses, without blocking a thread and without outliving a change of DNS by much.
//!
//! Every attempt asks here, also when it will find an open connection, so that a name which has
//! moved to a forbidden address is noticed at the next attempt. An answer is kept for as long as
//! its TTL says, but at least a second and at most half a minute; an answer with a TTL of zero is
//! used once. Failures are not kept: the retry schedule spaces them out already.
//!
//! The hosts file of the system comes first. Names with a dot are complete and are never tried
//! under the search domains of the system, which could turn a public name into an inner one.
//! No address is judged here.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context;
use hickory_resolver::{
    TokioResolver,
    config::{
        ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
        ResolverOpts,
    },
    net::runtime::TokioRuntimeProvider,
    proto::rr::Name,
    system_conf,
};
use hook_common::metrics::worker as metric;
use tokio::time::Instant;

use crate::{classify::TransportError, client::failure::Failure, resolver::hosts::HostsFile};

mod hosts;

/// Names that are remembered at most; 16 addresses of each cost about 4 MiB in all.
const NAMES_MAX: usize = 10_000;
/// Addresses that are kept of one answer. All are judged; a handful is ever tried.
const ADDRESSES_MAX: usize = 1_024;
/// An answer is kept at least this long, unless its TTL is zero.
const KEPT_MIN: Duration = Duration::from_secs(1);
/// An answer is kept at most this long, so that a change is followed within a minute.
const KEPT_MAX: Duration = Duration::from_secs(30);
/// How long one question to one server may take.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a question that got no proper answer is repeated.
const REPEATS_MAX: usize = 1;

/// The addresses of a name, in the order in which they are to be tried.
pub(crate) type Addresses = Arc<[IpAddr]>;

/// Resolves names, with a small cache.
pub(crate) struct Resolver {
    dns: TokioResolver,
    hosts: HostsFile,
    cache: Mutex<HashMap<String, Entry>>,
}

struct Entry {
    addresses: Addresses,
    until: Instant,
}

impl Resolver {
    /// Asks the given servers, or those of the system if there are none.
    pub(crate) fn new(servers: &[SocketAddr]) -> anyhow::Result<Self> {
        let (config, options) = if servers.is_empty() {
            system_config()
        } else {
            let servers = servers.iter().copied().map(name_server).collect();
            (
                ResolverConfig::from_parts(None, Vec::new(), servers),
                ResolverOpts::default(),
            )
        };
        let dns = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            .with_options(our_options(options))
            .build()
            .context("preparing the DNS resolver")?;
        Ok(Self {
            dns,
            hosts: HostsFile::system(),
            cache: Mutex::default(),
        })
    }

    /// Finds every address of a name: one question for IPv4 and one for IPv6, or none.
    ///
    /// # Errors
    /// Always of the kind `dns`; an empty answer is an error too.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer and nothing else.
    pub(crate) async fn resolve(&self, name: &str) -> Result<Addresses, Failure> {
        let now = Instant::now();
        if let Some(addresses) = self.hosts.addresses(name, now) {
            return Ok(addresses);
        }
        if is_localhost(name) {
            return Ok(Arc::new([
                IpAddr::V4(Ipv4Addr::LOCALHOST),
                IpAddr::V6(Ipv6Addr::LOCALHOST),
            ]));
        }
        if let Some(addresses) = self.remembered(name, now) {
            return Ok(addresses);
        }
        let asked = self.ask(name).await;
        let result = if asked.is_ok() { "ok" } else { "failed" };
        metric::DNS_DURATION_SECONDS
            .histogram(&[result])
            .record(now.elapsed());
        let (addresses, ttl) = asked?;
        if !ttl.is_zero() {
            let until = now + ttl.clamp(KEPT_MIN, KEPT_MAX);
            self.remember(name, Arc::clone(&addresses), until);
        }
        Ok(addresses)
    }

    async fn ask(&self, name: &str) -> Result<(Addresses, Duration), Failure> {
        let unresolved = || Failure::new(TransportError::Dns, "the name could not be resolved");
        // Not by way of a text: that would refuse underscores, which names of services have.
        let mut question = Name::from_ascii(name).map_err(|_| unresolved())?;
        if name.contains('.') {
            question.set_fqdn(true);
        }
        let lookup = self
            .dns
            .lookup_ip(question)
            .await
            .map_err(|_| unresolved())?;
        let ttl = lookup
            .as_lookup()
            .answers()
            .iter()
            .map(|record| record.ttl)
            .min()
            .unwrap_or(0);
        let addresses = by_turns(lookup.iter().take(ADDRESSES_MAX));
        if addresses.is_empty() {
            return Err(Failure::new(TransportError::Dns, "the name has no address"));
        }
        Ok((addresses.into(), Duration::from_secs(u64::from(ttl))))
    }

    fn remembered(&self, name: &str, now: Instant) -> Option<Addresses> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache
            .get(name)
            .filter(|entry| entry.until > now)
            .map(|entry| Arc::clone(&entry.addresses))
    }

    fn remember(&self, name: &str, addresses: Addresses, until: Instant) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= NAMES_MAX && !cache.contains_key(name) {
            let now = Instant::now();
            cache.retain(|_, entry| entry.until > now);
            if cache.len() >= NAMES_MAX {
                // Nothing lives longer than half a minute, so starting over is cheap and rare.
                cache.clear();
            }
        }
        cache.insert(name.to_owned(), Entry { addresses, until });
    }
}

/// Whether the name means this machine by definition (RFC 6761) and is no business of DNS.
pub(crate) fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Puts IPv4 and IPv6 addresses in turns, so that a family without a route costs one short wait.
///
/// IPv4 comes first: from servers, it is still the family that is more likely to get through.
fn by_turns(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let (v4, v6): (Vec<_>, Vec<_>) = addresses.partition(IpAddr::is_ipv4);
    let mut ordered = Vec::with_capacity(v4.len() + v6.len());
    let (mut v4, mut v6) = (v4.into_iter(), v6.into_iter());
    loop {
        let pair = (v4.next(), v6.next());
        if pair == (None, None) {
            return ordered;
        }
        ordered.extend(pair.0);
        ordered.extend(pair.1);
    }
}

fn system_config() -> (ResolverConfig, ResolverOpts) {
    system_conf::read_system_conf().unwrap_or_else(|error| {
        // A machine without name servers can still deliver to names in its hosts file.
        tracing::warn!(%error, "no name servers are configured, asking 127.0.0.1");
        let local = name_server(SocketAddr::from((Ipv4Addr::LOCALHOST, 53)));
        (
            ResolverConfig::from_parts(None, Vec::new(), vec![local]),
            ResolverOpts::default(),
        )
    })
}

fn our_options(mut options: ResolverOpts) -> ResolverOpts {
    options.timeout = options.timeout.min(QUESTION_TIMEOUT);
    options.attempts = options.attempts.min(REPEATS_MAX);
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    // We keep answers and read the hosts file ourselves, under our own limits.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options
}

/// A server that is asked over UDP, and over TCP when an answer does not fit.
fn name_server(address: SocketAddr) -> NameServerConfig {
    let mut udp = ConnectionConfig::udp();
    udp.port = address.port();
    let mut tcp = ConnectionConfig::tcp();
    tcp.port = address.port();
    NameServerConfig::new(address.ip(), true, vec![udp, tcp])
}

#[cfg(test)]
mod tests;
