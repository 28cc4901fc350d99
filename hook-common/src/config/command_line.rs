//! The command line of the three services: flags of the same names as the settings, `--help` and
//! `--version`.
//!
//! A flag wins over the environment. The command line of the `hook` command is its own.

use std::{collections::BTreeMap, ffi::OsString, fmt::Write as _};

use super::settings::{Binary, Default, SETTINGS, Setting, all};

/// What the command line asks for.
#[derive(Clone, Debug)]
pub enum Invocation {
    /// Run with these settings.
    Run(Vars),
    /// Print this text and leave with exit code 0.
    Print(String),
}

/// Names and texts of settings, from the environment and from flags.
#[derive(Clone, Debug, Default)]
pub struct Vars(BTreeMap<String, String>);

/// The command line is not understood: exit code 2.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{problem} (see {binary} --help)")]
pub struct BadUsage {
    binary: &'static str,
    problem: String,
}

impl Vars {
    /// The environment of this process.
    #[must_use]
    pub fn from_environment() -> Self {
        Self::from_pairs(std::env::vars_os())
    }

    /// Texts that are no UTF-8 are kept in a form that no parser accepts, so that they are
    /// reported under their name.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let text = |raw: OsString| raw.to_string_lossy().into_owned();
        let pairs = pairs.into_iter();
        Self(
            pairs
                .map(|(name, value)| (text(name), text(value)))
                .collect(),
        )
    }

    /// The text of a setting.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }

    /// Every name that is set.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Sets a text, over what the environment says.
    pub fn set(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.0.insert(name.into(), text.into());
    }
}

/// Reads the arguments (without the program's own name) over the environment.
///
/// # Errors
/// On a flag that this program does not have, a flag without a value, or a bare word.
pub fn read(
    binary: Binary,
    args: impl IntoIterator<Item = OsString>,
    mut vars: Vars,
) -> Result<Invocation, BadUsage> {
    let bad = |problem| BadUsage {
        binary: binary.as_str(),
        problem,
    };
    let mut args = args.into_iter().peekable();
    while let Some(arg) = args.next() {
        let arg = arg.to_string_lossy().into_owned();
        match arg.as_str() {
            "--help" | "-h" => return Ok(Invocation::Print(help(binary))),
            "--version" | "-V" => return Ok(Invocation::Print(version(binary))),
            _ => {}
        }
        let (flag, inline) = match arg.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
            None => (arg, None),
        };
        let Some(setting) = by_flag(binary, &flag) else {
            return Err(bad(format!("unknown argument {flag:?}")));
        };
        let value = match inline {
            Some(value) => value,
            None => match args.next_if(|next| !next.to_string_lossy().starts_with("--")) {
                Some(value) => value.to_string_lossy().into_owned(),
                None if setting.form == super::parse::FLAG => "true".to_owned(),
                None => return Err(bad(format!("{flag} needs a value: {}", setting.form))),
            },
        };
        vars.set(setting.name, value);
    }
    Ok(Invocation::Run(vars))
}

/// The text of `--version`.
#[must_use]
pub fn version(binary: Binary) -> String {
    format!("{} {}", binary.as_str(), env!("CARGO_PKG_VERSION"))
}

/// The text of `--help`.
#[must_use]
pub fn help(binary: Binary) -> String {
    let name = binary.as_str();
    let mut text = format!(
        "{}\n\nUsage: {name} [--setting value]…\n\n\
         Each setting is an environment variable or the flag beside it; the flag wins.\n\
         Durations: 250ms, 5s, 10m, 24h, 7d. Sizes: bytes, 64KiB, 1MiB.\n\
         Secrets belong into the environment: flags show in the list of processes.\n",
        version(binary)
    );
    for section in SETTINGS {
        let ours = || {
            let settings = section.settings.iter();
            settings.filter(|setting| setting.used_by.contains(&binary))
        };
        if ours().next().is_none() {
            continue;
        }
        let _infallible = write!(text, "\n{}\n", section.title);
        for setting in ours() {
            let _infallible = write!(
                text,
                "  {}, {}\n      {}\n      {}; default: {}\n",
                setting.name,
                setting.flag(),
                setting.says,
                setting.form,
                shown_default(setting, binary)
            );
        }
    }
    text.push_str("\n  --help, --version\n");
    text
}

fn shown_default(setting: &Setting, binary: Binary) -> &'static str {
    match setting.default {
        Default::Required => "none, must be set",
        Default::Unset => "not set",
        Default::Text(text) | Default::Computed(text) => text,
        Default::PerBinary(_) => setting.default_for(binary).unwrap_or("not set"),
    }
}

fn by_flag(binary: Binary, flag: &str) -> Option<&'static Setting> {
    let name = flag.strip_prefix("--")?.replace('-', "_").to_uppercase();
    all()
        .filter(|setting| setting.used_by.contains(&binary))
        .find(|setting| {
            setting.name == name || setting.name.strip_prefix("HOOK_") == Some(name.as_str())
        })
}
