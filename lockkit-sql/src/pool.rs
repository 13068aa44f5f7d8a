//! Connections of the store's own.
//!
//! A request whose caller has gone, or that failed on the way, leaves its connection in the middle of
//! an answer: such a connection is closed and never used again. One that answered is used again
//! without being asked whether it is well, which would cost a round trip each time.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use lockkit_core::store::lock;
use lockkit_core::{BackendError, Outcome};
use sqlx::{Connection as _, Database};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::config::Options;
use crate::dialect::{Connecting, Source};
use crate::error::{Errors, Phase, Problem, problem_of};

/// A connection that was idle for longer is closed rather than used: servers and networks forget.
const IDLE: Duration = Duration::from_secs(300);

/// No connection is used for longer, nor a quarter less: a name may lead to another server by then.
const OLDEST: Duration = Duration::from_secs(30 * 60);

/// So long after a server took no writes none is dialled: where the name leads may change.
const LEFT: Duration = Duration::from_secs(1);

/// Connections of the store's own.
pub(crate) struct Pool<D: Database> {
    source: Source<D>,
    /// What the store changes in its options.
    change: fn(Connecting<D>) -> Connecting<D>,
    errors: Errors,
    connect_timeout: Duration,
    idle: Mutex<VecDeque<Idle<D>>>,
    /// When a server took no writes.
    left: Mutex<Option<Instant>>,
    steps: Semaphore,
    /// Renewals do not queue behind other requests for a connection.
    renewals: Semaphore,
}

struct Idle<D: Database> {
    session: Session<D>,
    since: Instant,
}

struct Session<D: Database> {
    connection: D::Connection,
    /// Whether its settings were sent.
    #[cfg(feature = "mysql")]
    is_set: bool,
    /// It is closed rather than used from then on.
    ends: Instant,
}

/// Who needs a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Step,
    Renewal,
}

/// A connection in use. Dropped without [`put_back`](Self::put_back) it is closed.
pub(crate) struct Taken<'p, D: Database> {
    pool: &'p Pool<D>,
    session: Session<D>,
    _permit: SemaphorePermit<'p>,
}

impl<D: Database> Pool<D> {
    pub(crate) fn new(
        source: Source<D>,
        change: fn(Connecting<D>) -> Connecting<D>,
        options: &Options,
        errors: Errors,
    ) -> Self {
        Self {
            source,
            change,
            errors,
            connect_timeout: options.connect_timeout,
            idle: Mutex::default(),
            left: Mutex::default(),
            steps: Semaphore::new(options.connections.max(1)),
            renewals: Semaphore::new(1),
        }
    }

    /// How to connect now.
    pub(crate) fn options(&self) -> Connecting<D> {
        (self.change)(self.source.options())
    }

    /// Forgets the idle connections: one has just been found dead, and the others are likely to be.
    pub(crate) fn distrust(&self) {
        lock(&self.idle).clear();
    }

    /// Leaves a server that takes no writes: its name may lead to the primary by now.
    pub(crate) fn leave(&self) {
        self.distrust();
        *lock(&self.left) = Some(Instant::now());
    }

    /// Whether a server may be dialled, which was not left a moment ago.
    pub(crate) fn may_dial(&self, operation: &'static str) -> Result<(), BackendError> {
        let left = *lock(&self.left);
        if left.is_none_or(|left| left.elapsed() >= LEFT) {
            return Ok(());
        }
        let text = "the server took no writes less than a second ago";
        let (problem, outcome) = (Problem::ReadOnly, Outcome::Unavailable);
        Err(self.errors.fault(operation, problem, outcome, text))
    }

    pub(crate) fn idle(&self) -> usize {
        lock(&self.idle).len()
    }

    const fn permits(&self, by: Use) -> &Semaphore {
        match by {
            Use::Step => &self.steps,
            Use::Renewal => &self.renewals,
        }
    }

    /// Takes a connection, or makes one.
    pub(crate) async fn take(
        &self,
        operation: &'static str,
        by: Use,
    ) -> Result<Taken<'_, D>, BackendError> {
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
            pool: self,
            session,
            _permit: permit,
        })
    }

    /// The connection that was used last: the others may rest until they are closed.
    fn rested(&self) -> Option<Session<D>> {
        let (mut idle, now) = (lock(&self.idle), Instant::now());
        idle.retain(|it| it.since + IDLE > now && it.session.ends > now);
        Some(idle.pop_back()?.session)
    }

    /// Opens a connection that is not one of the pool's.
    #[cfg(feature = "mysql")]
    pub(crate) async fn connection(
        &self,
        operation: &'static str,
    ) -> Result<D::Connection, BackendError> {
        Ok(self.connect(operation).await?.connection)
    }

    async fn connect(&self, operation: &'static str) -> Result<Session<D>, BackendError> {
        self.may_dial(operation)?;
        let options = self.options();
        let connecting = D::Connection::connect_with(&options);
        match timeout(self.connect_timeout, connecting).await {
            Ok(Ok(connection)) => Ok(Session::new(connection)),
            Ok(Err(error)) => Err(self.errors.of(operation, Phase::Connecting, &error)),
            Err(_) => {
                let text = format!("no connection within {:?}", self.connect_timeout);
                let (problem, outcome) = (Problem::Connection, Outcome::Unavailable);
                Err(self.errors.fault(operation, problem, outcome, text))
            }
        }
    }
}

impl<D: Database> Session<D> {
    fn new(connection: D::Connection) -> Self {
        let age = OLDEST.mul_f64(0.75 + fastrand::f64() / 4.0);
        Self {
            connection,
            #[cfg(feature = "mysql")]
            is_set: false,
            ends: Instant::now() + age,
        }
    }
}

impl<D: Database> Taken<'_, D> {
    /// The connection, and whether its settings were sent.
    #[cfg(feature = "mysql")]
    pub(crate) const fn parts(&mut self) -> (&mut D::Connection, &mut bool) {
        (&mut self.session.connection, &mut self.session.is_set)
    }

    #[cfg(feature = "postgres")]
    pub(crate) const fn connection(&mut self) -> &mut D::Connection {
        &mut self.session.connection
    }

    /// Gives a connection back that has answered to the end.
    pub(crate) fn put_back(self) {
        lock(&self.pool.idle).push_back(Idle {
            session: self.session,
            since: Instant::now(),
        });
    }

    /// After an error: gives the connection back, or closes it, as the error says.
    pub(crate) fn failed(self, error: &sqlx::Error, told: &BackendError) {
        let pool = self.pool;
        if problem_of(told) == Some(Problem::ReadOnly) {
            drop(self);
            pool.leave();
        } else if matches!(error, sqlx::Error::Database(_))
            && told.outcome() != Outcome::Indeterminate
        {
            self.put_back();
        } else {
            // Lost, or ended by the server.
            drop(self);
            pool.distrust();
        }
    }
}

impl<D: Database> fmt::Debug for Pool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}
