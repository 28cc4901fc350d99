use std::{collections::HashMap, ffi::OsString};

use super::{
    command_line::{Invocation, Vars, help, read},
    secret::mask_url,
    settings::{Default as Fallback, all, closest, is_set_by_kubernetes, setting},
    *,
};

const URL: &str = "postgres://app:pa55word@db.example:5432/hook";

/// Reads the shared settings of a worker from pairs, with a database URL unless one is given.
fn common(pairs: &[(&str, &str)]) -> Result<CommonConfig, BadSettings> {
    let mut vars = HashMap::from([("DATABASE_URL", URL)]);
    vars.extend(pairs.iter().copied());
    let mut reader = Reader::new(Binary::Worker, |name| {
        vars.get(name).map(|text| (*text).to_owned())
    });
    reader.refuse_unknown(vars.keys().copied());
    let config = CommonConfig::read(&mut reader);
    reader.finish().map(|()| config)
}

/// The message for bad settings.
fn message(pairs: &[(&str, &str)]) -> String {
    common(pairs).unwrap_err().to_string()
}

#[test]
fn the_table_gives_the_defaults() {
    let config = common(&[]).unwrap();
    assert_eq!(config.db_pool_max, 10);
    assert_eq!(config.shutdown_grace, Duration::from_secs(25));
    assert_eq!(config.startup_timeout, None);
    assert_eq!(config.ops_listen.to_string(), "127.0.0.1:3311");
    assert_eq!(config.log_format, None);
    assert_eq!(config.database_url.expose(), URL);
}

