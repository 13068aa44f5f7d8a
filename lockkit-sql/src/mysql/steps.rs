//! The steps of the contract.

use std::convert::identity;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::backend::{Attempt, LockState, Release, Renewal, Ticket, Watch};
use lockkit_core::{BackendError, Capabilities, LockName, Outcome, Queueing};
use tokio::time::sleep;

use super::definition::definitions;
use super::error::ERRORS;
use super::kept::{Kept, Message, is_unprepared};
use super::message::{self, Answer};
use super::pins::Pins;
use super::seen::{Seen, granted, released, taken};
use super::server;
use super::session::send;
use super::{SPELLING, Statements, ddl};
use crate::backend::Counts;
use crate::config::Options;
use crate::dialect::{Source, Steps, Which};
use crate::error::Problem;
use crate::looks;
use crate::pool::{Pool, Use};
use crate::remembered::Remembered;
use crate::row::Row;
use crate::schema::{Schema, misfit};
use crate::statement::{Values, micros};
use crate::table::Table;

const COLUMNS: [(&str, &str); 9] = [
    ("name", "varbinary(512)"),
    ("holder", "varbinary(100)"),
    ("token", "bigint"),
    ("expires_at", "bigint"),
    ("waiting_until", "bigint"),
    ("pinned", "bigint"),
    ("PRIMARY KEY", "(name)"),
    ("UNIQUE KEY", "(name,token)"),
    ("ENGINE", "InnoDB"),
];

/// MySQL 8 and MariaDB.
#[derive(Debug)]
pub struct Mysql {
    pub(super) pool: Arc<Pool<sqlx::MySql>>,
    /// Whether sessions keep statements ready.
    pub(super) keeps: AtomicBool,
    pub(super) statements: Statements,
    pub(super) pins: Option<Pins>,
    /// Names that have a row, for which a shorter message will do.
    known: Remembered<()>,
}

impl Mysql {
    /// Sends a message on a connection of the pool. What came back as a conflict of transactions is
    /// sent again: it was rolled back, and is nobody's fault.
    pub(super) async fn ask(
        &self,
        operation: &'static str,
        text: &str,
    ) -> Result<Vec<Answer>, BackendError> {
        self.ask_by(operation, Use::Step, text).await
    }

    pub(super) async fn ask_by(
        &self,
        operation: &'static str,
        by: Use,
        text: &str,
    ) -> Result<Vec<Answer>, BackendError> {
        let message = Message::Text(text.to_owned());
        self.send(operation, by, message).await
    }

    /// Sends a statement that sessions keep, or the text of it where they do not.
    async fn ask_kept(
        &self,
        operation: &'static str,
        kept: &Kept,
        ticket: &Ticket,
        text: impl FnOnce() -> String + Send,
    ) -> Result<Vec<Answer>, BackendError> {
        if self.keeps.load(Ordering::Relaxed) {
            let message = Message::Kept(kept.clone(), ticket.clone());
            match self.send(operation, Use::Step, message).await {
                Err(error) if is_unprepared(&error) => self.keeps.store(false, Ordering::Relaxed),
                answer => return answer,
            }
        }
        self.ask(operation, &text()).await
    }

    pub(super) async fn send(
        &self,
        operation: &'static str,
        by: Use,
        message: Message,
    ) -> Result<Vec<Answer>, BackendError> {
        let sent = send(&self.pool, operation, by, message);
        self.pool.request(operation, sent).await
    }

    async fn attempt_lease(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let mut whole = self.known.get(&ticket.name).is_none();
        let mut pauses = looks::pauses();
        loop {
            let answers = if whole {
                let acquire = self.statements.acquire(ticket, "0", true);
                self.ask("attempt", &acquire).await?
            } else {
                let (kept, text) = (&self.statements.acquire_kept, || {
                    self.statements.acquire(ticket, "0", false)
                });
                self.ask_kept("attempt", kept, ticket, text).await?
            };
            if let Some(token) = taken(&answers) {
                self.known.set(&ticket.name, ());
                return granted(token, ticket);
            }
            let look = self.statements.look_again(ticket);
            let seen = Seen::read(self.ask("attempt", &look).await?.first());
            whole = seen.is_none();
            // Somebody had the row locked for the moment, or has just deleted it.
            let pause = match &seen {
                Some(seen) if !seen.free() => None,
                _ => pauses.next(),
            };
            match pause {
                Some(pause) => sleep(pause).await,
                None => return Ok(seen.map_or_else(Attempt::held, |seen| seen.attempt())),
            }
        }
    }

