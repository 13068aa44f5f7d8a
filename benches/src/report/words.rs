//! Numbers as people read them, and the titles of the topics.

use super::{Figure, Report, Topic, Unit};

/// `12345` as `12 345`.
pub(crate) fn thousands(count: usize) -> String {
    let digits = count.to_string();
    if digits.len() < 5 {
        return digits;
    }
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Three digits, as many of them behind the point as are needed.
fn three(value: f64) -> String {
    let size = value.abs();
    if size >= 99.95 {
        format!("{value:.0}")
    } else if size >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
    let step = steps.iter().find(|(size, _)| value.abs() >= *size * 0.9995);
    let (size, unit) = step.or(steps.last()).copied().unwrap_or((1.0, ""));
    format!("{} {unit}", three(value / size))
        .trim_end()
        .to_owned()
}

/// A value with its unit.
pub(crate) fn value(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Seconds if value == 0.0 => "0 s".into(),
        Unit::Seconds => scaled(
            value,
            &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")],
        ),
        Unit::PerSecond => format!("{}/s", scaled(value, &[(1e6, "M"), (1e3, "k"), (1.0, "")])),
        Unit::Trips => three(value),
        Unit::Bytes => scaled(value, &[(1e6, "MB"), (1e3, "kB"), (1.0, "B")]),
        Unit::Part => format!("{} %", three(value * 100.0)),
        Unit::Jain => format!("{value:.3}"),
        Unit::Times => format!("{} ×", three(value)),
    }
}

/// The ratio of a figure, with a tilde if it is noisy.
pub(crate) fn ratio(figure: &Figure) -> Option<String> {
    let ratio = figure.ratio.as_ref()?;
    // No longer than the column of ratios is wide.
    let text = match ratio.median {
        median if median < 0.001 => "<0.001".to_owned(),
        median if median < 0.01 => format!("{median:.4}"),
        median => three(median),
    };
    Some(format!("{}{text} ×", if figure.noisy { "~" } else { "" }))
}

/// Whether more is better.
pub(crate) const fn more_is_better(unit: Unit) -> bool {
    matches!(unit, Unit::PerSecond | Unit::Jain | Unit::Times)
}

/// The title of a topic.
pub(crate) const fn title(topic: Topic) -> &'static str {
    match topic {
        Topic::Solo => "Alone",
        Topic::Throughput => "Many tasks, a lock each",
        Topic::Crowd => "Contention",
        Topic::Names => "Many names compared with one",
        Topic::Modes => "Readers, permits, several names",
        Topic::Sections => "Sections",
        Topic::Distance => "Over a distance",
        Topic::Recovery => "A killed holder",
        Topic::Holds => "Many holds",
        Topic::Peers => "Other lock libraries",
    }
}

/// How a topic is measured, in a sentence or two.
pub(crate) const fn method(topic: Topic) -> &'static str {
    match topic {
        Topic::Solo => {
            "One task acquires and releases a free lock at a fixed rate. A latency counts from the time at \
             which the cycle was due, so a stall counts for every cycle that it delays."
        }
        Topic::Throughput => {
            "Tasks of one client, each with its own name, acquire and release as fast as they can."
        }
        Topic::Crowd => {
            "All contenders acquire and release the same name without a pause; those of one process share \
             one client. A wait that the end of a round interrupts counts with its time so far. Fairness is \
             Jain's index over the turns of all contenders: 1 if all had the same number, 1/n if one had \
             all. A hand-off is a turn of a different contender than the turn before."
        }
        Topic::Names => {
            "64 tasks of one client on 10 000 names, and how much faster that is than 64 tasks on one name."
        }
        Topic::Modes => {
            "Eight contenders as under contention, in four processes (memory: in one), that read or want one of \
             four permits; and one task alone that takes four free names together. The bare operations exclude: \
             of contenders one at a time, of four names each by itself, all sent at once."
        }
        Topic::Sections => {
            "All contenders read one number, add one and write it, without a pause. With lockkit they do so \
             in a section: the lock is granted, and the write releases it. The contenders are in at most four \
             processes, each with a client of its own on Redis and etcd. The bare operations have no lock: \
             WATCH and EXEC on Redis, a transaction that compares the revision on etcd, the version of a node \
             on ZooKeeper, SERIALIZABLE on PostgreSQL, each with retries; with a row lock, SELECT FOR UPDATE, \
             and on SQLite BEGIN IMMEDIATE. Each round checks that no update is lost. A latency is that of a \
             whole update, with its retries."
        }
        Topic::Distance => {
            "The same through a proxy on this machine that delays each direction and counts round trips."
        }
        Topic::Recovery => {
            "A process that has just acquired is killed with SIGKILL while another one waits. The figure is \
             the time until the other one holds."
        }
        Topic::Holds => {
            "A separate process acquires this number of locks and only keeps them. Its processor time is \
             measured over one round of renewals."
        }
        Topic::Peers => {
            "Other lock libraries, used as their documentation shows, each measured alternately with lockkit \
             on the same server and workload. A contender that acquires again directly after its release has \
             a turn but no hand-off. The ratio is theirs divided by ours."
        }
    }
}

