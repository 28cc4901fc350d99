//! `hook health`: asks the ops listener of a service, as a container's health check does.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use clap::Args;
use hook_common::config::{command_line::Vars, parse};
use serde_json::json;

use crate::{
    exit::{Failure, Kind},
    output::Output,
};

/// An ops listener answers within a second, whatever its process does.
const LIMIT: Duration = Duration::from_secs(2);

/// The ops listener of the API.
const DEFAULT: &str = "127.0.0.1:3310";

/// More of an answer is not read.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

#[derive(Args, Debug)]
pub(crate) struct HealthArgs {
    /// Address of the ops listener; default: HOOK_OPS_LISTEN, else that of hook-api.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    ops: Option<SocketAddr>,
    /// Ask whether it lives (`/livez`) instead of whether it is ready (`/readyz`).
    #[arg(long)]
    live: bool,
}

pub(crate) fn run(args: HealthArgs, output: Output) -> Result<(), Failure> {
    let address = match args.ops {
        Some(address) => address,
        None => {
            let text = Vars::from_environment().get("HOOK_OPS_LISTEN");
            let text = text.filter(|text| !text.is_empty());
            address(text.as_deref().unwrap_or(DEFAULT))
                .map_err(|problem| Failure::usage(format!("HOOK_OPS_LISTEN: {problem}")))?
        }
    };
    let path = if args.live { "/livez" } else { "/readyz" };
    let (status, body) = ask(reachable(address), path)
        .with_context(|| format!("asking {address} for {path}"))
        .map_err(|error| Failure::new(Kind::Unavailable, error))?;
    let body = body.trim();
    if status != 200 {
        let error = anyhow!("{path} answers {status}: {body}");
        return Err(Failure::new(Kind::Unavailable, error));
    }
    output.result(body, &json!({"status": status, "answer": body}))
}

/// One request over a plain socket: nothing else is needed, and the check stays cheap.
fn ask(address: SocketAddr, path: &str) -> anyhow::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.context("no HTTP status")?;
    Ok((status, body.to_owned()))
}

/// A listener on every address is reached on loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn address(text: &str) -> Result<SocketAddr, String> {
    parse::address(text).map_err(|form| format!("expected {form}"))
}
