//! The most important rows, as a table for the manual.

use super::words::{glance_rows, ratio, value};
use super::{LOCK_OF, Report, Topic};
use crate::machine::date;

/// The place of a table in a document.
const BEGIN: &str = "<!-- measured: begin -->\n";
const END: &str = "<!-- measured: end -->\n";

pub(super) fn write(report: &Report) -> String {
    let mut text = String::from("|");
    for store in report.own_stores() {
        text.push_str(&format!(" | {}", store.label));
    }
    text.push_str(" |\n|---");
    text.push_str(&"|---".repeat(report.own_stores().count()));
    text.push_str("|\n");
    for (heading, topic, row) in glance_rows(report) {
        text.push_str(&format!("| {heading}"));
        for store in report.own_stores() {
            let figure = report.find(topic, row, &store.label);
            let cell = figure.map_or_else(
                || "–".to_owned(),
                |figure| {
                    let shown = value(figure.lock.median, figure.unit);
                    ratio(figure).map_or(shown.clone(), |ratio| format!("{shown} ({ratio})"))
                },
            );
            text.push_str(&format!(" | {cell}"));
        }
        text.push_str(" |\n");
    }
    text.push_str(&peers(report));
    let servers = report.own_stores().filter_map(|store| {
        let server = store.facts.iter().find(|(name, _)| name == "server");
        server.map(|(_, version)| format!("{}: {version}", store.label))
    });
    let servers: Vec<String> = servers.collect();
    let machine = &report.machine;
    let day = date(machine.began);
    text.push_str(&format!(
        "\nMeasured on {} with lockkit {}, on {} with {} cores{}{}.\n",
        day.split(' ').next().unwrap_or_default(),
        machine.lockkit,
        machine.processor,
        machine.cores,
        if servers.is_empty() { "" } else { "; " },
        servers.join(", "),
    ));
    text
}

/// The locks of other libraries, one per row, compared with ours on the same server.
fn peers(report: &Report) -> String {
    let mut rows = String::new();
    for peer in &report.stores {
        let Some(on) = &peer.peer_on else { continue };
        let of = peer.facts.iter().find(|(name, _)| name == LOCK_OF);
        let name = of.map_or(&peer.label, |(_, version)| version);
        let name = match name.split_once(" of ") {
            Some((class, library)) => format!("`{class}` of {library}"),
            None => name.clone(),
        };
        rows.push_str(&format!("| {name} | {on}"));
        for (case, what) in [
            ("1 alone", "cycles"),
            ("8 in 4 processes", "hand-offs"),
            ("8 in 4 processes", "turns"),
        ] {
            let case = format!("{on}, {case}");
            let figure = report.find(Topic::Peers, (&case, what), &peer.label);
            let shown = figure.and_then(|figure| {
                let ours = value(figure.bare.as_ref()?.median, figure.unit);
                Some(format!(
                    "{} | {ours} | {}",
                    value(figure.lock.median, figure.unit),
                    ratio(figure)?
                ))
            });
            rows.push_str(&format!(
                " | {}",
                shown.unwrap_or_else(|| "– | – | –".into())
            ));
        }
        rows.push_str(" |\n");
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "\n| lock of | on | cycles, alone | ours | theirs ÷ ours | hand-offs, 8 in 4 processes | ours | theirs ÷ ours \
         | turns, the same 8 | ours | theirs ÷ ours |\n|{}\n{rows}",
        "---|".repeat(11)
    )
}

/// The document with the table between its marks replaced; `None` if it has no such marks.
pub(super) fn replace(document: &str, table: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_takes_the_place_of_the_one_before() {
        let document = format!("above\n{BEGIN}old\n{END}below\n");
        let expected = format!("above\n{BEGIN}new\n{END}below\n");
        assert_eq!(replace(&document, "new\n"), Some(expected));
        assert_eq!(replace("nothing", "new"), None);
    }

    #[test]
    fn the_table_of_the_manual_is_that_of_the_measured_figures() {
        let report = Report::from_json(include_str!("../../results/stores.json")).unwrap();
        let manual = include_str!("../../../lockkit/docs/choosing.md");
        let expected = replace(manual, &write(&report));
        assert_eq!(expected.as_deref(), Some(manual), "run `cargo x tables`");
    }
}
