//! What a scenario found: tables of figures, and the lines that it has to pass.
//!
//! Every run of a scenario gives findings of the same shape, so that the median of several can be
//! taken figure by figure.

use std::fmt;

use serde::{Serialize, Serializer, ser::SerializeMap as _};

use crate::machine::Machine;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// Its name for programs.
    pub(crate) key: &'static str,
    /// Its name for people.
    pub(crate) head: &'static str,
    /// Digits behind the point.
    pub(crate) digits: usize,
}

/// Describes a column, in a constant.
pub(crate) const fn column(key: &'static str, head: &'static str, digits: usize) -> Column {
    Column { key, head, digits }
}

/// One figure; `None` where there is nothing to measure.
pub(crate) type Figure = Option<f64>;

#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: &'static [Column],
    rows: Vec<(String, Vec<Figure>)>,
}

/// On which side of its limit a figure should be.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    AtLeast,
    AtMost,
}

/// A figure that has a limit.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) side: Side,
    pub(crate) limit: f64,
}

/// What one run found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    pub(crate) tables: Vec<Table>,
    pub(crate) lines: Vec<Line>,
}

/// What a scenario found, ready to be printed.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    scenario: &'static str,
    runs: usize,
    machine: Machine,
    load_after: f64,
    tables: Vec<Table>,
    lines: Vec<Line>,
}

impl Table {
    pub(crate) fn new(title: impl Into<String>, columns: &'static [Column]) -> Self {
        Self {
            title: title.into(),
            columns,
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, name: impl Into<String>, figures: Vec<Figure>) {
        assert_eq!(figures.len(), self.columns.len(), "one figure a column");
        self.rows.push((name.into(), figures));
    }
}

impl Line {
    pub(crate) fn at_least(what: impl Into<String>, value: f64, limit: f64) -> Self {
        Self {
            what: what.into(),
            value,
            side: Side::AtLeast,
            limit,
        }
    }

    pub(crate) fn at_most(what: impl Into<String>, value: f64, limit: f64) -> Self {
        Self {
            what: what.into(),
            value,
            side: Side::AtMost,
            limit,
        }
    }

