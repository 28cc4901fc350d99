//! `hook doctor`: looks at settings and database, and says what is wrong and what to do about it.
//!
//! It changes nothing. Looking ([`checkup`]) and judging are apart, so that each judgement can be tried
//! without a database that is ill in that way.

use anyhow::{Context as _, anyhow};
use clap::Args;
use hook_common::{
    config::{Binary, Reader},
    db::{
        Fault,
        checkup::{self, Facts, Sessions},
    },
    migrate,
};
use serde::Serialize;
use serde_json::json;

use crate::{
    config,
    exit::{Failure, Kind},
    output::{Output, Table},
    settings,
};

/// Oldest server that the statements are made for.
const SERVER_MIN: i32 = 140_000;
/// A clock that is further off makes signatures look too old or too young to receivers.
const CLOCK_MAX_S: f64 = 2.0;
/// A transaction that is open for longer holds dead rows back that every dequeue walks past.
const TRANSACTION_MAX_S: f64 = 300.0;
/// More dead rows than this beside the waiting jobs slow the dequeue down.
const DEAD_READY_MAX: i64 = 1_000_000;

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// The database; default: DATABASE_URL.
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
}

/// How one thing was found.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Good,
    Warning,
    Fault,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
struct Check {
    check: &'static str,
    verdict: Verdict,
    says: String,
    /// What to do; empty where all is good.
    remedy: String,
}

impl Check {
    fn good(check: &'static str, says: impl Into<String>) -> Self {
        Self {
            check,
            verdict: Verdict::Good,
            says: says.into(),
            remedy: String::new(),
        }
    }

    fn warning(check: &'static str, says: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            check,
            verdict: Verdict::Warning,
            says: says.into(),
            remedy: remedy.into(),
        }
    }

    fn fault(check: &'static str, says: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Fault,
            ..Self::warning(check, says, remedy)
        }
    }
}

pub(crate) fn run(args: &DoctorArgs, output: Output) -> Result<(), Failure> {
    let vars = settings::vars([("DATABASE_URL", args.database_url.as_deref())]);
    let mut reader = Reader::new(Binary::Hook, |name| vars.get(name));
    let url = reader.postgres_url("DATABASE_URL");
    let direct = reader.postgres_url("HOOK_DATABASE_DIRECT_URL");
    reader.finish()?;
    let url = url.expect("a required setting is there, or reading it is an error");
    let mut checks = settings_checks(&vars);

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    match runtime.block_on(checkup::look(url.expose(), direct.is_some())) {
        Ok(facts) => {
            let direct =
                direct.map(|direct| runtime.block_on(checkup::look(direct.expose(), false)));
            checks.push(pooler(&facts, direct.as_ref()));
            checks.extend(judge(&facts));
        }
        Err(error) => checks.push(unreachable(&error)),
    }
    report(&checks, output)
}

/// Whether each service would start with these settings.
fn settings_checks(vars: &hook_common::config::command_line::Vars) -> Vec<Check> {
    let judged = config::judged(vars).into_iter();
    judged
        .map(|(name, fault)| match fault {
            None => Check::good("settings", format!("{name} would start")),
            Some(fault) => Check::fault(
                "settings",
                format!("{name} would not start: {fault}"),
                "correct the settings; docs/configuration.md lists them all",
            ),
        })
        .collect()
}

fn unreachable(error: &sqlx::Error) -> Check {
    let remedy = if Fault::of(error).may_pass_later() {
        "see that Postgres runs and can be reached from here, or correct DATABASE_URL"
    } else {
        "correct user, password, database or TLS in DATABASE_URL"
    };
    Check::fault(
        "connection",
        format!("Postgres was not reached: {error}"),
        remedy,
    )
}

/// What stands between us and the server, and whether wake-ups come past it.
fn pooler(facts: &Facts, direct: Option<&sqlx::Result<Facts>>) -> Check {
    let name = "pooler";
    match (facts.sessions, direct) {
        (Sessions::SharedCarelessly, _) => Check::fault(
            name,
            "DATABASE_URL leads through a pooler that does not keep prepared statements: no service starts",
            "set max_prepared_statements in PgBouncer (1.21 or newer), or pool_mode = session",
        ),
        (Sessions::Own, None) => Check::good(name, "each connection has a session of its own"),
        (Sessions::Shared, None) => Check::warning(
            name,
            "DATABASE_URL leads through a transaction pooler: workers are not woken and poll instead",
            "set HOOK_DATABASE_DIRECT_URL to the server itself, for migrations and wake-ups",
        ),
        (_, Some(Err(error))) => Check::fault(
            name,
            format!("HOOK_DATABASE_DIRECT_URL was not reached: {error}"),
            "correct it, or unset it if there is no pooler",
        ),
        (_, Some(Ok(direct))) if direct.sessions != Sessions::Own => Check::fault(
            name,
            "HOOK_DATABASE_DIRECT_URL leads through a pooler, too",
            "let it lead to the server itself: LISTEN and migrations need a session",
        ),
        (_, Some(Ok(direct))) if direct.schema != facts.schema => Check::fault(
            name,
            "HOOK_DATABASE_DIRECT_URL and DATABASE_URL lead to different databases",
            "let both lead to the same database",
        ),
        (_, Some(Ok(_))) => Check::good(name, "there is a way past the pooler"),
    }
}

