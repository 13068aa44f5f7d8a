//! What must be true of sections that read what the one before has written.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use super::Violation;
use crate::history::{Event, History, Op, Phase};

/// What one section wrote, as the store keeps it.
///
/// # Units and shapes
/// The text is `{value} {read} {read}`; a value is `{process}-{hold}:{token}`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// What it wrote to both keys.
    pub value: String,
    /// What it had read from them.
    pub read: [String; 2],
}

impl Entry {
    /// The value of both keys before the first section.
    pub const START: &str = "-";

    /// The entry of the section that `event` belongs to.
    #[must_use]
    pub fn of(event: &Event, read: [String; 2]) -> Self {
        Self {
            value: value(event),
            read,
        }
    }

    fn token(&self) -> Option<u64> {
        self.value.split_once(':')?.1.parse().ok()
    }
}

fn value(event: &Event) -> String {
    let token = event.token.unwrap_or_default();
    format!("{}-{}:{token}", event.process, event.hold)
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, two] = &self.read;
        write!(f, "{} {one} {two}", self.value)
    }
}

impl FromStr for Entry {
    type Err = std::io::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        match <[String; 3]>::try_from(words) {
            Ok([value, one, two]) => Ok(Self {
                value,
                read: [one, two],
            }),
            Err(_) => Err(Self::Err::other(format!("`{text}` is no entry"))),
        }
    }
}

/// What the store has at the end: the entries of all sections in any order, and both values.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StoredSections {
    /// One for each section that wrote; one that wrote twice is here twice.
    pub entries: Vec<Entry>,
    /// The values of both keys.
    pub last: [String; 2],
}

fn violation(rule: &'static str, first: impl ToString, second: impl ToString) -> Violation {
    let (first, second) = (first.to_string(), second.to_string());
    Violation {
        rule,
        first,
        second,
    }
}

/// Checks that every section that wrote has read what the one before it wrote, in the order of the tokens;
/// that a section whose commit succeeded wrote once, and one whose commit was refused wrote nothing.
///
/// A commit is a write of the history: `info`, or no reply, says nothing about its effect.
///
/// # Errors
/// - [`Violation`] with two entries, or an entry and a line of the history, that contradict each other.
pub fn sections_follow(history: &History, stored: &StoredSections) -> Result<(), Violation> {
    let mut there = HashMap::new();
    for entry in &stored.entries {
        if let Some(other) = there.insert(&*entry.value, entry) {
            return Err(violation("a section wrote twice", other, entry));
        }
    }
    in_one_chain(&there, stored)?;
    for event in history.events().iter().filter(|it| it.op == Op::Write) {
        match (event.phase, there.get(&*value(event))) {
            (Phase::Ok, None) => {
                let rule = "what a section wrote is not there";
                return Err(violation(rule, event.line(), "no entry"));
            }
            (Phase::Fail, Some(entry)) => {
                let rule = "a section wrote whose commit was refused";
                return Err(violation(rule, event.line(), entry));
            }
            _ => {}
        }
    }
    Ok(())
}

