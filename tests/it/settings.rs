//! Settings that must not start, and some that must.

use std::time::Duration;

use hook_testkit::{
    db::TestDb,
    process::{Listener, Program},
    stack::Stack,
};

use crate::kit::LIMIT;

/// One address for two listeners.
const SAME: &str = "127.0.0.1:47113";

/// The id of a case, the program, and the settings that it must refuse.
type Case = (
    &'static str,
    Program,
    &'static [(&'static str, &'static str)],
);

/// CF-05, CF-06, CF-07, CF-11: the start ends with exit code 2 and names what is bad.
#[tokio::test]
async fn cf_05_cf_06_cf_07_cf_11_bad_settings_stop_the_start() {
    // Never connected to: settings are judged before anything is done.
    let builder = Stack::builder("postgres://nobody:pa55word@127.0.0.1:1/none");
    let cases: [Case; 12] = [
        (
            "CF-05",
            Program::Worker,
            &[
                ("HOOK_DEQUEUE_BATCH_MAX", "200"),
                ("HOOK_WORKER_SLOTS", "100"),
            ],
        ),
        (
            "CF-06",
            Program::Worker,
            &[("HOOK_TARGET_IN_FLIGHT_MAX", "0")],
        ),
        ("CF-06", Program::Worker, &[("HOOK_WORKER_SLOTS", "0")]),
        ("CF-06", Program::Api, &[("HOOK_API_IN_FLIGHT_MAX", "0")]),
        ("CF-07", Program::Worker, &[("HOOK_POLL_INTERVAL", "0")]),
        (
            "CF-07",
            Program::Janitor,
            &[("HOOK_JANITOR_INTERVAL", "0s")],
        ),
        (
            "CF-11",
            Program::Api,
            &[("HOOK_API_LISTEN", SAME), ("HOOK_OPS_LISTEN", SAME)],
        ),
        (
            "of the kind",
            Program::Worker,
            &[("HOOK_LEASE", "6s"), ("HOOK_ATTEMPT_TIMEOUT", "5s")],
        ),
        (
            "of the kind",
            Program::Worker,
            &[("HOOK_ATTEMPT_TIMEOUT", "61s")],
        ),
        (
            "of the kind",
            Program::Worker,
            &[("HOOK_EGRESS_CA_FILE", "/nowhere.pem")],
        ),
        (
            "of the kind",
            Program::Worker,
            &[(
                "HOOK_WORKER_NAME",
                "a name of more than sixty-four characters, which no column here holds",
            )],
        ),
        (
            "of the kind",
            Program::Worker,
            &[("HOOK_NO_SUCH_SETTING", "1")],
        ),
    ];
    for (what, program, settings) in cases {
        let mut process = builder.process(program).await;
        for (name, value) in settings {
            process = process.set(*name, *value);
        }
        let mut process = process.start();
        let status = process.wait_exit(LIMIT).await;
        assert_eq!(status.code(), Some(2), "{what}: {:?}", process.lines());
        let output: String = process
            .lines()
            .iter()
            .map(|line| line.text.clone() + "\n")
            .collect();
        for (name, value) in settings {
            assert!(output.contains(name), "{what}: {name} in {output}");
            assert!(output.contains(value), "{what}: {value} in {output}");
        }
        assert!(!output.contains("pa55word"), "{output}");
    }
}

/// CF-01: slots are not bounded by connections, because deliveries hold none.
/// AU-17, AU-18, AU-20: what is for operators is not on the producers' listener.
#[tokio::test]
async fn cf_01_au_17_au_18_au_20_many_slots_start_and_ops_stays_apart() {
    let db = TestDb::new().await;
    let stack = Stack::builder(&db.url())
        .set_for(Program::Worker, "HOOK_WORKER_SLOTS", 1024)
        .set("HOOK_DB_POOL_MAX", 5)
        .start()
        .await;
    for path in ["/metrics", "/livez", "/readyz", "/debug/pprof"] {
        let reply = stack.get(path).await;
        assert_eq!(
            (reply.status, &reply.code()[..]),
            (404, "not_found"),
            "{path}"
        );
    }
    let ops = stack
        .api
        .address(Listener::Ops, Duration::from_secs(60))
        .await;
    for path in ["/v1/jobs", "/webhook", "/openapi.json"] {
        let reply = stack
            .send(stack.client().get(format!("http://{ops}{path}")))
            .await;
        assert_eq!(reply.status, 404, "{path}");
    }
}
