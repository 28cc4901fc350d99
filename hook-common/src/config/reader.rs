//! Reads settings one by one and remembers every bad one.

use std::{fmt, net::SocketAddr, ops::RangeInclusive, time::Duration};

use ipnet::IpNet;
use url::Url;

use super::{
    Binary, Secret, parse,
    secret::mask_url,
    settings::{Mask, Setting, closest, is_set_by_kubernetes, setting},
};

/// Gives typed values of one program's settings and collects what is wrong with them.
///
/// A bad value is replaced by the setting's default, so that reading goes on; whoever reads must
/// call [`Reader::finish`] before using anything.
pub struct Reader<'a> {
    binary: Binary,
    lookup: Lookup<'a>,
    bad: Vec<Bad>,
}

type Lookup<'a> = Box<dyn Fn(&str) -> Option<String> + 'a>;

/// Every bad setting of a start, in one message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BadSettings(Vec<Bad>);

#[derive(Clone, Debug, Eq, PartialEq)]
struct Bad {
    name: String,
    /// As it may be shown; `None` when it is not set.
    value: Option<String>,
    expected: String,
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("binary", &self.binary)
            .field("bad", &self.bad)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for BadSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        let plural = if count == 1 { "" } else { "s" };
        write!(f, "{count} bad setting{plural}:")?;
        for bad in &self.0 {
            match &bad.value {
                Some(value) => write!(f, "\n  {} = {value:?}", bad.name)?,
                None => write!(f, "\n  {} is not set", bad.name)?,
            }
            write!(f, ": expected {}", bad.expected)?;
        }
        Ok(())
    }
}

impl std::error::Error for BadSettings {}

impl BadSettings {
    /// The names of the bad settings, in the order of reading.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|bad| bad.name.as_str())
    }

    /// What several programs found, in one message; what they say alike is said once. `None` if
    /// there is nothing.
    pub fn together(found: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut all: Vec<Bad> = Vec::new();
        for bad in found.into_iter().flat_map(|found| found.0) {
            if !all.contains(&bad) {
                all.push(bad);
            }
        }
        (!all.is_empty()).then_some(Self(all))
    }
}

impl<'a> Reader<'a> {
    /// Reads the settings of `binary` through `lookup`, which gives the text of a name.
    pub fn new(binary: Binary, lookup: impl Fn(&str) -> Option<String> + 'a) -> Self {
        Self {
            binary,
            lookup: Box::new(lookup),
            bad: Vec::new(),
        }
    }

    /// Whose settings are read.
    #[must_use]
    pub fn binary(&self) -> Binary {
        self.binary
    }

