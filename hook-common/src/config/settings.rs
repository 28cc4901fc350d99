//! What a setting is, and how one is found by name.

mod table;

/// A program of the product.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Binary {
    /// `hook-api`.
    Api,
    /// `hook-worker`.
    Worker,
    /// `hook-janitor`.
    Janitor,
    /// `hook`, the command for people.
    Hook,
}

/// One setting, as an environment variable or a flag.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The environment variable.
    pub name: &'static str,
    /// The programs that read it.
    pub used_by: &'static [Binary],
    /// What holds when it is not set.
    pub default: Default,
    /// The expected form of the value.
    pub form: &'static str,
    /// What it does.
    pub says: &'static str,
    /// What goes wrong when it is too small; empty when that makes no sense.
    pub too_small: &'static str,
    /// What goes wrong when it is too large; empty when that makes no sense.
    pub too_large: &'static str,
    /// How much of the value may be shown.
    pub mask: Mask,
}

/// What holds when a setting is not set.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    /// Nothing: it must be set.
    Required,
    /// The feature is off, or there is no limit.
    Unset,
    /// This text, as if it had been set.
    Text(&'static str),
    /// This text, another one for each program.
    PerBinary(&'static [(Binary, &'static str)]),
    /// A value that follows from others, described for people.
    Computed(&'static str),
}

/// How much of a value may be shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mask {
    /// It may be shown.
    Nothing,
    /// It is a URL whose password is hidden.
    Password,
    /// None of it may be shown.
    All,
}

/// Settings of one part of the product.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// The part.
    pub title: &'static str,
    /// Its settings.
    pub settings: &'static [Setting],
}

/// Every setting, by part of the product.
pub const SETTINGS: &[Section] = table::SECTIONS;

/// Every setting, without the parts.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().flat_map(|section| section.settings)
}

/// The setting with this name, if there is one.
#[must_use]
pub fn setting(name: &str) -> Option<&'static Setting> {
    all().find(|setting| setting.name == name)
}

impl Binary {
    /// Every program.
    pub const ALL: &'static [Self] = &[Self::Api, Self::Worker, Self::Janitor, Self::Hook];

    /// The name of the executable, which is also its `application_name` in Postgres.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Api => "hook-api",
            Self::Worker => "hook-worker",
            Self::Janitor => "hook-janitor",
            Self::Hook => "hook",
        }
    }
}

impl Setting {
    /// The text that holds for `binary` when nothing is set, if a text does.
    #[must_use]
    pub fn default_for(&self, binary: Binary) -> Option<&'static str> {
        match self.default {
            Default::Text(text) => Some(text),
            Default::PerBinary(texts) => texts
                .iter()
                .find(|(of, _)| *of == binary)
                .map(|(_, text)| *text),
            Default::Required | Default::Unset | Default::Computed(_) => None,
        }
    }

    /// Whether there is no default.
    #[must_use]
    pub const fn is_required(&self) -> bool {
        matches!(self.default, Default::Required)
    }

    /// The flag of the same name: `HOOK_WORKER_SLOTS` is `--worker-slots`, and also
    /// `--hook-worker-slots`; `DATABASE_URL` is `--database-url`.
    #[must_use]
    pub fn flag(&self) -> String {
        let short = self.name.strip_prefix("HOOK_").unwrap_or(self.name);
        format!("--{}", short.to_lowercase().replace('_', "-"))
    }
}

impl Mask {
    /// How much may be shown of a variable that nobody knows: it may be a secret, misspelt.
    #[must_use]
    pub fn of_unknown(name: &str) -> Self {
        let secretive = ["SECRET", "TOKEN", "KEY", "PASS", "URL", "AUTH", "CRED"];
        if secretive.iter().any(|part| name.contains(part)) {
            Self::All
        } else {
            Self::Nothing
        }
    }
}

/// The known name nearest to a misspelt one, if one is near: one slip in three characters.
#[must_use]
pub fn closest(name: &str) -> Option<&'static str> {
    let own = name.strip_prefix("HOOK_").unwrap_or(name);
    let slips_max = (own.chars().count() / 3).min(3);
    all()
        .map(|setting| (edits(name, setting.name), setting.name))
        .min()
        .filter(|(edits, _)| *edits <= slips_max)
        .map(|(_, near)| near)
}

/// Whether Kubernetes has set the variable by itself, for a Service named `hook-…`: nobody wrote
/// it, so nobody can be told to correct it.
#[must_use]
pub fn is_set_by_kubernetes(name: &str, value: &str) -> bool {
    if name.ends_with("_SERVICE_HOST") || name.contains("_SERVICE_PORT") {
        return true;
    }
    if let Some((_, tail)) = name.rsplit_once("_PORT_")
        && tail.starts_with(|c: char| c.is_ascii_digit())
        && ["_TCP", "_UDP", "_SCTP"].iter().any(|p| tail.contains(p))
    {
        return true;
    }
    name.ends_with("_PORT") && value.contains("://")
}

/// Insertions, removals and replacements that lead from one text to the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