    async fn release_lease(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        for _ in 0..2 {
            let kept = &self.statements.release_kept;
            let text = || self.statements.release(ticket);
            let answers = self.ask_kept("release", kept, ticket, text).await?;
            if let Some(released) = released(&answers) {
                return Ok(released);
            }
            let look = self.statements.look_again(ticket);
            let seen = Seen::read(self.ask("release", &look).await?.first());
            if !seen.is_some_and(|seen| seen.mine) {
                return Ok(Release::NotHeld);
            }
        }
        Err(ERRORS.skipped("release"))
    }

    /// Takes a pin out of its row that has ended with its transaction. Others who looked for their own
    /// at that moment had the row locked as well, and the pin passed it over. What stays there all
    /// the same keeps nobody out.
    async fn take_out(&self, ticket: &Ticket) {
        for pause in looks::pauses() {
            if self.release_lease(ticket).await.is_ok() {
                return;
            }
            sleep(pause).await;
        }
    }

    pub(super) async fn rows(
        &self,
        operation: &'static str,
        which: Which<'_>,
    ) -> Result<Vec<Row>, BackendError> {
        let answers = self.ask(operation, &self.statements.look(which)).await?;
        let rows = answers.iter().flat_map(|answer| &answer.rows);
        let read = |row| {
            Some(Row {
                name: message::bytes(row, 0)?,
                holder: message::text(row, 1),
                token: message::number(row, 2)?,
                left: message::number(row, 3)?,
                pinned: message::number(row, 4)? != 0,
            })
        };
        let rows: Option<Vec<Row>> = rows.map(read).collect();
        let mut rows = rows.ok_or_else(|| ERRORS.unreadable(operation))?;
        if rows.iter().any(|row| row.pinned) {
            let unlocked = self
                .ask(operation, &self.statements.unlocked(which))
                .await?;
            let unlocked = unlocked.iter().flat_map(|answer| &answer.rows);
            let gone: Vec<Vec<u8>> = unlocked.filter_map(|row| message::bytes(row, 0)).collect();
            rows.retain(|row| !(row.pinned && gone.contains(&row.name)));
        }
        Ok(rows)
    }

    /// Makes the table if that is wished, and compares it.
    async fn prepare(&self, table: &Table, schema: Schema) -> Result<(), BackendError> {
        let mut found = self.columns(table).await?;
        if found.is_empty() && schema == Schema::Create {
            self.ask("open", &ddl(table)).await?;
            found = self.columns(table).await?;
        }
        let wrong = misfit(table, &COLUMNS, &found);
        match wrong {
            None => Ok(()),
            Some(text) => Err(ERRORS.fault("open", Problem::Schema, Outcome::Rejected, text)),
        }
    }

    /// Columns and keys, as the server would make the table anew; none if it is not there.
    async fn columns(&self, table: &Table) -> Result<Vec<(String, String)>, BackendError> {
        // To look at a table that is not there would be an error in the server's log.
        let place = table
            .schema()
            .map_or(String::new(), |schema| format!("FROM `{schema}` "));
        let known = format!("SHOW TABLES {place}LIKE '{}'", table.name());
        let known = self.ask("open", &known).await?;
        let mut known = known.iter().flat_map(|answer| &answer.rows);
        // In the pattern `_` stands for any sign.
        if !known.any(|row| message::text(row, 0).as_deref() == Some(table.name())) {
            return Ok(Vec::new());
        }
        let show = format!("SHOW CREATE TABLE {}", table.quoted(SPELLING.quote));
        let answers = self.ask("open", &show).await?;
        let row = answers.first().and_then(|answer| answer.rows.first());
        let text = row.and_then(|row| message::text(row, 1));
        let text = text.ok_or_else(|| ERRORS.unreadable("open"))?;
        Ok(definitions(&text))
    }
}

#[async_trait]
impl Steps for Mysql {
    type Driver = sqlx::MySql;

    const BACKEND: &'static str = ERRORS.backend;