/// The most important rows: a topic, how its case and what was measured begin, and the heading.
const GLANCE: &[(Topic, &str, &str, &str)] = &[
    (Topic::Solo, "1 task", "median", "alone, median cycle"),
    (
        Topic::Throughput,
        "64 tasks",
        "cycles",
        "64 tasks on 64 names",
    ),
    (
        Topic::Crowd,
        "64 in 1 ",
        "hand-offs",
        "64 tasks on one name",
    ),
    (
        Topic::Crowd,
        "8 in 4 ",
        "hand-offs",
        "8 in 4 processes on one name",
    ),
    (Topic::Crowd, "8 in 4 ", "fairness", "fairness among those"),
    (Topic::Modes, "8 readers", "turns", "8 readers of one name"),
    (Topic::Modes, "8 for ", "turns", "8 for 4 permits"),
    (Topic::Modes, "4 names", "median", "4 names together, alone"),
    (
        Topic::Sections,
        "64 in 4 ",
        "updates",
        "64 that update one value",
    ),
    (
        Topic::Recovery,
        "kill",
        "until",
        "after kill -9 of the holder",
    ),
    (Topic::Holds, "1000 ", "memory", "memory of a hold"),
];

/// What the ratios of a topic compare.
pub(crate) const fn compared(topic: Topic) -> &'static str {
    match topic {
        Topic::Peers => "theirs ÷ ours",
        _ => "lock ÷ bare",
    }
}

/// The rows of [`GLANCE`] that were measured: heading, topic, and case with what was measured.
pub(crate) fn glance_rows(report: &Report) -> Vec<(&'static str, Topic, (&str, &str))> {
    let rows = GLANCE.iter().filter_map(|(topic, case, what, heading)| {
        let mut rows = report.rows(*topic).into_iter();
        let row = rows.find(|row| row.0.starts_with(case) && row.1.starts_with(what))?;
        Some((*heading, *topic, row))
    });
    rows.collect()
}

/// Text for HTML and SVG.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn values_have_three_digits_and_a_unit() {
        let cases = [
            (1.234_5e-7, Unit::Seconds, "123 ns"),
            (0.000_999_9, Unit::Seconds, "1.00 ms"),
            (2.0, Unit::Seconds, "2.00 s"),
            (12_345.0, Unit::PerSecond, "12.3 k/s"),
            (14.0, Unit::PerSecond, "14.0/s"),
            (1980.0, Unit::Bytes, "1.98 kB"),
            (0.052, Unit::Part, "5.20 %"),
            (0.9991, Unit::Jain, "0.999"),
        ];
        for (number, unit, text) in cases {
            assert_eq!(value(number, unit), text);
        }
    }

    #[test]
    fn sentences_have_single_spaces() {
        for topic in Topic::value_variants() {
            for text in [title(*topic), method(*topic)] {
                assert!(!text.contains("  "), "{text}");
            }
        }
    }

    #[test]
    fn long_numbers_are_grouped() {
        assert_eq!(thousands(1000), "1000");
        assert_eq!(thousands(100_000), "100\u{202f}000");
    }

    #[test]
    fn nothing_of_a_text_becomes_markup() {
        assert_eq!(
            escape("<a href=\"x\">&"),
            "&lt;a href=&quot;x&quot;&gt;&amp;"
        );
    }
}
