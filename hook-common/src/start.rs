//! The way from `main` to a running service, and back to an exit code.
//!
//! Order: settings, log, ops listener (not ready), Postgres, schema, the service's own listeners
//! and loops, ready. Backwards: drain, join, close the pool, and the ops listener last of all.
//! Exit codes: 0 after a clean stop, 1 on a fault, 2 on a bad setting or flag.

use std::{env, future::Future, io, process::ExitCode, time::Duration};

use anyhow::Context as _;
use tracing::{error, info, warn};

use crate::{
    config::{
        Binary, CommonConfig, Reader,
        command_line::{self, Invocation, Vars},
    },
    db::{Db, Fault, StartFault},
    lifecycle::{LoopFault, Loops, Signals, Stop},
    logging::{self, Repeats},
    metrics,
    metrics::process::BUILD_INFO,
    ops::{Ops, Readiness, Surface},
    periodic::{Heartbeats, Interval, StepPanicked},
    queue::Queue,
};

/// How often a service learns whether the statements work that it cannot do without. Planning them is
/// what an idle queue mostly does.
const REHEARSE_EVERY: Duration = Duration::from_secs(2);
/// From one try of a step of the start to the next.
const INSIST_EVERY: Duration = Duration::from_secs(1);

/// What a service is given once Postgres and the schema are there.
#[derive(Debug)]
pub struct Context {
    /// The settings that all services share.
    pub common: CommonConfig,
    /// The way to Postgres.
    pub db: Db,
    /// When to stop.
    pub stop: Stop,
    /// Conditions that the service adds and proves by itself.
    pub readiness: Readiness,
    /// Where its loops say that they turn.
    pub heartbeats: Heartbeats,
    /// Where it starts its loops.
    pub loops: Loops,
}

impl Context {
    /// Takes a step that the start cannot do without; one that fails for a reason that may pass is
    /// repeated, since a start that gives up only begins anew.
    ///
    /// # Errors
    /// When the step can never pass, or when the process was told to stop meanwhile.
    pub async fn insist<T, Running>(&self, mut step: impl FnMut() -> Running) -> anyhow::Result<T>
    where
        Running: Future<Output = anyhow::Result<T>>,
    {
        let failures = Repeats::default();
        loop {
            let error = match step().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            if !judge(&self.db, &error).is_some_and(Fault::may_pass_later) {
                return Err(error);
            }
            if let Some(failures) = failures.due() {
                let error = format!("{error:#}");
                warn!(error, failures, "a step of the start is repeated");
            }
            self.stop.pause(INSIST_EVERY).await;
            if self.stop.is_draining() {
                return Err(StartFault::Stopped.into());
            }
        }
    }

    /// Starts a loop that repeats one step until the process drains.
    pub fn repeat<Running, E>(
        &mut self,
        interval: Interval,
        step: impl FnMut() -> Running + Send + 'static,
    ) where
        Running: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<anyhow::Error> + Send + 'static,
    {
        let name = interval.name;
        let repeated = self.repeated(interval, step);
        self.loops
            .spawn_fallible(name, async move { Ok(repeated.await?) });
    }

    /// The loop of [`Context::repeat`] for a caller who has something to do after its end. What
    /// Postgres says to a step that fails is judged and counted as for every other statement.
    pub fn repeated<Running, E>(
        &self,
        interval: Interval,
        mut step: impl FnMut() -> Running + Send + 'static,
    ) -> impl Future<Output = Result<(), StepPanicked>> + Send + 'static
    where
        Running: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<anyhow::Error> + Send + 'static,
    {
        let (db, heartbeats, stop) = (self.db.clone(), self.heartbeats.clone(), self.stop.clone());
        let judged = move || {
            let (running, db) = (step(), db.clone());
            async move {
                running.await.map_err(Into::into).inspect_err(|error| {
                    judge(&db, error);
                })
            }
        };
        async move { interval.run(&heartbeats, &stop, judged).await }
    }
}

/// Judges what Postgres said, where an error comes from there.
fn judge(db: &Db, error: &anyhow::Error) -> Option<Fault> {
    let mut causes = error.chain();
    let said = causes.find_map(|cause| cause.downcast_ref::<sqlx::Error>());
    said.map(|error| db.observe(error))
}

/// The whole of a service's `main`: settings from the environment and the command line, signals,
/// and an exit code.
///
/// `read` reads the service's own settings. `run` starts its listeners and loops and gives the
/// loops back; from then on the service is ready once its conditions are proven, and it ends when
/// all loops have returned.
pub fn main<Config, Running>(
    binary: Binary,
    read: impl FnOnce(&mut Reader<'_>) -> Config,
    run: impl FnOnce(Config, Context) -> Running,
) -> ExitCode
where
    Running: Future<Output = anyhow::Result<Loops>>,
{
    let invocation = command_line::read(binary, env::args_os().skip(1), Vars::from_environment());
    match invocation {
        Ok(Invocation::Run(vars)) => self::run(binary, &vars, read, run),
        Ok(Invocation::Print(text)) => {
            say(&mut io::stdout(), &text);
            ExitCode::SUCCESS
        }
        Err(bad) => bad_setting(&bad),
    }
}

/// As [`main`], for a process that has read its command line itself.
pub fn run<Config, Running>(
    binary: Binary,
    vars: &Vars,
    read: impl FnOnce(&mut Reader<'_>) -> Config,
    run: impl FnOnce(Config, Context) -> Running,
) -> ExitCode
where
    Running: Future<Output = anyhow::Result<Loops>>,
{
    let (common, config) = match settings(binary, vars, read) {
        Ok(settings) => settings,
        Err(bad) => return bad_setting(&bad),
    };
    let format = common.log_format;
    let format = format.unwrap_or_else(logging::Format::for_this_terminal);
    // The recorder comes first: the panic hook counts.
    metrics::install();
    logging::init(&common.log, format);
    raise_descriptor_limit();
    let served = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the runtime")
        .and_then(|runtime| {
            let served = runtime.block_on(serve_with_signals(common, config, run));
            // A look-up of a name that hangs in the system's resolver must not hold the exit.
            runtime.shutdown_timeout(Duration::from_millis(500));
            served
        });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            error!(error = format!("{fault:#}"), "leaving on a fault");
            ExitCode::FAILURE
        }
    }
}

