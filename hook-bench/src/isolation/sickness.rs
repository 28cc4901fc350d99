//! Targets that turn sick under a load that goes on, and one that heals.

use std::time::Duration;

use anyhow::bail;

use crate::{
    clock,
    isolation::{IsolationArgs, Played, Scenario, usual_lines},
    progress::say,
    receiver::{Behaviour, Receiver},
    report::Line,
    scene::{Mix, Phase, Scene, Setup},
    sql,
};

/// How long a flapping host hangs, and is well again.
const FLAP: Duration = Duration::from_secs(10);

/// A host heals: holds come soon, so that the run is short. The longest interval between probes is
/// the longest that a first success may take; it is above the timeout of a probe.
const RECOVERY: &[(&str, &str)] = &[
    ("HOOK_HOLD_AFTER", "5s"),
    ("HOOK_PROBE_INTERVAL_MIN", "2s"),
    ("HOOK_PROBE_INTERVAL_MAX", "6s"),
    ("HOOK_RETRY_SCHEDULE", "2s"),
];

/// The longest interval between probes.
const PROBE_INTERVAL_SECONDS: f64 = 6.0;

/// Seconds in which the backlog of a host that is back should drain at most of the free capacity.
const DRAIN_SECONDS: f64 = 30.0;

/// How many targets turn sick, how much of the jobs is theirs, and how they answer then.
struct Sickness {
    setup: Setup,
    before: Mix,
    mix: Mix,
    behaviour: Behaviour,
}

impl Sickness {
    fn of(scenario: Scenario) -> anyhow::Result<Self> {
        let (sick, sick_percent, behaviour) = match scenario {
            Scenario::Hang | Scenario::Hang64 | Scenario::Flap | Scenario::Recovery => {
                (1, 50, Behaviour::Hang)
            }
            Scenario::Hang90 => (1, 90, Behaviour::Hang),
            Scenario::Slow => (1, 50, Behaviour::Delay(4000)),
            Scenario::Fail => (1, 50, Behaviour::Status(500)),
            Scenario::Hang20 => (20, 50, Behaviour::Hang),
            Scenario::Hang200 | Scenario::New200 => (200, 50, Behaviour::Hang),
            Scenario::Backlog | Scenario::Burst | Scenario::Starvation => {
                bail!("{scenario} is no mere sickness")
            }
        };
        let before = Mix {
            sick_percent,
            sick_from: 0,
            sick,
        };
        // Those that nobody has seen follow the ones that the base run has used.
        let unseen = if scenario == Scenario::New200 {
            sick
        } else {
            0
        };
        let settings: &[_] = if scenario == Scenario::Hang64 {
            &[("HOOK_WORKER_SLOTS", "64")]
        } else if scenario == Scenario::Recovery {
            RECOVERY
        } else {
            &[]
        };
        Ok(Self {
            setup: Setup {
                sick: sick + unseen,
                settings,
            },
            before,
            mix: Mix {
                sick_from: unseen,
                ..before
            },
            behaviour,
        })
    }
}

pub(super) async fn play(
    scenario: Scenario,
    args: &IsolationArgs,
    rate: f64,
) -> anyhow::Result<Played> {
    let sickness = Sickness::of(scenario)?;
    let mut scene = Scene::start(&args.common, sickness.setup).await?;
    scene
        .phase(sickness.before, rate, 2.0, async |_| Ok(()))
        .await?;
    say("base");
    let base = scene
        .phase(sickness.before, rate, args.seconds, async |_| Ok(()))
        .await?;
    say("sick");
    scene.switch(sickness.behaviour).await?;
    let seconds = args.seconds;
    let flaps = scenario == Scenario::Flap;
    let sick = scene
        .phase(sickness.mix, rate, seconds, async move |receiver| {
            if flaps {
                flap(receiver, seconds).await?;
            }
            Ok(())
        })
        .await?;
    let mut lines = usual_lines(scenario.name(), &base.healthy, &sick.healthy);
    if scenario == Scenario::Recovery {
        lines.extend(heal(&mut scene, &base, rate).await?);
    }
    scene.stop().await?;
    Ok(Played {
        base: base.healthy,
        sick: sick.healthy,
        open_max: sick.open_max,
        lines,
    })
}

/// Has the host well and sick in turn.
async fn flap(receiver: &mut Receiver, seconds: f64) -> anyhow::Result<()> {
    let begun = clock::now();
    let mut well = true;
    while clock::seconds_between(begun, clock::now()) + FLAP.as_secs_f64() < seconds {
        clock::pause(FLAP).await;
        let behaviour = if well { Behaviour::Ok } else { Behaviour::Hang };
        receiver.switch("sick", behaviour).await?;
        well = !well;
    }
    Ok(())
}

/// Heals the host and watches its backlog while the healthy load goes on.
async fn heal(scene: &mut Scene, base: &Phase, rate: f64) -> anyhow::Result<Vec<Line>> {
    say("heals");
    let admin = scene.rig.admin.clone();
    let target = scene.sick_host(0);
    let backlog = sql::waiting(&admin, &target).await?;
    let completed = sql::completed_of(&admin, &target).await?;
    scene.switch(Behaviour::Ok).await?;
    let healed = clock::now();
    let mut first = None;
    let mut drained = (0_i64, 0.0);
    let healthy_rate = rate / 2.0;
    let after = scene
        .phase(Mix::HEALTHY, healthy_rate, DRAIN_SECONDS, async |_| {
            loop {
                let seconds = clock::seconds_between(healed, clock::now());
                let done = sql::completed_of(&admin, &target).await? - completed;
                if done > 0 && first.is_none() {
                    first = Some(seconds);
                }
                drained = (done, seconds);
                if done >= backlog || seconds >= DRAIN_SECONDS {
                    return Ok(());
                }
                clock::pause(Duration::from_millis(100)).await;
            }
        })
        .await?;
    let first = first.unwrap_or(f64::INFINITY);
    // What the machine delivers is 2.5 times the rate of the load.
    let free = rate * 2.5 - healthy_rate;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 jobs")]
    let per_second = drained.0 as f64 / (drained.1 - first).max(0.1);
    say(format_args!("{} of {backlog} jobs drained", drained.0));
    Ok(vec![
        Line::at_most(
            "recovery: seconds to the first success",
            first,
            PROBE_INTERVAL_SECONDS,
        ),
        Line::at_least("recovery: drained ÷ free capacity", per_second / free, 0.8),
        Line::at_most(
            "recovery: healthy p99 ÷ base meanwhile",
            after.healthy.all.p99 / base.healthy.all.p99,
            1.5,
        ),
    ])
}
