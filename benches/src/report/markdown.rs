//! What is to be seen first, as a table for the manual.

use super::Report;
use super::words::{glance_rows, ratio, value};
use crate::machine::date;

/// Where a table stands in a document.
const BEGIN: &str = "<!-- measured: begin -->\n";
const END: &str = "<!-- measured: end -->\n";

pub(super) fn write(report: &Report) -> String {
    let mut text = String::from("|");
    for store in &report.stores {
        text.push_str(&format!(" | {}", store.label));
    }
    text.push_str(" |\n|---");
    text.push_str(&"|---".repeat(report.stores.len()));
    text.push_str("|\n");
    for (heading, topic, row) in glance_rows(report) {
        text.push_str(&format!("| {heading}"));
        for store in &report.stores {
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
    let servers = report.stores.iter().filter_map(|store| {
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
