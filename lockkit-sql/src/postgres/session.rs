//! The connection that listens for releases, which is also the session of the client.
//!
//! The client gives a session up when the server is silent for longer than [`QUIET`] and [`SILENCE`]. The
//! server ends no session that soon for being silent (`session.sql`).

use std::io::ErrorKind;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::store::waiters::Entry;
use lockkit_core::{BackendError, HolderId, LockName, LossReason};
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions, PgRow};
use tokio::time::timeout;

use super::Postgres;
use super::driver::ERRORS;
use crate::dialect::Store;
use crate::driver::{Columns as _, rows};
use crate::error::{Result, at};
use crate::places::{self, Granted, Known};
use crate::session::{Connect, SILENCE, Session};
use crate::steps::name_of;
use crate::values::Values;

/// After this time without a notification, the client asks the server for a reply.
const QUIET: Duration = Duration::from_secs(10);
/// The prefix of a notification that a ticket that waited holds, with its token, session and end.
const GRANTED: &str = "granted ";
/// The prefix of a notification that a hold was broken.
const BROKEN: &str = "broken ";

#[async_trait]
impl Connect for Store<Postgres> {
    type Connection = PgListener;

    fn session(&self) -> &Session {
        &self.session
    }

    async fn open_session(&self) -> Result<(PgListener, i64)> {
        let mut asked = false;
        match timeout(self.pool.connect_timeout, self.try_open(&mut asked)).await {
            Ok(opened) => opened,
            Err(_) if asked => Err(self.pooled()),
            Err(_) => Err(self.pool.silent()),
        }
    }

    /// Reads notifications until the connection ends, or the server is silent: a network that forgets a
    /// connection informs neither side.
    async fn ended(&self, listener: &mut PgListener) {
        loop {
            match timeout(QUIET, listener.try_recv()).await {
                Ok(Ok(Some(notification))) => self.notified(notification.payload()),
                Ok(Ok(None) | Err(_)) => return,
                Err(_) => {
                    let asked = ask(&mut *listener, "SELECT 1".to_owned());
                    if !matches!(timeout(SILENCE, asked).await, Ok(Ok(_))) {
                        return;
                    }
                }
            }
        }
    }
}

impl Store<Postgres> {
    fn notified(&self, payload: &str) {
        let waiters = &self.common.waiters;
        if let Some(granted) = payload.strip_prefix(GRANTED) {
            if let Some((holder, granted)) = grant_in(granted) {
                places::granted(waiters, holder, granted);
                // The order matters: if the session ends now, either its end finds the hold or this finds the end.
                self.session.lose_if_ended(holder);
            }
        } else if let Some(holder) = payload.strip_prefix(BROKEN) {
            let holder = holder.parse::<HolderId>().ok();
            holder.and_then(|holder| {
                let broken = |entry: &mut Entry<Known>| places::lost(entry, LossReason::Superseded);
                waiters.with(holder, broken)
            });
        } else if let Some(name) = name_in(payload) {
            waiters.wake(&name);
        }
    }

    /// `asked`: whether it has asked for a notification. A pooler in transaction mode would accept the
    /// order to listen and forget it.
    async fn try_open(&self, asked: &mut bool) -> Result<(PgListener, i64)> {
        let refused = |error: sqlx::Error| self.refused(&error);
        match self.session.pins {
            true => self.pool.may_open_session().await?,
            false => self.pool.may_connect("open")?,
        }
        let mut listener = connect(self.pool.options()).await.map_err(refused)?;
        let key = match self.session.pins {
            true => self.begin_session(&mut listener).await?,
            false => 0,
        };
        let listening = listener.listen(&self.own.queries.channel).await;
        listening.map_err(refused)?;
        let payload = fastrand::i64(1..);
        let notify = Values::new().number("payload", payload);
        let notify = self.own.queries.notify.text(&notify);
        if self.session.pins {
            // From another connection: only a session of its own gets it.
            self.pool.ask_to_open(&notify).await?;
        } else {
            ask(&mut listener, notify).await.map_err(refused)?;
        }
        *asked = self.session.pins;
        let payload = format!("probe {payload}");
        loop {
            match listener.try_recv().await.map_err(refused)? {
                Some(notification) if notification.payload() == payload => {
                    return Ok((listener, key));
                }
                Some(_) => {}
                None => return Err(refused(sqlx::Error::Io(ErrorKind::UnexpectedEof.into()))),
            }
        }
    }

    /// Takes the advisory lock of the session, and verifies that another connection finds it taken.
    async fn begin_session(&self, listener: &mut PgListener) -> Result<i64> {
        let values = Values::new().number("random", i64::from(fastrand::u32(1..)));
        let begun = ask(listener, self.own.queries.session.text(&values)).await;
        let begun = begun.map_err(|error| self.refused(&error))?;
        let said = begun.last().map(|row| (row.number(0), row.truth(1)));
        let Some((Some(key), true)) = said else {
            return Err(ERRORS.unreadable("open"));
        };
        let is_free = Values::new().number("session", key);
        let is_free = self.own.queries.is_free.text(&is_free);
        let replies = self.pool.ask_to_open(&is_free).await?;
        let row = rows(&replies).next();
        match row.map(|row| row.truth(0)) {
            Some(false) => Ok(key),
            Some(true) => Err(self.pooled()),
            None => Err(ERRORS.unreadable("open")),
        }
    }

    fn refused(&self, error: &sqlx::Error) -> BackendError {
        let error = ERRORS.of("open", true, error);
        at(&self.pool.address(), error)
    }

    /// Other connections share the session of the server.
    fn pooled(&self) -> BackendError {
        let text = "the connection has no session of its own: `pin=true` does not work behind a pooler in \
                    transaction mode";
        self.pool.close_idle();
        at(&self.pool.address(), self.session.elsewhere(text))
    }
}

async fn ask(listener: &mut PgListener, text: String) -> Result<Vec<PgRow>, sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(listener).await
}

/// Makes a connection outside the pool, which reports notifications and its end. It is closed when it is
/// dropped.
async fn connect(server: PgConnectOptions) -> Result<PgListener, sqlx::Error> {
    let alone = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .test_before_acquire(false)
        .after_release(|_, _| Box::pin(async { Ok(false) }))
        .connect_lazy_with(server);
    let mut listener = Box::pin(PgListener::connect_with(&alone)).await?;
    listener.eager_reconnect(false);
    Ok(listener)
}

/// The token, the session and the end of a grant, and its holder.
fn grant_in(text: &str) -> Option<(HolderId, Granted)> {
    let mut words = text.split(' ');
    let mut number = || words.next()?.parse().ok();
    let (token, session, end) = (number()?, number()?, number()?);
    let granted = Granted {
        token,
        session,
        end,
    };
    Some((words.next()?.parse().ok()?, granted))
}

/// The name in hexadecimal digits.
fn name_in(payload: &str) -> Option<LockName> {
    let digits = payload.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    name_of(&bytes?)
}
