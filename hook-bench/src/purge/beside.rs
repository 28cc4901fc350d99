//! A purge beside a worker: what claims and deliveries take before it and during it, and how long
//! the longest statement of any service.

use std::time::Duration;

use anyhow::ensure;

use super::{JANITOR, KEPT, LIMIT, PurgeArgs, RING, delivered_in};
use crate::{
    clock,
    progress::say,
    report::{Column, Figure, Line, Table, column},
    scene::{Mix, Scene, Setup},
    scrape::{Buckets, Scrape},
    server_log::{self, Longest},
    sql::backlog,
};

/// The part of what the machine delivers that is put on.
const LOAD: f64 = 0.5;

const CLAIM_RATIO_MAX: f64 = 2.0;
const STATEMENT_MS_MAX: f64 = 1000.0;

/// The finished jobs are those of targets that get no others.
const SETUP: Setup = Setup {
    sick: 100,
    settings: &[],
};

const COLUMNS: &[Column] = &[
    column("seconds", "seconds", 1),
    column("jobs_per_second", "jobs/s", 0),
    column("claim_p50_ms", "claim p50 ms", 2),
    column("claim_p99_ms", "p99", 2),
    column("delivery_p99_ms", "delivery p99 ms", 1),
    column("longest_statement_ms", "longest statement ms", 0),
];

/// What was seen while the load was on.
struct Seen {
    seconds: f64,
    /// Of each phase.
    per_second: Vec<f64>,
    delivery_p99: Vec<f64>,
    claim_p50: Figure,
    claim_p99: Figure,
    longest: Longest,
}

pub(super) async fn run(args: &PurgeArgs) -> anyhow::Result<(Table, Vec<Line>)> {
    say("beside a worker: filling");
    let mut common = args.common.clone();
    let log = server_log::SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned()));
    common.postgres.extend(log);
    let mut scene = Scene::start(&common, SETUP).await?;
    scene.fill_ended(args.jobs, delivered_in(RING)).await?;
    scene.fill_ended(args.kept, delivered_in(KEPT)).await?;
    backlog::close_first_bucket(&scene.rig.admin).await?;
    let rate = match args.rate {
        Some(rate) => rate,
        None => LOAD * scene.full(Duration::from_secs(5)).await?,
    };
    say(format_args!("{rate:.0} jobs/s, nothing to purge yet"));
    let base = watch(&mut scene, args, rate, When::Once).await?;
    say("purging");
    let begun = clock::now();
    scene.replace_janitor(&JANITOR).await?;
    let purge = watch(&mut scene, args, rate, When::UntilPurged).await?;
    let took = clock::seconds_between(begun, clock::now());
    say(format_args!(
        "purged after {took:.1} s at most; longest: {}",
        purge.longest.what
    ));
    scene.stop().await?;

    let mut table = Table::new("beside a worker", COLUMNS);
    table.row("before", base.figures());
    table.row("purge", purge.figures());
    let ratio = purge.claim_p99.unwrap_or(0.0) / base.claim_p99.unwrap_or(f64::NAN);
    let lines = vec![
        Line::at_most("claim p99 during a purge ÷ before", ratio, CLAIM_RATIO_MAX),
        Line::at_most(
            "longest statement during a purge, ms",
            purge.longest.ms,
            STATEMENT_MS_MAX,
        ),
    ];
    Ok((table, lines))
}

/// How long it is watched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum When {
    Once,
    UntilPurged,
}

async fn watch(scene: &mut Scene, args: &PurgeArgs, rate: f64, when: When) -> anyhow::Result<Seen> {
    let log = scene.rig.log();
    let (begun, end_of_log) = (clock::now(), log.end()?);
    let before = claims(scene).await?;
    let (mut per_second, mut delivery_p99) = (Vec::new(), Vec::new());
    loop {
        let phase = scene
            .phase(Mix::HEALTHY, rate, args.seconds, async |_| Ok(()))
            .await?;
        ensure!(phase.healthy.missing == 0, "jobs did not arrive");
        per_second.push(phase.healthy.per_second);
        delivery_p99.push(phase.healthy.all.p99);
        let seconds = clock::seconds_between(begun, clock::now());
        ensure!(seconds < LIMIT, "the purge does not end");
        if when == When::Once || backlog::is_purged(&scene.rig.admin).await? {
            break;
        }
    }
    let after = claims(scene).await?;
    Ok(Seen {
        seconds: clock::seconds_between(begun, clock::now()),
        per_second,
        delivery_p99,
        claim_p50: after.quantile_since(&before, 0.5),
        claim_p99: after.quantile_since(&before, 0.99),
        longest: log.longest_since(end_of_log)?,
    })
}

async fn claims(scene: &Scene) -> anyhow::Result<Buckets> {
    let scrape = Scrape::of(scene.worker.ops).await?;
    Ok(scrape.claims())
}

impl Seen {
    fn figures(&self) -> Vec<Figure> {
        let ms = |seconds: Figure| seconds.map(|seconds| seconds * 1e3);
        let least = |values: &[f64]| values.iter().copied().min_by(f64::total_cmp);
        let most = |values: &[f64]| values.iter().copied().max_by(f64::total_cmp);
        vec![
            Some(self.seconds),
            least(&self.per_second),
            ms(self.claim_p50),
            ms(self.claim_p99),
            most(&self.delivery_p99),
            Some(self.longest.ms),
        ]
    }
}
