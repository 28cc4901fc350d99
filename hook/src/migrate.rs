//! `hook migrate`: brings the database to the schema that this version needs.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use hook_common::{
    config::parse,
    db::Fault,
    lifecycle::Stop,
    migrate::{self, MigrateError},
};
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tokio::time::Instant;

use crate::{
    exit::{Failure, Kind},
    output::Output,
    settings,
};

/// Between two tries to reach Postgres.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Args, Debug)]
pub(crate) struct MigrateArgs {
    /// The database; default: HOOK_DATABASE_DIRECT_URL, else DATABASE_URL.
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    /// How long to wait for Postgres to come up.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    wait: Duration,
}

pub(crate) fn run(args: MigrateArgs, output: Output) -> Result<(), Failure> {
    let direct = args.database_url.as_deref();
    let vars = settings::vars([("HOOK_DATABASE_DIRECT_URL", direct)]);
    let url = settings::direct_database_url(&vars)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let applied = runtime.block_on(async {
        let mut connection = connect(url.expose(), args.wait).await?;
        migrate::run(&mut connection).await.map_err(failure)
    })?;

    let version = migrate::version_needed();
    let text = match applied.len() {
        0 => format!("the schema has version {version} already"),
        1 => format!("applied 1 migration; the schema has version {version}"),
        many => format!("applied {many} migrations; the schema has version {version}"),
    };
    output.result(&text, &json!({"applied": applied, "version": version}))
}

/// Connects, trying again while nobody is there yet.
async fn connect(url: &str, wait: Duration) -> Result<PgConnection, Failure> {
    let stop = Stop::manual(Duration::ZERO);
    let until = Instant::now() + wait;
    loop {
        let error = match PgConnection::connect(url).await {
            Ok(connection) => return Ok(connection),
            Err(error) => error,
        };
        if !Fault::of(&error).may_pass_later() {
            return Err(failure(error.into()));
        }
        if Instant::now() >= until {
            let error = anyhow::Error::new(error).context("connecting to Postgres");
            return Err(Failure::new(Kind::Unavailable, error));
        }
        stop.pause(PAUSE).await;
    }
}

fn failure(error: MigrateError) -> Failure {
    let kind = match &error {
        MigrateError::Database(error) if Fault::of(error).may_pass_later() => Kind::Unavailable,
        MigrateError::Database(_) | MigrateError::TooNew { .. } | MigrateError::Edited(_) => {
            Kind::Fault
        }
    };
    Failure::new(kind, error)
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    parse::duration(text).map_err(|form| format!("expected {form}"))
}
