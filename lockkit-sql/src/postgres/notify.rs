//! The connection that listens: it hears of releases, and is the session of the client where holds end
//! with one.
//!
//! A session is an advisory lock of the server whose key stands in the row of each hold. The server frees
//! it with the connection, and the next attempt on the lock then shortens the lease to a moment, which is
//! longer than the news of the end takes to come here. So the order is: the session ends, its client
//! declares its holds lost, another client is granted. The client gives a session up by itself when the
//! server is silent for longer than [`QUIET`] and [`ANSWER`], and the server ends none for being silent
//! that soon (`session.sql`).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkit_core::store::waiters::{Entry, Waiters};
use lockkit_core::store::{Backoff, lock};
use lockkit_core::{BackendError, HolderId, LockName, LossReason, Outcome};
use sqlx::Row as _;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions, PgRow};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::error::{ERRORS, rejected};
use super::message::{Message, ask, send};
use super::statements::Statements;
use crate::error::{Phase, Problem};
use crate::pool::{Pool, Use};

/// How long a connection is waited for, and a notification on it.
const OPENING: Duration = Duration::from_secs(2);
/// After so long without a notification the server is asked whether it is there.
const QUIET: Duration = Duration::from_secs(10);
/// How long its answer is waited for.
const ANSWER: Duration = Duration::from_secs(10);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Comes before the holder in a notification that its hold was broken.
const BROKEN: &str = "broken ";

/// The connection that listens, the tickets that it wakes, and the session.
#[derive(Debug)]
pub(super) struct Listener {
    /// Each ticket with the key of the session that its hold ends with, or 0.
    pub(super) waiters: Arc<Waiters<i64>>,
    pool: Arc<Pool<sqlx::Postgres>>,
    statements: Arc<Statements>,
    /// Whether holds end with the session.
    pin: bool,
    /// The key of the session that is open, or 0.
    session: watch::Sender<i64>,
    task: Mutex<Option<AbortHandle>>,
}

/// A connection that listens, and the key of the session on it, or 0.
type Open = (PgListener, i64);

