//! Pinned holds: each is a transaction on a connection of its own that keeps its row locked.
//!
//! The server ends the transaction as soon as it sees the connection end, and after one lease of
//! silence. A task listens on the connection, so that its end is known here at once too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkit_core::backend::{Release, Renewal, Ticket};
use lockkit_core::{BackendError, FencingToken, HolderId, Outcome};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions, PgRow};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::error::ERRORS;
use super::notify::Desk;
use super::session::{of, send, unreadable};
use crate::error::{Phase, Problem, SqlFault};

/// Connections that wait for their next hold; none of a pool that others need as well.
pub(super) const IDLE: usize = 8;
/// After this time without an answer a connection is given up.
const SILENCE: Duration = Duration::from_secs(10);

/// So many holds can be pinned by one store.
pub(super) const PINS: u32 = 4096;

/// Connections beside those of the steps. One that is given back is closed: whoever gives it back does
/// not know what state it is in.
pub(super) fn beside(server: &PgConnectOptions, most: u32) -> PgPool {
    PgPoolOptions::new()
        .max_connections(most)
        .max_lifetime(None)
        .idle_timeout(None)
        .test_before_acquire(false)
        .after_release(|_, _| Box::pin(async { Ok(false) }))
        .connect_lazy_with(server.clone())
}

type Answer = Result<Vec<PgRow>, BackendError>;

/// The pinned holds of a store.
#[derive(Debug)]
pub(super) struct Pins {
    pool: PgPool,
    desk: Arc<Desk>,
    runtime: Handle,
    /// So many connections may wait for their next hold.
    idle: usize,
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
}

/// What became of a release.
#[derive(Debug)]
pub(super) enum Unpinned {
    Answered(Result<Release, BackendError>),
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
    pub(super) async fn ask(&self, operation: &'static str, text: String) -> Answer {
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
    pub(super) fn new(pool: PgPool, desk: Arc<Desk>, idle: usize) -> Self {
        Self {
            pool,
            desk,
            runtime: Handle::current(),
            idle,
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
        let connecting = Box::pin(PgListener::connect_with(&self.pool)).await;
        let mut listener =
            connecting.map_err(|error| ERRORS.of(operation, Phase::Connecting, &error))?;
        listener.eager_reconnect(false);
        let (orders, received) = mpsc::channel(16);
        let serving = serve(listener, received, Arc::clone(&self.desk));
        // Detached: it ends with its connection, or with whoever gives it orders.
        drop(self.runtime.spawn(serving));
        Ok(Session { orders })
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
        if state.idle.len() < self.idle {
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

    /// Sends something on each connection, all at once, so that the server does not take it for dead.
    pub(super) async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let mut pings = Vec::with_capacity(tickets.len());
        for ticket in tickets {
            let orders = {
                let state = self.lock();
                state
                    .held
                    .get(&ticket.holder)
                    .map(|pin| pin.session.orders.clone())
            };
            pings.push(match orders {
                None => None,
                Some(orders) => Session { orders }
                    .asked("renew", "SELECT 1".to_owned(), true)
                    .await
                    .ok(),
            });
        }
        let limit = tickets.first().map_or(SILENCE, |ticket| ticket.ttl / 8);
        let end = tokio::time::Instant::now() + limit;
        let mut answers = Vec::with_capacity(tickets.len());
        for (ticket, ping) in tickets.iter().zip(pings) {
            answers.push(match ping {
                None => Ok(Renewal::NotHeld),
                Some(ping) => match tokio::time::timeout_at(end, ping).await {
                    Ok(Ok(Ok(_))) => Ok(Renewal::renewed(ticket.ttl)),
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
        match pin.session.ask("release", text).await {
            Ok(rows) => {
                self.rest(pin.session, false);
                Unpinned::Answered(Ok(if rows.is_empty() {
                    Release::NotHeld
                } else {
                    Release::Released
                }))
            }
            Err(error) if was_ended(&error) => Unpinned::Gone,
            Err(error) if error.outcome() == Outcome::Indeterminate => {
                Unpinned::Unanswered(error, pin.transaction)
            }
            Err(error) => Unpinned::Answered(Err(error)),
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
