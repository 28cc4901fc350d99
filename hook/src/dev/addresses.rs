//! Ports on loopback: the usual ones if they are free, others if nobody insists.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use anyhow::Context as _;
use tokio::net::TcpListener;

use crate::exit::Failure;

/// A port, and whether another would do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    /// Somebody asked for this one; 0 is any.
    Exactly(u16),
    /// The usual one, or any other.
    Rather(u16),
}

impl Wanted {
    pub(super) const fn of(asked: Option<u16>, usual: u16) -> Self {
        match asked {
            Some(port) => Self::Exactly(port),
            None => Self::Rather(usual),
        }
    }
}

/// Listens on loopback.
pub(super) async fn listen(wanted: Wanted) -> Result<TcpListener, Failure> {
    let (port, other) = match wanted {
        Wanted::Exactly(port) => (port, None),
        Wanted::Rather(port) => (port, Some(0)),
    };
    let bound = match (bind(port).await, other) {
        (Err(error), Some(other)) if error.kind() == io::ErrorKind::AddrInUse => bind(other).await,
        (bound, _) => bound,
    };
    let taken = matches!(&bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse);
    let failed = || {
        let hint = if taken {
            "; --port, --receiver-port and --ops-port take another, and any free one for 0"
        } else {
            ""
        };
        format!("listening on port {port} of 127.0.0.1{hint}")
    };
    Ok(bound.with_context(failed)?)
}

/// Finds three ports in a row, or any three, for listeners that somebody else makes soon.
pub(super) async fn free_ports(wanted: Wanted) -> Result<[SocketAddr; 3], Failure> {
    let row = |first: u16| match first {
        0 => [0; 3],
        first => [first, first.saturating_add(1), first.saturating_add(2)],
    };
    let (ports, other) = match wanted {
        Wanted::Exactly(first) => (row(first), None),
        Wanted::Rather(first) => (row(first), Some([0; 3])),
    };
    let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); 3];
    // All are held until the last is found, so that no port is found twice.
    let mut held = Vec::new();
    for (index, address) in addresses.iter_mut().enumerate() {
        let wanted = match other {
            Some(_) => Wanted::Rather(ports[index]),
            None => Wanted::Exactly(ports[index]),
        };
        let listener = listen(wanted).await?;
        *address = listener
            .local_addr()
            .context("asking for the own address")?;
        held.push(listener);
    }
    Ok(addresses)
}

async fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await
}
