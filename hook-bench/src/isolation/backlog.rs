//! Many jobs of one target: one that turns sick while they are drained, and one that is merely busy.

use std::time::Duration;

use crate::{
    clock,
    isolation::{BURST_RATIO_MAX, IsolationArgs, P99_RATIO_MAX, Played},
    progress::say,
    receiver::Behaviour,
    report::Line,
    scene::{Mix, Scene, Setup, healthy::Healthy},
    sql,
};

/// Seconds that a backlog is drained before its target turns sick.
const DRAIN_SECONDS: f64 = 5.0;

/// Seconds within which the healthy have to be well served again.
const SETTLE_SECONDS: usize = 2;

/// One job a second for each of the others, two healthy targets to one of them.
const BURST_RATE: f64 = 100.0;

const ONE: Setup = Setup {
    sick: 1,
    settings: &[],
};

/// A host has a large backlog and turns sick while it is drained.
pub(super) async fn turns_sick(args: &IsolationArgs, rate: f64) -> anyhow::Result<Played> {
    let mut scene = Scene::start(&args.common, ONE).await?;
    // The backlog's jobs are beside the load, so the load is the healthy half alone.
    let rate = rate / 2.0;
    scene
        .phase(Mix::HEALTHY, rate, 2.0, async |_| Ok(()))
        .await?;
    say("base");
    let base = scene
        .phase(Mix::HEALTHY, rate, args.seconds, async |_| Ok(()))
        .await?;
    say("filling the backlog");
    scene.fill_sick(args.backlog).await?;
    let admin = scene.rig.admin.clone();
    clock::pause(Duration::from_secs_f64(DRAIN_SECONDS)).await;
    say("sick");
    let rewritten = sql::ready_updates(&admin).await?;
    scene.switch(Behaviour::Hang).await?;
    let sick = scene
        .phase(Mix::HEALTHY, rate, args.seconds, async |_| Ok(()))
        .await?;
    let rewritten = sql::ready_updates(&admin).await? - rewritten;
    scene.stop().await?;
    let settled = sick.healthy.typical_p99_from(SETTLE_SECONDS);
    let lines = vec![
        Line::at_most(
            "backlog: healthy p99 from the second second on ÷ base",
            settled / base.healthy.typical_p99_from(0),
            P99_RATIO_MAX,
        ),
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        Line::at_most("backlog: rows rewritten", rewritten as f64, 0.0),
    ];
    Ok(Played {
        base: base.healthy,
        sick: sick.healthy,
        open_max: sick.open_max,
        lines,
    })
}

/// A healthy host enqueues very many jobs at once beside quiet ones.
pub(super) async fn burst(args: &IsolationArgs) -> anyhow::Result<Played> {
    let mut scene = Scene::start(&args.common, ONE).await?;
    let phase = async |scene: &mut Scene| {
        scene
            .phase(Mix::HEALTHY, BURST_RATE, args.seconds, async |_| Ok(()))
            .await
    };
    say("base");
    let base = phase(&mut scene).await?;
    say("filling the burst");
    scene.fill_sick(args.burst).await?;
    say("burst");
    let busy = phase(&mut scene).await?;
    let left = sql::waiting(&scene.rig.admin, &scene.sick_host(0)).await?;
    say(format_args!("{left} jobs of the burst are left"));
    scene.stop().await?;
    Ok(Played {
        lines: lines(&base.healthy, &busy.healthy),
        base: base.healthy,
        sick: busy.healthy,
        open_max: busy.open_max,
    })
}

fn lines(base: &Healthy, busy: &Healthy) -> Vec<Line> {
    vec![Line::at_most(
        "burst: p99 of the others ÷ base",
        busy.all.p99 / base.all.p99,
        BURST_RATIO_MAX,
    )]
}
