//! A scrape in the Prometheus text format.

use std::collections::BTreeMap;

/// The samples of one scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(Vec<Sample>);

/// One sample line.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name of the series, with suffixes such as `_bucket`.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

impl Metrics {
    /// Parses the text of a scrape.
    ///
    /// # Errors
    /// The first line that is neither a comment nor a sample.
    pub fn parse(text: &str) -> Result<Self, String> {
        text.lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| parse_sample(line).ok_or_else(|| line.to_owned()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The samples of one name whose labels have these values.
    pub fn select<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.0.iter().filter(move |sample| {
            sample.name == name
                && labels
                    .iter()
                    .all(|(label, value)| sample.labels.get(*label).is_some_and(|own| own == value))
        })
    }

    /// The sum over the samples that [`Self::select`] gives; 0 without any.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.select(name, labels).map(|sample| sample.value).sum()
    }

    /// The value of a name, if it has exactly one sample.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        let mut found = self.select(name, &[]);
        let first = found.next()?;
        found.next().is_none().then_some(first.value)
    }

    /// All samples.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.0
    }
}

fn parse_sample(line: &str) -> Option<Sample> {
    let name_end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(name_end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => parse_labels(inside)?,
        None => (BTreeMap::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

/// Parses `a="b",c="d"} rest`, where a value may hold any character.
fn parse_labels(mut text: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = rest.char_indices();
        let end = loop {
            match characters.next()? {
                (place, '"') => break place,
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.insert(name.to_owned(), value);
        text = &rest[end + 1..];
        text = text.strip_prefix(',').unwrap_or(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_by_name_and_labels() {
        let text = "# HELP a b\n# TYPE a counter\n\
            a_total{queue=\"primary\",x=\"1\"} 3\na_total{queue=\"degraded\",x=\"1\"} 4 1700\n\
            up 1\nwide{le=\"+Inf\"} +Inf\n";
        let metrics = Metrics::parse(text).unwrap();
        assert_eq!(metrics.sum("a_total", &[]), 7.0);
        assert_eq!(
            metrics.sum("a_total", &[("queue", "primary"), ("x", "1")]),
            3.0
        );
        assert_eq!(metrics.sum("a_total", &[("queue", "none")]), 0.0);
        assert_eq!(metrics.value("up"), Some(1.0));
        assert_eq!(metrics.value("a_total"), None);
        assert_eq!(metrics.value("wide"), Some(f64::INFINITY));
    }

    #[test]
    fn a_label_value_may_hold_any_character() {
        let metrics = Metrics::parse(r#"a{t="x\"},\\ y\n",u=""} 2.5e1"#).unwrap();
        let sample = &metrics.samples()[0];
        assert_eq!(sample.labels["t"], "x\"},\\ y\n");
        assert_eq!(sample.labels["u"], "");
        assert_eq!(sample.value, 25.0);
    }

    #[test]
    fn a_line_that_is_not_a_sample_is_an_error() {
        for line in ["a", "a{b=\"c\" 1", "a one"] {
            assert_eq!(Metrics::parse(line), Err(line.to_owned()));
        }
    }
}
