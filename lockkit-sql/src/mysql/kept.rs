//! Statements that sessions of the store's own keep ready: their values travel apart from them.

use std::sync::Arc;

use lockkit_core::BackendError;
use lockkit_core::backend::Ticket;
use sqlx::{AssertSqlSafe, MySqlConnection};

use super::SPELLING;
use super::message::{self, Answer, Unfinished};
use super::session;
use crate::pool::Way;
use crate::statement::{Statement, Values, micros};

/// Sent once in a session, with its first message. Without autocommit, which a server may have turned
/// off, a row would stay locked until somebody commits.
pub(super) const SETTINGS: &str = "SET autocommit = 1;";

/// A statement as the server prepares it, and what belongs into its places, in their order.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    text: Arc<str>,
    places: Arc<[Place]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Name,
    Holder,
    Ttl,
}

/// What is sent for a step.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// Any number of statements with their values.
    Text(String),
    /// One that the session keeps, and whose values are those of the ticket.
    Kept(Kept, Ticket),
}

impl Kept {
    pub(super) fn new(statement: &Statement) -> Self {
        let lease = Values::new().number("pinned", 0);
        let (text, places) = statement.marked(&lease, SPELLING);
        let place = |name: &String| match name.as_str() {
            "name" => Place::Name,
            "holder" => Place::Holder,
            _ => Place::Ttl,
        };
        Self {
            text: Arc::from(text.trim_end_matches(';')),
            places: places.iter().map(place).collect(),
        }
    }

    async fn ask(
        &self,
        connection: &mut MySqlConnection,
        ticket: &Ticket,
    ) -> Result<Answer, sqlx::Error> {
        let holder = ticket.holder.to_string();
        let mut query = sqlx::query(AssertSqlSafe(Arc::clone(&self.text)));
        for place in self.places.iter() {
            query = match place {
                Place::Name => query.bind(ticket.name.as_str().as_bytes()),
                Place::Holder => query.bind(holder.as_bytes()),
                Place::Ttl => query.bind(micros(ticket.ttl)),
            };
        }
        let done = query.execute(connection).await?;
        Ok(Answer {
            changed: done.rows_affected(),
            insert_id: done.last_insert_id(),
            rows: Vec::new(),
        })
    }
}

impl Message {
    pub(super) async fn send(
        &self,
        connection: &mut MySqlConnection,
        way: &mut Way,
    ) -> Result<Vec<Answer>, Unfinished> {
        let new = matches!(way, Way::Text);
        let answers = match self {
            Self::Text(text) if new => {
                let mut answers = message::ask(connection, &[SETTINGS, text].concat()).await?;
                answers.drain(..answers.len().min(1));
                answers
            }
            Self::Text(text) => message::ask(connection, text).await?,
            Self::Kept(kept, ticket) => {
                if new {
                    message::ask(connection, SETTINGS).await?;
                }
                vec![kept.ask(connection, ticket).await?]
            }
        };
        *way = Way::Ready;
        Ok(answers)
    }
}

/// The session does not know the statement, or the server keeps no more of them, or none of this
/// kind. Nothing was carried out.
pub(super) fn is_unprepared(error: &BackendError) -> bool {
    let code = session::code(error);
    matches!(code, Some("1243" | "1295" | "1461" | "1615"))
}

/// Leaves what this make of the server reads of a file that has the words of both.
pub(super) fn words(file: &str, maria: bool) -> String {
    let mut text = String::with_capacity(file.len());
    let mut rest = file;
    while let Some((before, comment)) = rest.split_once("/*") {
        text.push_str(before);
        let (words, after) = comment.split_once("*/").unwrap_or((comment, ""));
        let mine = if maria { "M!100600" } else { "!80001" };
        text.push_str(words.strip_prefix(mine).unwrap_or_default());
        rest = after;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;

    #[test]
    fn each_server_is_sent_its_own_words() {
        let file = "a /*!80001 b ({name}) */ c {holder}\n/*M!100600 WHERE {name} > {ttl} */;";
        for (maria, expected, places) in [
            (
                true,
                "a  c ?\n WHERE ? > ? ",
                vec![Place::Holder, Place::Name, Place::Ttl],
            ),
            (false, "a  b (?)  c ?\n", vec![Place::Name, Place::Holder]),
        ] {
            let statement = Statement::new(&words(file, maria), &Table::default(), SPELLING);
            let kept = Kept::new(&statement);
            assert_eq!(&*kept.text, expected);
            assert_eq!(&*kept.places, places.as_slice());
        }
    }
}
