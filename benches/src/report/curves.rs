//! Latencies by how many of them there are: the further to the right, the rarer.

use super::chart::{Axis, WIDTH, color, mark, text};
use super::words::escape;
use super::{Curve, Report, Topic, Unit};
use crate::side::Side;

const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 16.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 300.0;
const HEIGHT: f64 = 328.0;
/// From the fastest to one in ten thousand.
const DECADES: f64 = 4.0;

/// The chart of one case; `None` if it has no curves.
pub(super) fn draw(report: &Report, topic: Topic, case: &str, what: &str) -> Option<String> {
    let of = |curve: &&Curve| curve.topic == topic && curve.case == case;
    let curves: Vec<&Curve> = report.curves.iter().filter(of).collect();
    let seconds = curves
        .iter()
        .flat_map(|curve| curve.points.iter().map(|point| point.1));
    let axis = Axis::over(seconds, BOTTOM, TOP)?;
    let label = escape(&format!("{what} by rarity; lower is better"));
    let mut svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">\n");
    svg.push_str(&text(0.0, 14.0, "what", "start", what));
    svg.push_str(&text(
        RIGHT,
        14.0,
        "better",
        "end",
        "lower is better; solid the lock, dashed the bare operations",
    ));
    for (decade, y) in axis.marks() {
        svg.push_str(&format!(
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\n"
        ));
        let label = mark(decade, Unit::Seconds);
        svg.push_str(&text(LEFT - 8.0, y + 4.0, "tick", "end", &label));
    }
    for (part, label) in [
        (0.0, "fastest"),
        (0.9, "90 %"),
        (0.99, "99 %"),
        (0.999, "99.9 %"),
        (0.9999, "99.99 %"),
    ] {
        let x = across(part);
        svg.push_str(&format!(
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\"/>\n"
        ));
        let anchor = match part {
            0.0 => "start",
            0.9999 => "end",
            _ => "middle",
        };
        svg.push_str(&text(x, BOTTOM + 18.0, "tick", anchor, label));
    }
    for curve in curves {
        svg.push_str(&line(report, curve, &axis));
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

fn across(part: f64) -> f64 {
    let decades = -(1.0 - part).log10();
    LEFT + (decades / DECADES).min(1.0) * (RIGHT - LEFT)
}

fn line(report: &Report, curve: &Curve, axis: &Axis) -> String {
    // The axis ends before the curve may.
    let shown = curve.points.iter().filter(|(part, _)| *part < 0.999_91);
    let points =
        shown.map(|(part, seconds)| format!("{:.1},{:.1}", across(*part), axis.at(*seconds)));
    let points: Vec<String> = points.collect();
    let (class, side) = match curve.side {
        Side::Lock => ("curve", "lock"),
        Side::Bare => ("curve dashed", "bare operations"),
    };
    let title = escape(&format!(
        "{}, {side}: {} latencies",
        curve.store, curve.count
    ));
    format!(
        "<g class=\"c{}\"><title>{title}</title><polyline class=\"{class}\" points=\"{}\"/></g>\n",
        color(report, &curve.store),
        points.join(" ")
    )
}
