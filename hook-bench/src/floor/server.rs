//! The floor's process: an endpoint, and clients that store, claim, send and finish.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

use anyhow::{Context as _, bail};
use axum::{Router, extract::State, http::StatusCode, routing::post};
use bytes::Bytes;
use hook_common::lifecycle::Stop;
use hyper::Uri;
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::{
    net::TcpListener,
    sync::{Mutex, mpsc},
    task::JoinSet,
};

use crate::{
    http::{Connection, uri},
    load, role, sql,
};

/// Takes a body and answers.
pub(crate) const NOTHING: &str = "/nothing";

/// Inserts the job in a statement of its own, and answers after its commit.
pub(crate) const INSERT: &str = "/insert";

/// As many as `HOOK_DB_POOL_MAX` gives a service.
const INSERT_CONNECTIONS: u32 = 10;

/// Jobs of one statement.
const BATCH: usize = 100;

/// Clients of Postgres, each with as many connections to the receiver.
const CLIENTS: usize = 6;
const CONNECTIONS: usize = 16;

/// Jobs that are taken and not yet stored.
const WAITING_MAX: usize = 2000;

/// What the API answers for one job, in length.
const ANSWER: &str = r#"{"id":"0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b","queue":"primary","target":"127.0.0.1","duplicate":false}"#;

/// Serves until `stop` drains.
pub(crate) async fn serve(
    database_url: &str,
    receiver: SocketAddr,
    stop: Stop,
) -> anyhow::Result<()> {
    let clients = u32::try_from(CLIENTS).expect("a few");
    let pool = PgPoolOptions::new().max_connections(clients);
    let pool = pool.connect(database_url).await;
    let pool = pool.context("connecting to Postgres")?;
    let (sender, taken) = mpsc::channel(WAITING_MAX);
    let taken = Arc::new(Mutex::new(taken));
    let numbers = Arc::new(AtomicI64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..CLIENTS {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(Connection::open(receiver).await?);
        }
        let client = Client {
            pool: pool.clone(),
            taken: Arc::clone(&taken),
            numbers: Arc::clone(&numbers),
            connections,
            path: uri("/ok")?,
        };
        tasks.spawn(client.run());
    }
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.context("listening")?;
    role::announce(
        listener
            .local_addr()
            .context("asking for the own address")?,
    )?;
    let router = Router::new()
        .route(load::SINGLE, post(take))
        .with_state(sender)
        .route(NOTHING, post(do_nothing))
        .route(INSERT, post(insert))
        .with_state(Inserts {
            pool: PgPoolOptions::new()
                .max_connections(INSERT_CONNECTIONS)
                .connect(database_url)
                .await
                .context("connecting to Postgres")?,
            // Apart from the numbers of the pipeline.
            next: Arc::new(AtomicI64::new(1 << 40)),
        });
    tasks.spawn(async move { axum::serve(listener, router).await.context("serving") });
    tokio::select! {
        () = stop.draining() => {}
        Some(ended) = tasks.join_next() => {
            ended.context("a part of the floor panicked")??;
            bail!("a part of the floor ended by itself");
        }
    }
    tasks.shutdown().await;
    Ok(())
}

async fn take(
    State(sender): State<mpsc::Sender<Bytes>>,
    body: Bytes,
) -> (StatusCode, &'static str) {
    match sender.send(body).await {
        Ok(()) => (StatusCode::ACCEPTED, ANSWER),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, ""),
    }
}

async fn do_nothing(body: Bytes) -> (StatusCode, &'static str) {
    drop(body);
    (StatusCode::ACCEPTED, ANSWER)
}

/// What an insert per request needs.
#[derive(Clone)]
struct Inserts {
    pool: PgPool,
    next: Arc<AtomicI64>,
}

async fn insert(State(inserts): State<Inserts>, body: Bytes) -> (StatusCode, &'static str) {
    let id = inserts.next.fetch_add(1, Relaxed);
    match sql::insert_one(&inserts.pool, id, &job_body(body)).await {
        Ok(()) => (StatusCode::ACCEPTED, ANSWER),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, ""),
    }
}

/// One client of Postgres, which takes a batch through all its steps.
struct Client {
    pool: PgPool,
    taken: Arc<Mutex<mpsc::Receiver<Bytes>>>,
    numbers: Arc<AtomicI64>,
    connections: Vec<Connection>,
    path: Uri,
}

impl Client {
    async fn run(mut self) -> anyhow::Result<()> {
        loop {
            let mut bodies = Vec::with_capacity(BATCH);
            let count = self.taken.lock().await.recv_many(&mut bodies, BATCH).await;
            if count == 0 {
                return Ok(());
            }
            let count = i64::try_from(count).expect("a batch is small");
            let first = self.numbers.fetch_add(count, Relaxed);
            let ids: Vec<i64> = (first..first + count).collect();
            let bodies: Vec<Bytes> = bodies.into_iter().map(job_body).collect();
            sql::floor_insert(&self.pool, &ids, &bodies).await?;
            let bodies = sql::floor_claim(&self.pool, &ids).await?;
            self.send(bodies).await?;
            sql::floor_finish(&self.pool, &ids).await?;
        }
    }

    /// Sends every body, spread over the connections.
    async fn send(&mut self, mut bodies: Vec<Vec<u8>>) -> anyhow::Result<()> {
        let mut sending = JoinSet::new();
        let share = bodies.len().div_ceil(self.connections.len());
        for mut connection in self.connections.drain(..) {
            let part = bodies.split_off(bodies.len().saturating_sub(share));
            let path = self.path.clone();
            sending.spawn(async move {
                for body in part {
                    let answer = connection.post(&path, body.into()).await?;
                    if !answer.status.is_success() {
                        bail!("the receiver answered {}", answer.status);
                    }
                }
                Ok(connection)
            });
        }
        while let Some(sent) = sending.join_next().await {
            self.connections.push(sent.context("sending")??);
        }
        Ok(())
    }
}

/// The job's own body within the request: what lies between the payload's name and the last brace.
fn job_body(request: Bytes) -> Bytes {
    const NAME: &[u8] = br#""payload":"#;
    let found = request.windows(NAME.len()).position(|part| part == NAME);
    let begin = found.map_or(0, |at| at + NAME.len());
    let end = request.len().saturating_sub(1).max(begin);
    request.slice(begin..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_is_found_in_a_request() {
        let request = Bytes::from_static(br#"{"url":"http://a/","payload":{"n":"1"}}"#);
        assert_eq!(job_body(request).as_ref(), br#"{"n":"1"}"#);
    }
}
