//! The delivery client: from a checked request to an answer, over as few connections as possible.
//!
//! Built on bare HTTP connections rather than on a general client, because a webhook sender needs
//! what those hide: the address that is judged is the address that is connected to, every buffer
//! and every socket is counted, and it is known whether a peer had begun to answer. Nothing is
//! followed, decoded, remembered or taken from the environment. See `docs/adr/0003-delivery-client.md`.

use std::{net::SocketAddr, path::PathBuf};

use hook_common::{metrics::worker as metric, url_rules::Scheme};
use tokio::time::{Instant, timeout_at};

use crate::{
    address_guard::AddressGuard,
    classify,
    client::{
        answer::{Answer, ReadLimits},
        connect::{Connected, Connector},
        failure::Failure,
        http1::{HeaderCase, Http1},
        pool::{Key, Pool, PoolLimits, Pooled},
        tasks::TaskSet,
    },
    delivery::Deadlines,
    egress_proxy::EgressProxy,
    outgoing::{Form, Outgoing, Rules},
    resolver::Resolver,
    tls::{Tls, Verification},
};

pub(crate) mod answer;
pub(crate) mod connect;
pub(crate) mod failure;
pub mod http1;
pub(crate) mod http2;
pub mod pool;
pub(crate) mod tasks;
pub(crate) mod wire;

/// What a client may reach, and how.
#[derive(Clone, Debug, Default)]
pub struct ClientConfig {
    /// Judges every address before it is connected to.
    pub guard: AddressGuard,
    /// Whether `http` URLs are sent to at all.
    pub cleartext: Cleartext,
    /// Name servers instead of the system's; empty means the system's.
    pub dns_servers: Vec<SocketAddr>,
    /// PEM certificates that are trusted beside the system's roots.
    pub egress_ca_file: Option<PathBuf>,
    /// A proxy that everything goes through.
    pub egress_proxy: Option<EgressProxy>,
    /// Whether certificates of targets are verified.
    pub verification: Verification,
    /// How header names are spelled on HTTP/1.1.
    pub header_case: HeaderCase,
    /// The bounds of the connection pool.
    pub pool: PoolLimits,
}

/// Whether deliveries may go over the wire in clear text.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Cleartext {
    /// `http` URLs are fine.
    #[default]
    Allowed,
    /// Only `https` URLs are; others end their job as an invalid request.
    Refused,
}

/// Sends requests to targets.
pub struct Client {
    guard: AddressGuard,
    cleartext: Cleartext,
    resolver: Resolver,
    connector: Connector,
    pool: Pool,
}

/// Where a request is about to be sent.
struct Route {
    key: Key,
    form: Form,
    addresses: Vec<SocketAddr>,
}

impl Client {
    /// Loads certificates and the resolver's settings; connects to nothing.
    ///
    /// # Errors
    /// A setting names a file that cannot be used.
    pub fn new(config: ClientConfig) -> anyhow::Result<Self> {
        Ok(Self {
            resolver: Resolver::new(&config.dns_servers)?,
            connector: Connector {
                tls: Tls::new(config.egress_ca_file.as_deref(), config.verification)?,
                proxy: config.egress_proxy,
                header_case: config.header_case,
                tasks: TaskSet::default(),
            },
            pool: Pool::new(config.pool),
            guard: config.guard,
            cleartext: config.cleartext,
        })
    }

