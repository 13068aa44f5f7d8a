//! One pin: a task that has the connection on which a row is kept locked.
//!
//! The task alone sends on it, and every answer is read to the end: an answer that nobody read would
//! be taken for the answer to a later question, and a silent server for one that is alive.

use std::time::Duration;

use lockkit_core::backend::Ticket;
use sqlx::MySqlConnection;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::message::ask;
use super::seen::released;

/// How often the server is asked whether the session still lives, at the least.
const BEAT: Duration = Duration::from_millis(250);

/// Asks the session itself. A proxy answers the protocol's ping without it, and in the end the server
/// ends a session that it has not heard of.
const ALIVE: &str = "DO 1;";

/// What becomes of a ticket that is pinned, or waits to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Waiting,
    Held,
    Gone,
}

/// What the task is asked to do.
pub(super) enum Order {
    /// Starts the lease anew, and makes it as long as this; answers how long it is, or nothing if the
    /// session has ended.
    Renew(Duration, oneshot::Sender<Option<Duration>>),
    /// Carries out this message, which ends the hold, and gives the connection back; and whether the
    /// row does not name the hold any more.
    Release(String, oneshot::Sender<(MySqlConnection, bool)>),
}

/// The seconds after which the server ends a session that is silent: never before the lease.
pub(super) fn silence(ttl: Duration) -> String {
    let seconds = ttl.as_millis().div_ceil(1000).max(1);
    // MariaDB can end open transactions earlier than that.
    format!(
        "SET SESSION wait_timeout = {seconds} /*M!100300 , idle_transaction_timeout = 0, \
         idle_write_transaction_timeout = 0, idle_readonly_transaction_timeout = 0 */;"
    )
}

pub(super) struct Pin {
    connection: MySqlConnection,
    /// The lease, from the last renewal on.
    ttl: Duration,
    renewed: Instant,
}

impl Pin {
    pub(super) fn new(connection: MySqlConnection, ticket: &Ticket, renewed: Instant) -> Self {
        Self {
            connection,
            ttl: ticket.ttl,
            renewed,
        }
    }

    /// Keeps the row locked until it is released, the lease ends, or the session dies.
    pub(super) async fn keep(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Order>,
        life: watch::Sender<Life>,
    ) {
        loop {
            let beat = (self.ttl / 8).min(BEAT);
            let end = self.renewed + self.ttl;
            let lives = tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Renew(ttl, reply)) => {
                        let renewed = self.renew(ttl).await;
                        // Whoever asked may have gone.
                        let _ = reply.send(renewed);
                        renewed.is_some()
                    }
                    Some(Order::Release(message, reply)) => {
                        let answered = timeout_at(end, ask(&mut self.connection, &message)).await;
                        if let Ok(Ok(answers)) = answered {
                            let _ = reply.send((self.connection, released(&answers).is_some()));
                        }
                        return;
                    }
                    // The store is gone.
                    None => return,
                },
                () = sleep_until(end.min(Instant::now() + beat)) => {
                    Instant::now() < end && self.lives(end).await
                }
            };
            if !lives {
                break;
            }
        }
        // The connection is closed with this task, and the server ends the hold if it has not yet.
        drop(self);
        life.send_replace(Life::Gone);
    }

    async fn lives(&mut self, end: Instant) -> bool {
        self.asked(ALIVE, end).await
    }

    async fn asked(&mut self, text: &str, end: Instant) -> bool {
        let answered = timeout_at(end, ask(&mut self.connection, text)).await;
        answered.is_ok_and(|answered| answered.is_ok())
    }

    /// Never makes the lease shorter: a late renewal may ask for less than one before it.
    async fn renew(&mut self, ttl: Duration) -> Option<Duration> {
        let (asked, end) = (Instant::now(), self.renewed + self.ttl);
        let lives = if ttl <= self.ttl {
            self.lives(end).await
        } else {
            self.asked(&silence(ttl), end).await
        };
        if !lives {
            return None;
        }
        (self.ttl, self.renewed) = (self.ttl.max(ttl), asked);
        Some(self.ttl)
    }
}