#[test]
fn every_bad_setting_is_named_with_its_value_and_the_expected_form() {
    let text = message(&[
        ("HOOK_DB_POOL_MAX", "many"),
        ("HOOK_SHUTDOWN_GRACE", "25"),
        ("HOOK_STARTUP_TIMEOUT", "0s"),
        ("HOOK_OPS_LISTEN", "localhost"),
        ("HOOK_LOG", "worker=loud"),
        ("HOOK_LOG_FORMAT", "xml"),
        ("HOOK_WORKER_SLOT", "5"),
    ]);
    for line in [
        "7 bad settings:",
        "HOOK_DB_POOL_MAX = \"many\": expected a whole number from 1 to 1000",
        "HOOK_SHUTDOWN_GRACE = \"25\": expected a duration such as 250ms",
        "HOOK_STARTUP_TIMEOUT = \"0s\": expected a duration such as",
        "above zero",
        "HOOK_OPS_LISTEN = \"localhost\": expected an address and port",
        "HOOK_LOG = \"worker=loud\": expected a level",
        "HOOK_LOG_FORMAT = \"xml\": expected text or json",
        "HOOK_WORKER_SLOT = \"5\": expected the name of a setting such as HOOK_WORKER_SLOTS",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_missing_database_is_one_bad_setting() {
    let text = message(&[("DATABASE_URL", " ")]);
    assert!(
        text.starts_with("1 bad setting:\n  DATABASE_URL is not set: expected a URL"),
        "{text}"
    );
}

#[test]
fn passwords_and_secrets_are_never_shown() {
    for url in [
        "mysql://app:pa55word@db/hook",
        "postgres://app:pa55word@db:port/hook",
        "postgres://db/hook?password=pa55word&sslmode=loud",
        "app:pa55word@db",
        "pgsql://app:12/pa55word@db/hook",
        "pgsql://app:12?pa55word@db/hook",
        "pgsql://app:12#pa55word@db/hook",
    ] {
        let text = message(&[("DATABASE_URL", url)]);
        assert!(text.contains("DATABASE_URL = "), "{text}");
        assert!(!text.contains("pa55word"), "{text}");
    }
    let text = message(&[("HOOK_API_TOKEN_LIST", "pa55word"), ("HOOK_FOO", "bar")]);
    assert!(!text.contains("pa55word"), "{text}");
    assert!(text.contains("HOOK_FOO = \"bar\""), "{text}");
    let config = common(&[]).unwrap();
    assert!(!format!("{config:?}").contains("pa55word"));
    assert_eq!(format!("{}", Secret::new("x".to_owned())), "***");
}

#[test]
fn a_masked_url_still_says_where() {
    assert_eq!(mask_url(URL), "postgres://app:***@db.example:5432/hook");
    assert_eq!(
        mask_url("postgres://db/hook?sslmode=require&password=x"),
        "postgres://db/hook?sslmode=require&password=***"
    );
    assert_eq!(mask_url("no url at all"), "***");
}

#[test]
fn variables_of_other_programs_and_of_kubernetes_are_left_alone() {
    common(&[
        ("HOOK_API_LISTEN", "not even read by a worker"),
        ("HOOK_API_SERVICE_HOST", "10.0.0.1"),
        ("HOOK_API_SERVICE_PORT", "3300"),
        ("HOOK_API_SERVICE_PORT_HTTP", "3300"),
        ("HOOK_API_PORT", "tcp://10.0.0.1:3300"),
        ("HOOK_API_PORT_3300_TCP", "tcp://10.0.0.1:3300"),
        ("HOOK_API_PORT_3300_TCP_ADDR", "10.0.0.1"),
        ("HTTPS_PROXY", "http://proxy"),
    ])
    .unwrap();
    assert!(!is_set_by_kubernetes("HOOK_API_PORT", "3300"));
    assert!(!is_set_by_kubernetes("HOOK_PORT_FORWARD", "x"));
}

#[test]
fn a_relation_that_does_not_hold_names_both_settings() {
    let mut reader = Reader::new(Binary::Worker, |name| {
        (name == "HOOK_LEASE").then(|| "10s".to_owned())
    });
    let lease = reader.optional_duration("HOOK_LEASE").unwrap();
    let timeout = reader.duration("HOOK_ATTEMPT_TIMEOUT");
    reader.require(
        lease >= timeout + Duration::from_secs(5),
        &["HOOK_LEASE", "HOOK_ATTEMPT_TIMEOUT"],
        "a lease of at least the attempt timeout + 5s",
    );
    let text = reader.finish().unwrap_err().to_string();
    assert!(text.contains("HOOK_LEASE = \"10s\""), "{text}");
    assert!(text.contains("HOOK_ATTEMPT_TIMEOUT = \"15s\""), "{text}");
}

#[test]
fn durations() {
    let check = |text, ms| assert_eq!(parse::duration(text), Ok(Duration::from_millis(ms)));
    check("250ms", 250);
    check("5s", 5000);
    check("10m", 600_000);
    check("24h", 86_400_000);
    check("7d", 604_800_000);
    check("0s", 0);
    for text in [
        "",
        "5",
        "s",
        "-5s",
        "+5s",
        "5 s",
        "1.5s",
        "5S",
        "5us",
        "5sec",
        "1h30m",
        "99999999999999999999s",
        "18446744073709551615d",
        "4000d",
    ] {
        assert!(parse::duration(text).is_err(), "{text:?}");
    }
}

#[test]
fn sizes() {
    let check = |text, bytes| assert_eq!(parse::size(text), Ok(bytes));
    check("65536", 65_536);
    check("64KiB", 65_536);
    check("8MiB", 8 << 20);
    check("1GiB", 1 << 30);
    for text in ["", "KiB", "1KB", "1kib", "-1", "1.5MiB", "99999999999GiB"] {
        assert!(parse::size(text).is_err(), "{text:?}");
    }
}

#[test]
fn networks_must_say_what_they_open() {
    let check = |text: &str, shown: &str| assert_eq!(parse::net(text).unwrap().to_string(), shown);
    check("10.0.0.0/8", "10.0.0.0/8");
    check("fd00::/8", "fd00::/8");
    check("127.0.0.1", "127.0.0.1/32");
    check("::1", "::1/128");
    for text in ["10.0.0.5/8", "10.0.0.0/33", "10.0.0/8", "localhost", ""] {
        assert!(parse::net(text).is_err(), "{text:?}");
    }
}

#[test]
fn lists_have_no_holes() {
    assert_eq!(parse::list("a, b ,c"), Ok(vec!["a", "b", "c"]));
    assert!(parse::list("a,,b").is_err());
    assert!(parse::list("a,").is_err());
}

#[test]
fn switches_and_proxies() {
    assert_eq!(parse::flag("true"), Ok(true));
    for text in ["1", "yes", "TRUE", "on"] {
        assert!(parse::flag(text).is_err(), "{text}");
    }
    assert!(parse::proxy("http://proxy.example:3128").is_ok());
    for text in ["proxy:3128", "https://p", "socks5://p", "http://p/path"] {
        assert!(parse::proxy(text).is_err(), "{text}");
    }
}

/// Every default that is a text must pass its own parser; whoever reads it relies on that.
#[test]
fn every_default_reads_as_what_its_form_says() {
    for setting in all() {
        let texts: Vec<&str> = match setting.default {
            Fallback::Text(text) => vec![text],
            Fallback::PerBinary(texts) => texts.iter().map(|(_, text)| *text).collect(),
            Fallback::Required | Fallback::Unset | Fallback::Computed(_) => continue,
        };
        for text in texts {
            let reads = match setting.form {
                parse::DURATION => parse::duration(text).is_ok(),
                parse::SIZE => parse::size(text).is_ok(),
                parse::FLAG => parse::flag(text).is_ok(),
                parse::ADDRESS => parse::address(text).is_ok(),
                form if form.starts_with("whole number") => text.parse::<u64>().is_ok(),
                _ => true,
            };
            assert!(reads, "{} = {text}", setting.name);
        }
    }
}

#[test]
fn settings_are_unique_and_described() {
    let mut names: Vec<&str> = all().map(|setting| setting.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a setting is there twice");
    for setting in all() {
        assert!(setting.says.ends_with('.'), "{}", setting.name);
        assert!(!setting.used_by.is_empty(), "{}", setting.name);
    }
}

#[test]
fn every_setting_of_the_contract_is_known() {
    for name in [
        "DATABASE_URL",
        "HOOK_API_LISTEN",
        "HOOK_OPS_LISTEN",
        "HOOK_SHUTDOWN_GRACE",
        "HOOK_STARTUP_TIMEOUT",
        "HOOK_MAX_ATTEMPTS",
        "HOOK_ATTEMPT_TIMEOUT",
        "HOOK_IDEMPOTENCY_TTL",
        "HOOK_API_BODY_MAX",
        "HOOK_JOB_BODY_MAX",
        "HOOK_QUEUE_DEPTH_MAX",
        "HOOK_SECRET_KEY",
        "HOOK_SECRET_KEYS_OLD",
        "HOOK_CONNECT_TIMEOUT",
        "HOOK_RESPONSE_BODY_TIMEOUT",
        "HOOK_RETRY_SCHEDULE",
        "HOOK_RETRY_AFTER_MAX",
        "HOOK_ALLOW_NETS",
        "HOOK_PENALTY_REFRESH",
        "HOOK_PENALTY_TARGETS_MAX",
        "HOOK_TARGET_IN_FLIGHT_MAX",
        "HOOK_HOLD_FAILURES",
        "HOOK_HOLD_AFTER",
        "HOOK_PROBE_INTERVAL_MIN",
        "HOOK_PROBE_INTERVAL_MAX",
        "HOOK_METRICS_TARGETS_MAX",
        "HOOK_API_IN_FLIGHT_MAX",
        "HOOK_API_TOKENS",
        "HOOK_API_ENQUEUE_TOKENS",
        "HOOK_API_ALLOW_ANONYMOUS",
        "HOOK_WORKER_QUEUES",
        "HOOK_WORKER_SLOTS",
        "HOOK_DB_POOL_MAX",
        "HOOK_POLL_INTERVAL",
        "HOOK_LEASE",
        "HOOK_RETENTION_COMPLETED",
        "HOOK_RETENTION_FAILED",
        "HOOK_RETENTION_HISTORY",
        "HOOK_JANITOR_INTERVAL",
        "HOOK_LOG",
        "HOOK_LOG_FORMAT",
        "HOOK_EGRESS_CA_FILE",
        "HOOK_EGRESS_PROXY",
        "HOOK_DNS_SERVERS",
        "HOOK_DATABASE_DIRECT_URL",
    ] {
        assert!(setting(name).is_some(), "{name}");
    }
    assert_eq!(closest("HOOK_WORKER_SLOTZ"), Some("HOOK_WORKER_SLOTS"));
    assert_eq!(closest("HOOK_SOMETHING_ELSE"), None);
    assert_eq!(closest("HOOK_FOO"), None);
}

fn args(args: &[&str]) -> Result<Invocation, command_line::BadUsage> {
    let env = [("HOOK_WORKER_SLOTS", "5"), ("DATABASE_URL", URL)];
    let vars = Vars::from_pairs(env.map(|(n, v)| (OsString::from(n), OsString::from(v))));
    read(Binary::Worker, args.iter().map(OsString::from), vars)
}

#[test]
fn flags_win_over_the_environment_in_every_spelling() {
    let check = |words: &[&str], name: &str, expected: &str| match args(words).unwrap() {
        Invocation::Run(vars) => assert_eq!(vars.get(name).as_deref(), Some(expected)),
        Invocation::Print(text) => panic!("{text}"),
    };
    check(&[], "HOOK_WORKER_SLOTS", "5");
    check(&["--worker-slots", "7"], "HOOK_WORKER_SLOTS", "7");
    check(&["--worker-slots=8"], "HOOK_WORKER_SLOTS", "8");
    check(&["--hook-worker-slots", "9"], "HOOK_WORKER_SLOTS", "9");
    check(&["--database-url=x=y"], "DATABASE_URL", "x=y");
    check(&["--https-only"], "HOOK_HTTPS_ONLY", "true");
    check(&["--https-only", "--lease", "30s"], "HOOK_LEASE", "30s");
    check(&["--https-only", "false"], "HOOK_HTTPS_ONLY", "false");
}

#[test]
fn what_is_no_flag_of_this_program_is_refused() {
    for (words, part) in [
        (&["--worker-slotz", "7"][..], "--worker-slotz"),
        (&["--api-listen", "127.0.0.1:0"], "--api-listen"),
        (&["serve"], "serve"),
        (&["--lease"], "needs a value"),
    ] {
        let text = args(words).unwrap_err().to_string();
        assert!(text.contains(part), "{text}");
        assert!(text.contains("hook-worker --help"), "{text}");
    }
}

#[test]
fn help_lists_the_settings_of_this_program_alone() {
    let text = help(Binary::Worker);
    for part in [
        "HOOK_WORKER_SLOTS, --worker-slots",
        "default: 512",
        "default: 127.0.0.1:3311",
        "DATABASE_URL, --database-url",
        "none, must be set",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert!(!text.contains("HOOK_API_LISTEN"));
    let Ok(Invocation::Print(version)) = args(&["--version"]) else {
        panic!("--version prints");
    };
    assert_eq!(
        version,
        format!("hook-worker {}", env!("CARGO_PKG_VERSION"))
    );
}