fn in_one_chain(there: &HashMap<&str, &Entry>, stored: &StoredSections) -> Result<(), Violation> {
    let mut after: HashMap<&str, &Entry> = HashMap::new();
    for entry in &stored.entries {
        let [one, two] = &entry.read;
        if one != two {
            let rule = "a section read values of different sections";
            return Err(violation(rule, one, entry));
        }
        if one != Entry::START && !there.contains_key(&**one) {
            let rule = "a section read what no section wrote";
            return Err(violation(rule, one, entry));
        }
        if let Some(other) = after.insert(one, entry) {
            let rule = "two sections read the same, and the update of one is lost";
            return Err(violation(rule, other, entry));
        }
    }
    let mut last = Entry::START;
    let mut passed = HashSet::new();
    while let Some(&entry) = after.get(last) {
        let before = there.get(last).and_then(|before| before.token());
        if entry.token() <= before {
            let rule = "the token has not grown";
            return Err(violation(rule, last, entry));
        }
        last = &entry.value;
        passed.insert(last);
    }
    let apart = stored
        .entries
        .iter()
        .find(|it| !passed.contains(&*it.value));
    if let Some(entry) = apart {
        let rule = "a section does not follow the first one";
        return Err(violation(rule, last, entry));
    }
    if stored.last.iter().any(|value| value != last) {
        let rule = "the values are not those of the last section";
        return Err(violation(rule, last, stored.last.join(" ")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `1` commits under token 10, then `2` under 20, and `3` under 30 is refused.
    fn good() -> (Vec<Event>, StoredSections) {
        let event = |hold, phase| {
            let event = Event::new(hold, hold, "a", Op::Write, phase);
            event.with_process(7).with_token(hold * 10)
        };
        let events = vec![
            event(1, Phase::Ok),
            event(2, Phase::Ok),
            event(3, Phase::Fail),
        ];
        let stored = StoredSections {
            entries: vec![entry("7-2:20 7-1:10 7-1:10"), entry("7-1:10 - -")],
            last: ["7-2:20", "7-2:20"].map(str::to_owned),
        };
        (events, stored)
    }

    fn entry(text: &str) -> Entry {
        text.parse().unwrap()
    }

    /// What the checker says of the good history after a change.
    fn found(change: impl Fn(&mut Vec<Event>, &mut StoredSections)) -> String {
        let (mut events, mut stored) = good();
        change(&mut events, &mut stored);
        let checked = sections_follow(&History::new(events), &stored);
        checked.map_or_else(|it| it.to_string(), |()| String::new())
    }

    #[test]
    fn sections_in_a_row_are_accepted() {
        assert_eq!(found(|_, _| ()), "");
        assert_eq!(found(|events, _| events.clear()), "");
        assert_eq!(found(|events, _| events[1].phase = Phase::Info), "");
        let none = found(|events, stored| {
            events.truncate(0);
            stored.entries.clear();
            stored.last = ["-", "-"].map(str::to_owned);
        });
        assert_eq!(none, "");
        let (_, stored) = good();
        assert_eq!(entry(&stored.entries[0].to_string()), stored.entries[0]);
        assert!("7-1:10 -".parse::<Entry>().is_err());
    }

    #[test]
    fn each_contradiction_is_named_with_its_entries() {
        type Change = fn(&mut Vec<Event>, &mut StoredSections);
        let broken: [(&str, Change); 10] = [
            ("is lost:\n  7-1:10 - -\n  7-9:30 - -", |_, stored| {
                stored.entries.push(entry("7-9:30 - -"));
            }),
            ("wrote twice:\n  7-1:10 - -\n  7-1:10", |_, stored| {
                stored.entries.push(entry("7-1:10 - -"));
            }),
            ("has not grown:\n  7-2:20\n  7-9:20", |_, stored| {
                stored.entries.push(entry("7-9:20 7-2:20 7-2:20"));
            }),
            ("has not grown:\n  -\n  7-1:x - -", |events, stored| {
                events.clear();
                stored.entries = vec![entry("7-1:x - -")];
            }),
            ("different sections:\n  7-1:10\n", |_, stored| {
                stored.entries[0] = entry("7-2:20 7-1:10 -");
            }),
            ("no section wrote:\n  7-8:15\n", |_, stored| {
                stored.entries[0] = entry("7-2:20 7-8:15 7-8:15");
            }),
            ("not follow the first one:\n  7-2:20\n  7-8", |_, stored| {
                stored.entries.push(entry("7-8:15 7-8:15 7-8:15"));
            }),
            ("of the last section:\n  7-2:20\n  7-2:20 -", |_, stored| {
                stored.last[1] = Entry::START.to_owned();
            }),
            ("is not there:\n  {\"at\":3", |events, _| {
                events[2].phase = Phase::Ok;
            }),
            ("commit was refused:\n  {\"at\":2", |events, _| {
                events[1].phase = Phase::Fail;
            }),
        ];
        for (expected, change) in broken {
            let found = found(change);
            assert!(found.contains(expected), "{expected}: {found}");
        }
    }
}
