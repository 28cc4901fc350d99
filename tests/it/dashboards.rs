//! Dashboards, rules and runbook: files that nothing compiles, held to the code and to Prometheus.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use hook_common::metrics::{self, Kind};
use hook_testkit::{
    process::{ProcessBuilder, Program},
    prometheus::promtool,
};
use serde_json::Value;

use crate::{kit::LIMIT, tidy::root};

/// The step within which a saturation panel shows the worst minute.
const SUB_QUERY: &str = "[$__interval:1m]";

/// Labels that Prometheus adds, or that belong to histograms.
const LABELS_OF_PROMETHEUS: [&str; 3] = ["job", "instance", "le"];

/// One query of a panel.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) dashboard: String,
    pub(crate) panel: String,
    pub(crate) description: String,
    /// The panel's smallest `$__interval`.
    pub(crate) interval: Option<String>,
    pub(crate) expression: String,
}

/// A rule of `dashboards/rules.yml`.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) alert: Option<String>,
    pub(crate) expression: String,
    pub(crate) runbook: Option<String>,
}

pub(crate) fn rules_file() -> PathBuf {
    root().join("dashboards/rules.yml")
}

/// A file of the repository as text.
pub(crate) fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A YAML file of the repository, with its anchors and merge keys resolved.
pub(crate) fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every query of every dashboard.
pub(crate) fn queries() -> Vec<Query> {
    let word = |value: &Value| value.as_str().map(str::to_owned);
    let mut queries = Vec::new();
    for name in ["overview", "targets", "workers", "database", "janitor"] {
        let path = format!("dashboards/{name}.json");
        let dashboard: Value = serde_json::from_str(&text(&path)).expect("JSON");
        for panel in dashboard["panels"].as_array().expect("panels") {
            for target in panel["targets"].as_array().into_iter().flatten() {
                queries.push(Query {
                    dashboard: name.to_owned(),
                    panel: word(&panel["title"]).expect("a title"),
                    description: word(&panel["description"]).expect("a description"),
                    interval: word(&panel["interval"]),
                    expression: word(&target["expr"]).expect("an expression"),
                });
            }
        }
    }
    assert!(queries.len() > 80, "{} queries", queries.len());
    queries
}

/// Every rule.
pub(crate) fn rules() -> Vec<Rule> {
    let file = yaml("dashboards/rules.yml");
    let groups = file["groups"].as_array().expect("groups");
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().expect("rules"));
    let rules: Vec<Rule> = rules
        .map(|rule| Rule {
            alert: rule["alert"].as_str().map(str::to_owned),
            expression: rule["expr"].as_str().expect("an expression").to_owned(),
            runbook: rule["annotations"]["runbook_url"]
                .as_str()
                .map(str::to_owned),
        })
        .collect();
    assert!(rules.len() > 20, "{} rules", rules.len());
    rules
}

/// The names of our metrics in an expression, without those that rules record.
pub(crate) fn metrics_in(expression: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    expression
        .split(|c| !word(c))
        .filter(|word| word.starts_with("hook_") && !word.contains(':'))
        .map(str::to_owned)
        .collect()
}

/// The names of labels in matchers and groupings.
fn labels_in(expression: &str) -> BTreeSet<String> {
    let mut labels = BTreeSet::new();
    for part in expression.split('{').skip(1) {
        let matchers = part.split('}').next().unwrap_or_default();
        for matcher in matchers.split(',') {
            let name = matcher.split(['=', '!']).next().unwrap_or_default();
            labels.insert(name.trim().to_owned());
        }
    }
    for part in expression.split("by (").skip(1) {
        let names = part.split(')').next().unwrap_or_default();
        labels.extend(names.split(',').map(|name| name.trim().to_owned()));
    }
    labels
}

#[test]
fn every_expression_uses_metrics_and_labels_that_the_code_exports() {
    let mut names: BTreeMap<String, &[&str]> = BTreeMap::new();
    for metric in metrics::all() {
        match metric.kind {
            Kind::Counter | Kind::Gauge => {
                names.insert(metric.name.to_owned(), metric.labels);
            }
            Kind::Histogram => {
                for suffix in ["bucket", "sum", "count"] {
                    names.insert(format!("{}_{suffix}", metric.name), metric.labels);
                }
            }
        }
    }
    let of_panels = queries()
        .into_iter()
        .map(|query| (query.panel, query.expression));
    let of_rules = rules().into_iter();
    let of_rules = of_rules.map(|rule| (rule.alert.unwrap_or_default(), rule.expression));
    for (place, expression) in of_panels.chain(of_rules) {
        let mut allowed: BTreeSet<&str> = BTreeSet::from(LABELS_OF_PROMETHEUS);
        for name in metrics_in(&expression) {
            let labels = names.get(&name);
            let labels = labels.unwrap_or_else(|| panic!("{place}: nothing exports {name}"));
            allowed.extend(labels.iter());
        }
        for label in labels_in(&expression) {
            assert!(
                allowed.contains(label.as_str()),
                "{place}: no {label} in {expression}"
            );
        }
    }
}

#[test]
fn panels_say_what_they_show_and_saturation_is_the_worst_minute_of_a_step() {
    for query in queries() {
        let place = format!("{}: {}", query.dashboard, query.panel);
        assert!(query.description.ends_with('.'), "{place}");
        let saturation = query.expression.contains("hook_gate_in_flight")
            && query.expression.contains("/ hook_gate_max");
        assert_eq!(saturation, query.expression.contains(SUB_QUERY), "{place}");
        if saturation {
            // A range below the step of the sub-query would hold no point at all.
            assert_eq!(query.interval.as_deref(), Some("1m"), "{place}");
            assert!(
                query
                    .expression
                    .contains("max_over_time(hook_gate_in_flight"),
                "{place}"
            );
        }
    }
}

