//! The values of a message, and how each database writes them.

use std::fmt::Write as _;
use std::time::Duration;

use lockkit_core::contract::Ticket;
use lockkit_core::{FencingToken, HolderId, LockName};

use crate::table::Which;

/// How a database writes what is not a number.
#[derive(Debug)]
pub struct Syntax {
    /// The quote of identifiers.
    pub(crate) quote: char,
    /// What stands before and after the hexadecimal digits of bytes.
    pub(crate) bytes: (&'static str, &'static str),
    /// Its clock, in microseconds since 1970, read when the row is read.
    pub(crate) clock: &'static str,
    /// The sign before the number of a prepared parameter. Without one each parameter is a `?`.
    pub(crate) numbered: Option<char>,
    /// How a message prepares statements and executes them by name, where it can.
    pub(crate) names: Option<Names>,
}

/// How a message prepares statements and executes them by name.
#[derive(Debug)]
pub(crate) struct Names {
    /// What a connection executes before.
    pub(crate) first: &'static str,
    /// The types of bytes, numbers and texts.
    pub(crate) types: [&'static str; 3],
}

#[derive(Debug, Default)]
pub(crate) struct Values<'a>(Vec<(&'static str, Value<'a>)>);

#[derive(Debug)]
pub enum Value<'a> {
    Bytes(&'a [u8]),
    Number(i64),
    Holder(HolderId),
    /// A part of a statement, which cannot be bound. No text from outside may be in it.
    Sql(String),
}

impl<'a> Values<'a> {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The values of a ticket: `{name}`, `{holder}`, `{ttl}`, `{room}`, `{label}`.
    pub(crate) fn of(ticket: &'a Ticket) -> Self {
        Self::new()
            .name(&ticket.name)
            .holder("holder", ticket.holder)
            .number("ttl", micros(ticket.ttl))
            .number("room", i64::from(ticket.mode.room()))
            .bytes(
                "label",
                ticket.label.as_deref().unwrap_or_default().as_bytes(),
            )
    }

    /// The values of a renewal of leases of one length: `{names}`, `{holders}`, `{ttl}`, `{count}`.
    pub(crate) fn of_all(tickets: &[&Ticket], syntax: &Syntax) -> Self {
        let names = tickets.iter();
        let names = names.map(|ticket| bytes(ticket.name.as_str().as_bytes(), syntax));
        let holders = tickets.iter().map(|ticket| format!("'{}'", ticket.holder));
        let list = |values: Vec<String>| Value::Sql(values.join(", "));
        let ttl = tickets.first().map_or(0, |ticket| micros(ticket.ttl));
        let count = i64::try_from(tickets.len()).unwrap_or(i64::MAX);
        Self::new()
            .with("names", list(names.collect()))
            .with("holders", list(holders.collect()))
            .number("ttl", ttl)
            .number("count", count)
    }

    /// The value of a list: `{condition}` on the names of its rows.
    pub(crate) fn condition(which: Which<'_>, syntax: &Syntax) -> Self {
        let (column, text) = match which {
            Which::Name(name) => ("l.name".to_owned(), name.as_str()),
            Which::Prefix(prefix) => (format!("substr(l.name, 1, {})", prefix.len()), prefix),
        };
        let condition = format!("{column} = {}", bytes(text.as_bytes(), syntax));
        Self::new().with("condition", Value::Sql(condition))
    }

    pub(crate) fn name(self, name: &'a LockName) -> Self {
        self.bytes("name", name.as_str().as_bytes())
    }

    pub(crate) fn bytes(self, parameter: &'static str, bytes: &'a [u8]) -> Self {
        self.with(parameter, Value::Bytes(bytes))
    }

    pub(crate) fn holder(self, parameter: &'static str, holder: HolderId) -> Self {
        self.with(parameter, Value::Holder(holder))
    }

    pub(crate) fn number(self, parameter: &'static str, number: i64) -> Self {
        self.with(parameter, Value::Number(number))
    }

    fn with(mut self, parameter: &'static str, value: Value<'a>) -> Self {
        self.0.push((parameter, value));
        self
    }

    /// These and others.
    #[cfg(test)]
    pub(crate) fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    pub(crate) fn find(&self, parameter: &str) -> Option<&Value<'a>> {
        let mut values = self.0.iter();
        let found = values.find(|(known, _)| *known == parameter)?;
        Some(&found.1)
    }

    /// The type of a parameter.
    pub(crate) fn type_of(&self, parameter: &str, names: &Names) -> &'static str {
        let [bytes, number, text] = names.types;
        match self.find(parameter) {
            Some(Value::Bytes(_)) => bytes,
            Some(Value::Number(_)) => number,
            Some(Value::Holder(_) | Value::Sql(_)) | None => text,
        }
    }

    /// Writes the value of a parameter.
    pub(crate) fn push(&self, text: &mut String, parameter: &str, syntax: &Syntax) {
        let _ = match self.find(parameter) {
            Some(Value::Bytes(it)) => write!(text, "{}", bytes(it, syntax)),
            Some(Value::Number(number)) => write!(text, "{number}"),
            Some(Value::Holder(holder)) => write!(text, "'{holder}'"),
            Some(Value::Sql(sql)) => write!(text, "{sql}"),
            // The server refuses it; the unit tests find it first.
            None => write!(text, "{{{parameter}}}"),
        };
    }
}

/// A duration in the unit of the table.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4)
}

/// A token as the table keeps it.
pub(crate) fn token(number: i64) -> Option<FencingToken> {
    u64::try_from(number).ok().and_then(FencingToken::new)
}

/// Bytes as the database reads them, whatever its settings for strings are.
fn bytes(bytes: &[u8], syntax: &Syntax) -> String {
    let (mut text, end) = (syntax.bytes.0.to_owned(), syntax.bytes.1);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text.push_str(end);
    text
}
