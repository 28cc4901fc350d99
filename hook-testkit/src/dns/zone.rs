//! What each name has, and who asked for it.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hickory_proto::rr::{Name, RecordType};
use tokio::time::Instant;

/// Most names that a chain of aliases goes through.
const ALIASES_MAX: usize = 16;

/// The time to live of a record unless a test sets another: none, so that nothing is cached.
const TTL_DEFAULT_SECONDS: u32 = 0;

/// What one question is answered with.
#[derive(Clone, Debug)]
pub struct Reply {
    kind: Kind,
    ttl_seconds: u32,
    delay: Duration,
}

#[derive(Clone, Debug)]
enum Kind {
    Addresses(Vec<IpAddr>),
    Alias(String),
    Fail(Failure),
}

/// How a question fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Failure {
    NoName,
    Server,
    Refused,
    Silent,
}

impl Reply {
    /// These addresses, each in the record type of its family, in this order; without any, the
    /// name exists and has no address.
    pub fn addresses<A: Into<IpAddr>>(addresses: impl IntoIterator<Item = A>) -> Self {
        Self::of(Kind::Addresses(
            addresses.into_iter().map(Into::into).collect(),
        ))
    }

    /// This address.
    pub fn address(address: impl Into<IpAddr>) -> Self {
        Self::addresses([address.into()])
    }

    /// The addresses in these texts.
    ///
    /// # Panics
    /// When one is not an address.
    #[must_use]
    pub fn parse(addresses: &[&str]) -> Self {
        let parse = |text: &&str| -> IpAddr { text.parse().expect("a test writes addresses") };
        Self::addresses(addresses.iter().map(parse))
    }

    /// 127.0.0.1
    #[must_use]
    pub fn loopback() -> Self {
        Self::address(Ipv4Addr::LOCALHOST)
    }

    /// Another name (`CNAME`), followed by what that name has.
    #[must_use]
    pub fn alias(name: &str) -> Self {
        Self::of(Kind::Alias(name.to_owned()))
    }

    /// The name exists and has no address (`NOERROR` without records).
    #[must_use]
    pub fn no_data() -> Self {
        Self::of(Kind::Addresses(Vec::new()))
    }

    /// The name does not exist (`NXDOMAIN`).
    #[must_use]
    pub fn no_name() -> Self {
        Self::of(Kind::Fail(Failure::NoName))
    }

    /// The server failed (`SERVFAIL`).
    #[must_use]
    pub fn server_failure() -> Self {
        Self::of(Kind::Fail(Failure::Server))
    }

    /// The server does not want to answer (`REFUSED`).
    #[must_use]
    pub fn refused() -> Self {
        Self::of(Kind::Fail(Failure::Refused))
    }

    /// No answer at all.
    #[must_use]
    pub fn silence() -> Self {
        Self::of(Kind::Fail(Failure::Silent))
    }

    fn of(kind: Kind) -> Self {
        Self {
            kind,
            ttl_seconds: TTL_DEFAULT_SECONDS,
            delay: Duration::ZERO,
        }
    }

    /// Sets how long a resolver may keep the records.
    #[must_use]
    pub fn ttl_seconds(mut self, seconds: u32) -> Self {
        self.ttl_seconds = seconds;
        self
    }

    /// Answers only after this time.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

/// How the replies of a name change.
#[derive(Clone, Debug)]
pub enum Rule {
    /// Always the same.
    Always(Reply),
    /// Another at each lookup; the last one repeats. Each record type goes through the list on
    /// its own, so that the two questions of one lookup get the same reply.
    PerLookup(Vec<Reply>),
    /// The last one whose time, counted from when the rule was set, has come.
    OverTime(Vec<(Duration, Reply)>),
}

impl From<Reply> for Rule {
    fn from(reply: Reply) -> Self {
        Self::Always(reply)
    }
}

/// One question that was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// When it arrived.
    pub at: Instant,
    /// The name in lower case, without a dot at its end.
    pub name: String,
    /// Whether it asked for IPv6 addresses; otherwise it asked for IPv4 or something else.
    pub ipv6: bool,
}

