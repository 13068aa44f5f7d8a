//! Statements, from their files to the text that is sent.
//!
//! Values travel in the text, as digits and as hexadecimal digits, but for the few steps that a session
//! keeps ready: what a driver prepares belongs to one session of the server, and behind a pooler in
//! transaction mode the next transaction may run in another.

use std::fmt::Write as _;

use lockkit_core::LockName;
use lockkit_core::contract::Ticket;

use crate::table::Table;

/// A statement with places for values: `{name}`.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    /// Texts and places in turn; the first is a text.
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    Place(String),
}

/// How a database writes what is not a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spelling {
    /// Stands around identifiers.
    pub(crate) quote: char,
    /// Stands before and after the hexadecimal digits of a text of bytes.
    pub(crate) bytes: (&'static str, &'static str),
    /// Its clock, in microseconds since 1970, read when the row is looked at.
    pub(crate) clock: &'static str,
}

/// The values of one statement.
#[derive(Debug, Default)]
pub(crate) struct Values<'a> {
    values: Vec<(&'static str, Value<'a>)>,
}

#[derive(Debug)]
enum Value<'a> {
    Bytes(&'a [u8]),
    Number(i64),
    Text(String),
}

impl<'a> Values<'a> {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The values of a ticket: `{name}`, `{holder}`, `{ttl}`.
    pub(crate) fn of(ticket: &'a Ticket) -> Self {
        Self::new()
            .name(&ticket.name)
            .text("holder", format!("'{}'", ticket.holder))
            .number("ttl", micros(ticket.ttl))
    }

    pub(crate) fn name(self, name: &'a LockName) -> Self {
        self.bytes("name", name.as_str().as_bytes())
    }

    pub(crate) fn bytes(mut self, place: &'static str, bytes: &'a [u8]) -> Self {
        self.values.push((place, Value::Bytes(bytes)));
        self
    }

    pub(crate) fn number(mut self, place: &'static str, number: i64) -> Self {
        self.values.push((place, Value::Number(number)));
        self
    }

    #[cfg(any(feature = "mysql", feature = "postgres"))]
    fn has(&self, place: &str) -> bool {
        self.values.iter().any(|(name, _)| *name == place)
    }

    /// Writes the value of a place.
    fn push(&self, text: &mut String, place: &str, spelling: Spelling) {
        let found = self.values.iter().find(|(name, _)| *name == place);
        match found.map(|(_, value)| value) {
            Some(Value::Bytes(bytes)) => push_bytes(text, bytes, spelling),
            Some(Value::Number(number)) => {
                let _ = write!(text, "{number}");
            }
            Some(Value::Text(value)) => text.push_str(value),
            // The server refuses it; the unit tests find it before.
            None => {
                let _ = write!(text, "{{{place}}}");
            }
        }
    }

    /// Text of our own: nothing that comes from outside may pass here.
    pub(crate) fn text(mut self, place: &'static str, text: String) -> Self {
        self.values.push((place, Value::Text(text)));
        self
    }
}

/// A length of time in the unit of the table.
pub(crate) fn micros(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4)
}

impl Statement {
    /// Reads a file of `sql/`: comments go, `{table}`, `{index}` and `{now}` are written in.
    pub(crate) fn new(file: &str, table: &Table, spelling: Spelling) -> Self {
        let lines = file.lines().map(|line| match line.find("--") {
            Some(at) => line[..at].trim_end(),
            None => line.trim_end(),
        });
        let text: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        let text = text
            .join("\n")
            .replace("{table}", &table.quoted(spelling.quote))
            .replace("{bare}", table.name())
            .replace("{now}", spelling.clock);
        let mut pieces = Vec::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            pieces.push(Piece::Text(before.to_owned()));
            let (place, after) = after.split_once('}').unwrap_or((after, ""));
            pieces.push(Piece::Place(place.to_owned()));
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Self { pieces }
    }

    /// The text with the values written in.
    pub(crate) fn with(&self, values: &Values<'_>, spelling: Spelling) -> String {
        let mut text = String::with_capacity(1024);
        for piece in &self.pieces {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Place(place) => values.push(&mut text, place, spelling),
            }
        }
        text
    }

    /// The statement as a server prepares it, and the places that have no constant value, in the order in
    /// which their values are bound: `numbered` as `$1`, with one number for each place, else as `?`.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn prepared(
        &self,
        constants: &Values<'_>,
        spelling: Spelling,
        numbered: bool,
    ) -> (String, Vec<String>) {
        let (mut text, mut places) = (String::with_capacity(1024), Vec::new());
        for piece in &self.pieces {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Place(place) if constants.has(place) => {
                    constants.push(&mut text, place, spelling);
                }
                Piece::Place(place) if numbered => {
                    let known = places.iter().position(|other| other == place);
                    let at = known.unwrap_or(places.len());
                    if known.is_none() {
                        places.push(place.clone());
                    }
                    text.push_str(&format!("${}", at + 1));
                }
                Piece::Place(place) => {
                    text.push('?');
                    places.push(place.clone());
                }
            }
        }
        (text, places)
    }
}

/// Writes bytes as the database reads them, whatever its settings for strings are.
pub(crate) fn push_bytes(text: &mut String, bytes: &[u8], spelling: Spelling) {
    text.push_str(spelling.bytes.0);
    for byte in bytes {
        for half in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(half), 16).unwrap_or('0'));
        }
    }
    text.push_str(spelling.bytes.1);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPELLING: Spelling = Spelling {
        quote: '"',
        bytes: ("decode('", "', 'hex')"),
        clock: "clock()",
    };

    #[test]
    fn values_take_their_places_and_comments_go() {
        let file = "-- header {x}\nUPDATE {table} -- why\nSET a = {ttl}\n\nWHERE n = {name} AND {now} > 1;";
        let statement = Statement::new(file, &Table::default(), SPELLING);
        let name = LockName::new("a'}{ttl").unwrap();
        let text = statement.with(&Values::new().name(&name).number("ttl", -7), SPELLING);
        assert_eq!(
            text,
            "UPDATE \"lockkit_locks\"\nSET a = -7\nWHERE n = decode('61277d7b74746c', 'hex') AND clock() > 1;"
        );
    }
}