#[tokio::test]
async fn rules_are_valid_and_fire_when_they_should() {
    let rules = rules_file().display().to_string();
    check(&["check", "rules", &rules]).await;
    let tests = root()
        .join("dashboards/rules.test.yml")
        .display()
        .to_string();
    check(&["test", "rules", &tests]).await;
}

/// All slots are taken for 20 s, which is one scrape at a scrape interval of 15 s, and the
/// dashboard looks at half an hour per pixel.
#[tokio::test]
async fn a_saturation_of_20_s_shows_at_a_step_of_30_min() {
    let saturation: Vec<Query> = queries()
        .into_iter()
        .filter(|query| query.expression.contains(SUB_QUERY))
        .collect();
    assert!(saturation.len() >= 3, "{saturation:?}");
    let mut tests = Vec::new();
    for (name, busy, peak) in [
        ("seen", "50x133 512 50x200", 1.0),
        ("calm", "50x334", 50.0 / 512.0),
    ] {
        for query in &saturation {
            let expression = query.expression.replace("$__interval", "30m");
            let gates = ["delivery", "db_pool", "api_requests"];
            let series = gates.iter().flat_map(|gate| {
                let labels = format!(r#"{{job="hook-worker", instance="w1", gate="{gate}"}}"#);
                [
                    serde_json::json!({"series": format!("hook_gate_in_flight{labels}"), "values": busy}),
                    serde_json::json!({"series": format!("hook_gate_max{labels}"), "values": "512x334"}),
                ]
            });
            tests.push(serde_json::json!({
                "name": format!("{}: {name}", query.panel),
                "interval": "15s",
                "input_series": series.collect::<Vec<_>>(),
                "promql_expr_test": [{
                    "expr": format!("max({expression})"),
                    "eval_time": "60m",
                    "exp_samples": [{"labels": "{}", "value": peak}],
                }],
            }));
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("saturation.yml");
    fs::write(&file, serde_json::json!({ "tests": tests }).to_string()).unwrap();
    check(&["test", "rules", &file.display().to_string()]).await;
}

async fn check(arguments: &[&str]) {
    let output = promtool(arguments, None).await;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}:\n{said}");
}

#[test]
fn every_alert_has_its_section_in_the_runbook_and_every_section_its_alert() {
    let runbook = text("docs/runbook.md");
    let headings: BTreeSet<&str> = runbook
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    let alerts: Vec<Rule> = rules()
        .into_iter()
        .filter(|rule| rule.alert.is_some())
        .collect();
    let names: BTreeSet<&str> = alerts
        .iter()
        .filter_map(|rule| rule.alert.as_deref())
        .collect();
    assert_eq!(names, headings);
    for rule in &alerts {
        let name = rule.alert.as_deref().unwrap_or_default();
        let anchor = format!("docs/runbook.md#{}", name.to_ascii_lowercase());
        assert_eq!(rule.runbook.as_deref(), Some(anchor.as_str()));
    }
    for section in runbook.split("\n## ").skip(1) {
        for part in ["**Means** ", "**First look** ", "**Do** ", "**Wake** "] {
            assert!(
                section.contains(&format!("\n{part}")),
                "{part} is missing in {section}"
            );
        }
    }
}

/// Every command in the runbook can be typed as it stands there.
#[tokio::test]
async fn the_commands_of_the_runbook_exist() {
    let runbook = text("docs/runbook.md").replace('\n', " ");
    let commands = runbook.split('`').skip(1).step_by(2);
    let commands: BTreeSet<&str> = commands.filter(|code| code.starts_with("hook ")).collect();
    assert!(commands.len() > 10, "{commands:?}");
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        let is_name = |word: &&&str| word.chars().all(|c| c.is_ascii_lowercase());
        let names: Vec<&&str> = words.iter().take_while(is_name).collect();
        let mut help = ProcessBuilder::program(Program::Hook).await;
        for name in &names {
            help = help.argument(**name);
        }
        let mut help = help.argument("--help").start();
        assert!(help.wait_exit(LIMIT).await.success(), "{command}");
        let help: String = help
            .lines()
            .iter()
            .map(|line| line.text.clone() + "\n")
            .collect();
        for flag in words.iter().filter(|word| word.starts_with("--")) {
            assert!(
                help.contains(&format!("{flag} ")) || help.contains(&format!("{flag}\n")),
                "{command}: no {flag} in\n{help}"
            );
        }
    }
}

/// The panels that the runbook sends people to are there.
#[test]
fn the_panels_of_the_runbook_exist() {
    let runbook = text("docs/runbook.md").replace('\n', " ");
    let panels: BTreeSet<String> = queries()
        .into_iter()
        .map(|query| format!("{}: {}", query.dashboard, query.panel))
        .collect();
    let mut seen = 0;
    for emphasis in runbook.split('*').filter(|text| text.contains(" › ")) {
        let (dashboard, panel) = emphasis.split_once(" › ").expect("it has the arrow");
        let place = format!("{}: {panel}", dashboard.to_lowercase());
        assert!(panels.contains(&place), "{place}");
        seen += 1;
    }
    assert!(seen > 15, "{seen}");
}