/// What a question found.
#[derive(Debug)]
pub(super) struct Found {
    /// The aliases that lead to the end, each from a name to a name.
    pub(super) aliases: Vec<(Name, Name, u32)>,
    /// The name that the addresses belong to.
    pub(super) owner: Name,
    pub(super) ttl_seconds: u32,
    pub(super) end: Result<Vec<IpAddr>, Failure>,
    pub(super) delay: Duration,
}

type Others = dyn Fn(&str) -> Option<Reply> + Send + Sync;

/// Every rule and every question.
#[derive(Default)]
pub(super) struct Zone(Mutex<State>);

#[derive(Default)]
struct State {
    rules: HashMap<String, (Rule, Instant)>,
    others: Option<Arc<Others>>,
    turns: HashMap<(String, RecordType), usize>,
    asked: Vec<Asked>,
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Zone")
    }
}

impl Zone {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, name: &str, rule: Rule) {
        let name = key(name);
        let mut state = self.lock();
        state.turns.retain(|(own, _), _| *own != name);
        state.rules.insert(name, (rule, Instant::now()));
    }

    pub(super) fn set_others(&self, decide: Arc<Others>) {
        self.lock().others = Some(decide);
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.lock().asked.clone()
    }

    pub(super) fn lookups(&self, name: &str) -> usize {
        let name = key(name);
        let state = self.lock();
        let count = |ipv6: bool| {
            let asked = state.asked.iter();
            asked
                .filter(|one| one.name == name && one.ipv6 == ipv6)
                .count()
        };
        count(true).max(count(false))
    }

    /// Follows aliases from a name to its addresses of the wanted type.
    pub(super) fn ask(&self, name: &Name, wanted: RecordType) -> Found {
        let mut state = self.lock();
        state.asked.push(Asked {
            at: Instant::now(),
            name: key(&name.to_ascii()),
            ipv6: wanted == RecordType::AAAA,
        });
        let mut found = Found {
            aliases: Vec::new(),
            owner: name.clone(),
            ttl_seconds: 0,
            end: Err(Failure::Server),
            delay: Duration::ZERO,
        };
        while found.aliases.len() <= ALIASES_MAX {
            let reply = state.next(&key(&found.owner.to_ascii()), wanted);
            found.delay += reply.delay;
            found.ttl_seconds = reply.ttl_seconds;
            match reply.kind {
                Kind::Addresses(mut addresses) => {
                    addresses.retain(|address| record_type(*address) == wanted);
                    found.end = Ok(addresses);
                    break;
                }
                Kind::Fail(failure) => {
                    found.end = Err(failure);
                    break;
                }
                Kind::Alias(to) => {
                    let to = Name::from_ascii(format!("{}.", key(&to)))
                        .expect("a test writes proper names");
                    let from = std::mem::replace(&mut found.owner, to.clone());
                    found.aliases.push((from, to, reply.ttl_seconds));
                }
            }
        }
        found
    }
}

impl State {
    fn next(&mut self, name: &str, wanted: RecordType) -> Reply {
        let turn = self.turns.entry((name.to_owned(), wanted)).or_default();
        let place = *turn;
        *turn += 1;
        let reply = match self.rules.get(name) {
            Some((Rule::Always(reply), _)) => Some(reply.clone()),
            Some((Rule::PerLookup(replies), _)) => {
                replies.get(place).or_else(|| replies.last()).cloned()
            }
            Some((Rule::OverTime(replies), set)) => {
                let age = set.elapsed();
                let come = replies.iter().take_while(|(from, _)| *from <= age);
                come.last().map(|(_, reply)| reply.clone())
            }
            None => self.others.as_ref().and_then(|decide| decide(name)),
        };
        reply.unwrap_or_else(Reply::no_name)
    }
}

fn record_type(address: IpAddr) -> RecordType {
    match address {
        IpAddr::V4(_) => RecordType::A,
        IpAddr::V6(_) => RecordType::AAAA,
    }
}

fn key(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}