/// What follows from the facts.
fn judge(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![server(facts), writable(facts), clock(facts), schema(facts)];
    if facts.schema.is_some() {
        checks.push(rights(facts));
        checks.extend(facts.plans.iter().map(|(name, plan)| of_plan(name, plan)));
    }
    checks.push(vacuum(facts));
    checks.push(horizon(facts));
    checks
}

fn server(facts: &Facts) -> Check {
    let says = format!("Postgres {}", facts.server);
    if facts.server_number >= SERVER_MIN {
        Check::good("server", says)
    } else {
        Check::fault("server", says, "use Postgres 14 or newer")
    }
}

fn writable(facts: &Facts) -> Check {
    if facts.writable {
        return Check::good("writes", "the server takes writes");
    }
    let remedy = "let DATABASE_URL lead to the primary, or unset default_transaction_read_only";
    Check::fault("writes", "the server is read-only", remedy)
}

fn clock(facts: &Facts) -> Check {
    let says = format!(
        "this machine is {:+.1} s from Postgres",
        facts.clock_ahead_s
    );
    if facts.clock_ahead_s.abs() <= CLOCK_MAX_S {
        Check::good("clock", says)
    } else {
        let remedy =
            "run NTP on both; Postgres's clock counts, and receivers compare it with theirs";
        Check::warning("clock", says, remedy)
    }
}

fn schema(facts: &Facts) -> Check {
    let needed = migrate::version_needed();
    match facts.schema {
        Some(found) if found == needed => Check::good("schema", format!("version {found}")),
        Some(found) if found > needed => Check::fault(
            "schema",
            format!("version {found} is newer than this build knows ({needed})"),
            "use a newer build",
        ),
        Some(found) => Check::fault(
            "schema",
            format!("version {found}, but {needed} is needed"),
            "run hook migrate",
        ),
        None => Check::fault("schema", "there is none yet", "run hook migrate"),
    }
}

fn rights(facts: &Facts) -> Check {
    let Some((table, right)) = facts.missing_rights.first() else {
        return Check::good("permissions", "this role may do what the services do");
    };
    let more = facts.missing_rights.len() - 1;
    Check::fault(
        "permissions",
        format!("this role lacks {right} on hook.{table}, and {more} more"),
        "GRANT USAGE ON SCHEMA hook, and SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN \
         SCHEMA hook, to the role of the services; or run them as the owner",
    )
}

fn of_plan(name: &'static str, plan: &str) -> Check {
    let reads_all = ["Seq Scan on ready", "Seq Scan on lease", "Seq Scan on job"];
    let found = reads_all.iter().find(|bad| plan.contains(**bad));
    match found {
        None => Check::good("plans", format!("the {name} uses its indexes")),
        Some(bad) => Check::warning(
            "plans",
            format!("the {name} has a {bad}"),
            "behind a pooler, ALTER ROLE … SET enable_seqscan = off, and enable_sort = off, for the role of \
             the workers; then see that no other enable_… setting is off and that plan_cache_mode is \
             auto",
        ),
    }
}

fn vacuum(facts: &Facts) -> Check {
    if !facts.autovacuum {
        let remedy = "set autovacuum = on; without it the queue slows down for good";
        return Check::fault("autovacuum", "autovacuum is off", remedy);
    }
    if let Some(table) = facts.not_vacuumed.first() {
        let says = format!("autovacuum is off for hook.{table}");
        let remedy = format!("ALTER TABLE hook.{table} RESET (autovacuum_enabled)");
        return Check::warning("autovacuum", says, remedy);
    }
    let says = format!(
        "it runs; {} dead rows beside the waiting jobs",
        facts.dead_ready
    );
    if facts.dead_ready <= DEAD_READY_MAX {
        return Check::good("autovacuum", says);
    }
    let remedy = "see the horizon below; else raise autovacuum_max_workers or lower its cost delay";
    Check::warning("autovacuum", says, remedy)
}

fn horizon(facts: &Facts) -> Check {
    let name = "horizon";
    if let Some(slot) = facts.idle_slots.first() {
        return Check::warning(
            name,
            format!("the replication slot {slot} holds dead rows back, and nobody reads from it"),
            format!("SELECT pg_drop_replication_slot('{slot}') if its reader is gone for good"),
        );
    }
    let age = facts.oldest_transaction_s;
    if age <= TRANSACTION_MAX_S {
        return Check::good(name, "no transaction has been open for long");
    }
    Check::warning(
        name,
        format!(
            "{} has had a transaction open for {age:.0} s",
            facts.oldest_transaction_by
        ),
        "end it (SELECT pg_terminate_backend(…), ROLLBACK PREPARED …): dead rows stay until then",
    )
}

