//! Steps that the server keeps ready for a session: their values travel apart from them.
//!
//! What the driver prepares has a number for a name and belongs to one session of the server. Behind a
//! pooler the next transaction may run in another session, where that name can stand for a statement
//! of somebody else. So a step goes this way only where it is certain that nothing stands between: the
//! session knows the mark that the connection was opened with ([`marked`]), which no pooler passes on.
//! Everywhere else it goes as text, with nothing left behind.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::backend::Ticket;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tokio::time::Instant;

use super::SPELLING;
use super::session::send;
use super::statements::Statements;
use crate::pool::Way;
use crate::statement::{Statement, Values, micros};

/// Where a session keeps its mark.
const MARK: &str = "lockkit.session";

/// After so long a session forgets its statements: a plan that was made when the table had few rows
/// reads all of them.
const KEPT: Duration = Duration::from_secs(60);

/// A step that can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Takes the lock where its row is known to be there and nobody waits for it.
    Acquire,
    /// Takes it also where it was never seen, and leaves a note.
    AcquireNew,
    Release,
}

/// What is sent.
#[derive(Debug)]
pub(super) enum Message {
    Text(String),
    Step(Step),
}

/// A step of a ticket.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) kind: Kind,
    pub(super) ticket: Ticket,
    /// Whether it leaves a note that somebody waits.
    pub(super) note: bool,
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// What a place of a statement takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Name,
    Holder,
    Lease,
    Note,
}

/// A statement as the server prepares it, and what belongs into its places.
#[derive(Debug)]
pub(super) struct Kept {
    text: Arc<str>,
    places: &'static [(&'static str, Place)],
}

impl Kept {
    pub(super) fn new(
        statement: &Statement,
        places: &'static [(&'static str, Place)],
        constants: &Values<'_>,
    ) -> Self {
        let names: Vec<&str> = places.iter().map(|(name, _)| *name).collect();
        let text = statement.numbered(&names, constants, SPELLING);
        Self {
            text: Arc::from(text.trim_end_matches(';')),
            places,
        }
    }

    async fn ask(
        &self,
        connection: &mut PgConnection,
        step: &Step,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let ticket = &step.ticket;
        let mut query = sqlx::query(AssertSqlSafe(Arc::clone(&self.text)));
        for (_, place) in self.places {
            query = match place {
                Place::Name => query.bind(ticket.name.as_str().as_bytes()),
                Place::Holder => query.bind(ticket.holder.to_string()),
                Place::Lease => query.bind(micros(ticket.ttl)),
                Place::Note => query.bind(super::statements::note(step.note)),
            };
        }
        query.fetch_all(connection).await
    }
}

/// The options of a connection whose session knows a mark, if it is the server's.
pub(super) fn marked(options: PgConnectOptions, mark: &str) -> PgConnectOptions {
    options.options([(MARK, mark)])
}

impl Message {
    /// Sends it on a connection, in the way that its session allows.
    pub(super) async fn send(
        &self,
        connection: &mut PgConnection,
        way: &mut Way,
        statements: &Statements,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let step = match self {
            Self::Text(text) => return send(connection, text.clone()).await,
            Self::Step(step) => step,
        };
        match way {
            Way::Direct(since) => {
                if since.elapsed() >= KEPT {
                    connection.clear_cached_statements().await?;
                    *since = Instant::now();
                }
                statements.kept(step.kind).ask(connection, step).await
            }
            Way::Marked(_) => {
                let text = format!(
                    "SELECT current_setting('{MARK}', true); {}",
                    statements.plain(step)
                );
                let mut rows = send(connection, text).await?;
                if rows.is_empty() {
                    return Ok(rows);
                }
                let found: Option<String> = rows.remove(0).try_get(0).ok().flatten();
                *way = match way {
                    Way::Marked(mark) if found.as_deref() == Some(&**mark) => {
                        Way::Direct(Instant::now())
                    }
                    _ => Way::Text,
                };
                Ok(rows)
            }
            _ => send(connection, statements.plain(step)).await,
        }
    }
}
