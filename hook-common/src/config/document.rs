//! `docs/configuration.md`, made from the table of settings.

use std::fmt::Write as _;

use super::settings::{Binary, Default, SETTINGS, Setting};

/// The text of `docs/configuration.md`.
#[must_use]
pub fn document() -> String {
    let mut text = String::from(HEAD);
    for section in SETTINGS {
        let _infallible = write!(text, "\n## {}\n", section.title);
        for setting in section.settings {
            describe(&mut text, setting);
        }
    }
    text
}

fn describe(text: &mut String, setting: &Setting) {
    let used_by: Vec<&str> = setting.used_by.iter().map(|b| b.as_str()).collect();
    let _infallible = write!(
        text,
        "\n### `{}`\n\n{}\n\n- Form: {}\n- Default: {}\n- Read by: {}\n- Flag: `{}`\n",
        setting.name,
        setting.says,
        setting.form,
        default_of(setting),
        used_by.join(", "),
        setting.flag()
    );
    for (when, consequence) in [
        ("Too small", setting.too_small),
        ("Too large", setting.too_large),
    ] {
        if !consequence.is_empty() {
            let _infallible = writeln!(text, "- {when}: {consequence}");
        }
    }
}

fn default_of(setting: &Setting) -> String {
    match setting.default {
        Default::Required => "none, must be set".to_owned(),
        Default::Unset => "not set".to_owned(),
        Default::Text(value) => format!("`{value}`"),
        Default::Computed(words) => words.to_owned(),
        Default::PerBinary(values) => {
            let each =
                |(binary, value): &(Binary, &str)| format!("`{value}` ({})", binary.as_str());
            values.iter().map(each).collect::<Vec<_>>().join(", ")
        }
    }
}

const HEAD: &str = "\
# Configuration

Each setting is an environment variable, and a flag of the same name for the programs that read
it: `HOOK_WORKER_SLOTS=64`, `--worker-slots 64`, `--worker-slots=64` and `--hook-worker-slots 64`
say the same. A flag wins over the environment. Secrets belong into the environment: flags show in
the list of processes. An empty variable counts as not set.

Durations are `250ms`, `5s`, `10m`, `24h`, `7d`. Sizes are bytes, `64KiB`, `1MiB`, `1GiB`. Lists
are comma-separated.

A bad setting stops the start with exit code 2 and one message that names every bad setting, its
value (passwords and secrets hidden) and the expected form. So does a `HOOK_…` variable that none
of the programs knows. Left alone are the variables that Kubernetes adds by itself for a Service
named `hook-…` (`HOOK_API_SERVICE_HOST`, `HOOK_API_PORT=tcp://…`). A variable of another program
of the product is fine, so that all can share one environment.

This page is made from the table in `hook-common/src/config/settings/table.rs`; a test fails when
the two differ (`UPDATE_DOCS=1 cargo test -p hook-common --test documents` writes it anew).
";
