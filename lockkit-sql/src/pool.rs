//! Connections of the store's own, or the application's.
//!
//! A request whose caller has gone, or that failed on the way, leaves its connection in the middle of
//! an answer: such a connection is closed and never used again. One that answered is used again
//! without being asked whether it is well, which would cost a round trip each time.

use std::collections::VecDeque;
use std::fmt;
#[cfg(feature = "postgres")]
use std::sync::Arc;
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
    /// Options that leave a mark in the session, and the mark. Taken away once they were refused.
    marked: Mutex<Option<(Box<Connecting<D>>, Way)>>,
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

/// A connection, and how its session is spoken to.
struct Session<D: Database> {
    connection: D::Connection,
    way: Way,
}

/// How a session is spoken to.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// Statements go as text, and leave nothing behind.
    Text,
    /// It was told to wait for a row that somebody has locked for a second at most.
    #[cfg(feature = "mysql")]
    Brief,
    /// It was opened with a mark, which it knows if nothing stands between it and here.
    #[cfg(feature = "postgres")]
    Marked(Arc<str>),
    /// Nothing stands between; since then it keeps statements ready.
    #[cfg(feature = "postgres")]
    Direct(Instant),
}

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
                marked: Mutex::default(),
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
            Self::Application(pool, errors) => match Box::pin(pool.acquire()).await {
                Ok(connection) => Ok(Taken {
                    place: Place::Application(connection),
                }),
                Err(error) => Err(errors.of(operation, Phase::Connecting, &error)),
            },
        }
    }

    /// Opens connections of its own with options that leave a mark in their sessions.
    #[cfg(feature = "postgres")]
    pub(crate) fn mark(self, options: Connecting<D>, mark: Arc<str>) -> Self {
        if let Self::Own(own) = &self {
            *own.marked() = Some((Box::new(options), Way::Marked(mark)));
        }
        self
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
            None => Box::pin(self.connect(operation)).await?,
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

    async fn connect(&self, operation: &'static str) -> Result<Session<D>, BackendError> {
        let marked = self.marked().clone();
        if let Some((options, way)) = marked {
            match self.dial(operation, &options).await? {
                Ok(connection) => return Ok(Session { connection, way }),
                // A pooler that takes no such option.
                Err(error) if refuses_options(&error) => *self.marked() = None,
                Err(error) => return Err(self.errors.of(operation, Phase::Connecting, &error)),
            }
        }
        let dialled = self.dial(operation, &self.options).await?;
        let of = |error| self.errors.of(operation, Phase::Connecting, &error);
        Ok(Session {
            connection: dialled.map_err(of)?,
            way: Way::Text,
        })
    }

    fn marked(&self) -> MutexGuard<'_, Option<(Box<Connecting<D>>, Way)>> {
        self.marked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn dial(
        &self,
        operation: &'static str,
        options: &Connecting<D>,
    ) -> Result<Result<D::Connection, sqlx::Error>, BackendError> {
        let connecting = D::Connection::connect_with(options);
        timeout(self.connect_timeout, connecting)
            .await
            .map_err(|_| {
                let text = format!("no connection within {:?}", self.connect_timeout);
                let (problem, outcome) = (Problem::Connection, Outcome::Unavailable);
                self.errors.fault(operation, problem, outcome, text)
            })
    }
}

/// Whether a server, or what stands before it, may have refused a connection for its options alone:
/// neither for who connects nor for want of room.
fn refuses_options(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    let code = error.code().unwrap_or_default();
    !["28", "3D", "53", "57"]
        .iter()
        .any(|class| code.starts_with(class))
}

impl<D: Database> Taken<'_, D> {
    /// The connection, and how its session is spoken to, if that can be known: it is not the
    /// application's.
    pub(crate) fn parts(&mut self) -> Option<(&mut D::Connection, Option<&mut Way>)> {
        match &mut self.place {
            Place::Own { session, .. } => Some((&mut session.connection, Some(&mut session.way))),
            Place::Application(connection) => Some((connection, None)),
            Place::Empty => None,
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
