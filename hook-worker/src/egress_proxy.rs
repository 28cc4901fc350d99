//! The operator's forward proxy: if there is one, every delivery goes through it.
//!
//! `http` requests are sent to it with the whole URL, `https` goes through a tunnel that it opens
//! on `CONNECT`. The proxy resolves names, so the address guard sees literal addresses and the
//! names that are refused without a lookup, and the proxy has to guard the rest. Proxies named in
//! the environment are never used, since nobody asked for them in this product's settings.

use std::str::FromStr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{classify::TransportError, client::failure::Failure, outgoing::Endpoint};

/// Largest head of an answer to `CONNECT`.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// Where the proxy listens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EgressProxy {
    host: String,
    port: u16,
}

/// The setting is not the address of a proxy.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("must have the form http://host:port")]
pub struct NotAProxy;

impl FromStr for EgressProxy {
    type Err = NotAProxy;

    fn from_str(text: &str) -> Result<Self, NotAProxy> {
        let authority = text.strip_prefix("http://").ok_or(NotAProxy)?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = authority.rsplit_once(':').ok_or(NotAProxy)?;
        let port = port.parse().map_err(|_| NotAProxy)?;
        let bare = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let is_name = |host: &str| {
            !host.is_empty()
                && host
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
        };
        let is_host = match bare {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => is_name(host),
        };
        if port == 0 || !is_host {
            return Err(NotAProxy);
        }
        Ok(Self {
            host: bare.unwrap_or(host).to_owned(),
            port,
        })
    }
}

impl EgressProxy {
    /// The name or address of the proxy, an IPv6 address without brackets.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The port that it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Asks the proxy at the other end of `stream` to open a tunnel to an endpoint.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn tunnel(
        &self,
        mut stream: TcpStream,
        endpoint: &Endpoint,
    ) -> Result<TcpStream, Failure> {
        let lost = |_| {
            let text = "the connection to the egress proxy was lost";
            Failure::new(TransportError::Connect, text)
        };
        let authority = endpoint.authority();
        let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.map_err(lost)?;
        let mut head = Vec::with_capacity(256);
        // Byte by byte, so that nothing that belongs to the tunnel is taken out of the socket.
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() >= HEAD_BYTES_MAX {
                let text = "the answer of the egress proxy is too large";
                return Err(Failure::new(TransportError::Connect, text));
            }
            head.push(stream.read_u8().await.map_err(lost)?);
        }
        if is_success(&head) {
            return Ok(stream);
        }
        let text = "the egress proxy refused the connection";
        Err(Failure::new(TransportError::Connect, text))
    }
}

/// Whether the head begins with an HTTP/1 status line of the 2xx class.
fn is_success(head: &[u8]) -> bool {
    let mut words = head.split(|byte| *byte == b' ');
    let version = words.next().unwrap_or_default();
    let status = words.next().unwrap_or_default();
    version.starts_with(b"HTTP/1.") && status.len() == 3 && status[0] == b'2'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_plain_form_is_a_proxy() {
        let proxy = |host: &str, port| {
            Ok(EgressProxy {
                host: host.to_owned(),
                port,
            })
        };
        assert_eq!("http://proxy.test:4750".parse(), proxy("proxy.test", 4750));
        assert_eq!("http://127.0.0.1:8080/".parse(), proxy("127.0.0.1", 8080));
        assert_eq!("http://[::1]:8080".parse(), proxy("::1", 8080));
        for text in [
            "",
            "proxy.test:4750",
            "https://proxy.test:4750",
            "http://proxy.test",
            "http://proxy.test:0",
            "http://user:secret@proxy.test:4750",
            "http://proxy.test:4750/path",
            "http://:4750",
            "http://[::1:4750",
        ] {
            assert_eq!(text.parse::<EgressProxy>(), Err(NotAProxy), "{text}");
        }
    }

    #[test]
    fn a_tunnel_is_open_on_2xx_only() {
        assert!(is_success(b"HTTP/1.1 200 Connection established\r\n\r\n"));
        assert!(is_success(
            b"HTTP/1.0 200\r\n\r\n".as_slice().split_at(12).0
        ));
        for head in [
            b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n".as_slice(),
            b"HTTP/1.1 302 Found\r\n\r\n",
            b"SSH-2.0-x 200\r\n\r\n",
            b"",
        ] {
            assert!(!is_success(head));
        }
    }
}
