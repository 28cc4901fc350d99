//! Everything goes wrong at once, by a schedule that is printed: processes are killed, frozen and
//! stopped, Postgres crashes, loses sessions and vanishes behind a proxy, clients hang up. Then
//! the accounts of all sides are compared (`hook_testkit::history`).
//!
//! `HOOK_TEST_SEED` repeats a schedule, `HOOK_TEST_FULL` makes it long.

use std::time::Duration;

use hook_testkit::{
    db::TestDb,
    history::{Enqueue, Fault, History, Limits},
    process::{Process, Program, Signal},
    proxy::{Mode, Proxy},
    raw::RawClient,
    sink::Sink,
    stack::Stack,
    wait::pause,
};
use rand::{Rng as _, rngs::StdRng, seq::SliceRandom as _};
use tokio::{sync::watch, task::JoinSet, time::Instant};

use self::accounts::{Run, deliveries, jobs_and_counts, script};
use crate::kit::{LIMIT, amount, seeded, wait_drained};

mod accounts;

const WORKERS: usize = 2;
const LEASE: Duration = Duration::from_secs(9);
const ATTEMPTS_MAX: u32 = 60;
/// 300 ms less the jitter.
const BACKOFF_MIN: Duration = Duration::from_millis(240);

/// What is done, and for how long where it lasts.
#[derive(Clone, Copy, Debug)]
enum Act {
    KillApi,
    KillWorker,
    KillJanitor,
    TerminateWorker,
    FreezeWorker(Duration),
    EndSessions,
    CrashPostgres,
    Cut(Program),
    Partition(Program, Mode, Duration),
    HangUps,
}

/// The schedule: so many rounds of everything, in an order of its own each.
fn schedule(rng: &mut StdRng, rounds: usize) -> Vec<Act> {
    let mut acts = Vec::new();
    for _ in 0..rounds {
        let services = [Program::Api, Program::Worker, Program::Janitor];
        let mut service = || services[rng.random_range(0..3)];
        let (cut, frozen, half_open, slow) = (service(), service(), service(), service());
        let mut short = || Duration::from_millis(rng.random_range(200..2_000));
        let mut round = vec![
            Act::TerminateWorker,
            Act::FreezeWorker(short()),
            Act::FreezeWorker(short()),
            // Longer than any lease.
            Act::FreezeWorker(LEASE + Duration::from_secs(1)),
            Act::CrashPostgres,
            Act::Cut(cut),
            Act::Partition(frozen, Mode::Freeze, short()),
            Act::Partition(half_open, Mode::HalfOpen, short()),
            Act::Partition(slow, Mode::Delay(Duration::from_millis(30)), short()),
            Act::HangUps,
        ];
        round.extend([Act::KillWorker; 6]);
        round.extend([Act::KillApi; 5]);
        round.extend([Act::KillJanitor; 3]);
        round.extend([Act::EndSessions; 3]);
        round.shuffle(rng);
        acts.extend(round);
    }
    acts
}

/// The stack, and a way to Postgres for each service that can be disturbed.
struct Scene {
    db: TestDb,
    stack: Stack,
    sink: Sink,
    proxies: [(Program, Proxy); 3],
    run: Run,
    base: watch::Sender<String>,
    faults: Vec<Fault>,
}