    /// Closes connections that are of no more use, and shows how many are left. To be called
    /// about once a second.
    pub fn sweep(&self) {
        self.pool.sweep();
        #[expect(
            clippy::cast_precision_loss,
            reason = "a process has far fewer than 2^52 connections"
        )]
        metric::CONNECTIONS
            .gauge(&[])
            .set(self.pooled_connections() as f64);
    }

    /// How many connections the pool holds: idle ones, and HTTP/2 ones whether in use or not.
    #[must_use]
    pub fn pooled_connections(&self) -> usize {
        self.pool.count()
    }

    /// What stored requests are checked against.
    pub(crate) fn outgoing_rules(&self) -> Rules<'_> {
        Rules {
            allow_nets: self.guard.allow_nets(),
            cleartext: self.cleartext,
        }
    }

    /// Sends a request and reads the answer, on an open connection if there is one.
    ///
    /// A connection may have been closed by the peer at the moment at which it was taken from the
    /// pool. If it dies before a byte of the answer, the request is sent once more, on a new one:
    /// this is part of the same attempt, and the receiver can tell by `webhook-id`.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the exchange and closes its connection.
    pub(crate) async fn send(
        &self,
        outgoing: &Outgoing,
        deadlines: Deadlines,
    ) -> Result<Answer, Failure> {
        let limits = ReadLimits {
            body: deadlines.response_body,
            attempt: deadlines.attempt,
        };
        let route = timeout_at(deadlines.attempt, self.route(outgoing))
            .await
            .unwrap_or_else(|_| Err(Failure::timeout("the name was not resolved in time")))?;
        if let Some(pooled) = self.pool.take(&route.key, Some(&route.addresses)) {
            metric::CONNECTION_REUSES_TOTAL.counter(&[]).increment(1);
            match self.exchange(pooled, outgoing, &route, limits).await {
                Err(failure) if failure.unanswered => {}
                result => return result,
            }
        }
        let until = deadlines.attempt.min(Instant::now() + deadlines.connect);
        let connected = self
            .connector
            .connect(&outgoing.endpoint, &route.addresses, until)
            .await;
        let result = match &connected {
            Ok(_) => "ok",
            Err(failure) => classify::transport(failure.error).1.as_str(),
        };
        metric::CONNECTS_TOTAL.counter(&[result]).increment(1);
        let fresh = match connected? {
            Connected::Http1(connection) => Pooled::Http1(connection),
            Connected::Http2(connection) => {
                let Some(stream) = connection.open_stream() else {
                    return Err(Failure::reset("the HTTP/2 connection takes no streams"));
                };
                self.pool.share(route.key.clone(), &connection);
                Pooled::Http2(stream)
            }
        };
        self.exchange(fresh, outgoing, &route, limits).await
    }

    /// Finds out where to connect to, and refuses what must not be reached.
    async fn route(&self, outgoing: &Outgoing) -> Result<Route, Failure> {
        let endpoint = &outgoing.endpoint;
        if let Some(proxy) = &self.connector.proxy {
            let addresses = self.addresses_of_proxy(proxy).await?;
            return Ok(match endpoint.scheme {
                Scheme::Http => Route {
                    key: Key::Proxy,
                    form: Form::Absolute,
                    addresses,
                },
                Scheme::Https => Route {
                    key: Key::Endpoint(endpoint.clone()),
                    form: Form::Origin,
                    addresses,
                },
            });
        }
        let addresses = match outgoing.literal {
            Some(address) => self
                .guard
                .judge(&endpoint.host, &[address], endpoint.port)?,
            None => {
                let addresses = self.resolver.resolve(&endpoint.host).await?;
                self.guard
                    .judge(&endpoint.host, &addresses, endpoint.port)?
            }
        };
        Ok(Route {
            key: Key::Endpoint(endpoint.clone()),
            form: Form::Origin,
            addresses,
        })
    }

    /// The proxy's addresses. The operator chose it, so they are not judged.
    async fn addresses_of_proxy(&self, proxy: &EgressProxy) -> Result<Vec<SocketAddr>, Failure> {
        if let Ok(address) = proxy.host().parse() {
            return Ok(vec![SocketAddr::new(address, proxy.port())]);
        }
        let addresses = self.resolver.resolve(proxy.host()).await?;
        Ok(addresses
            .iter()
            .map(|address| SocketAddr::new(*address, proxy.port()))
            .collect())
    }

    async fn exchange(
        &self,
        pooled: Pooled,
        outgoing: &Outgoing,
        route: &Route,
        limits: ReadLimits,
    ) -> Result<Answer, Failure> {
        match pooled {
            Pooled::Http1(connection) => {
                self.exchange_http1(connection, outgoing, route, limits)
                    .await
            }
            Pooled::Http2(stream) => {
                stream
                    .exchange(outgoing.to_http(Form::Pseudo), limits)
                    .await
            }
        }
    }

    async fn exchange_http1(
        &self,
        mut connection: Box<Http1>,
        outgoing: &Outgoing,
        route: &Route,
        limits: ReadLimits,
    ) -> Result<Answer, Failure> {
        let answer = connection
            .exchange(outgoing.to_http(route.form), limits)
            .await?;
        if answer.reusable {
            self.pool.put(route.key.clone(), connection);
        }
        Ok(answer)
    }
}
