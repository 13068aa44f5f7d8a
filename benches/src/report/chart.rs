//! Points on a logarithmic axis: the lock, its store's bare operations, and how far they are apart.

use super::words::{compared, escape, more_is_better, ratio, value};
use super::{Figure, Report, Topic, Unit};

/// The size of a drawing, in its own units; the page scales it.
pub(super) const WIDTH: f64 = 900.0;
const LEFT: f64 = 270.0;
const RIGHT: f64 = 735.0;
const ROW: f64 = 24.0;
const GAP: f64 = 14.0;
const TOP: f64 = 44.0;

/// A logarithmic axis from whole decade to whole decade.
pub(super) struct Axis {
    low: i32,
    high: i32,
    from: f64,
    to: f64,
}

impl Axis {
    /// For these values; `None` if none of them can be shown.
    pub(super) fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| *value > 0.0 && value.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        if high == 0.0 {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a few hundred decades at most"
        )]
        let decades = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let (low, high) = decades;
        let high = high.max(low + 1);
        Some(Self {
            low,
            high,
            from,
            to,
        })
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let part = (value.max(f64::MIN_POSITIVE).log10() - f64::from(self.low))
            / f64::from(self.high - self.low);
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// The decades, except where their labels would overlap.
    pub(super) fn marks(&self) -> impl Iterator<Item = (f64, f64)> {
        let step = usize::try_from((self.high - self.low) / 9 + 1).unwrap_or(1);
        let decades = (self.low..=self.high).step_by(step);
        decades.map(|decade| {
            let value = 10_f64.powi(decade);
            (value, self.at(value))
        })
    }
}

/// The number of a store's colour.
pub(super) fn color(report: &Report, store: &str) -> usize {
    let place = report.stores.iter().position(|known| known.label == store);
    place.unwrap_or(0) % 8
}

/// The chart of one quantity of a topic; `None` if it is better read in a table.
pub(super) fn draw(report: &Report, topic: Topic, what: &str) -> Option<String> {
    let figures: Vec<&Figure> = report.of(topic).filter(|it| it.what == what).collect();
    let unit = figures.first()?.unit;
    if !matches!(unit, Unit::Seconds | Unit::PerSecond | Unit::Trips) {
        return None;
    }
    let sides = figures
        .iter()
        .flat_map(|figure| [Some(&figure.lock), figure.bare.as_ref()]);
    let values = sides
        .flatten()
        .flat_map(|spread| [spread.median, spread.low, spread.high]);
    let axis = Axis::over(values, LEFT, RIGHT)?;
    let mut cases: Vec<&str> = Vec::new();
    for figure in &figures {
        if !cases.contains(&&*figure.case) {
            cases.push(&figure.case);
        }
    }
    let (mut y, mut body) = (TOP, String::new());
    for case in cases {
        y += GAP;
        for (index, figure) in figures.iter().filter(|it| it.case == case).enumerate() {
            if index == 0 {
                body.push_str(&text(0.0, y + 4.0, "case", "start", case));
            }
            body.push_str(&row(report, figure, &axis, y));
            y += ROW;
        }
    }
    let height = y + 4.0;
    let better = if more_is_better(unit) {
        "more is better →"
    } else {
        "← less is better"
    };
    let label = escape(&format!("{what}, by store; {better}"));
    let mut svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{label}\">\n");
    svg.push_str(&text(0.0, 14.0, "what", "start", what));
    svg.push_str(&text(RIGHT, 14.0, "better", "end", better));
    svg.push_str(&text(WIDTH, 14.0, "better", "end", compared(topic)));
    for (decade, x) in axis.marks() {
        svg.push_str(&format!(
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{height}\"/>\n"
        ));
        svg.push_str(&text(x, TOP - 8.0, "tick", "middle", &mark(decade, unit)));
    }
    svg.push_str(&body);
    svg.push_str("</svg>\n");
    Some(svg)
}

fn row(report: &Report, figure: &Figure, axis: &Axis, y: f64) -> String {
    let store = color(report, &figure.store);
    let shown = value(figure.lock.median, figure.unit);
    let mut title = format!(
        "{}, {}: {}, {shown}",
        figure.store, figure.case, figure.what
    );
    let x = axis.at(figure.lock.median);
    let mut marks = String::new();
    if let Some(bare) = &figure.bare {
        let other = axis.at(bare.median);
        let class = if figure.noisy { "link noisy" } else { "link" };
        marks.push_str(&format!(
            "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{other:.1}\" y1=\"{y}\" y2=\"{y}\"/>\
             <circle class=\"bare\" cx=\"{other:.1}\" cy=\"{y}\" r=\"5\"/>"
        ));
        title.push_str(&format!("; bare {}", value(bare.median, figure.unit)));
    }
    let (low, high) = (axis.at(figure.lock.low), axis.at(figure.lock.high));
    marks.push_str(&format!(
        "<line class=\"spread\" x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{y}\" y2=\"{y}\"/>\
         <circle class=\"lock\" cx=\"{x:.1}\" cy=\"{y}\" r=\"6\"/>"
    ));
    let base = y + 4.0;
    let class = if figure.noisy {
        "number noisy"
    } else {
        "number"
    };
    let ratio = ratio(figure).unwrap_or_default();
    format!(
        "<g class=\"row c{store}\"><title>{}</title>{}{marks}{}{}</g>\n",
        escape(&title),
        text(LEFT - 14.0, base, "store", "end", &figure.store),
        text(WIDTH - 80.0, base, "number", "end", &shown),
        text(WIDTH, base, class, "end", &ratio),
    )
}

/// The label of a decade: without the digits behind the point, which are noughts.
pub(super) fn mark(decade: f64, unit: Unit) -> String {
    let label = value(decade, unit);
    match label.split_once('.') {
        Some((whole, rest)) if whole != "0" => {
            format!("{whole}{}", rest.trim_start_matches('0'))
        }
        _ => label,
    }
}

/// A piece of text.
pub(super) fn text(x: f64, y: f64, class: &str, anchor: &str, words: &str) -> String {
    let words = escape(words);
    format!(
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_goes_from_decade_to_decade() {
        let axis = Axis::over([0.0, 2e-6, 5e-3].into_iter(), 0.0, 400.0).unwrap();
        assert_eq!((axis.low, axis.high), (-6, -2));
        assert_eq!(axis.at(1e-6), 0.0);
        assert!((axis.at(1e-4) - 200.0).abs() < 1e-9);
        assert_eq!(axis.at(0.0), 0.0, "what is off the axis stays at its end");
        assert_eq!(axis.marks().count(), 5);
        assert_eq!(mark(1e-5, Unit::Seconds), "10 µs");
        assert_eq!(mark(1e3, Unit::PerSecond), "1 k/s");
        assert_eq!(mark(0.1, Unit::Trips), "0.10");
        assert!(Axis::over([0.0].into_iter(), 0.0, 1.0).is_none());
    }
}
