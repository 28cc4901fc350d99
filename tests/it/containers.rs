//! The container files: read by a real parser and held to the product's own settings, since a
//! machine that runs the tests need not run containers; and the programs as process 1.

use std::{collections::BTreeMap, ffi::OsString, time::Duration};

use hook_common::{
    config::{Binary, command_line::Vars, parse},
    start,
};
use hook_testkit::{
    db::TestDb,
    process::{ProcessBuilder, Program, Signal},
    sink::Sink,
    stack::Stack,
};
use serde_json::Value;

use crate::{
    dashboards::{text, yaml},
    kit::LIMIT,
};

/// Services of ours, with the program that each runs.
const SERVICES: [(&str, Binary); 4] = [
    ("api", Binary::Api),
    ("worker-primary", Binary::Worker),
    ("worker-degraded", Binary::Worker),
    ("janitor", Binary::Janitor),
];

/// `${NAME:-value}` becomes the value, as it does for somebody who sets nothing.
fn resolved(text: &str) -> String {
    let mut text = text.to_owned();
    while let Some(begin) = text.find("${") {
        let end = begin + text[begin..].find('}').expect("a closing brace");
        let (_, value) = text[begin + 2..end].split_once(":-").expect("a default");
        let value = value.to_owned();
        text.replace_range(begin..=end, &value);
    }
    text
}

fn compose() -> Value {
    yaml("docker-compose.yml")
}

fn environment(service: &Value) -> BTreeMap<String, String> {
    let variables = service["environment"].as_object().into_iter().flatten();
    variables
        .map(|(name, value)| {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            (name.clone(), resolved(&value))
        })
        .collect()
}

/// One stage of the Dockerfile: the stage before it and its lines.
fn stages() -> BTreeMap<String, (String, Vec<String>)> {
    let mut stages: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    let mut name = String::new();
    for line in text("Dockerfile").replace("\\\n", " ").lines() {
        if let Some(from) = line.strip_prefix("FROM ") {
            let (base, own) = from.split_once(" AS ").expect("every stage has a name");
            own.clone_into(&mut name);
            stages.insert(name.clone(), (base.to_owned(), Vec::new()));
        } else if let Some((_, lines)) = stages.get_mut(&name) {
            lines.push(line.trim().to_owned());
        }
    }
    stages
}

#[test]
fn compose_names_every_part_and_each_has_a_health_check_or_ends() {
    let compose = compose();
    let services = compose["services"].as_object().expect("services");
    let names: Vec<&str> = services.keys().map(String::as_str).collect();
    for name in [
        "postgres",
        "migrate",
        "api",
        "worker-primary",
        "worker-degraded",
        "janitor",
        "receiver",
        "prometheus",
        "grafana",
    ] {
        assert!(names.contains(&name), "{name}");
    }
    for (name, service) in services {
        let one_shot = ["migrate", "cli"].contains(&name.as_str());
        assert_eq!(service["healthcheck"].is_null(), one_shot, "{name}");
        if let Some(test) = service["healthcheck"]["test"].as_array() {
            assert_eq!(test[0], "CMD", "{name}: a check needs no shell");
        }
        let conditions = service["depends_on"].as_object().into_iter().flatten();
        for (other, condition) in conditions {
            let expected = if other == "migrate" {
                "service_completed_successfully"
            } else {
                "service_healthy"
            };
            assert_eq!(condition["condition"], expected, "{name} on {other}");
            assert!(services.contains_key(other), "{name} on {other}");
        }
        for port in service["ports"].as_array().into_iter().flatten() {
            let port = port.as_str().expect("a port in quotes");
            assert!(
                port.starts_with("127.0.0.1:"),
                "{name}: {port} is open to everybody"
            );
        }
    }
    assert_eq!(
        services["migrate"]["depends_on"]["postgres"]["condition"],
        "service_healthy"
    );
    for (name, _) in SERVICES {
        assert!(
            services[name]["depends_on"]["migrate"].is_object(),
            "{name}"
        );
    }
    assert_eq!(
        environment(&services["worker-primary"])["HOOK_WORKER_QUEUES"],
        "primary"
    );
    assert_eq!(
        environment(&services["worker-degraded"])["HOOK_WORKER_QUEUES"],
        "degraded"
    );
}

#[test]
fn the_settings_of_every_service_are_accepted_by_its_program() {
    let compose = compose();
    for (name, binary) in SERVICES {
        let service = &compose["services"][name];
        let pairs = environment(service).into_iter();
        let vars = Vars::from_pairs(pairs.map(|(name, text)| (OsString::from(name), text.into())));
        let read = match binary {
            Binary::Api => start::settings(binary, &vars, hook_api::config::Config::read).map(drop),
            Binary::Worker => start::settings(binary, &vars, hook_worker::Config::read).map(drop),
            Binary::Janitor => start::settings(binary, &vars, hook_janitor::Config::read).map(drop),
            Binary::Hook => panic!("it is no service"),
        };
        read.unwrap_or_else(|bad| panic!("{name}: {bad}"));
        assert_eq!(service["build"]["target"], binary.as_str(), "{name}");
        assert_eq!(
            service["healthcheck"]["test"][1], "/usr/local/bin/hook",
            "{name}"
        );
        let grace = parse::duration(&vars.get("HOOK_SHUTDOWN_GRACE").expect("it is set"));
        let kill = service["stop_grace_period"].as_str().map(parse::duration);
        assert!(kill.unwrap().unwrap() > grace.unwrap(), "{name}");
    }
}

