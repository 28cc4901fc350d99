//! Everything goes wrong at once, by a schedule that is printed: processes are killed, frozen and
//! stopped, Postgres crashes, loses sessions and vanishes behind a proxy, clients hang up. Then
//! the accounts of all sides are compared (`hook_testkit::history`).
//!
//! `HOOK_TEST_SEED` repeats a schedule; `HOOK_TEST_FULL` makes it long, and hours long where it says
//! `long`.

use std::time::Duration;

use hook_testkit::{
    db::TestDb,
    history::{Answer, Fault, History, Limits},
    process::{Process, Program, Signal},
    proxy::{Mode, Proxy},
    raw::RawClient,
    sink::Sink,
    stack::Stack,
    wait::{pause, wait_until},
};
use rand::{Rng as _, rngs::StdRng};
use sqlx::{Connection as _, PgConnection};
use tokio::{sync::watch, task::JoinSet, time::Instant};

use self::{
    accounts::{Answered, Run, deliveries, jobs_and_counts, script},
    figures::Done,
    schedule::{Act, schedule},
};
use crate::{
    failovers::fail_over,
    kit::{LIMIT, amount, amount_of, seeded, wait_drained},
};

mod accounts;
mod figures;
mod schedule;

const WORKERS: usize = 2;
const LEASE: Duration = Duration::from_secs(9);
const ATTEMPTS_MAX: u32 = 60;
/// 300 ms less the jitter.
const BACKOFF_MIN: Duration = Duration::from_millis(240);
/// A round takes no less, so that there are enqueues all the time.
const ROUND: Duration = Duration::from_secs(24);
/// What is cut off needs a moment to be back.
const RECOVERY: Duration = Duration::from_secs(5);

/// The stack, and a way to Postgres for each service that can be disturbed.
struct Scene {
    db: TestDb,
    stack: Stack,
    sink: Sink,
    proxies: [(Program, Proxy); 3],
    run: Run,
    base: watch::Sender<String>,
    done: Vec<Done>,
}

impl Scene {
    /// Does it, and notes when it was over.
    async fn act(&mut self, act: Act) {
        // It disturbs nobody while it is made.
        let replica = if matches!(act, Act::FailOver) {
            Some(self.db.synchronous_replica().await)
        } else {
            None
        };
        let from = self.run.at(Instant::now());
        let mut times = 1;
        match act {
            Act::Kill(service) => self.kill(service).await,
            Act::TerminateWorker => {
                self.stack.workers[0].signal(Signal::Terminate);
                self.replace_worker().await;
            }
            Act::FreezeWorker(time) => {
                self.stack.workers[0].signal(Signal::Stop);
                pause(time).await;
                self.stack.workers[0].signal(Signal::Continue);
            }
            Act::EndSessions => times = self.end_sessions().await,
            Act::KillBackend => self.kill_backend().await,
            Act::CrashPostgres => {
                self.db.crash_server().await;
                self.db.start_server().await;
            }
            Act::FailOver => {
                let replica = replica.expect("it was just made");
                let proxies = self.proxies.each_ref().map(|(_, proxy)| proxy);
                self.db = fail_over(&self.db, replica, &proxies).await;
            }
            Act::Cut(service) => self.proxy(service).cut(),
            Act::Partition(service, mode, time) => {
                self.proxy(service).set(mode);
                pause(time).await;
                self.proxy(service).set(Mode::Pass);
            }
            Act::HangUps => times = self.hang_up().await,
        }
        let over = self.run.at(Instant::now());
        self.done.push(Done {
            act,
            from,
            over,
            times,
        });
    }

    /// Kills a service and starts it again, as whoever runs it would.
    async fn kill(&mut self, service: Program) {
        match service {
            Program::Api => {
                self.stack.api.signal(Signal::Kill);
                self.stack.restart_api().await;
                self.base.send_replace(self.stack.api_url(""));
            }
            Program::Worker => {
                self.stack.workers[0].signal(Signal::Kill);
                self.replace_worker().await;
            }
            Program::Janitor => {
                let janitor = self.stack.janitor.as_ref().expect("there is a janitor");
                janitor.signal(Signal::Kill);
                self.stack.janitor = Some(self.stack.spawn(Program::Janitor).await);
            }
            Program::Hook => unreachable!("it is not a service"),
        }
    }

    async fn replace_worker(&mut self) {
        let mut gone: Process = self.stack.workers.remove(0);
        self.stack.start_worker().await;
        gone.wait_exit(LIMIT).await;
    }

    fn proxy(&self, service: Program) -> &Proxy {
        let found = self.proxies.iter().find(|(of, _)| *of == service);
        &found.expect("each service has a proxy").1
    }

