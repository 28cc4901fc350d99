//! The way from settings to a running service and back.

use std::{
    collections::HashMap,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hook_common::{
    config::{Binary, CommonConfig, command_line::Vars},
    lifecycle::{Loops, Stop},
    start::{self, Context},
};
use hook_testkit::{db::TestDb, wait::wait_until};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

const SECOND: Duration = Duration::from_secs(1);

/// An address that nobody listens on right now.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it has an address")
}

fn common(url: &str, ops: SocketAddr, more: &[(&str, &str)]) -> CommonConfig {
    let mut vars = Vars::default();
    vars.set("DATABASE_URL", url);
    vars.set("HOOK_OPS_LISTEN", ops.to_string());
    for (name, text) in more {
        vars.set(*name, *text);
    }
    let settings = start::settings(Binary::Janitor, &vars, |_| ());
    settings.expect("the settings are good").0
}

/// Status and body of a route of the ops listener; 0 while nobody listens.
async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let Ok(mut stream) = TcpStream::connect(address).await else {
        return (0, String::new());
    };
    let request = format!("GET {path} HTTP/1.1\r\nhost: ops\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("the listener reads");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .await
        .expect("the answer is text");
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
    (status.unwrap_or(0), body.unwrap_or_default().to_owned())
}

async fn wait_status(address: SocketAddr, path: &str, expected: u16) -> String {
    wait_until(SECOND * 20, async || {
        let (status, body) = get(address, path).await;
        if status == expected {
            Ok(body)
        } else {
            Err((status, body))
        }
    })
    .await
}

/// A service of one loop that waits for the drain and notes that it saw it.
async fn steady(drained: Arc<AtomicBool>, mut context: Context) -> anyhow::Result<Loops> {
    let stop = context.stop.clone();
    context.loops.spawn("steady", async move {
        stop.draining().await;
        drained.store(true, Ordering::SeqCst);
    });
    Ok(context.loops)
}

#[tokio::test]
async fn a_service_becomes_ready_and_drains() {
    let database = TestDb::new().await;
    let (ops, stop) = (free_address(), Stop::manual(SECOND * 5));
    let drained = Arc::new(AtomicBool::new(false));
    let mut service = JoinSet::new();
    let (seen, stop_too) = (Arc::clone(&drained), stop.clone());
    let common = common(&database.url(), ops, &[]);
    service.spawn(async move { start::serve(common, seen, stop_too, steady).await });
    wait_status(ops, "/readyz", 200).await;
    let (_, metrics) = get(ops, "/metrics").await;
    assert!(metrics.contains("hook_ready{binary=\"hook-janitor\"} 1"));
    assert!(metrics.contains("hook_build_info{binary=\"hook-janitor\""));
    stop.drain();
    service.join_next().await.unwrap().unwrap().unwrap();
    assert!(drained.load(Ordering::SeqCst));
    assert_eq!(get(ops, "/livez").await.0, 0, "the ops listener goes last");
}

#[tokio::test]
async fn ops_06_a_service_without_postgres_is_alive_and_not_ready_and_can_be_stopped() {
    let (ops, stop) = (free_address(), Stop::manual(SECOND * 5));
    let url = format!("postgres://nobody:pa55word@{}/none", free_address());
    let mut service = JoinSet::new();
    let (common, stop_too) = (common(&url, ops, &[]), stop.clone());
    let never = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&never);
    service.spawn(async move { start::serve(common, seen, stop_too, steady).await });
    let reason = wait_status(ops, "/readyz", 503).await;
    assert!(reason.contains("postgres: not reached yet"), "{reason}");
    assert!(!reason.contains("pa55word"), "{reason}");
    assert_eq!(get(ops, "/livez").await.0, 200);
    stop.drain();
    service.join_next().await.unwrap().unwrap().unwrap();
    assert!(
        !never.load(Ordering::SeqCst),
        "the service was never started"
    );
}

/// OBS-02 (b), (c): a loop that ends by itself takes the process down, naming it.
#[tokio::test]
async fn obs_02_a_loop_that_ends_or_panics_ends_the_service_with_a_fault() {
    let database = TestDb::new().await;
    for panics in [false, true] {
        let common = common(&database.url(), free_address(), &[]);
        let run = |(), mut context: Context| async move {
            context.loops.spawn("dequeue", async move {
                assert!(!panics, "on purpose");
            });
            Ok(context.loops)
        };
        let fault = start::serve(common, (), Stop::manual(SECOND), run)
            .await
            .unwrap_err();
        let expected = if panics {
            "panicked"
        } else {
            "ended by itself"
        };
        let text = format!("{fault:#}");
        assert_eq!(text, format!("the loop dequeue {expected}"));
    }
}

#[tokio::test]
async fn two_services_on_one_ops_address_end_with_a_clear_fault() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let common = common("postgres://x@127.0.0.1:1/x", address, &[]);
    let never = Arc::new(AtomicBool::new(false));
    let fault = start::serve(common, never, Stop::manual(SECOND), steady)
        .await
        .unwrap_err();
    let text = format!("{fault:#}");
    assert!(text.contains("HOOK_OPS_LISTEN"), "{text}");
    assert!(text.contains(&address.to_string()), "{text}");
}

#[test]
fn bad_settings_of_the_service_and_of_the_ground_are_one_message() {
    let vars: HashMap<&str, &str> =
        HashMap::from([("HOOK_DB_POOL_MAX", "0"), ("HOOK_JANITOR_INTERVAL", "0s")]);
    let mut given = Vars::default();
    for (name, text) in vars {
        given.set(name, text);
    }
    let bad = start::settings(Binary::Janitor, &given, |reader| {
        reader.duration("HOOK_JANITOR_INTERVAL")
    })
    .unwrap_err();
    let names: Vec<&str> = bad.names().collect();
    assert_eq!(
        names,
        ["DATABASE_URL", "HOOK_DB_POOL_MAX", "HOOK_JANITOR_INTERVAL"]
    );
}
