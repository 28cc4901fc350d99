//! One kept connection to an HTTP server on this machine, with as little as possible around it.
//!
//! Floors and loads are made with the same client, so that its own cost cancels out.

use std::net::SocketAddr;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Method, Request, StatusCode, Uri,
    client::conn::http1::{self, SendRequest},
    header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, task::JoinSet};

/// A connection that carries one request at a time.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
    // Moves the bytes; ends with the connection.
    _driver: JoinSet<()>,
}

/// What a server said.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await;
        let stream = stream.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true).context("setting TCP_NODELAY")?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .context("speaking HTTP")?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // Whoever waits for an answer is told of the fault.
            drop(connection.await);
        });
        let host = HeaderValue::try_from(address.to_string()).context("making a host header")?;
        Ok(Self {
            sender,
            host,
            _driver: driver,
        })
    }

    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Answer> {
        let request = Request::new(Full::default());
        self.send(Method::GET, &uri(path)?, request).await
    }

    pub(crate) async fn put(&mut self, path: &str) -> anyhow::Result<Answer> {
        let request = Request::new(Full::default());
        self.send(Method::PUT, &uri(path)?, request).await
    }

    /// Posts JSON.
    pub(crate) async fn post(&mut self, path: &Uri, body: Bytes) -> anyhow::Result<Answer> {
        let request = Request::new(Full::new(body));
        self.send_json(path, request).await
    }

    /// Posts JSON with one more header.
    pub(crate) async fn post_with(
        &mut self,
        path: &Uri,
        body: Bytes,
        (name, value): (HeaderName, HeaderValue),
    ) -> anyhow::Result<Answer> {
        let mut request = Request::new(Full::new(body));
        request.headers_mut().insert(name, value);
        self.send_json(path, request).await
    }

    async fn send_json(
        &mut self,
        path: &Uri,
        mut request: Request<Full<Bytes>>,
    ) -> anyhow::Result<Answer> {
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
        self.send(Method::POST, path, request).await
    }

    async fn send(
        &mut self,
        method: Method,
        path: &Uri,
        mut request: Request<Full<Bytes>>,
    ) -> anyhow::Result<Answer> {
        *request.method_mut() = method;
        *request.uri_mut() = path.clone();
        request.headers_mut().insert(HOST, self.host.clone());
        self.sender.ready().await.context("keeping a connection")?;
        let sent = self.sender.send_request(request).await;
        let response = sent.with_context(|| format!("asking for {path}"))?;
        let status = response.status();
        let body = response.into_body().collect().await;
        let body = body.with_context(|| format!("reading the answer of {path}"))?;
        Ok(Answer {
            status,
            body: body.to_bytes(),
        })
    }
}

/// Reads the path of a request.
pub(crate) fn uri(path: &str) -> anyhow::Result<Uri> {
    path.parse().with_context(|| format!("{path} as a path"))
}
