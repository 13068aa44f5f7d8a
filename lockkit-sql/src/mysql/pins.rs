//! Pinned holds: each keeps its row locked in a session of its own.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::backend::{Attempt, Renewal, Ticket, Wake, Watch};
use lockkit_core::{BackendError, HolderId, LossReason, Outcome};
use sqlx::{Connection as _, MySqlConnection};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::error::ERRORS;
use super::kept::SETTINGS;
use super::message::{self, Unfinished, ask};
use super::pin::{Life, Order, Pin, silence};
use super::seen::{Seen, granted};
use super::session::is_conflict;
use super::{SPELLING, Statements};
use crate::config::Options;
use crate::error::{Phase, Problem, problem_of};
use crate::looks;
use crate::pool::Pool;
use crate::statement::Values;

/// So many connections are kept for the next pins.
const SPARE: usize = 4;

/// The pins of one store.
pub(super) struct Pins {
    pool: Arc<Pool<sqlx::MySql>>,
    connect_timeout: Duration,
    places: Mutex<HashMap<HolderId, Place>>,
    spare: Mutex<Vec<MySqlConnection>>,
}

/// What is known of a ticket.
struct Place {
    life: watch::Sender<Life>,
    /// To the task that has its connection; `None` while it waits.
    orders: Option<(mpsc::UnboundedSender<Order>, i64)>,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            life: watch::Sender::new(Life::Waiting),
            orders: None,
        }
    }
}

impl Pins {
    pub(super) fn new(pool: &Arc<Pool<sqlx::MySql>>, options: &Options) -> Self {
        Self {
            pool: Arc::clone(pool),
            connect_timeout: options.connect_timeout,
            places: Mutex::default(),
            spare: Mutex::default(),
        }
    }