    /// Refuses every `HOOK_…` variable that no program knows; others are none of our business.
    pub fn refuse_unknown<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        for name in names {
            if !name.starts_with("HOOK_") || setting(name).is_some() {
                continue;
            }
            let value = (self.lookup)(name).unwrap_or_default();
            if is_set_by_kubernetes(name, &value) {
                continue;
            }
            let hint = closest(name).map_or_else(String::new, |near| format!(" such as {near}"));
            self.note(Bad {
                name: name.to_owned(),
                value: Some(Mask::of_unknown(name).apply(&value)),
                expected: format!("the name of a setting{hint}"),
            });
        }
    }

    /// Notes a relation between settings that does not hold; `names` are shown with their values.
    ///
    /// `expected` completes the sentence "expected …".
    pub fn require(&mut self, holds: bool, names: &[&'static str], expected: &str) {
        if holds {
            return;
        }
        for name in names {
            let setting = self.setting(name);
            let text = self.text_of(setting).unwrap_or_default();
            self.note(Bad {
                name: (*name).to_owned(),
                value: Some(setting.mask.apply(&text)),
                expected: expected.to_owned(),
            });
        }
    }

    /// Keeps what is wrong; a setting that is read twice is not named twice for the same reason.
    fn note(&mut self, bad: Bad) {
        if !self.bad.contains(&bad) {
            self.bad.push(bad);
        }
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// When anything was wrong; the values read so far must not be used then.
    pub fn finish(self) -> Result<(), BadSettings> {
        if self.bad.is_empty() {
            Ok(())
        } else {
            Err(BadSettings(self.bad))
        }
    }

    /// A value of any kind; `None` when it is not set and has no default, or is bad.
    ///
    /// `expected` replaces the parser's own words when it is not empty.
    pub fn parsed<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let setting = self.setting(name);
        let Some(text) = self.text_of(setting) else {
            if setting.is_required() {
                self.note(Bad {
                    name: name.to_owned(),
                    value: None,
                    expected: setting.form.to_owned(),
                });
            }
            return None;
        };
        match parse(&text) {
            Ok(value) => Some(value),
            Err(form) => {
                self.note(Bad {
                    name: name.to_owned(),
                    value: Some(setting.mask.apply(&text)),
                    expected: if expected.is_empty() {
                        form
                    } else {
                        expected.to_owned()
                    },
                });
                let default = setting.default_for(self.binary)?;
                parse(default).ok()
            }
        }
    }

    /// Text as it is; `None` when it is not set and has no default.
    pub fn text(&mut self, name: &'static str) -> Option<String> {
        self.parsed(name, "", |text| Ok(text.to_owned()))
    }

    /// A duration above zero.
    ///
    /// # Panics
    /// When the table has no default for it; so do all that give a plain value.
    pub fn duration(&mut self, name: &'static str) -> Duration {
        self.optional_duration(name)
            .unwrap_or_else(|| no_default(name))
    }

    /// A duration, zero included.
    pub fn duration_or_zero(&mut self, name: &'static str) -> Duration {
        self.parsed(name, "", |text| Ok(parse::duration(text)?))
            .unwrap_or_else(|| no_default(name))
    }

    /// A duration above zero, or `None` when it is not set.
    pub fn optional_duration(&mut self, name: &'static str) -> Option<Duration> {
        self.parsed(name, "", |text| {
            let duration = parse::duration(text)?;
            if duration.is_zero() {
                return Err(format!("{}, above zero", parse::DURATION));
            }
            Ok(duration)
        })
    }

    /// A comma-separated list of durations above zero.
    pub fn durations(&mut self, name: &'static str) -> Vec<Duration> {
        let form = format!(
            "a comma-separated list, each {}, above zero",
            parse::DURATION
        );
        self.list(name, &form, |item| {
            parse::duration(item).ok().filter(|d| !d.is_zero())
        })
    }

    /// A whole number within `range`.
    pub fn count(&mut self, name: &'static str, range: RangeInclusive<usize>) -> usize {
        self.optional_count(name, range)
            .unwrap_or_else(|| no_default(name))
    }

    /// A whole number within `range`, or `None` when it is not set.
    pub fn optional_count(
        &mut self,
        name: &'static str,
        range: RangeInclusive<usize>,
    ) -> Option<usize> {
        self.parsed(name, "", |text| {
            let number = text.parse().ok().filter(|number| range.contains(number));
            number
                .ok_or_else(|| format!("a whole number from {} to {}", range.start(), range.end()))
        })
    }

    /// A size in bytes within `range`.
    pub fn size(&mut self, name: &'static str, range: RangeInclusive<usize>) -> usize {
        self.parsed(name, "", |text| {
            let bytes = parse::size(text)?;
            if range.contains(&bytes) {
                return Ok(bytes);
            }
            Err(format!(
                "{}, from {} to {} bytes",
                parse::SIZE,
                range.start(),
                range.end()
            ))
        })
        .unwrap_or_else(|| no_default(name))
    }

    /// A switch.
    pub fn flag(&mut self, name: &'static str) -> bool {
        self.parsed(name, "", |text| Ok(parse::flag(text)?))
            .unwrap_or_else(|| no_default(name))
    }

    /// An address to listen on.
    pub fn address(&mut self, name: &'static str) -> SocketAddr {
        self.parsed(name, "", |text| Ok(parse::address(text)?))
            .unwrap_or_else(|| no_default(name))
    }

    /// A comma-separated list of addresses with ports; empty when it is not set.
    pub fn addresses(&mut self, name: &'static str) -> Vec<SocketAddr> {
        let form = "a comma-separated list of addresses such as 192.0.2.53:53";
        self.list(name, form, |item| parse::address(item).ok())
    }

    /// A comma-separated list of networks; empty when it is not set.
    pub fn nets(&mut self, name: &'static str) -> Vec<IpNet> {
        self.list(name, parse::NET, |item| parse::net(item).ok())
    }

    /// A comma-separated list of words; empty when it is not set.
    pub fn words(&mut self, name: &'static str) -> Vec<String> {
        let form = self.setting(name).form;
        self.list(name, form, |item| Some(item.to_owned()))
    }

    /// A comma-separated list of secrets; empty when it is not set.
    pub fn secrets(&mut self, name: &'static str) -> Vec<Secret<String>> {
        let form = self.setting(name).form;
        self.list(name, form, |item| Some(Secret::new(item.to_owned())))
    }

    /// A secret; `None` when it is not set.
    pub fn secret(&mut self, name: &'static str) -> Option<Secret<String>> {
        self.parsed(name, "", |text| Ok(Secret::new(text.to_owned())))
    }

    /// The URL of a forward proxy; `None` when it is not set.
    pub fn proxy(&mut self, name: &'static str) -> Option<Url> {
        self.parsed(name, "", |text| Ok(parse::proxy(text)?))
    }

    /// The URL of a Postgres database, checked but kept as text, because it holds a password.
    pub fn postgres_url(&mut self, name: &'static str) -> Option<Secret<String>> {
        self.parsed(name, "", |text| {
            parse::postgres_url(text)?;
            Ok(Secret::new(text.to_owned()))
        })
    }

    /// A comma-separated list; empty when it is not set.
    pub fn list<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Vec<T> {
        self.parsed(name, expected, |text| {
            let items = parse::list(text)?;
            let values: Option<Vec<T>> = items.into_iter().map(&parse).collect();
            values.ok_or_else(String::new)
        })
        .unwrap_or_default()
    }

    /// The text of a setting; an empty one counts as not set, as compose files write it.
    fn text_of(&self, setting: &Setting) -> Option<String> {
        (self.lookup)(setting.name)
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty())
            .or_else(|| setting.default_for(self.binary).map(str::to_owned))
    }

    fn setting(&self, name: &str) -> &'static Setting {
        let Some(setting) = setting(name) else {
            unreachable!("{name} is not in the table of settings");
        };
        assert!(
            setting.used_by.contains(&self.binary),
            "the table does not say that {:?} uses {name}",
            self.binary
        );
        setting
    }
}

impl Mask {
    /// What may be shown of a value.
    #[must_use]
    pub fn apply(self, value: &str) -> String {
        match self {
            Self::Nothing => value.to_owned(),
            Self::Password => mask_url(value),
            Self::All => "***".to_owned(),
        }
    }
}

fn no_default<T>(name: &str) -> T {
    unreachable!("{name} is read as a plain value but the table has no usable default for it")
}
