//! Healthy latency over time as a picture: one panel per scenario, base and sick run in it.

use std::{fmt::Write as _, path::Path};

use super::healthy::Healthy;

const WIDTH: f64 = 720.0;
const PANEL: f64 = 150.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 26.0;

/// The scale of the latency is logarithmic, from a tenth of a millisecond to ten seconds.
const FROM_MS: f64 = 0.1;
const TO_MS: f64 = 10_000.0;

/// One panel: its title, the base run and the sick one.
type Curve = (&'static str, Healthy, Healthy);

/// Draws p99 per second of each scenario.
pub(super) fn write(path: &Path, curves: &[Curve]) -> std::io::Result<()> {
    std::fs::write(path, draw(curves))
}

#[expect(clippy::cast_precision_loss, reason = "panels and seconds are few")]
fn draw(curves: &[Curve]) -> String {
    let height = PANEL * curves.len() as f64 + 10.0;
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>"#
    );
    for (index, (title, base, sick)) in curves.iter().enumerate() {
        let panel = Panel {
            top: PANEL * index as f64,
            seconds: base.seconds.len().max(sick.seconds.len()).max(2),
        };
        panel.frame(title, &mut svg);
        panel.line(base, "#4477aa", &mut svg);
        panel.line(sick, "#cc3311", &mut svg);
    }
    svg.push_str("</svg>\n");
    svg
}

struct Panel {
    top: f64,
    seconds: usize,
}

impl Panel {
    #[expect(clippy::cast_precision_loss, reason = "seconds are few")]
    fn x(&self, second: usize) -> f64 {
        let part = second as f64 / (self.seconds - 1) as f64;
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, ms: f64) -> f64 {
        let part = (ms.clamp(FROM_MS, TO_MS) / FROM_MS).ln() / (TO_MS / FROM_MS).ln();
        self.top + PANEL - BOTTOM - part * (PANEL - TOP - BOTTOM)
    }

    fn frame(&self, title: &str, svg: &mut String) {
        let y = self.top + 20.0;
        put(
            svg,
            format_args!(
                r##"<text x="{LEFT}" y="{y}">{title}: healthy p99 of each second in ms; <tspan fill="#4477aa">base</tspan>, <tspan fill="#cc3311">sick</tspan></text>"##
            ),
        );
        for ms in [1.0, 10.0, 100.0, 1000.0, 10_000.0] {
            let (y, end, text) = (self.y(ms), WIDTH - RIGHT, LEFT - 6.0);
            put(
                svg,
                format_args!(
                    r##"<line x1="{LEFT}" x2="{end}" y1="{y:.1}" y2="{y:.1}" stroke="#ddd"/><text x="{text}" y="{y:.1}" text-anchor="end">{ms}</text>"##
                ),
            );
        }
        for second in (0..self.seconds).step_by(5) {
            let (x, y) = (self.x(second), self.top + PANEL - 8.0);
            put(
                svg,
                format_args!(r#"<text x="{x:.1}" y="{y}" text-anchor="middle">{second} s</text>"#),
            );
        }
    }

    fn line(&self, healthy: &Healthy, colour: &str, svg: &mut String) {
        let mut points = String::new();
        for (second, latency) in healthy.seconds.iter().enumerate() {
            let (x, y) = (self.x(second), self.y(latency.p99));
            put(&mut points, format_args!("{x:.1},{y:.1} "));
        }
        put(
            svg,
            format_args!(
                r#"<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>"#
            ),
        );
    }
}

fn put(into: &mut String, text: std::fmt::Arguments<'_>) {
    into.write_fmt(text).expect("writing to a string");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latency;

    #[test]
    fn a_panel_shows_both_runs_on_one_scale() {
        let run = |p99| Healthy {
            seconds: vec![
                Latency {
                    p99,
                    ..Latency::default()
                };
                3
            ],
            ..Healthy::default()
        };
        let svg = draw(&[("hang", run(1.0), run(100.0))]);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains("hang: healthy p99"));
        assert!(svg.ends_with("</svg>\n"));
    }
}
