//! One API on a database of its own, and the requests that tests send it.

use std::{net::SocketAddr, time::Duration};

use hook_api::{config::Config, service};
use hook_common::{
    config::{Binary, command_line::Vars},
    lifecycle::Stop,
    start,
};
use hook_testkit::{
    db::TestDb,
    wait::{pause, wait_until},
};
use serde_json::Value;
use sqlx::PgPool;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinSet,
    time::timeout,
};

/// No request takes longer, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A URL that is allowed everywhere.
pub(crate) const URL: &str = "https://example.com/hooks/42?x=1";

/// A running API.
pub(crate) struct Api {
    pub(crate) db: TestDb,
    pub(crate) pool: PgPool,
    pub(crate) address: SocketAddr,
    pub(crate) stop: Stop,
    pub(crate) served: JoinSet<anyhow::Result<()>>,
}

impl Api {
    /// Starts an API with the default settings.
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// Starts an API with these settings.
    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        let db = TestDb::new().await;
        let url = db.url();
        Self::on(db, &url, settings).await
    }

    /// Starts an API that reaches `db` by `url`.
    pub(crate) async fn on(db: TestDb, url: &str, settings: &[(&str, &str)]) -> Self {
        let mut vars = Vars::default();
        vars.set("DATABASE_URL", url);
        vars.set("HOOK_OPS_LISTEN", "127.0.0.1:0");
        vars.set("HOOK_SHUTDOWN_GRACE", "5s");
        for (name, value) in settings {
            vars.set(*name, *value);
        }
        let (common, config) = start::settings(Binary::Api, &vars, Config::read).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Stop::manual(common.shutdown_grace);
        let (tell, ready) = oneshot::channel();
        let mut served = JoinSet::new();
        served.spawn(start::serve(
            common,
            config,
            stop.clone(),
            move |config, context| async move {
                drop(tell.send(context.readiness.clone()));
                service::run_on(listener, config, context)
            },
        ));
        let readiness = ready.await.unwrap();
        let is_ready = async || {
            let reasons = readiness.reasons();
            if reasons.is_empty() {
                Ok(())
            } else {
                Err(reasons)
            }
        };
        wait_until(Duration::from_secs(60), is_ready).await;
        let pool = db.pool().await;
        Self {
            db,
            pool,
            address,
            stop,
            served,
        }
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.send(
            "POST",
            path,
            &[("content-type", "application/json")],
            body.as_bytes(),
        )
        .await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"").await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut raw = format!("{method} {path} HTTP/1.1\r\nhost: api.test\r\n").into_bytes();
        for (name, value) in headers {
            raw.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        if !body.is_empty() || method == "POST" {
            raw.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        raw.extend_from_slice(b"\r\n");
        raw.extend_from_slice(body);
        self.raw(&raw).await
    }

    /// Sends these bytes on a new connection and reads one answer.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Answer {
        let mut client = Client::connect(self.address).await;
        client.send(bytes).await;
        client.answer().await
    }

    /// Stores one job and returns its id.
    pub(crate) async fn enqueue(&self, body: &str) -> String {
        let answer = self.post("/v1/jobs", body).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.json["id"].as_str().unwrap().to_owned()
    }

    /// Jobs that are stored.
    pub(crate) async fn rows(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM hook.job")
            .fetch_one(&self.pool)
            .await
            .unwrap()
    }

    /// Moves a waiting job to `hook.finished`, as if one attempt had been made.
    pub(crate) async fn finish(&self, id: &str, status: i16) {
        let moved = sqlx::query(
            "WITH gone AS (DELETE FROM hook.ready WHERE job_id = $1::uuid RETURNING *)
            INSERT INTO hook.finished (shard, bucket, tier, job_id, target_id, finished_at, status,
                fence, attempt, outcome, error_kind, response_status, duration_ms, started_at, worker)
            SELECT shard, bucket, tier, job_id, target_id, now(), $2, fence + 1, attempt + 1,
                CASE WHEN $2 = 2 THEN 0 ELSE 2 END, CASE WHEN $2 = 2 THEN NULL ELSE 0 END,
                CASE WHEN $2 = 2 THEN 200 ELSE 400 END, 12, now(), 'w1'
            FROM gone",
        )
        .bind(id)
        .bind(status)
        .execute(&self.pool)
        .await
        .unwrap();
        assert_eq!(moved.rows_affected(), 1);
    }
}

/// A connection to the API.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            read: Vec::new(),
        }
    }

    /// Sends bytes; a peer that has closed already may make that fail.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        drop(self.stream.write_all(bytes).await);
    }

    /// Reads one answer.
    pub(crate) async fn answer(&mut self) -> Answer {
        self.try_answer()
            .await
            .expect("the connection was closed without an answer")
    }

    /// Reads one answer; `None` when the connection is closed before it.
    pub(crate) async fn try_answer(&mut self) -> Option<Answer> {
        loop {
            if let Some((answer, length)) = Answer::parse(&self.read) {
                self.read.drain(..length);
                return Some(answer);
            }
            let mut piece = vec![0; 16 * 1024];
            let read = timeout(PATIENCE, self.stream.read(&mut piece)).await;
            match read.expect("no answer in time") {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.read.extend_from_slice(&piece[..count]),
            }
        }
    }

    /// Waits until the other side closes, and fails if it does not within `limit`.
    pub(crate) async fn closed_within(&mut self, limit: Duration) {
        let mut piece = [0; 1024];
        let end = timeout(limit, async {
            while let Ok(count) = self.stream.read(&mut piece).await {
                if count == 0 {
                    return;
                }
            }
        });
        end.await.expect("the connection is still open");
    }

    /// Sends a piece of a request slowly, byte by byte, until the peer objects or `bytes` end.
    pub(crate) async fn dribble(&mut self, bytes: &[u8], every: Duration) {
        for byte in bytes {
            if self.stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            pause(every).await;
        }
    }
}

/// An answer of the API.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) json: Value,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.head)?;
        f.write_str(&String::from_utf8_lossy(&self.body))
    }
}

impl Answer {
    /// Takes the first answer off the front of `bytes`, with its length.
    fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = String::from_utf8(bytes[..end].to_vec())
            .unwrap()
            .to_lowercase();
        let status: u16 = head[9..12].parse().unwrap();
        if status == 100 {
            let (answer, length) = Self::parse(&bytes[end..])?;
            return Some((answer, end + length));
        }
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        let body = bytes.get(end..end + length)?.to_vec();
        let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let answer = Self {
            status,
            head,
            body,
            json,
        };
        Some((answer, end + length))
    }

    /// The value of a header, in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Fails unless this is a problem document with this status and code.
    #[track_caller]
    pub(crate) fn assert_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.json["code"], code, "{self:?}");
        assert_eq!(self.json["status"], status, "{self:?}");
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{self:?}"
        );
        for member in ["type", "title", "detail"] {
            assert!(self.json[member].is_string(), "{self:?}");
        }
    }

    /// Fails unless one of the errors has this pointer.
    #[track_caller]
    pub(crate) fn assert_names(&self, pointer: &str) {
        let errors = self.json["errors"].as_array().expect("a list of errors");
        let found = errors.iter().any(|error| error["pointer"] == pointer);
        assert!(found, "{pointer} is not among {errors:?}");
    }
}
