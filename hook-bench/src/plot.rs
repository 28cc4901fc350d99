//! Curves over time as a picture: one panel below the other, written as SVG by hand.

use std::{fmt::Write as _, path::Path};

const WIDTH: f64 = 720.0;
const PANEL: f64 = 150.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 26.0;

/// Marks on either axis, about.
const MARKS: f64 = 5.0;

/// Colours that stay apart in print and for the colour-blind.
pub(crate) const BLUE: &str = "#4477aa";
pub(crate) const RED: &str = "#cc3311";
pub(crate) const GREEN: &str = "#228833";
pub(crate) const YELLOW: &str = "#ccaa22";

/// Curves that share a scale.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) scale: Scale,
    /// The unit of time, below the panel.
    pub(crate) unit: &'static str,
    pub(crate) curves: Vec<Curve>,
}

/// How values become heights.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scale {
    /// From zero to the largest value.
    Linear,
    /// Each power of ten as high as the next; what is outside is drawn at the edge.
    Logarithmic { from: f64, to: f64 },
}

#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) name: &'static str,
    pub(crate) colour: &'static str,
    /// Times and values.
    pub(crate) points: Vec<(f64, f64)>,
}

pub(crate) fn write(path: &Path, panels: &[Panel]) -> std::io::Result<()> {
    std::fs::write(path, draw(panels))
}

#[expect(clippy::cast_precision_loss, reason = "panels are few")]
fn draw(panels: &[Panel]) -> String {
    let height = PANEL * panels.len() as f64 + 10.0;
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>"#
    );
    for (index, panel) in panels.iter().enumerate() {
        let frame = Frame {
            panel,
            top: PANEL * index as f64,
            end: panel.largest(|(time, _)| *time),
            highest: panel.largest(|(_, value)| *value),
        };
        frame.title(&mut svg);
        frame.marks(&mut svg);
        for curve in &panel.curves {
            frame.curve(curve, &mut svg);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

impl Panel {
    /// Never zero, so that there is something to divide by.
    fn largest(&self, of: impl Fn(&(f64, f64)) -> f64) -> f64 {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        points.map(of).fold(f64::MIN_POSITIVE, f64::max)
    }
}

struct Frame<'a> {
    panel: &'a Panel,
    top: f64,
    end: f64,
    highest: f64,
}

impl Frame<'_> {
    fn x(&self, time: f64) -> f64 {
        LEFT + time / self.end * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let part = match self.panel.scale {
            Scale::Linear => value / self.highest,
            Scale::Logarithmic { from, to } => {
                (value.clamp(from, to) / from).ln() / (to / from).ln()
            }
        };
        self.top + PANEL - BOTTOM - part * (PANEL - TOP - BOTTOM)
    }

    fn title(&self, svg: &mut String) {
        let (y, title) = (self.top + 20.0, &self.panel.title);
        put(svg, format_args!(r#"<text x="{LEFT}" y="{y}">{title}"#));
        for Curve { name, colour, .. } in &self.panel.curves {
            put(
                svg,
                format_args!(r#" <tspan fill="{colour}">{name}</tspan>"#),
            );
        }
        svg.push_str("</text>");
    }

    fn marks(&self, svg: &mut String) {
        let values = match self.panel.scale {
            Scale::Linear => steps(self.highest),
            Scale::Logarithmic { from, to } => {
                let mut value = from;
                let powers = std::iter::from_fn(|| {
                    value *= 10.0;
                    (value <= to * 1.001).then_some(value)
                });
                powers.collect()
            }
        };
        for value in values {
            let (y, end, text) = (self.y(value), WIDTH - RIGHT, LEFT - 6.0);
            let shown = shown(value);
            put(
                svg,
                format_args!(
                    r##"<line x1="{LEFT}" x2="{end}" y1="{y:.1}" y2="{y:.1}" stroke="#ddd"/><text x="{text}" y="{y:.1}" text-anchor="end">{shown}</text>"##
                ),
            );
        }
        for time in steps(self.end) {
            let (x, y) = (self.x(time), self.top + PANEL - 8.0);
            let (shown, unit) = (shown(time), self.panel.unit);
            put(
                svg,
                format_args!(
                    r#"<text x="{x:.1}" y="{y}" text-anchor="middle">{shown} {unit}</text>"#
                ),
            );
        }
    }

    fn curve(&self, curve: &Curve, svg: &mut String) {
        let mut points = String::new();
        for (time, value) in &curve.points {
            put(
                &mut points,
                format_args!("{:.1},{:.1} ", self.x(*time), self.y(*value)),
            );
        }
        let colour = curve.colour;
        put(
            svg,
            format_args!(
                r#"<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>"#
            ),
        );
    }
}

/// Round numbers from zero to `end`: one, two or five times a power of ten apart.
fn steps(end: f64) -> Vec<f64> {
    let power = 10_f64.powf((end / MARKS).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| end / step <= MARKS)
        .unwrap_or(end);
    let numbers = (0_u32..).map(|number| f64::from(number) * step);
    // The last mark may be above the end by what floating point adds.
    numbers
        .take_while(|number| *number <= end * 1.001)
        .collect()
}

/// A mark's text: as many digits as it needs, at most three behind the point.
fn shown(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn put(into: &mut String, text: std::fmt::Arguments<'_>) {
    into.write_fmt(text).expect("writing to a string");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(scale: Scale) -> Panel {
        let curve = |name, highest| Curve {
            name,
            colour: BLUE,
            points: vec![(0.0, 1.0), (60.0, highest)],
        };
        Panel {
            title: "size:".to_owned(),
            scale,
            unit: "min",
            curves: vec![curve("one", 10.0), curve("two", 1200.0)],
        }
    }

    #[test]
    fn a_panel_shows_its_curves_on_one_scale() {
        let log = Scale::Logarithmic {
            from: 1.0,
            to: 1000.0,
        };
        let svg = draw(&[panel(Scale::Linear), panel(log)]);
        assert_eq!(svg.matches("<polyline").count(), 4);
        assert!(svg.contains("size: <tspan"), "{svg}");
        // The end of the second curve is at the top right of its panel, also where it is cut off.
        assert!(svg.contains("700.0,34.0 "), "{svg}");
        assert!(svg.contains("700.0,184.0 "), "{svg}");
        assert!(svg.contains(">60 min<") && svg.contains(">1000<"), "{svg}");
        assert!(svg.ends_with("</svg>\n"));
    }

    #[test]
    fn marks_are_round_numbers() {
        assert_eq!(steps(60.0), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(steps(1200.0), [0.0, 500.0, 1000.0]);
        assert_eq!(steps(0.3).len(), 4);
        assert_eq!((shown(0.1), shown(1000.0)), ("0.1".into(), "1000".into()));
    }
}
