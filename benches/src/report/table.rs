//! The report as text: a block for each topic, a column for each store.

use super::words::{method, ratio, title, value};
use super::{Report, Topic};
use crate::machine::date;
use crate::noise::Spread;

/// The assumed width of a terminal.
const WIDTH: usize = 100;

pub(super) fn write(report: &Report) -> String {
    let mut text = head(report);
    for topic in Topic::ALL {
        if report.of(topic).next().is_none() {
            continue;
        }
        text.push_str(&if topic == Topic::Peers {
            peers(report)
        } else {
            block(report, topic)
        });
    }
    let absent: Vec<&String> = report.failures.iter().chain(&report.left_out).collect();
    if !absent.is_empty() {
        text.push_str("\nNot measured\n");
        for failure in absent {
            text.push_str(&format!("  {failure}\n"));
        }
    }
    text
}

fn head(report: &Report) -> String {
    let machine = &report.machine;
    let mut text = format!(
        "lockkit {}, {} UTC, {} with {} cores, {}\n",
        machine.lockkit,
        date(machine.began),
        machine.processor,
        machine.cores,
        machine.system
    );
    if !machine.optimised {
        text.push_str("This program is not optimised, so its figures mean nothing: build it with `--release`.\n");
    }
    if let Some(busy) = machine.busy() {
        text.push_str(&format!("{busy}\n"));
    }
    for store in &report.stores {
        let facts = store
            .facts
            .iter()
            .map(|(name, value)| format!("{name} {value}"));
        let facts: Vec<String> = facts.collect();
        text.push_str(&format!(
            "{}: {}; {}\n",
            store.label,
            store.url,
            facts.join(", ")
        ));
    }
    let percent = report.method.noise_limit * 100.0;
    text.push_str(&wrapped(&format!(
        "The ratio compares each figure with the store's own bare operations, measured alternately. \
         ~ marks a ratio that varies by more than {percent:.0} % within this run."
    )));
    text
}

fn block(report: &Report, topic: Topic) -> String {
    let mut text = format!("\n{}\n{}", title(topic), wrapped(method(topic)));
    let mut columns = vec![vec![String::new()]];
    for (case, what) in report.rows(topic) {
        columns[0].push(format!("{case}: {what}"));
    }
    for store in report.own_stores() {
        let mut column = vec![store.label.clone()];
        for row in report.rows(topic) {
            let figure = report.find(topic, row, &store.label);
            column.push(figure.map_or_else(
                || "–".to_owned(),
                |figure| {
                    let shown = value(figure.lock.median, figure.unit);
                    match ratio(figure) {
                        Some(ratio) => format!("{shown}  {ratio:>8}"),
                        None if figure.noisy => format!("~{shown}          "),
                        None => format!("{shown}          "),
                    }
                },
            ));
        }
        columns.push(column);
    }
    text.push_str(&aligned(&columns));
    for store in &report.stores {
        let mut notes: Vec<String> = Vec::new();
        for figure in report
            .of(topic)
            .filter(|figure| figure.store == store.label)
        {
            let note = figure
                .note
                .as_ref()
                .map(|note| format!("{}: {note}", figure.case));
            notes.extend(note.filter(|note| !notes.contains(note)));
        }
        if !notes.is_empty() {
            text.push_str(&wrapped(&format!("{}: {}", store.label, notes.join("; "))));
        }
    }
    text
}

/// Each of others in a line of its own: they are on different stores.
fn peers(report: &Report) -> String {
    let topic = Topic::Peers;
    let mut text = format!("\n{}\n{}", title(topic), wrapped(method(topic)));
    let headings = ["", "theirs", "ours", "theirs ÷ ours"];
    let mut columns = headings.map(|heading| vec![heading.to_owned()]);
    for figure in report.of(topic) {
        let shown = |spread: &Spread| value(spread.median, figure.unit);
        let row = [
            format!("{}, {}: {}", figure.store, figure.case, figure.what),
            shown(&figure.lock),
            figure.bare.as_ref().map(shown).unwrap_or_default(),
            ratio(figure).unwrap_or_default(),
        ];
        for (column, cell) in columns.iter_mut().zip(row) {
            column.push(cell);
        }
    }
    text.push_str(&aligned(&columns));
    text
}

/// The first column to the left, the others to the right.
fn aligned(columns: &[Vec<String>]) -> String {
    let count = |text: &str| text.chars().count();
    let widths: Vec<usize> = columns
        .iter()
        .map(|column| column.iter().map(|cell| count(cell)).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in 0..columns.first().map_or(0, Vec::len) {
        let mut line = String::from("  ");
        for (index, (column, width)) in columns.iter().zip(&widths).enumerate() {
            let cell = &column[row];
            let blank = " ".repeat(width - count(cell));
            if index == 0 {
                line.push_str(&format!("{cell}{blank}"));
            } else {
                line.push_str(&format!("   {blank}{cell}"));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn wrapped(words: &str) -> String {
    let (mut text, mut line) = (String::new(), String::from(" "));
    for word in words.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(&format!("{line}\n"));
            line = String::from(" ");
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&format!("{line}\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let columns = [vec!["", "a"], vec!["µs", "1234"]];
        let columns = columns.map(|column| column.into_iter().map(str::to_owned).collect());
        assert_eq!(aligned(&columns), "        µs\n  a   1234\n");
    }

    #[test]
    fn sentences_are_broken_between_words() {
        let text = wrapped(&"word ".repeat(40));
        assert!(
            text.lines()
                .all(|line| line.len() <= WIDTH && line.starts_with("  word"))
        );
        assert_eq!(text.matches("word").count(), 40);
    }
}
