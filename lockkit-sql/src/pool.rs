//! Connections of the store's own, or the application's.
//!
//! A request whose caller has gone, or that failed on the way, leaves its connection in the middle of
//! an answer: such a connection is closed and never used again. One that answered is used again
//! without being asked whether it is well, which would cost a round trip each time.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkit_core::{BackendError, Outcome};
use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, Database};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::config::Options;
use crate::dialect::Source;
use crate::error::{Errors, Phase, Problem};

/// A connection that was idle for longer is closed rather than used: servers and networks forget.
const IDLE: Duration = Duration::from_secs(300);

type Connecting<D> = <<D as Database>::Connection as sqlx::Connection>::Options;

/// Where the connections of a store come from.
#[derive(Debug)]
pub(crate) enum Pool<D: Database> {
    Own(Own<D>),
    Application(sqlx::Pool<D>, Errors),
}

/// Connections of the store's own.
pub(crate) struct Own<D: Database> {
    options: Connecting<D>,
    errors: Errors,
    connect_timeout: Duration,
    idle: Mutex<VecDeque<Idle<D>>>,
    steps: Semaphore,
    /// Renewals do not stand behind whoever waits for a connection.
    renewals: Semaphore,
}

struct Idle<D: Database> {
    session: Session<D>,
    since: Instant,
}

/// A connection, and since when its session keeps which statement ready, each under its own number.
struct Session<D: Database> {
    connection: D::Connection,
    ready: Ready,
}

/// So many statements can be kept ready.
pub(crate) const READY: usize = 3;

pub(crate) type Ready = [Option<Instant>; READY];

/// Who needs a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Step,
    Renewal,
}

/// A connection in use. Dropped without [`put_back`](Self::put_back) it is closed.
pub(crate) struct Taken<'p, D: Database> {
    place: Place<'p, D>,
}

enum Place<'p, D: Database> {
    Own {
        pool: &'p Own<D>,
        session: Session<D>,
        _permit: SemaphorePermit<'p>,
    },
    Application(PoolConnection<D>),
    /// It was given back.
    Empty,
}

impl<D: Database> Pool<D> {
    pub(crate) fn new(source: Source<D>, options: &Options, errors: Errors) -> Self {
        match source {
            Source::Own(server) => Self::Own(Own {
                options: *server,
                errors,
                connect_timeout: options.connect_timeout,
                idle: Mutex::default(),
                steps: Semaphore::new(options.connections.max(1)),
                renewals: Semaphore::new(1),
            }),
            Source::Application(pool) => Self::Application(pool, errors),
        }
    }

    /// Takes a connection, or makes one.
    pub(crate) async fn take(
        &self,
        operation: &'static str,
        by: Use,
    ) -> Result<Taken<'_, D>, BackendError> {
        match self {
            Self::Own(own) => own.take(operation, by).await,
            Self::Application(pool, errors) => match pool.acquire().await {
                Ok(connection) => Ok(Taken {
                    place: Place::Application(connection),
                }),
                Err(error) => Err(errors.of(operation, Phase::Connecting, &error)),
            },
        }
    }

    /// Whether nobody would have to wait for a connection, as far as is known without asking.
    pub(crate) fn has_room(&self, by: Use) -> bool {
        match self {
            Self::Own(own) => own.permits(by).available_permits() > 0,
            Self::Application(..) => false,
        }
    }

    /// Forgets the idle connections: one has just been found dead, and the others are likely to be.
    pub(crate) fn distrust(&self) {
        if let Self::Own(own) = self {
            own.idle().clear();
        }
    }

    pub(crate) fn idle(&self) -> usize {
        match self {
            Self::Own(own) => own.idle().len(),
            Self::Application(pool, _) => pool.num_idle(),
        }
    }
}

impl<D: Database> Own<D> {
    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle<D>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    const fn permits(&self, by: Use) -> &Semaphore {
        match by {
            Use::Step => &self.steps,
            Use::Renewal => &self.renewals,
        }
    }

    async fn take(&self, operation: &'static str, by: Use) -> Result<Taken<'_, D>, BackendError> {
        let closed = |_| {
            let text = "the store is closed";
            self.errors
                .fault(operation, Problem::Connection, Outcome::Rejected, text)
        };
        let permit = self.permits(by).acquire().await.map_err(closed)?;
        let session = match self.rested() {
            Some(session) => session,
            None => Session {
                connection: self.connect(operation).await?,
                ready: Ready::default(),
            },
        };
        Ok(Taken {
            place: Place::Own {
                pool: self,
                session,
                _permit: permit,
            },
        })
    }

    /// The connection that was used last: the others may rest until they are closed.
    fn rested(&self) -> Option<Session<D>> {
        let mut idle = self.idle();
        while idle
            .front()
            .is_some_and(|oldest| oldest.since.elapsed() > IDLE)
        {
            idle.pop_front();
        }
        Some(idle.pop_back()?.session)
    }

    async fn connect(&self, operation: &'static str) -> Result<D::Connection, BackendError> {
        let connecting = D::Connection::connect_with(&self.options);
        match timeout(self.connect_timeout, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(self.errors.of(operation, Phase::Connecting, &error)),
            Err(_) => {
                let text = format!("no connection within {:?}", self.connect_timeout);
                let (problem, outcome) = (Problem::Connection, Outcome::Unavailable);
                Err(self.errors.fault(operation, problem, outcome, text))
            }
        }
    }
}

impl<D: Database> Taken<'_, D> {
    pub(crate) fn connection(&mut self) -> Option<&mut D::Connection> {
        match &mut self.place {
            Place::Own { session, .. } => Some(&mut session.connection),
            Place::Application(connection) => Some(connection),
            Place::Empty => None,
        }
    }

    /// What the session keeps ready, if that can be known: it is not the application's.
    #[cfg(feature = "postgres")]
    pub(crate) fn ready(&mut self) -> Option<&mut Ready> {
        match &mut self.place {
            Place::Own { session, .. } => Some(&mut session.ready),
            Place::Application(_) | Place::Empty => None,
        }
    }

    /// Gives a connection back that has answered to the end.
    pub(crate) fn put_back(mut self) {
        match std::mem::replace(&mut self.place, Place::Empty) {
            Place::Own { pool, session, .. } => pool.idle().push_back(Idle {
                session,
                since: Instant::now(),
            }),
            Place::Application(connection) => drop(connection),
            Place::Empty => {}
        }
    }
}

impl<D: Database> Drop for Taken<'_, D> {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.place, Place::Empty) {
            // The application's pool makes another one.
            Place::Application(connection) => drop(connection.detach()),
            // Closed with the socket.
            Place::Own { .. } | Place::Empty => {}
        }
    }
}

impl<D: Database> fmt::Debug for Own<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").finish_non_exhaustive()
    }
}