impl Listener {
    pub(super) fn new(
        pool: &Arc<Pool<sqlx::Postgres>>,
        statements: &Arc<Statements>,
        pin: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            waiters: Arc::default(),
            pool: Arc::clone(pool),
            statements: Arc::clone(statements),
            pin,
            session: watch::Sender::new(0),
            task: Mutex::default(),
        })
    }

    /// Opens the session, and fails if that is not possible.
    pub(super) async fn begin(self: &Arc<Self>) -> Result<(), BackendError> {
        let opened = self.open().await?;
        self.opened(opened.1);
        self.spawn(Some(opened));
        Ok(())
    }

    /// Listens from now on, if that was not begun before.
    pub(super) fn start(self: &Arc<Self>) {
        self.spawn(None);
    }

    fn spawn(self: &Arc<Self>, opened: Option<Open>) {
        lock(&self.task).get_or_insert_with(|| {
            let task = run(Arc::clone(self), opened);
            Handle::current().spawn(task).abort_handle()
        });
    }

    /// Ends the listening and the session, with the store.
    pub(super) fn close(&self) {
        if let Some(task) = &*lock(&self.task) {
            task.abort();
        }
    }

    /// The key of the open session, which is waited for, or 0 where holds end with none.
    pub(super) async fn session(&self, operation: &'static str) -> Result<i64, BackendError> {
        if !self.pin {
            return Ok(0);
        }
        let mut session = self.session.subscribe();
        match timeout(OPENING, session.wait_for(|key| *key != 0)).await {
            Ok(Ok(key)) => Ok(*key),
            _ => {
                let text = "the session of this client cannot be opened";
                let (problem, outcome) = (Problem::Connection, Outcome::Unavailable);
                Err(ERRORS.fault(operation, problem, outcome, text))
            }
        }
    }

    pub(super) fn is_open(&self, session: i64) -> bool {
        *self.session.borrow() == session
    }

    /// The error of a grant whose session has ended meanwhile.
    pub(super) fn ended(&self, operation: &'static str) -> BackendError {
        let text = "the session of this client has ended";
        let (problem, outcome) = (Problem::Connection, Outcome::Indeterminate);
        ERRORS.fault(operation, problem, outcome, text)
    }

    /// How many holds end with the session.
    pub(super) fn holds(&self) -> usize {
        let mut holds = 0;
        self.waiters
            .for_each(|_, entry| holds += usize::from(entry.data != 0));
        holds
    }

    /// What came before is not known, so that all tickets try again.
    fn opened(&self, session: i64) {
        self.session.send_replace(session);
        self.waiters.wake_all();
    }

    /// Ends the holds of a session: no attempt that is under way can become another one of it.
    fn closed(&self, session: i64) {
        self.session.send_replace(0);
        if session != 0 {
            self.waiters.for_each(|_, entry| {
                if entry.data == session {
                    entry.lost(LossReason::SessionEnded);
                }
            });
        }
    }

    fn notified(&self, payload: &str) {
        if let Some(holder) = payload.strip_prefix(BROKEN) {
            let holder = holder.parse::<HolderId>().ok();
            holder.and_then(|holder| {
                let broken = |entry: &mut Entry<i64>| entry.lost(LossReason::Superseded);
                self.waiters.with(holder, broken)
            });
        } else if let Some(name) = name_of(payload) {
            self.waiters.wake(&name);
        }
    }

    /// Connects, listens, and begins the session.
    async fn open(&self) -> Result<Open, BackendError> {
        let mut asked = false;
        match timeout(OPENING, self.try_open(&mut asked)).await {
            Ok(opened) => opened,
            Err(_) if asked => Err(pooled()),
            Err(_) => Err(BackendError::timeout(ERRORS.backend, "open", OPENING)),
        }
    }

    /// `asked`: whether the server was asked for a notification. A pooler in transaction mode would take
    /// the order to listen and forget it.
    async fn try_open(&self, asked: &mut bool) -> Result<Open, BackendError> {
        let of = |error| ERRORS.of("open", Phase::Connecting, &error);
        self.pool.may_dial("open")?;
        let mut listener = beside(self.pool.options()).await.map_err(of)?;
        let mut session = 0;
        if self.pin {
            session = self.begin_session(&mut listener).await?;
        }
        let listening = listener.listen(&self.statements.channel).await;
        listening.map_err(of)?;
        let probe = format!("probe {}", fastrand::u64(..));
        let text = self.statements.probe(&probe);
        if self.pin {
            // On another connection: it hears only what its own session of the server hears.
            self.ask(text).await?;
        } else {
            send(&mut listener, text).await.map_err(of)?;
        }
        *asked = self.pin;
        loop {
            match listener.try_recv().await.map_err(of)? {
                Some(heard) if heard.payload() == probe => return Ok((listener, session)),
                Some(_) => {}
                None => return Err(of(sqlx::Error::PoolClosed)),
            }
        }
    }

    /// Takes the session's advisory lock, and makes sure that another connection finds it taken.
    async fn begin_session(&self, listener: &mut PgListener) -> Result<i64, BackendError> {
        let text = self.statements.session(fastrand::u32(1..));
        let rows = send(listener, text).await;
        let rows = rows.map_err(|error| ERRORS.of("open", Phase::Connecting, &error))?;
        let said = rows.last().map(|row| (row.try_get(0), row.try_get(1)));
        let Some((Ok(session), Ok(true))) = said else {
            return Err(ERRORS.unreadable("open"));
        };
        let rows = self.ask(self.statements.is_free(session)).await?;
        match rows.first().map(|row| row.try_get(0)) {
            Some(Ok(false)) => Ok(session),
            Some(Ok(true)) => Err(pooled()),
            _ => Err(ERRORS.unreadable("open")),
        }
    }

    async fn ask(&self, text: String) -> Result<Vec<PgRow>, BackendError> {
        ask(&self.pool, "open", Use::Step, Message::Text(text)).await
    }
}

/// Other connections share the session of the server.
fn pooled() -> BackendError {
    let text = "the connection has no session of its own: `pin=true` does not work behind a pooler in \
                transaction mode";
    rejected("open", Problem::Refused, text)
}

/// Keeps the connection open for as long as the store lives.
async fn run(this: Arc<Listener>, mut first: Option<Open>) {
    let mut backoff = Backoff::new(SHORTEST_PAUSE, LONGEST_PAUSE);
    loop {
        let opened = match first.take() {
            Some(opened) => Some(opened),
            None => {
                let opened = this.open().await.ok();
                if let Some((_, session)) = &opened {
                    this.opened(*session);
                }
                opened
            }
        };
        if let Some((mut listener, session)) = opened {
            backoff.reset();
            hear(&this, &mut listener).await;
            this.closed(session);
        }
        sleep(backoff.pause()).await;
    }
}

/// Passes notifications on until the connection ends, or nothing is heard any more: a network that has
/// forgotten a connection tells neither side.
async fn hear(this: &Listener, listener: &mut PgListener) {
    loop {
        match timeout(QUIET, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => this.notified(notification.payload()),
            Ok(Ok(None) | Err(_)) => return,
            Err(_) => {
                let asked = send(&mut *listener, "SELECT 1".to_owned());
                if !matches!(timeout(ANSWER, asked).await, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}

/// A connection beside those of the pool, on which notifications and its end are heard. Given back, it is
/// closed.
async fn beside(server: PgConnectOptions) -> Result<PgListener, sqlx::Error> {
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

/// The name in hexadecimal digits.
fn name_of(payload: &str) -> Option<LockName> {
    let digits = payload.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    crate::keys::name_of(&bytes?)
}
