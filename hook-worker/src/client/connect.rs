//! From judged addresses to a connection that can take a request.
//!
//! The addresses that come in are the ones that are connected to: nothing in here resolves a
//! name. Several addresses are tried with a short stagger, so that a dead one costs a quarter of
//! a second and not the attempt. TCP, a tunnel through the egress proxy and TLS share one budget.

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use futures_util::stream::{FuturesUnordered, StreamExt};
use hook_common::url_rules::Scheme;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    classify::TransportError,
    client::{
        failure::Failure,
        http1::{HeaderCase, Http1},
        http2::Http2,
        tasks::TaskSet,
        wire::{Meter, Transport, Wire},
    },
    egress_proxy::EgressProxy,
    outgoing::Endpoint,
    tls::Tls,
};

/// Addresses of one name that are tried at most.
const ADDRESSES_TRIED_MAX: usize = 8;
/// How long one address has before the next one is tried beside it.
const STAGGER: Duration = Duration::from_millis(250);
/// How long a new connection is watched before a request is trusted to it.
///
/// A peer, or a load balancer without a backend, that resets connections as soon as it has
/// accepted them is told apart here from one that has read the request and then gave up: only
/// the latter may have acted on it. The wait is paid once per connection, not per request.
const SETTLE: Duration = Duration::from_millis(1);

/// Makes connections.
pub(crate) struct Connector {
    pub(crate) tls: Tls,
    pub(crate) proxy: Option<EgressProxy>,
    pub(crate) header_case: HeaderCase,
    pub(crate) tasks: TaskSet,
}

/// A new connection, in the protocol that the peer chose.
pub(crate) enum Connected {
    Http1(Box<Http1>),
    Http2(Arc<Http2>),
}

impl Connector {
    /// Connects to one of `addresses`, which belong to the endpoint or to the egress proxy.
    ///
    /// # Cancel safety
    /// Dropping the future closes whatever has been opened.
    pub(crate) async fn connect(
        &self,
        endpoint: &Endpoint,
        addresses: &[SocketAddr],
        until: Instant,
    ) -> Result<Connected, Failure> {
        timeout_at(until, self.connect_unbounded(endpoint, addresses))
            .await
            .unwrap_or_else(|_| Err(Failure::timeout("the connection could not be made in time")))
    }

    async fn connect_unbounded(
        &self,
        endpoint: &Endpoint,
        addresses: &[SocketAddr],
    ) -> Result<Connected, Failure> {
        let (mut stream, peer) = first_of(addresses).await?;
        if let Some(proxy) = &self.proxy
            && endpoint.scheme == Scheme::Https
        {
            stream = proxy.tunnel(stream, endpoint).await?;
        }
        let meter = Arc::new(Meter::default());
        match endpoint.scheme {
            Scheme::Http => {
                settle(&stream).await?;
                let wire = Wire::new(Transport::Plain(stream), Arc::clone(&meter));
                let connection = Http1::open(wire, meter, peer, self.header_case).await?;
                Ok(Connected::Http1(Box::new(connection)))
            }
            Scheme::Https => {
                let stream = self.tls.handshake(&endpoint.host, stream).await?;
                let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let wire = Wire::new(Transport::Tls(Box::new(stream)), Arc::clone(&meter));
                if speaks_http2 {
                    let connection = Http2::open(wire, meter, peer, &self.tasks).await?;
                    Ok(Connected::Http2(connection))
                } else {
                    let connection = Http1::open(wire, meter, peer, self.header_case).await?;
                    Ok(Connected::Http1(Box::new(connection)))
                }
            }
        }
    }
}

/// The first connection that comes about. The next address is tried when one fails or dallies.
async fn first_of(addresses: &[SocketAddr]) -> Result<(TcpStream, SocketAddr), Failure> {
    let mut waiting = addresses.iter().copied().take(ADDRESSES_TRIED_MAX);
    let mut tries = FuturesUnordered::new();
    let mut failure = Failure::new(TransportError::Connect, "the host has no address");
    tries.extend(waiting.next().map(connect_to));
    while !tries.is_empty() {
        match timeout(STAGGER, tries.next()).await {
            Ok(Some(Ok(connected))) => return Ok(connected),
            Ok(Some(Err(error))) => failure = Failure::of_connect(&error),
            Ok(None) => {}
            Err(_) if waiting.len() == 0 => match tries.next().await {
                Some(Ok(connected)) => return Ok(connected),
                Some(Err(error)) => failure = Failure::of_connect(&error),
                None => {}
            },
            Err(_) => {}
        }
        tries.extend(waiting.next().map(connect_to));
    }
    Err(failure)
}

async fn connect_to(address: SocketAddr) -> std::io::Result<(TcpStream, SocketAddr)> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok((stream, address))
}

/// Sees whether a peer that has just accepted a connection takes it back at once.
async fn settle(stream: &TcpStream) -> Result<(), Failure> {
    let mut byte = [0];
    let peek = pin!(stream.peek(&mut byte));
    match timeout(SETTLE, peek).await {
        Err(_) => Ok(()),
        Ok(Ok(1..)) => Err(Failure::spoke_first()),
        Ok(Ok(0) | Err(_)) => Err(Failure::new(
            TransportError::Connect,
            "the connection was closed as soon as it was made",
        )),
    }
}
