//! Whatever a receiver answers, an attempt comes to one of the outcomes of the table, in time.
#![no_main]

use std::{sync::LazyLock, time::Duration};

use bytes::Bytes;
use hook_common::{
    address::AllowNets,
    job::{ErrorKind, JobId, Method, Outcome},
};
use hook_worker::{
    address_guard::AddressGuard,
    client::{Client, ClientConfig},
    delivery::{Deadlines, Report, Request},
};
use libfuzzer_sys::fuzz_target;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    runtime::{Builder, Runtime},
    time::Instant,
};

const ATTEMPT: Duration = Duration::from_secs(2);
const REQUEST_BYTES_MAX: usize = 4096;

static RIG: LazyLock<Rig> = LazyLock::new(Rig::new);

/// A client, and a receiver that answers with given bytes.
struct Rig {
    runtime: Runtime,
    client: Client,
    listener: TcpListener,
}

impl Rig {
    fn new() -> Self {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime can be made");
        let listener = runtime
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .expect("a port is free");
        let nets = AllowNets::parse("127.0.0.0/8").expect("this is a network");
        let config = ClientConfig {
            guard: AddressGuard::new(nets, Vec::new()),
            ..ClientConfig::default()
        };
        let client = {
            let _inside = runtime.enter();
            Client::new(config).expect("the settings are good")
        };
        Self {
            runtime,
            client,
            listener,
        }
    }

    fn attempt(&self, answer: &[u8]) -> Report {
        let address = self.listener.local_addr().expect("it is bound");
        let request = Request {
            job_id: JobId::parse("01890a5d-ac96-774b-bcce-b302099a8057").expect("an id"),
            attempt: 1,
            method: Method::Post,
            url: format!("http://{address}/"),
            headers: Vec::new(),
            body: Bytes::from_static(b"{}"),
            timestamp: 1_700_000_000,
            signatures: None,
        };
        let deadlines = Deadlines {
            attempt: Instant::now() + ATTEMPT,
            connect: ATTEMPT,
            response_body: Duration::from_millis(100),
        };
        let receive = async {
            loop {
                // An attempt may take a second connection, if the first was an old one.
                let (mut stream, _) = self.listener.accept().await.expect("it listens");
                let mut request = vec![0; REQUEST_BYTES_MAX];
                let mut length = 0;
                while !request[..length].ends_with(b"{}") {
                    match stream.read(&mut request[length..]).await {
                        Ok(0) | Err(_) => break,
                        Ok(read) => length += read,
                    }
                }
                // The client may have heard enough.
                drop(stream.write_all(answer).await);
            }
        };
        self.runtime.block_on(async {
            tokio::select! {
                report = self.client.deliver(request, deadlines) => report,
                () = receive => unreachable!("it receives for ever"),
            }
        })
    }
}

fuzz_target!(|answer: &[u8]| {
    let report = RIG.attempt(answer);
    assert!(
        report.duration < ATTEMPT + Duration::from_secs(1),
        "{report:?}"
    );
    let excerpt = report.response_excerpt.as_deref().unwrap_or_default();
    assert!(excerpt.len() <= 4096 && !excerpt.contains(&0));
    assert!(std::str::from_utf8(excerpt).is_ok());
    let expected = match (report.response_status, report.error_kind) {
        (Some(200..=299), None) => Outcome::Delivered,
        (Some(101), Some(ErrorKind::InvalidResponse)) => Outcome::Permanent,
        (Some(300..=399), Some(ErrorKind::Redirect)) => Outcome::Permanent,
        (Some(408 | 425 | 429 | 500..=599), Some(ErrorKind::HttpStatus)) => Outcome::Retryable,
        (Some(400..=999), Some(ErrorKind::HttpStatus)) => Outcome::Permanent,
        (
            None,
            Some(
                ErrorKind::Timeout
                | ErrorKind::Connect
                | ErrorKind::Reset
                | ErrorKind::InvalidResponse,
            ),
        ) => Outcome::Retryable,
        _ => panic!("{report:?}"),
    };
    assert_eq!(report.outcome, expected, "{report:?}");
    assert!(report.retry_after.is_none() || matches!(report.response_status, Some(429 | 503)));
});