/// What API and worker must agree on, who reaches whom, and where Prometheus looks.
#[test]
fn the_parts_fit_together() {
    let compose = compose();
    let services = &compose["services"];
    let of = |name: &str| environment(&services[name]);
    let subnet = &compose["networks"]["receivers"]["ipam"]["config"][0]["subnet"];
    for name in ["api", "worker-primary", "worker-degraded"] {
        assert_eq!(
            subnet,
            &Value::from(of(name)["HOOK_ALLOW_NETS"].as_str()),
            "{name}"
        );
        assert_eq!(
            of(name)["HOOK_SECRET_KEY"],
            of("api")["HOOK_SECRET_KEY"],
            "{name}"
        );
    }
    let on = |name: &str, network: &str| {
        let networks = services[name]["networks"].as_array().expect("networks");
        networks.iter().any(|one| one == network)
    };
    assert!(on("receiver", "receivers") && !on("receiver", "inside"));
    assert!(on("worker-primary", "receivers") && on("worker-degraded", "receivers"));
    assert!(!on("postgres", "receivers") && !on("api", "receivers"));
    assert_eq!(of("cli")["HOOK_API_TOKEN"], of("api")["HOOK_API_TOKENS"]);

    let scraped = yaml("dashboards/prometheus.yml");
    let mut found = BTreeMap::new();
    for job in scraped["scrape_configs"].as_array().expect("jobs") {
        let sd = &job["dns_sd_configs"][0];
        for name in sd["names"].as_array().expect("names") {
            found.insert(
                name.as_str().expect("a name"),
                (job["job_name"].clone(), sd["port"].clone()),
            );
        }
    }
    for (name, binary) in SERVICES {
        let ops = of(name)["HOOK_OPS_LISTEN"].clone();
        let port: u16 = ops.rsplit_once(':').expect("a port").1.parse().unwrap();
        assert_eq!(
            found[name],
            (Value::from(binary.as_str()), Value::from(port)),
            "{name}"
        );
    }
}

#[test]
fn images_are_small_run_as_nobody_and_listen_where_compose_and_the_defaults_say() {
    let stages = stages();
    let (base, lines) = &stages["base"];
    assert_eq!(base, "${RUN_IMAGE}");
    assert!(lines.contains(&"USER 65532:65532".to_owned()));
    let health = lines
        .iter()
        .find(|line| line.starts_with("HEALTHCHECK "))
        .unwrap();
    assert!(
        health.contains(r#"CMD ["/usr/local/bin/hook", "health"]"#),
        "{health}"
    );
    let compose = compose();
    for (name, binary) in SERVICES {
        let program = binary.as_str();
        let (base, lines) = &stages[program];
        assert_eq!(base, "base", "{program}");
        let entry = format!(r#"ENTRYPOINT ["/usr/local/bin/{program}"]"#);
        assert!(lines.contains(&entry), "{program}");
        let ops = environment(&compose["services"][name])["HOOK_OPS_LISTEN"].clone();
        let set = lines.iter().find(|line| line.starts_with("ENV ")).unwrap();
        assert!(
            set.contains(&format!("HOOK_OPS_LISTEN={ops}")),
            "{program}: {set}"
        );
        let port = ops.rsplit_once(':').unwrap().1;
        let exposed = lines
            .iter()
            .find(|line| line.starts_with("EXPOSE "))
            .unwrap();
        assert!(
            exposed.split(' ').any(|one| one == port),
            "{program}: {exposed}"
        );
        let help = hook_common::config::command_line::help(binary);
        assert!(
            help.contains(&format!("127.0.0.1:{port}")),
            "{program}: {port}"
        );
        for built in [
            &format!("--package {program}"),
            &format!("target/release/{program}"),
        ] {
            let build = stages["build"].1.join(" ");
            assert!(build.contains(built.as_str()), "{built}");
        }
    }
    let build = text("Dockerfile");
    let toolchain = text("rust-toolchain.toml");
    let channel = toolchain.split('"').nth(1).unwrap();
    assert!(build.contains(&format!("rust:{channel}-")), "{channel}");
}

/// Process 1 gets no signal that it does not ask for, so a program that relies on the default
/// would sit there until it is killed.
#[tokio::test]
async fn every_program_drains_on_sigterm_as_process_1() {
    let db = TestDb::new().await;
    let sink = Sink::start(200).await;
    let stack = Stack::start(&db.url()).await;
    let id = stack.enqueue_to(&sink.url("/")).await;
    stack.wait_final(&id, LIMIT).await;
    for program in [Program::Api, Program::Worker, Program::Janitor] {
        let mut outer = stack.process(program).await.as_process_1().start();
        outer.wait_ready(LIMIT).await;
        let begun = tokio::time::Instant::now();
        outer.signal_child(Signal::Terminate);
        let status = outer.wait_exit(LIMIT).await;
        assert_eq!(
            status.code(),
            Some(0),
            "{program:?}: {:?}",
            outer.lines().last()
        );
        assert!(begun.elapsed() < Duration::from_secs(30), "{program:?}");
    }
    let receiver = ProcessBuilder::program(Program::Hook).await;
    let receiver = receiver
        .argument("receiver")
        .argument("--listen")
        .argument("127.0.0.1:0");
    let mut outer = receiver.as_process_1().start();
    outer
        .wait_line(LIMIT, |line| line.text.contains("listening on http://"))
        .await;
    outer.signal_child(Signal::Terminate);
    assert_eq!(outer.wait_exit(LIMIT).await.code(), Some(0));
}