    fn places(&self) -> MutexGuard<'_, HashMap<HolderId, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connections(&self) -> MutexGuard<'_, Vec<MySqlConnection>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        let places = self.places();
        places.values().filter(|it| it.orders.is_some()).count()
    }

    pub(super) fn watched(&self) -> usize {
        self.places().len() - self.len()
    }

    pub(super) fn spare(&self) -> usize {
        self.connections().len()
    }

    fn keep(&self, connection: MySqlConnection) {
        let mut spare = self.connections();
        if spare.len() < SPARE {
            spare.push(connection);
        }
    }

    async fn connect(&self) -> Result<MySqlConnection, BackendError> {
        self.pool.may_dial("attempt")?;
        let options = self.pool.options();
        let connecting = MySqlConnection::connect_with(&options);
        match timeout(self.connect_timeout, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(ERRORS.of("attempt", Phase::Connecting, &error)),
            Err(_) => {
                let text = format!("no connection within {:?}", self.connect_timeout);
                let (problem, outcome) = (Problem::Connection, Outcome::Unavailable);
                Err(ERRORS.fault("attempt", problem, outcome, text))
            }
        }
    }

    /// To the task that pins this ticket's row.
    fn orders(&self, ticket: &Ticket) -> Option<(mpsc::UnboundedSender<Order>, i64)> {
        self.places().get(&ticket.holder)?.orders.clone()
    }

    pub(super) async fn attempt(
        &self,
        statements: &Statements,
        ticket: &Ticket,
    ) -> Result<Attempt, BackendError> {
        if let Some((orders, token)) = self.orders(ticket) {
            if order_renewal(&orders, ticket)
                .await
                .ok()
                .flatten()
                .is_some()
            {
                return granted(token, ticket);
            }
            self.places().remove(&ticket.holder);
        }
        let (mut repeated, mut pauses) = (false, looks::pauses());
        loop {
            // A connection that rested may have been closed by the server: then a new one tries.
            let rested = self.connections().pop();
            let fresh = rested.is_none();
            let connection = match rested {
                Some(connection) => connection,
                None => Box::pin(self.connect()).await?,
            };
            match self.try_on(connection, statements, ticket).await {
                Ok(Tried::Answer(answer)) => return answer,
                Ok(Tried::Locked) => match pauses.next() {
                    Some(pause) => sleep(pause).await,
                    None => return Ok(Attempt::held()),
                },
                Err(error) if !fresh && !matches!(error.error, sqlx::Error::Database(_)) => {
                    self.connections().clear();
                }
                Err(error) if is_conflict(&error) && !repeated => repeated = true,
                Err(error) => {
                    let told = error.told("attempt");
                    if problem_of(&told) == Some(Problem::ReadOnly) {
                        self.connections().clear();
                        self.pool.leave();
                    }
                    return Err(told);
                }
            }
        }
    }

    /// One message; a second one if somebody else has the lock.
    async fn try_on(
        &self,
        mut connection: MySqlConnection,
        statements: &Statements,
        ticket: &Ticket,
    ) -> Result<Tried, Unfinished> {
        let message = [
            SETTINGS.to_owned(),
            silence(ticket.ttl),
            statements.acquire(ticket, "CONNECTION_ID()", true),
            statements.pin.with(&Values::of(ticket), SPELLING),
        ]
        .concat();
        let asked = Instant::now();
        let answers = ask(&mut connection, &message).await?;
        let given = answers.last().and_then(|answer| answer.rows.first());
        if let Some(token) = given.and_then(|row| message::number(row, 0)) {
            let answer = granted(token, ticket);
            if answer.is_ok() {
                self.start(Pin::new(connection, ticket, asked), ticket, token);
            }
            return Ok(Tried::Answer(answer));
        }
        let look = ["ROLLBACK;", &statements.look_again(ticket)].concat();
        let answers = ask(&mut connection, &look).await?;
        self.keep(connection);
        Ok(match Seen::read(answers.last()) {
            Some(seen) if !seen.free() => Tried::Answer(Ok(seen.attempt())),
            _ => Tried::Locked,
        })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the task belongs to the store, which is used inside a runtime"
    )]
    fn start(&self, pin: Pin, ticket: &Ticket, token: i64) {
        let (orders, received) = mpsc::unbounded_channel();
        let mut places = self.places();
        let place = places.entry(ticket.holder).or_default();
        place.orders = Some((orders, token));
        place.life.send_replace(Life::Held);
        drop(tokio::spawn(pin.keep(received, place.life.clone())));
    }

    pub(super) fn watch(&self, ticket: &Ticket) -> Box<dyn Watch> {
        let mut places = self.places();
        let place = places.entry(ticket.holder).or_default();
        Box::new(PinWatch(place.life.subscribe()))
    }

    pub(super) async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let asked: Vec<Option<oneshot::Receiver<Option<Duration>>>> = tickets
            .iter()
            .map(|ticket| Some(order_renewal(&self.orders(ticket)?.0, ticket)))
            .collect();
        // One session that does not answer does not hold up the others.
        let shortest = tickets.iter().map(|ticket| ticket.ttl).min();
        let end = Instant::now() + shortest.unwrap_or_default() / 12;
        let mut answers = Vec::with_capacity(tickets.len());
        for reply in asked {
            let Some(mut reply) = reply else {
                answers.push(Ok(Renewal::NotHeld));
                continue;
            };
            answers.push(match timeout_at(end, &mut reply).await {
                Ok(Ok(Some(ttl))) => Ok(Renewal::renewed(ttl)),
                Ok(Ok(None) | Err(_)) => Ok(Renewal::NotHeld),
                Err(_) => {
                    let text = "the session of the pin does not answer";
                    let problem = Problem::Connection;
                    Err(ERRORS.fault("renew", problem, Outcome::Indeterminate, text))
                }
            });
        }
        answers
    }

    /// Ends a pin, and answers whether its row does not name it any more; `None` if there is none, or
    /// its session died before the answer.
    pub(super) async fn release(&self, statements: &Statements, ticket: &Ticket) -> Option<bool> {
        let released = match self.orders(ticket) {
            Some((orders, _)) => {
                let message = [
                    statements.release(ticket),
                    format!("\nCOMMIT; DO RELEASE_LOCK('{}');", ticket.holder),
                ]
                .concat();
                let (reply, answer) = oneshot::channel();
                // The task may have ended; then nobody answers.
                let _ = orders.send(Order::Release(message, reply));
                answer.await.ok()
            }
            None => None,
        };
        self.places().remove(&ticket.holder);
        let (connection, unnamed) = released?;
        self.keep(connection);
        Some(unnamed)
    }
}

/// What one message found.
enum Tried {
    Answer(Result<Attempt, BackendError>),
    /// Somebody had the row locked for the moment.
    Locked,
}

fn order_renewal(
    orders: &mpsc::UnboundedSender<Order>,
    ticket: &Ticket,
) -> oneshot::Receiver<Option<Duration>> {
    let (reply, answer) = oneshot::channel();
    // The task may have ended; then nobody answers.
    let _ = orders.send(Order::Renew(ticket.ttl, reply));
    answer
}

impl fmt::Debug for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pins")
            .field("pins", &self.len())
            .finish_non_exhaustive()
    }
}

/// The loss of one pin.
struct PinWatch(watch::Receiver<Life>);

#[async_trait]
impl Watch for PinWatch {
    async fn changed(&mut self) -> Result<Wake, BackendError> {
        loop {
            if *self.0.borrow_and_update() == Life::Gone {
                return Ok(Wake::Lost(LossReason::SessionEnded));
            }
            if self.0.changed().await.is_err() {
                // Released: nothing can be lost any more.
                std::future::pending::<()>().await;
            }
        }
    }
}