    fn capabilities(options: &Options) -> Capabilities {
        let plain = Capabilities::new()
            .with_queueing(Queueing::Barging)
            .with_poll(options.poll)
            .with_recheck(options.poll.max)
            .with_tells_loss(options.pin);
        if options.pin {
            // The server counts the time of a silent session in seconds.
            let shortest = Duration::from_secs(1);
            return plain.with_ttl_range(shortest, plain.max_ttl);
        }
        plain
    }

    async fn open(source: Source<sqlx::MySql>, options: Options) -> Result<Self, BackendError> {
        let change = |file: &str| {
            #[cfg(feature = "mutants")]
            if let Some(mutant) = options.mutant {
                return super::mutant::broken(mutant, file);
            }
            file.to_owned()
        };
        let pool = Arc::new(Pool::new(source, identity, &options, ERRORS));
        let mut this = Self {
            pins: options.pin.then(|| Pins::new(&pool, &options)),
            statements: Statements::new(&options.table, false, change),
            keeps: AtomicBool::new(options.prepare),
            pool,
            known: Remembered::default(),
        };
        if server::read(&this.ask("open", server::QUESTION).await?)? {
            this.statements = Statements::new(&options.table, true, change);
        }
        this.prepare(&options.table, options.schema).await?;
        Ok(this)
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        match &self.pins {
            Some(pins) => pins.attempt(&self.statements, ticket).await,
            None => self.attempt_lease(ticket).await,
        }
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        match &self.pins {
            Some(pins) => Ok(pins.watch(ticket)),
            None => {
                let text = "the server wakes nobody: its waiters poll";
                Err(ERRORS.fault("watch", Problem::Refused, Outcome::Rejected, text))
            }
        }
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        match &self.pins {
            Some(pins) => pins.renew(tickets).await,
            None => self.renew_leases(tickets).await,
        }
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        if let Some(pins) = &self.pins
            && let Some(unnamed) = pins.release(&self.statements, ticket).await
        {
            if !unnamed {
                self.take_out(ticket).await;
            }
            return Ok(Release::Released);
        }
        self.release_lease(ticket).await
    }

    async fn look(&self, which: Which<'_>) -> Result<Vec<LockState>, BackendError> {
        let rows = self.rows("inspect", which).await?;
        Ok(rows.iter().filter_map(Row::state).collect())
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let mut rows = self.rows("break", Which::Name(name)).await?;
        let Some(row) = rows.pop() else {
            return Ok(None);
        };
        let Some(holder) = row.holder.clone() else {
            return Ok(None);
        };
        self.end("break", name, &holder, row.pinned).await?;
        Ok(row.state())
    }

    async fn purge(&self, unused_for: Duration) -> Result<u64, BackendError> {
        let values = Values::new().number("unused", micros(unused_for));
        let text = self.statements.purge.with(&values, SPELLING);
        let answers = self.ask("purge", &text).await?;
        Ok(answers.iter().map(|answer| answer.changed).sum())
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts {
            idle: self.pool.idle(),
            ..Counts::default()
        };
        if let Some(pins) = &self.pins {
            counts.pins = pins.len();
            counts.idle += pins.spare();
            counts.tickets = pins.watched();
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place without a value would be an error of the server, and a value that is not hexadecimal
    /// a way in.
    #[test]
    fn every_statement_is_whole() {
        let made = |maria| Statements::new(&Table::default(), maria, str::to_owned);
        let name = LockName::new("a'; DROP TABLE x; --").unwrap();
        let holder = lockkit_core::HolderId::new(lockkit_core::ClientId::random(), 1);
        let ticket = Ticket::new(name.clone(), holder, Duration::from_secs(30));
        for statements in [made(false), made(true)] {
            for text in [
                statements.acquire(&ticket, "0", true),
                statements.pin.with(&Values::of(&ticket), SPELLING),
                statements.look_again(&ticket),
                statements.release(&ticket),
                statements.look(Which::Name(&name)),
                statements.unlocked(Which::Prefix("a'b")),
                statements.make_row.with(&Values::of(&ticket), SPELLING),
                statements.txlock.with(&Values::of(&ticket), SPELLING),
            ] {
                assert!(!text.contains('{') && !text.contains("DROP"), "{text}");
            }
        }
    }
}
