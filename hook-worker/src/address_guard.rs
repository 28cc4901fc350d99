//! May this address be reached? Asked about the very addresses that are about to be connected to.
//!
//! A name is refused as a whole if any of its addresses is: whoever mixes a good address with an
//! inner one is trying something. Beside the address rules that the API knows, the guard holds
//! the listeners of our own deployment, above all the database, which stay closed when private
//! networks are opened.

use std::net::{IpAddr, SocketAddr};

use hook_common::address::AllowNets;

use crate::{classify::TransportError, client::failure::Failure, resolver::is_localhost};

/// Judges addresses.
#[derive(Clone, Debug, Default)]
pub struct AddressGuard {
    allow_nets: AllowNets,
    own_listeners: Vec<SocketAddr>,
}

impl AddressGuard {
    /// Opens `allow_nets` and closes `own_listeners`.
    ///
    /// A listener of ours closes its whole host, whatever the port, unless it is a loopback
    /// address: those are shared with everything else on the machine, so only the port is closed.
    #[must_use]
    pub fn new(allow_nets: AllowNets, own_listeners: Vec<SocketAddr>) -> Self {
        let own_listeners = own_listeners
            .into_iter()
            .map(|listener| SocketAddr::new(listener.ip().to_canonical(), listener.port()))
            .collect();
        Self {
            allow_nets,
            own_listeners,
        }
    }

    /// The networks that are opened.
    #[must_use]
    pub fn allow_nets(&self) -> &AllowNets {
        &self.allow_nets
    }

    /// Whether a delivery may connect to `address` at `port`.
    #[must_use]
    pub fn is_allowed(&self, address: IpAddr, port: u16) -> bool {
        let canonical = address.to_canonical();
        let is_ours = self.own_listeners.iter().any(|listener| {
            listener.ip() == canonical && (listener.port() == port || !canonical.is_loopback())
        });
        self.allow_nets.is_allowed(address) && !is_ours
    }

    /// Turns the addresses of a host into the ones to connect to, or refuses them together.
    pub(crate) fn judge(
        &self,
        host: &str,
        addresses: &[IpAddr],
        port: u16,
    ) -> Result<Vec<SocketAddr>, Failure> {
        let allowed = |address: &&IpAddr| self.is_allowed(**address, port);
        let is_refused = if is_localhost(host) {
            // This name is not an answer of anybody's DNS: it stands for whichever of the two
            // loopback addresses is opened.
            !addresses.iter().any(|address| allowed(&address))
        } else {
            !addresses.iter().all(|address| allowed(&address))
        };
        if is_refused {
            let text = "the host has an address that must not be reached";
            return Err(Failure::new(TransportError::BlockedAddress, text));
        }
        Ok(addresses
            .iter()
            .filter(allowed)
            .map(|address| SocketAddr::new(*address, port))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(nets: &str, own: &[&str]) -> AddressGuard {
        let own = own.iter().map(|text| text.parse().unwrap()).collect();
        AddressGuard::new(AllowNets::parse(nets).unwrap(), own)
    }

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn sd_06_one_refused_address_refuses_the_name() {
        let guard = guard("127.0.0.0/8", &[]);
        let good = addresses(&["127.0.0.1", "93.184.216.34"]);
        assert_eq!(guard.judge("a.test", &good, 80).unwrap().len(), 2);
        let mixed = addresses(&["127.0.0.1", "fd00::1"]);
        let failure = guard.judge("a.test", &mixed, 80).unwrap_err();
        assert_eq!(failure.error, TransportError::BlockedAddress);
        assert!(!failure.text.contains("fd00"));
    }

    #[test]
    fn localhost_means_the_loopback_address_that_is_opened() {
        let both = addresses(&["127.0.0.1", "::1"]);
        let judged = guard("127.0.0.0/8", &[]).judge("localhost", &both, 80);
        assert_eq!(judged, Ok(vec!["127.0.0.1:80".parse().unwrap()]));
        assert!(
            guard("10.0.0.0/8", &[])
                .judge("localhost", &both, 80)
                .is_err()
        );
    }

    #[test]
    fn sd_18_the_database_stays_closed_in_an_opened_network() {
        let guard = guard(
            "10.0.0.0/8,127.0.0.0/8",
            &["10.0.0.5:5432", "127.0.0.1:5433"],
        );
        assert!(!guard.is_allowed("10.0.0.5".parse().unwrap(), 5432));
        assert!(!guard.is_allowed("10.0.0.5".parse().unwrap(), 80));
        assert!(!guard.is_allowed("::ffff:10.0.0.5".parse().unwrap(), 80));
        assert!(guard.is_allowed("10.0.0.6".parse().unwrap(), 5432));
        assert!(!guard.is_allowed("127.0.0.1".parse().unwrap(), 5433));
        assert!(guard.is_allowed("127.0.0.1".parse().unwrap(), 8080));
    }
}
