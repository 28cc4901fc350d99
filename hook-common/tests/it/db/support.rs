//! A way to a test's database as a service would have it.

use std::time::Duration;

use hook_common::{
    config::{Binary, CommonConfig, Reader},
    db::Db,
    lifecycle::Stop,
    ops::Readiness,
};
use hook_testkit::wait::wait_until;

/// A way to Postgres with what its service would keep beside it.
pub(crate) struct Way {
    pub(crate) db: Db,
    pub(crate) readiness: Readiness,
    pub(crate) stop: Stop,
}

/// Waits until the condition holds.
pub(crate) async fn until(limit: Duration, mut holds: impl AsyncFnMut() -> bool) {
    wait_until(limit, async || {
        if holds().await {
            Ok(())
        } else {
            Err("the condition does not hold")
        }
    })
    .await;
}

/// The way of a worker with these settings; nothing is connected yet.
pub(crate) fn way(url: &str, settings: &[(&str, &str)]) -> Way {
    let mut reader = Reader::new(Binary::Worker, |name| {
        if name == "DATABASE_URL" {
            return Some(url.to_owned());
        }
        let found = settings.iter().find(|(setting, _)| *setting == name);
        found.map(|(_, text)| (*text).to_owned())
    });
    let config = CommonConfig::read(&mut reader);
    reader.finish().expect("the settings are good");
    let stop = Stop::manual(Duration::from_secs(5));
    let readiness = Readiness::new(stop.clone());
    readiness.require(hook_common::db::SCHEMA);
    readiness.prove(Readiness::START_UP);
    let db = Db::new(&config, readiness.clone()).expect("the URL is good");
    Way {
        db,
        readiness,
        stop,
    }
}
