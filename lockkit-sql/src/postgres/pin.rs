//! Pinned holds: each is a transaction on a connection of its own that keeps its row locked.
//!
//! The server ends the transaction as soon as it sees the connection end, and after one lease of
//! silence. A task listens on the connection, so that its end is known here at once too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkit_core::backend::{Release, Renewal, Ticket};
use lockkit_core::{BackendError, FencingToken, HolderId, Outcome};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions, PgRow};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::error::ERRORS;
use super::notify::Desk;
use super::session::{of, send, unreadable};
use super::statements::Statements;
use crate::error::{Phase, Problem, SqlFault, problem_of};
use crate::pool::Pool;

/// Connections that wait for their next hold.
const IDLE: usize = 8;
/// After this time without an answer a connection is given up.
const SILENCE: Duration = Duration::from_secs(10);

/// A connection beside those of the steps, on which notifications and its end are heard. Given back, it
/// is closed: whoever gives it back does not know what state it is in.
pub(super) async fn beside(server: PgConnectOptions) -> Result<PgListener, sqlx::Error> {
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

type Answer = Result<Vec<PgRow>, BackendError>;

/// The pinned holds of a store.
#[derive(Debug)]
pub(super) struct Pins {
    pool: Arc<Pool<sqlx::Postgres>>,
    desk: Arc<Desk>,
    runtime: Handle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<HolderId, Pin>,
    idle: Vec<Session>,
}

#[derive(Debug)]
struct Pin {
    token: FencingToken,
    session: Session,
    /// What keeps the row locked.
    transaction: i64,
    /// The longest lease that was asked for: no later request asks for less.
    asked: Duration,
    /// How long the server lets it be silent, which is the lease.
    ttl: Duration,
}

/// What became of a release.
#[derive(Debug)]
pub(super) enum Unpinned {
    Answered(Release),
    /// The connection has gone; this transaction may have been committed before, which is the release.
    Unanswered(BackendError, i64),
    /// There was no hold that stood.
    Gone,
}

/// A connection, by the task that has it. Dropped, it is closed.
#[derive(Debug)]
pub(super) struct Session {
    orders: mpsc::Sender<Order>,
}

#[derive(Debug)]
enum Order {
    /// Sends a message and answers its rows.
    Ask {
        operation: &'static str,
        text: String,
        answer: oneshot::Sender<Answer>,
        /// Whether the connection may go on when nobody waits for the answer any more.
        harmless: bool,
    },
    /// Sends a message of whose answer nobody needs to know.
    Tell(&'static str),
    /// Its end is the loss of this hold from now on, or of none.
    Carries(Option<Ticket>),
}

impl Session {
    /// Sends a message. A caller that is dropped before the answer has the connection closed.
    async fn ask(&self, operation: &'static str, text: String) -> Answer {
        let answered = self.asked(operation, text, false).await?;
        // What was not carried out before the end never will be.
        answered.await.unwrap_or_else(|_| Err(gone(operation)))
    }

    async fn asked(
        &self,
        operation: &'static str,
        text: String,
        harmless: bool,
    ) -> Result<oneshot::Receiver<Answer>, BackendError> {
        let (answer, answered) = oneshot::channel();
        let order = Order::Ask {
            operation,
            text,
            answer,
            harmless,
        };
        match self.orders.send(order).await {
            Ok(()) => Ok(answered),
            Err(_) => Err(gone(operation)),
        }
    }

    fn is_alive(&self) -> bool {
        !self.orders.is_closed()
    }

    fn tell(&self, order: Order) {
        // Its few orders never fill the channel; if they did, its end would take care of it.
        drop(self.orders.try_send(order));
    }
}

fn gone(operation: &'static str) -> BackendError {
    let text = "the connection of the pin has ended";
    ERRORS.fault(operation, Problem::Connection, Outcome::Unavailable, text)
}

/// Whether the server ended the session before it carried out anything.
fn was_ended(error: &BackendError) -> bool {
    let fault = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    let code = fault.and_then(|fault: &SqlFault| fault.code());
    error.outcome() == Outcome::Unavailable || matches!(code, Some("57P01" | "25P03"))
}

impl Pins {
    pub(super) fn new(pool: &Arc<Pool<sqlx::Postgres>>, desk: Arc<Desk>) -> Self {
        Self {
            pool: Arc::clone(pool),
            desk,
            runtime: Handle::current(),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> usize {
        self.lock().held.len()
    }

    /// A connection for an attempt: one that rests, or a new one.
    pub(super) async fn session(&self, operation: &'static str) -> Result<Session, BackendError> {
        while let Some(session) = self.rested() {
            if session.is_alive() {
                return Ok(session);
            }
        }
        self.pool.may_dial(operation)?;
        let connecting = beside(self.pool.options()).await;
        let listener =
            connecting.map_err(|error| ERRORS.of(operation, Phase::Connecting, &error))?;
        let (orders, received) = mpsc::channel(16);
        let serving = serve(listener, received, Arc::clone(&self.desk));
        // Detached: it ends with its connection, or with whoever gives it orders.
        drop(self.runtime.spawn(serving));
        Ok(Session { orders })
    }

    /// Sends a message on a session of a pin.
    pub(super) async fn ask(
        &self,
        session: &Session,
        operation: &'static str,
        text: String,
    ) -> Answer {
        self.pool
            .request(operation, session.ask(operation, text))
            .await
    }

    fn rested(&self) -> Option<Session> {
        self.lock().idle.pop()
    }

    /// The connection has no transaction, or one that is to be rolled back.
    pub(super) fn rest(&self, session: Session, roll_back: bool) {
        session.tell(Order::Carries(None));
        if roll_back {
            session.tell(Order::Tell("ROLLBACK"));
        }
        let mut state = self.lock();
        if state.idle.len() < IDLE {
            state.idle.push(session);
        }
    }

    /// The row is locked on this connection.
    pub(super) fn hold(
        &self,
        ticket: &Ticket,
        token: FencingToken,
        session: Session,
        transaction: i64,
    ) {
        session.tell(Order::Carries(Some(ticket.clone())));
        let pin = Pin {
            token,
            session,
            transaction,
            asked: ticket.ttl,
            ttl: ticket.ttl,
        };
        self.lock().held.insert(ticket.holder, pin);
    }

    /// The token of a hold that stands.
    pub(super) fn token(&self, holder: HolderId) -> Option<FencingToken> {
        let state = self.lock();
        let pin = state.held.get(&holder)?;
        pin.session.is_alive().then_some(pin.token)
    }

    /// Whether a hold of ours has ended with its connection.
    pub(super) fn is_lost(&self, holder: HolderId) -> bool {
        let state = self.lock();
        state
            .held
            .get(&holder)
            .is_some_and(|pin| !pin.session.is_alive())
    }

    /// After an attempt that failed: a server that takes no writes is left.
    pub(super) fn failed(&self, error: &BackendError) {
        if problem_of(error) == Some(Problem::ReadOnly) {
            self.lock().idle.clear();
            self.pool.leave();
        }
    }

    /// The server has set this lease. Renewals may overlap: the longest stays.
    fn lasts(&self, ticket: &Ticket, ttl: Duration) {
        if let Some(pin) = self.lock().held.get_mut(&ticket.holder) {
            pin.ttl = pin.ttl.max(ttl);
        }
    }

    /// Whom to ask for a renewal, what, and the lease that stands when it is answered.
    fn renewal(&self, ticket: &Ticket) -> Option<(mpsc::Sender<Order>, String, Duration)> {
        let mut state = self.lock();
        let pin = state.held.get_mut(&ticket.holder)?;
        pin.asked = pin.asked.max(ticket.ttl);
        let text = if pin.asked > pin.ttl {
            Statements::silence(pin.asked)
        } else {
            "SELECT 1".to_owned()
        };
        Some((pin.session.orders.clone(), text, pin.asked))
    }

    /// Sends something on each connection, all at once, so that the server does not take it for dead. A
    /// lease that is to be longer is made so, and none is made shorter.
    pub(super) async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let mut pings = Vec::with_capacity(tickets.len());
        for ticket in tickets {
            pings.push(match self.renewal(ticket) {
                None => None,
                Some((orders, text, ttl)) => {
                    let asked = Session { orders }.asked("renew", text, true).await;
                    asked.ok().map(|answer| (answer, ttl))
                }
            });
        }
        let limit = tickets.first().map_or(SILENCE, |ticket| ticket.ttl / 8);
        let end = tokio::time::Instant::now() + limit;
        let mut answers = Vec::with_capacity(tickets.len());
        for (ticket, ping) in tickets.iter().zip(pings) {
            answers.push(match ping {
                None => Ok(Renewal::NotHeld),
                Some((ping, ttl)) => match tokio::time::timeout_at(end, ping).await {
                    Ok(Ok(Ok(_))) => {
                        self.lasts(ticket, ttl);
                        Ok(Renewal::renewed(ttl))
                    }
                    // With its connection the hold has ended, whatever became of the request.
                    Ok(Ok(Err(_)) | Err(_)) => Ok(Renewal::NotHeld),
                    Err(_) => Err(BackendError::timeout(ERRORS.backend, "renew", limit)),
                },
            });
        }
        answers
    }

    /// Ends a pinned hold in its own transaction.
    pub(super) async fn release(&self, ticket: &Ticket, text: String) -> Unpinned {
        let pin = self.lock().held.remove(&ticket.holder);
        let Some(pin) = pin.filter(|pin| pin.session.is_alive()) else {
            return Unpinned::Gone;
        };
        match self.ask(&pin.session, "release", text).await {
            Ok(rows) => {
                self.rest(pin.session, false);
                Unpinned::Answered(if rows.is_empty() {
                    Release::NotHeld
                } else {
                    Release::Released
                })
            }
            Err(error) if error.outcome() == Outcome::Indeterminate && !was_ended(&error) => {
                Unpinned::Unanswered(error, pin.transaction)
            }
            // It was not committed, and ends with its session.
            Err(_) => Unpinned::Gone,
        }
    }
}

/// Carries out orders on one connection until it ends or nobody has orders any more.
async fn serve(mut listener: PgListener, mut orders: mpsc::Receiver<Order>, desk: Arc<Desk>) {
    let mut carries: Option<Ticket> = None;
    loop {
        let order = tokio::select! {
            biased;
            // There is nothing to be told here but the end, and that before anything is sent in vain.
            end = listener.try_recv() => match end {
                Ok(Some(_)) => continue,
                Ok(None) | Err(_) => None,
            },
            order = orders.recv() => order,
        };
        let well = match order {
            None => false,
            Some(Order::Carries(ticket)) => {
                carries = ticket;
                true
            }
            Some(Order::Tell(text)) => {
                let sent = timeout(SILENCE, send(&mut listener, text.to_owned())).await;
                matches!(sent, Ok(Ok(_)))
            }
            Some(Order::Ask {
                operation,
                text,
                answer,
                harmless,
            }) => ask(&mut listener, operation, text, answer, harmless).await,
        };
        if !well {
            break;
        }
    }
    // Before the loss is told: whoever looks now finds the connection closed.
    orders.close();
    if let Some(ticket) = carries {
        desk.lost(&ticket);
    }
    // What was begun by somebody who does not know of it must not go on.
    drop(timeout(SILENCE, send(&mut listener, "ROLLBACK".to_owned())).await);
}

/// Answers whether the connection is well, and the caller is there where it has to be.
async fn ask(
    listener: &mut PgListener,
    operation: &'static str,
    text: String,
    mut answer: oneshot::Sender<Answer>,
    harmless: bool,
) -> bool {
    let asked = tokio::select! {
        asked = timeout(SILENCE, send(&mut *listener, text)) => asked,
        () = answer.closed(), if !harmless => return false,
    };
    let (result, well) = match asked {
        Ok(Ok(rows)) => (Ok(rows), true),
        Ok(Err(error)) => (Err(of(operation, &error)), false),
        Err(_) => (Err(unreadable(operation)), false),
    };
    (answer.send(result).is_ok() || harmless) && well
}