    /// Ends the sessions of everybody and says how many there were.
    async fn end_sessions(&self) -> usize {
        let mut connection = self.db.connect().await;
        let ended: Vec<bool> = sqlx::query_scalar(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .fetch_all(&mut connection)
        .await
        .expect("sessions can be ended");
        ended.len()
    }

    /// Kills a backend, upon which the server throws everybody out; waits until it takes sessions
    /// again.
    async fn kill_backend(&self) {
        let (mut witness, mut victim) = (self.db.connect().await, self.db.connect().await);
        let backend: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
            .fetch_one(&mut victim)
            .await
            .expect("a backend has an id");
        let killed = std::process::Command::new("kill")
            .args(["-9", &backend.to_string()])
            .status();
        assert!(killed.is_ok_and(|status| status.success()));
        wait_until(LIMIT, async || match witness.ping().await {
            Err(_) => Ok(()),
            Ok(()) => Err("the witness still has its session"),
        })
        .await;
        let url = self.db.url();
        wait_until(LIMIT, async || PgConnection::connect(&url).await).await;
    }

    /// Clients that send a request that can never be stored whole, and go away.
    async fn hang_up(&self) -> usize {
        let clients = amount(100, 700);
        for _ in 0..clients {
            let Ok(mut client) = RawClient::connect(self.stack.api_address()).await else {
                continue;
            };
            let half = "POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
                content-length: 900\r\n\r\n{\"url\":\"http://never.test/\",";
            // Whether it is read does not matter.
            drop(client.send(half).await);
        }
        clients
    }
}

async fn scene() -> Scene {
    let db = TestDb::durable().await;
    let run = Run::begin(&db).await;
    let sink = Sink::start(script()).await;
    let services = [Program::Api, Program::Worker, Program::Janitor];
    let proxies = services.map(|service| (service, Proxy::before(&db.url())));
    let mut builder = Stack::builder(&db.url())
        .workers(WORKERS)
        .set("HOOK_WORKER_SLOTS", 32)
        .set("HOOK_ATTEMPT_TIMEOUT", "4s")
        .set("HOOK_CONNECT_TIMEOUT", "2s")
        .set("HOOK_LEASE", "9s")
        .set("HOOK_MAX_ATTEMPTS", ATTEMPTS_MAX)
        .set("HOOK_RETRY_SCHEDULE", "300ms");
    for (service, proxy) in &proxies {
        builder = builder.set_for(*service, "DATABASE_URL", proxy.url(&db.url()));
    }
    let stack = builder.start().await;
    let base = watch::Sender::new(stack.api_url(""));
    Scene {
        db,
        stack,
        sink,
        proxies,
        run,
        base,
        done: Vec::new(),
    }
}

/// Lets producers send so many requests, spread over this time.
fn produce(rng: &mut StdRng, scene: &Scene, keys: usize, time: Duration) -> JoinSet<Vec<Answered>> {
    let mut producers = JoinSet::new();
    for orders in accounts::orders(rng, &scene.sink, keys, time) {
        let client = scene.stack.client().clone();
        let bases = scene.base.subscribe();
        producers.spawn(accounts::produce(scene.run, client, bases, orders));
    }
    producers
}

/// Waits until everything has come to its end, and judges what all sides tell.
async fn judged(scene: Scene, producers: JoinSet<Vec<Answered>>, orphan_max: Duration) -> History {
    let answered: Vec<Answered> = producers.join_all().await.into_iter().flatten().collect();
    let pool = scene.db.pool().await;
    wait_drained(&pool).await;
    let (jobs, counted) = jobs_and_counts(&scene.run, &pool).await;
    let stored = answered
        .iter()
        .filter(|one| matches!(one.enqueue.answer, Answer::Stored(_)));
    let accepted: Vec<Duration> = stored.map(|one| one.at).collect();
    let faults = scene.done.iter().map(|done| Fault {
        what: format!("{:?}", done.act),
        from: done.from,
        until: done.over + RECOVERY,
    });
    let history = History {
        enqueues: answered.into_iter().map(|one| one.enqueue).collect(),
        deliveries: deliveries(&scene.run, &scene.sink),
        jobs,
        faults: faults.collect(),
        counted,
        limits: Limits {
            attempts_max: ATTEMPTS_MAX,
            backoff_min: BACKOFF_MIN,
            orphan_max,
        },
    };
    let breaches = history.check();
    figures::print(&history, &scene.done, &accepted, &breaches);
    assert!(
        breaches.is_empty(),
        "{:?}",
        &breaches[..breaches.len().min(20)]
    );
    history
}

/// Nothing accepted is lost, nothing refused is sent, no attempt goes uncounted, whatever dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_dies_the_accounts_of_all_sides_agree() {
    let mut rng = seeded();
    let mut scene = scene().await;
    // One in thirty is refused.
    let (keys, rounds) = (
        amount_of([2_000, 31_500, 1_050_000]),
        amount_of([1, 15, 75]),
    );
    let rounds_in_time = u32::try_from(rounds).expect("there are few");
    let producers = produce(&mut rng, &scene, keys, ROUND * rounds_in_time);
    for act in schedule(&mut rng, rounds, LEASE) {
        pause(Duration::from_millis(rng.random_range(20..300))).await;
        println!("{:?} {act:?}", scene.run.at(Instant::now()));
        scene.act(act).await;
    }
    judged(scene, producers, LEASE + RECOVERY).await;
}

/// Without faults there is nothing to excuse: no request is sent twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_faults_nothing_is_sent_twice() {
    let mut rng = seeded();
    let scene = scene().await;
    let producers = produce(&mut rng, &scene, amount(1_000, 100_000), Duration::ZERO);
    let history = judged(scene, producers, LEASE).await;
    assert_eq!(history.duplicates(), 0);
}
