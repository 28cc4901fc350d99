//! One attempt at a time against a scripted receiver: what goes over the wire, and what is made
//! of the answer. No Postgres is involved.

mod answers;
mod connects;
mod http2;
mod kit;
mod names;
mod proxies;
mod requests;
mod reuse;
mod tls;