impl Scene {
    /// Does it, waits until things have to be in order again, and notes when that was.
    async fn act(&mut self, act: Act) {
        let from = self.run.at(Instant::now());
        match act {
            Act::KillApi => {
                self.stack.api.signal(Signal::Kill);
                self.stack.restart_api().await;
                self.base.send_replace(self.stack.api_url(""));
            }
            Act::KillWorker => {
                self.stack.workers[0].signal(Signal::Kill);
                self.replace_worker().await;
            }
            Act::TerminateWorker => {
                self.stack.workers[0].signal(Signal::Terminate);
                self.replace_worker().await;
            }
            Act::KillJanitor => {
                let janitor = self.stack.janitor.as_ref().expect("there is a janitor");
                janitor.signal(Signal::Kill);
                self.stack.janitor = Some(self.stack.spawn(Program::Janitor).await);
            }
            Act::FreezeWorker(time) => {
                self.stack.workers[0].signal(Signal::Stop);
                pause(time).await;
                self.stack.workers[0].signal(Signal::Continue);
            }
            Act::EndSessions => self.end_sessions().await,
            Act::CrashPostgres => {
                self.db.crash_server().await;
                self.db.start_server().await;
            }
            Act::Cut(service) => self.proxy(service).cut(),
            Act::Partition(service, mode, time) => {
                self.proxy(service).set(mode);
                pause(time).await;
                self.proxy(service).set(Mode::Pass);
            }
            Act::HangUps => self.hang_up().await,
        }
        // What is cut off needs a moment to be back.
        let until = self.run.at(Instant::now()) + Duration::from_secs(5);
        let what = format!("{act:?}");
        self.faults.push(Fault { what, from, until });
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

    async fn end_sessions(&self) {
        let mut connection = self.db.connect().await;
        sqlx::query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .execute(&mut connection)
        .await
        .expect("sessions can be ended");
    }

    /// Clients that send a request that can never be stored whole, and go away.
    async fn hang_up(&self) {
        for _ in 0..100 {
            let Ok(mut client) = RawClient::connect(self.stack.api_address()).await else {
                continue;
            };
            let half = "POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
                content-length: 900\r\n\r\n{\"url\":\"http://never.test/\",";
            // Whether it is read does not matter.
            drop(client.send(half).await);
        }
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
        faults: Vec::new(),
    }
}

/// Lets producers send so many requests at once.
fn produce(rng: &mut StdRng, scene: &Scene, keys: usize) -> JoinSet<Vec<Enqueue>> {
    let mut producers = JoinSet::new();
    for part in accounts::requests(rng, &scene.sink, keys) {
        let client = scene.stack.client().clone();
        producers.spawn(accounts::produce(client, scene.base.subscribe(), part));
    }
    producers
}

/// Waits until everything has come to its end, and judges what all sides tell.
async fn judged(scene: Scene, producers: JoinSet<Vec<Enqueue>>, orphan_max: Duration) -> History {
    let enqueues = producers.join_all().await.into_iter().flatten().collect();
    let pool = scene.db.pool().await;
    wait_drained(&pool).await;
    let (jobs, counted) = jobs_and_counts(&scene.run, &pool).await;
    let history = History {
        enqueues,
        deliveries: deliveries(&scene.run, &scene.sink),
        jobs,
        faults: scene.faults,
        counted,
        limits: Limits {
            attempts_max: ATTEMPTS_MAX,
            backoff_min: BACKOFF_MIN,
            orphan_max,
        },
    };
    println!(
        "{} jobs, {} faults, {} requests, {} of them duplicates; attempts {:?}",
        history.jobs.len(),
        history.faults.len(),
        history.deliveries.len(),
        history.duplicates(),
        history.counted,
    );
    let breaches = history.check();
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
    let producers = produce(&mut rng, &scene, amount(3_000, 30_000));
    for act in schedule(&mut rng, amount(1, 15)) {
        pause(Duration::from_millis(rng.random_range(20..300))).await;
        println!("{:?} {act:?}", scene.run.at(Instant::now()));
        scene.act(act).await;
    }
    judged(scene, producers, LEASE + Duration::from_secs(5)).await;
}

/// Without faults there is nothing to excuse: no request is sent twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_faults_nothing_is_sent_twice() {
    let mut rng = seeded();
    let scene = scene().await;
    let producers = produce(&mut rng, &scene, amount(2_000, 100_000));
    let history = judged(scene, producers, LEASE).await;
    assert_eq!(history.duplicates(), 0);
}
