//! What a service says about itself under `/metrics`.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};

use crate::http::Connection;

/// The text of one scrape.
pub(crate) struct Scrape(String);

/// A histogram since its process began: upper bounds in seconds, and how many values are at or
/// below each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buckets(Vec<(f64, f64)>);

impl Scrape {
    /// Asks the service that has its ops listener here.
    pub(crate) async fn of(ops: SocketAddr) -> anyhow::Result<Self> {
        let answer = Connection::open(ops).await?.get("/metrics").await?;
        ensure!(
            answer.status.is_success(),
            "metrics: status {}",
            answer.status
        );
        let text = String::from_utf8(answer.body.to_vec()).context("reading metrics")?;
        Ok(Self(text))
    }

    /// The sum over the samples of this name that have the label, given as `name="value"`; an
    /// empty label is on every sample.
    pub(crate) fn sum(&self, name: &str, label: &str) -> f64 {
        self.samples(name, label).map(|(_, value)| value).sum()
    }

    /// The histogram of this name, with the label.
    fn buckets(&self, name: &str, label: &str) -> Buckets {
        let bucket = format!("{name}_bucket");
        let samples = self.samples(&bucket, label);
        let bounds = samples.filter_map(|(labels, count)| {
            let (_, after) = labels.split_once("le=\"")?;
            Some((after.split('"').next()?.parse().ok()?, count))
        });
        let mut bounds: Vec<(f64, f64)> = bounds.collect();
        bounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        Buckets(bounds)
    }

    /// What a worker's claims took, of those that found jobs.
    pub(crate) fn claims(&self) -> Buckets {
        self.buckets("hook_worker_dequeue_duration_seconds", "result=\"jobs\"")
    }

    fn samples(&self, name: &str, label: &str) -> impl Iterator<Item = (&str, f64)> {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = match rest.strip_prefix('{') {
                Some(labelled) => labelled.rsplit_once("} ")?,
                None => ("", rest.strip_prefix(' ')?),
            };
            let value = value.parse().ok()?;
            labels.contains(label).then_some((labels, value))
        })
    }
}

impl Buckets {
    /// The value that this share of what was counted since `before` stays below, within the
    /// bucket by a straight line; `None` if nothing was.
    pub(crate) fn quantile_since(&self, before: &Self, share: f64) -> Option<f64> {
        let since = |index: usize| {
            let earlier = before.0.get(index).map_or(0.0, |(_, count)| *count);
            self.0[index].1 - earlier
        };
        let all = since(self.0.len().checked_sub(1)?);
        let wanted = all * share;
        let index = (0..self.0.len()).find(|index| since(*index) >= wanted)?;
        let (low, below) = match index.checked_sub(1) {
            Some(lower) => (self.0[lower].0, since(lower)),
            None => (0.0, 0.0),
        };
        let high = self.0[index].0;
        let part = (wanted - below) / (since(index) - below);
        let value = if high.is_finite() {
            low + (high - low) * part
        } else {
            low
        };
        (all > 0.0).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_name_and_label() {
        let text = "# TYPE a counter\na{x=\"1\",y=\"2\"} 3\na{x=\"2\"} 4\na_more{x=\"1\"} 9\nb 5\n";
        let scrape = Scrape(text.to_owned());
        assert_eq!(scrape.sum("a", ""), 7.0);
        assert_eq!(scrape.sum("a", "x=\"1\""), 3.0);
        assert_eq!(scrape.sum("b", ""), 5.0);
        assert_eq!(scrape.sum("c", ""), 0.0);
    }

    #[test]
    fn a_quantile_is_of_what_was_counted_between_two_scrapes() {
        let scrape = |counts: [u32; 3]| {
            let [one, two, all] = counts;
            let text = format!(
                "t_bucket{{r=\"x\",le=\"+Inf\"}} {all}\nt_bucket{{r=\"x\",le=\"1\"}} {one}\n\
                 t_bucket{{r=\"x\",le=\"2\"}} {two}\n"
            );
            Scrape(text).buckets("t", "r=\"x\"")
        };
        let before = scrape([100, 100, 100]);
        assert_eq!(
            scrape([100, 200, 200]).quantile_since(&before, 0.5),
            Some(1.5)
        );
        assert_eq!(
            scrape([150, 150, 250]).quantile_since(&before, 0.99),
            Some(2.0)
        );
        assert_eq!(before.quantile_since(&before, 0.99), None);
    }
}