fn report(checks: &[Check], output: Output) -> Result<(), Failure> {
    let mut table = Table::new(["CHECK", "VERDICT", "SAYS"]);
    for check in checks {
        let verdict = match check.verdict {
            Verdict::Good => "good",
            Verdict::Warning => "warning",
            Verdict::Fault => "FAULT",
        };
        let says = check.says.replace(char::is_control, " ");
        table.row([check.check.to_owned(), verdict.to_owned(), says]);
        if !check.remedy.is_empty() {
            table.row([String::new(), String::new(), format!("→ {}", check.remedy)]);
        }
    }
    output.result(&table.to_string(), &json!({"checks": checks}))?;
    let faults = |check: &str| {
        let of_kind = checks.iter().filter(|one| one.verdict == Verdict::Fault);
        of_kind.filter(|one| one.check == check).count()
    };
    if faults("settings") > 0 {
        return Err(Failure::usage("the settings are not good"));
    }
    if faults("connection") > 0 {
        return Err(Failure::new(
            Kind::Unavailable,
            anyhow!("the database was not reached"),
        ));
    }
    if checks.iter().any(|check| check.verdict == Verdict::Fault) {
        return Err(anyhow!("something is wrong").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database that nothing is wrong with.
    fn well() -> Facts {
        Facts {
            server: "15.4".to_owned(),
            server_number: 150_004,
            writable: true,
            schema: Some(migrate::version_needed()),
            autovacuum: true,
            plans: vec![("dequeue", "Index Scan using ready_head on ready".to_owned())],
            ..Facts::default()
        }
    }

    /// The checks that are not good.
    fn bad(facts: &Facts) -> Vec<(&'static str, Verdict)> {
        let checks = judge(facts).into_iter();
        let bad = checks.filter(|check| check.verdict != Verdict::Good);
        bad.inspect(|check| assert!(!check.remedy.is_empty(), "{check:?}"))
            .map(|check| (check.check, check.verdict))
            .collect()
    }

    #[test]
    fn each_fact_that_is_wrong_is_found_and_has_a_remedy() {
        assert_eq!(bad(&well()), []);
        let check = |spoil: &dyn Fn(&mut Facts), name, verdict| {
            let mut facts = well();
            spoil(&mut facts);
            assert_eq!(bad(&facts), [(name, verdict)], "{facts:?}");
        };
        use Verdict::{Fault, Warning};
        check(&|f| f.server_number = 130_012, "server", Fault);
        check(&|f| f.writable = false, "writes", Fault);
        check(&|f| f.clock_ahead_s = -7.5, "clock", Warning);
        check(&|f| f.schema = None, "schema", Fault);
        check(&|f| f.schema = Some(1), "schema", Fault);
        check(&|f| f.schema = Some(i64::MAX), "schema", Fault);
        let right = || ("ready".to_owned(), "DELETE".to_owned());
        check(&|f| f.missing_rights = vec![right()], "permissions", Fault);
        let plan = "Seq Scan on ready".to_owned();
        check(
            &|f| f.plans = vec![("dequeue", plan.clone())],
            "plans",
            Warning,
        );
        check(&|f| f.autovacuum = false, "autovacuum", Fault);
        check(
            &|f| f.not_vacuumed = vec!["ready".to_owned()],
            "autovacuum",
            Warning,
        );
        check(&|f| f.dead_ready = 2_000_000, "autovacuum", Warning);
        check(
            &|f| f.idle_slots = vec!["old".to_owned()],
            "horizon",
            Warning,
        );
        check(&|f| f.oldest_transaction_s = 4000.0, "horizon", Warning);
    }

    #[test]
    fn a_pooler_needs_a_way_past_it() {
        let verdict = |facts: &Facts, direct: Option<sqlx::Result<Facts>>| {
            pooler(facts, direct.as_ref()).verdict
        };
        let with = |sessions| Facts { sessions, ..well() };
        let pooled = || with(Sessions::Shared);
        let careless = || with(Sessions::SharedCarelessly);
        let other = Facts {
            schema: None,
            ..well()
        };
        let away = Err(sqlx::Error::PoolClosed);
        assert_eq!(verdict(&well(), None), Verdict::Good);
        assert_eq!(verdict(&pooled(), None), Verdict::Warning);
        assert_eq!(verdict(&pooled(), Some(Ok(well()))), Verdict::Good);
        assert_eq!(verdict(&pooled(), Some(Ok(pooled()))), Verdict::Fault);
        assert_eq!(verdict(&pooled(), Some(Ok(other))), Verdict::Fault);
        assert_eq!(verdict(&pooled(), Some(away)), Verdict::Fault);
        assert_eq!(verdict(&careless(), None), Verdict::Fault);
        assert_eq!(verdict(&careless(), Some(Ok(well()))), Verdict::Fault);
        assert_eq!(verdict(&pooled(), Some(Ok(careless()))), Verdict::Fault);
    }
}