    fn holds(&self) -> bool {
        match self.side {
            Side::AtLeast => self.value >= self.limit,
            Side::AtMost => self.value <= self.limit,
        }
    }
}

impl Findings {
    /// The median of each figure over several runs; `None` if there was no run.
    pub(crate) fn median(runs: &[Self]) -> Option<Self> {
        let mut merged = runs.first()?.clone();
        for (t, table) in merged.tables.iter_mut().enumerate() {
            for (r, (_, figures)) in table.rows.iter_mut().enumerate() {
                for (c, figure) in figures.iter_mut().enumerate() {
                    let of_run = |run: &Self| run.tables.get(t)?.rows.get(r)?.1.get(c).copied()?;
                    *figure = middle(runs.iter().filter_map(of_run).collect());
                }
            }
        }
        for (l, line) in merged.lines.iter_mut().enumerate() {
            let values = runs.iter().filter_map(|run| Some(run.lines.get(l)?.value));
            if let Some(value) = middle(values.collect()) {
                line.value = value;
            }
        }
        Some(merged)
    }
}

/// The middle value; of an even number of values, the lower one of the middle.
fn middle(mut values: Vec<f64>) -> Figure {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

impl Report {
    pub(crate) fn new(
        scenario: &'static str,
        runs: usize,
        machine: Machine,
        findings: Findings,
    ) -> Self {
        Self {
            scenario,
            runs,
            machine,
            load_after: crate::machine::load(),
            tables: findings.tables,
            lines: findings.lines,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine {
            cores,
            memory_gib,
            kernel,
            postgres,
            load_before,
            optimised,
            durable,
        } = &self.machine;
        write!(
            f,
            "hook bench {}, median of {} run(s); {cores} cores, {memory_gib} GiB, Linux {kernel}, \
             PostgreSQL {postgres}; load average before {load_before}, after {}",
            self.scenario, self.runs, self.load_after
        )?;
        if !optimised {
            write!(f, "\nA debug build: times and CPU mean nothing.")?;
        }
        if !durable {
            write!(f, "\nPostgres in memory: it waited for no disk.")?;
        }
        for table in &self.tables {
            write!(f, "\n\n{table}")?;
        }
        if !self.lines.is_empty() {
            writeln!(f)?;
        }
        for line in &self.lines {
            write!(f, "\n{line}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = self.columns.iter().map(|column| column.head.to_owned());
        let mut lines = vec![(self.title.clone(), heads.collect::<Vec<_>>())];
        for (name, figures) in &self.rows {
            let cells = figures.iter().zip(self.columns);
            let cells = cells.map(|(figure, column)| shown(*figure, column.digits));
            lines.push((name.clone(), cells.collect()));
        }
        let width = |cells: &mut dyn Iterator<Item = usize>| cells.max().unwrap_or(0);
        let first = width(&mut lines.iter().map(|(name, _)| name.chars().count()));
        for (index, (name, cells)) in lines.iter().enumerate() {
            let end = if index > 0 { "\n" } else { "" };
            write!(f, "{end}{name:first$}")?;
            for (column, cell) in cells.iter().enumerate() {
                let of_column = |(_, cells): &(String, Vec<String>)| cells[column].chars().count();
                let wide = width(&mut lines.iter().map(of_column));
                write!(f, "  {cell:>wide$}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.holds() { "holds " } else { "MISSED" };
        let side = match self.side {
            Side::AtLeast => "at least",
            Side::AtMost => "at most",
        };
        let value = shown(Some(self.value), if self.value < 100.0 { 3 } else { 0 });
        write!(
            f,
            "{verdict}  {}: {value}, {side} {}",
            self.what, self.limit
        )
    }
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(5))?;
        map.serialize_entry("what", &self.what)?;
        map.serialize_entry("value", &self.value)?;
        map.serialize_entry("side", &self.side)?;
        map.serialize_entry("limit", &self.limit)?;
        map.serialize_entry("holds", &self.holds())?;
        map.end()
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = |(name, figures): &(String, Vec<Figure>)| {
            let figures = self.columns.iter().zip(figures);
            let mut row: serde_json::Map<_, _> = figures
                .map(|(column, figure)| (column.key.to_owned(), (*figure).into()))
                .collect();
            row.insert("name".to_owned(), name.clone().into());
            row
        };
        let rows: Vec<_> = self.rows.iter().map(row).collect();
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("title", &self.title)?;
        map.serialize_entry("rows", &rows)?;
        map.end()
    }
}

/// Writes a figure with thousands set apart.
fn shown(figure: Figure, digits: usize) -> String {
    let Some(value) = figure else {
        return "-".to_owned();
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, whole) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[column("jobs", "jobs/s", 0), column("p50", "p50 ms", 1)];

    fn findings(jobs: f64) -> Findings {
        let mut table = Table::new("load", COLUMNS);
        table.row("full", vec![Some(jobs), None]);
        Findings {
            tables: vec![table],
            lines: vec![Line::at_least("jobs", jobs, 2000.0)],
        }
    }

    #[test]
    fn the_median_is_taken_figure_by_figure() {
        let runs = [findings(3000.0), findings(1000.0), findings(1234.5)];
        let median = Findings::median(&runs).unwrap();
        assert_eq!(
            median.tables[0].to_string(),
            "load  jobs/s  p50 ms\nfull   1,234       -"
        );
        assert_eq!(
            median.lines[0].to_string(),
            "MISSED  jobs: 1,234, at least 2000"
        );
        assert!(Findings::median(&[]).is_none());
    }

    #[test]
    fn programs_get_numbers_under_fixed_names() {
        let json = serde_json::to_value(&findings(5000.0).tables[0]).unwrap();
        assert_eq!(json["rows"][0]["jobs"], 5000.0);
        assert_eq!(json["rows"][0]["name"], "full");
        let json = serde_json::to_value(&findings(5000.0).lines[0]).unwrap();
        assert_eq!(json["holds"], true);
        assert_eq!(json["side"], "at_least");
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(shown(Some(1_234_567.0), 0), "1,234,567");
        assert_eq!(shown(Some(-1234.56), 1), "-1,234.6");
        assert_eq!(shown(Some(12.0), 2), "12.00");
    }
}