/// Reads the shared and the service's own settings, all bad ones in one error.
///
/// # Errors
/// When a setting is bad or a `HOOK_…` variable unknown.
pub fn settings<Config>(
    binary: Binary,
    vars: &Vars,
    read: impl FnOnce(&mut Reader<'_>) -> Config,
) -> Result<(CommonConfig, Config), crate::config::BadSettings> {
    let mut reader = Reader::new(binary, |name| vars.get(name));
    reader.refuse_unknown(vars.names());
    let common = CommonConfig::read(&mut reader);
    let config = read(&mut reader);
    reader.finish()?;
    Ok((common, config))
}

async fn serve_with_signals<Config, Running>(
    common: CommonConfig,
    config: Config,
    run: impl FnOnce(Config, Context) -> Running,
) -> anyhow::Result<()>
where
    Running: Future<Output = anyhow::Result<Loops>>,
{
    let stop = Stop::manual(common.shutdown_grace);
    let signals = Signals::install().context("catching signals")?;
    tokio::select! {
        served = serve(common, config, stop.clone(), run) => served,
        () = signals.run(stop) => unreachable!("signals are awaited for ever"),
    }
}

/// Runs one service until `stop` has drained it. Several may share a process and a `stop`.
///
/// # Errors
/// When the ops listener cannot listen, when the start cannot go on, or when a loop fails.
pub async fn serve<Config, Running>(
    common: CommonConfig,
    config: Config,
    stop: Stop,
    run: impl FnOnce(Config, Context) -> Running,
) -> anyhow::Result<()>
where
    Running: Future<Output = anyhow::Result<Loops>>,
{
    let binary = common.binary.as_str();
    let version = env!("CARGO_PKG_VERSION");
    info!(binary, version, "starting");
    let recorded = metrics::install();
    metrics::begin_at_zero(common.binary);
    BUILD_INFO.gauge(&[binary, version]).set(1.0);
    let readiness = Readiness::new(stop.clone());
    readiness.require(crate::db::SCHEMA);
    readiness.require(crate::db::STATEMENTS);
    let heartbeats = Heartbeats::new();
    let surface = Surface {
        binary,
        readiness: readiness.clone(),
        heartbeats: heartbeats.clone(),
        metrics: recorded,
    };
    let ops = Ops::start(common.ops_listen, surface)?;
    let db = Db::new(&common, readiness.clone()).context("reading DATABASE_URL")?;
    let startup_timeout = common.startup_timeout;
    match db.wait_until_usable(&stop, startup_timeout).await {
        Ok(()) => {}
        Err(StartFault::Stopped) => return Ok(()),
        Err(fault) => return Err(fault.into()),
    }
    let mut context = Context {
        common,
        db: db.clone(),
        stop: stop.clone(),
        readiness: readiness.clone(),
        heartbeats,
        loops: Loops::new(),
    };
    spawn_rehearsals(&mut context);
    let served = watched(&db, &stop, async {
        let loops = run(config, context).await?;
        readiness.prove(Readiness::START_UP);
        info!(binary, "started");
        loops.join(&stop).await.map_err(anyhow::Error::from)
    })
    .await;
    let served = match served {
        Err(fault) if matches!(fault.downcast_ref(), Some(StartFault::Stopped)) => Ok(()),
        served => served,
    };
    info!(binary, clean = served.is_ok(), "stopped");
    crate::lifecycle::within(Duration::from_secs(1), db.close()).await;
    ops.close();
    served
}

/// Starts the loop that finds out about statements which Postgres refuses.
fn spawn_rehearsals(context: &mut Context) {
    let service = context.common.binary;
    let limit = context.common.db_statement_timeout + Duration::from_secs(1);
    let interval = Interval::new("statements", REHEARSE_EVERY, limit);
    let queue = Queue::new(context.db.clone());
    context.repeat(interval, move || {
        let queue = queue.clone();
        async move { queue.rehearse(service).await }
    });
}

/// Runs the service beside the watch over Postgres, which lasts as long as it does.
async fn watched(
    db: &Db,
    stop: &Stop,
    service: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let mut watch = tokio::task::JoinSet::new();
    let (db, stop) = (db.clone(), stop.clone());
    watch.spawn(async move {
        db.watch(&stop).await;
        // Aborting: the service has its last moment without the watch.
        std::future::pending::<()>().await;
    });
    tokio::select! {
        served = service => served,
        _ = watch.join_next() => Err(LoopFault::Panicked { name: "postgres" }.into()),
    }
}

/// Raises the soft limit of file descriptors to the hard one: there is one descriptor per client
/// and per delivery, and the usual 1,024 are too few.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "cannot raise the limit of file descriptors");
    }
}

fn bad_setting(bad: &dyn std::error::Error) -> ExitCode {
    say(&mut io::stderr(), &bad.to_string());
    ExitCode::from(2)
}

/// Prints to a person; when nobody listens, there is nobody to tell.
fn say(to: &mut dyn io::Write, text: &str) {
    let _nobody_listens = writeln!(to, "{text}");
}
