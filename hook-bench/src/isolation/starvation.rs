//! Healthy jobs take all that the worker has, for long, while some hosts hang: these keep their
//! small part of the slots, and each of them is tried again and again.

use std::time::Duration;

use crate::{
    clock,
    isolation::{IsolationArgs, Played},
    progress::say,
    receiver::Behaviour,
    report::Line,
    scene::{Mix, Scene, Setup},
    sql,
};

const SLOTS: f64 = 40.0;

/// Few slots that are held for long, so that a small load fills them.
const SETTINGS: &[(&str, &str)] = &[
    ("HOOK_WORKER_SLOTS", "40"),
    ("HOOK_RETRY_SCHEDULE", "1s"),
    ("HOOK_HOLD_AFTER", "1h"),
];

/// How long the healthy targets take.
const HEALTHY_MS: u64 = 100;

/// Jobs that wait of the sick.
const SICK_BACKLOG: u32 = 100_000;
const SICK: u16 = 10;
/// Until it is known who is sick.
const SETTLE_SECONDS: f64 = 15.0;
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Healthy jobs that last for the whole run, with half as many to spare.
fn healthy_backlog(seconds: f64) -> u32 {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of one answer")]
    let per_second = SLOTS * 1000.0 / HEALTHY_MS as f64;
    let jobs = (seconds + SETTLE_SECONDS) * per_second * 1.5;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive; a float is cast to the nearest number there is"
    )]
    let jobs = jobs as u32;
    jobs
}

pub(super) async fn play(args: &IsolationArgs) -> anyhow::Result<Played> {
    let setup = Setup {
        sick: SICK,
        settings: SETTINGS,
    };
    let mut scene = Scene::start(&args.common, setup).await?;
    scene.switch(Behaviour::Hang).await?;
    say("filling backlogs of healthy and of sick targets");
    scene
        .fill_healthy(healthy_backlog(args.seconds), Behaviour::Delay(HEALTHY_MS))
        .await?;
    scene.fill_sick(SICK_BACKLOG).await?;
    let hosts: Vec<String> = (0..SICK).map(|index| scene.sick_host(index)).collect();
    let admin = scene.rig.admin.clone();
    clock::pause(Duration::from_secs_f64(SETTLE_SECONDS)).await;
    say("saturated");
    let attempts = sql::attempts_by_target(&admin, &hosts).await?;
    let seconds = args.seconds;
    let (mut held, mut looks) = (0.0, 0.0);
    let begun = clock::now();
    let phase = scene
        .phase(Mix::HEALTHY, 20.0, seconds, async |_| {
            while clock::seconds_between(begun, clock::now()) < seconds {
                #[expect(clippy::cast_precision_loss, reason = "a few slots")]
                let leased = sql::leased(&admin, &hosts).await? as f64;
                held += leased;
                looks += 1.0;
                clock::pause(LOOK_EVERY).await;
            }
            Ok(())
        })
        .await?;
    let after = sql::attempts_by_target(&admin, &hosts).await?;
    scene.stop().await?;
    let moved = attempts.iter().zip(&after).filter(|(a, b)| b > a).count();
    let share = held / f64::max(looks, 1.0) / SLOTS;
    #[expect(clippy::cast_precision_loss, reason = "ten hosts")]
    let moved = moved as f64;
    let lines = vec![
        Line::at_least("starvation: slots of the sick", share, 0.05),
        Line::at_most("starvation: slots of the sick", share, 0.2),
        Line::at_least(
            "starvation: sick hosts that were tried",
            moved,
            f64::from(SICK),
        ),
    ];
    Ok(Played {
        base: phase.healthy.clone(),
        sick: phase.healthy,
        open_max: phase.open_max,
        lines,
    })
}
