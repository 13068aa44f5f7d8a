//! The connections of a store, and messages on them.
//!
//! A connection whose caller has gone, or whose request failed on the way, may still receive a reply: it is
//! closed and never used again. One that has replied is used again without a test, which would cost a round
//! trip each time.

use std::collections::VecDeque;
use std::fmt;
use std::future::pending;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkit_core::store::lock;
use lockkit_core::{BackendError, Outcome};
use sqlx::Execute;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::config::Options;
use crate::driver::{self, Connecting, Driver, FileId, Reply, Source, prepared, send};
use crate::error::{Problem, Result, at, fault_of, is_about_server};
use crate::template::{Prepared, Template};
use crate::values::Values;

/// A connection that was idle for longer is closed: servers and networks may have forgotten it.
const IDLE: Duration = Duration::from_secs(300);

/// The longest use of a connection, of which up to a quarter is cut at random: its host name may lead to
/// another server by then.
pub(crate) const OLDEST: Duration = Duration::from_secs(30 * 60);

/// The time between two connections after a server refused writes: its host name may soon lead to another.
const AVOID: Duration = Duration::from_secs(1);

/// A conflict of transactions is retried this often.
const CONFLICTS: u32 = 5;

/// How long one connection is used.
pub(crate) fn longest_use() -> Duration {
    OLDEST.mul_f64(0.75 + fastrand::f64() / 4.0)
}

/// The connections of a store.
pub struct Pool<D: Driver> {
    source: Source<D>,
    /// What the store changes in its options.
    change: fn(Connecting<D>) -> Connecting<D>,
    pub(crate) connect_timeout: Duration,
    /// Whether connections prepare the steps of holds.
    prepares: AtomicBool,
    /// In which the store was opened.
    runtime: Handle,
    idle: Mutex<VecDeque<Open<D>>>,
    /// When a server refused writes, or a connection was made after that and before a write succeeded.
    refused: Mutex<Option<Instant>>,
    steps: Semaphore,
    /// Renewals do not queue behind other requests for a connection.
    renewals: Semaphore,
    /// Renewals that wait for a locked row, a few at once, delay neither.
    waiting: Semaphore,
}

/// What a message does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A server that refuses writes executes it too.
    Reads,
    Writes,
    /// It begins a transaction and ends it.
    Transaction,
}

impl Kind {
    fn of(sql: &str) -> Self {
        let writes = ["INSERT ", "UPDATE ", "DELETE ", "CREATE "];
        let reads = sql.starts_with("SELECT") && !writes.iter().any(|word| sql.contains(word));
        match sql.starts_with("BEGIN") {
            true => Self::Transaction,
            false if reads => Self::Reads,
            false => Self::Writes,
        }
    }
}

struct Open<D: Driver> {
    connection: D::Connection,
    /// The statements that it has prepared by name.
    prepared: Prepared,
    /// Where it leads, for messages.
    address: String,
    /// The file that it has open.
    file: Option<FileId>,
    /// It is not used after this.
    ends: Instant,
    /// When it was given back last.
    used: Instant,
}

/// A connection in use. It is closed when it is dropped without [`put_back`](Self::put_back).
struct Pooled<'p, D: Driver> {
    pool: &'p Pool<D>,
    open: Open<D>,
    _permit: Option<SemaphorePermit<'p>>,
}

impl<D: Driver> Pool<D> {
    pub(crate) fn new(
        source: Source<D>,
        change: fn(Connecting<D>) -> Connecting<D>,
        options: &Options,
        prepares: bool,
    ) -> Self {
        Self {
            source,
            change,
            connect_timeout: options.connect_timeout,
            prepares: AtomicBool::new(prepares),
            runtime: Handle::current(),
            idle: Mutex::default(),
            refused: Mutex::default(),
            steps: Semaphore::new(if D::ALONE {
                1
            } else {
                options.connections.clamp(1, 1000)
            }),
            renewals: Semaphore::new(1),
            waiting: Semaphore::new(4),
        }
    }

    /// Sends a message of one or more statements.
    pub(crate) async fn ask(&self, operation: &'static str, text: &str) -> Result<Vec<Reply<D>>> {
        self.send(operation, &self.steps, Kind::of(text), |_| {
            driver::text(text)
        })
        .await
    }

    /// Sends a message that opens the store or its session: no client limits the time until the reply.
    pub(crate) async fn ask_to_open(&self, text: &str) -> Result<Vec<Reply<D>>> {
        // First: connecting has a limit of its own.
        self.take("open", &self.steps).await?.put_back();
        let asked = timeout(self.connect_timeout, self.ask("open", text)).await;
        asked.unwrap_or_else(|_| Err(self.silent()))
    }

    /// The error of a request that opens the store or its session.
    pub(crate) fn silent(&self) -> BackendError {
        let limit = self.connect_timeout;
        let text = format!(
            "no reply within {limit:?}: the server is silent, or another session has locked the table"
        );
        let (problem, outcome) = (Problem::Connection, Outcome::Indeterminate);
        let error = D::ERRORS.fault("open", problem, outcome, text);
        at(&self.address(), error)
    }

    /// Sends a message that is a transaction, as prepared statements where the server allows it. After an error its
    /// connection is closed, which rolls back what is not committed.
    pub(crate) async fn transact(
        &self,
        operation: &'static str,
        template: &Template,
        values: &Values<'_>,
    ) -> Result<Vec<Reply<D>>> {
        if let Some(names) = &D::SYNTAX.names {
            let message = |known: &mut _| driver::text(&template.by_name(names, values, known));
            let sent = self.send(operation, &self.steps, Kind::Transaction, message);
            if let Some(result) = self.prepared(sent).await {
                return result;
            }
        }
        let text = template.text(values);
        let message = |_: &mut _| driver::text(&text);
        self.send(operation, &self.steps, Kind::Transaction, message)
            .await
    }

    /// Sends a renewal, which waits for no other request but others that wait for a row, if it `waits` for one.
    pub(crate) async fn renew(&self, text: &str, waits: bool) -> Result<Vec<Reply<D>>> {
        let permits = match (D::ALONE, waits) {
            (true, _) => &self.steps,
            (false, true) => &self.waiting,
            (false, false) => &self.renewals,
        };
        self.send("renew", permits, Kind::of(text), |_| driver::text(text))
            .await
    }

    /// Sends a step of a hold that is one statement, as a prepared one where the server allows it.
    pub(crate) async fn step(
        &self,
        operation: &'static str,
        template: &Template,
        values: &Values<'_>,
    ) -> Result<Vec<Reply<D>>> {
        let message = |_: &mut _| prepared(template, values);
        let kind = Kind::of(&template.prepared());
        let sent = self.send(operation, &self.steps, kind, message);
        match self.prepared(sent).await {
            Some(result) => result,
            None => self.ask(operation, &template.text(values)).await,
        }
    }

    /// Waits for a request that needs prepared statements. `None` if there are none: nothing was executed.
    async fn prepared<T>(&self, sent: impl Future<Output = Result<T>>) -> Option<Result<T>> {
        if !self.prepares.load(Ordering::Relaxed) {
            return None;
        }
        match sent.await {
            Err(error) if D::ERRORS.is_unprepared(&error) => {
                self.prepares.store(false, Ordering::Relaxed);
                None
            }
            result => Some(result),
        }
    }

    /// Sends a message, again after a conflict of transactions.
    async fn send<M: Execute<'static, D> + 'static>(
        &self,
        operation: &'static str,
        permits: &Semaphore,
        kind: Kind,
        message: impl Fn(&mut Prepared) -> M,
    ) -> Result<Vec<Reply<D>>> {
        let mut conflicts = 0;
        loop {
            let mut pooled = self.take(operation, permits).await?;
            let open = &mut pooled.open;
            let message = message(&mut open.prepared);
            let error = match send(&mut open.connection, operation, message).await {
                Ok(replies) => {
                    if kind != Kind::Reads {
                        *lock(&self.refused) = None;
                    }
                    pooled.put_back();
                    return Ok(replies);
                }
                Err(error) if is_about_server(&error) => at(&pooled.open.address, error),
                Err(error) => error,
            };
            pooled.failed(&error, kind);
            if !D::ERRORS.is_conflict(&error) || conflicts == CONFLICTS {
                return Err(error);
            }
            conflicts += 1;
        }
    }

    pub(crate) fn options(&self) -> Connecting<D> {
        (self.change)(self.source.options())
    }

    /// Where it connects to now, for messages.
    pub(crate) fn address(&self) -> String {
        self.source.read(D::address)
    }

    /// For requests of callers that may run in another runtime: a connection lasts no longer than that in which it was
    /// made. The runtime in which the store was opened or, if that has ended, the one of the caller.
    pub(crate) fn runtime(&self) -> Handle {
        let probe = self.runtime.spawn(pending::<()>());
        let has_ended = probe.is_finished();
        probe.abort();
        let now = Handle::try_current().ok().filter(|_| has_ended);
        now.unwrap_or_else(|| self.runtime.clone())
    }

    pub(crate) fn idle(&self) -> usize {
        lock(&self.idle).len()
    }

    /// Closes the idle connections, where they are likely to be lost or lead to another server than new ones.
    pub(crate) fn close_idle(&self) {
        lock(&self.idle).clear();
    }

    /// After a server refused writes, allows one connection in a second to all callers together.
    pub(crate) fn may_connect(&self, operation: &'static str) -> Result<()> {
        let mut refused = lock(&self.refused);
        let Some(last) = &mut *refused else {
            return Ok(());
        };
        if last.elapsed() >= AVOID {
            *last = Instant::now();
            return Ok(());
        }
        let text = "the server refused writes, and the primary is looked for once a second";
        let (problem, outcome) = (Problem::ReadOnly, Outcome::Unavailable);
        let error = D::ERRORS.fault(operation, problem, outcome, text);
        Err(at(&self.address(), error))
    }

    /// The same for a session, which needs a connection of the pool beside its own: both count as one.
    pub(crate) async fn may_open_session(&self) -> Result<()> {
        if self.idle() > 0 {
            return self.may_connect("open");
        }
        self.take("open", &self.steps).await?.put_back();
        Ok(())
    }

    async fn take<'p>(
        &'p self,
        operation: &'static str,
        permits: &'p Semaphore,
    ) -> Result<Pooled<'p, D>> {
        // Nobody closes them.
        let permit = permits.acquire().await.ok();
        let open = match self.last_used() {
            Some(open) => open,
            None => Box::pin(self.open(operation)).await?,
        };
        Ok(Pooled {
            pool: self,
            open,
            _permit: permit,
        })
    }

    /// The connection that was used last, so that the others can become idle for long enough to be closed.
    fn last_used(&self) -> Option<Open<D>> {
        let (mut idle, now) = (lock(&self.idle), Instant::now());
        let file = D::file(&self.source);
        idle.retain(|it| it.used + IDLE > now && it.ends > now && it.file == file);
        idle.pop_back()
    }

    async fn open(&self, operation: &'static str) -> Result<Open<D>> {
        self.may_connect(operation)?;
        // Before it connects: the file may be replaced meanwhile.
        let (address, file) = (self.address(), D::file(&self.source));
        let connection = self.connect(operation).await?;
        Ok(Open {
            connection,
            prepared: Prepared::default(),
            address,
            file: file.or_else(|| D::file(&self.source)),
            ends: Instant::now() + longest_use(),
            used: Instant::now(),
        })
    }

    /// Makes a connection that is not one of the pool's, without asking whether it may.
    pub(crate) async fn connect(&self, operation: &'static str) -> Result<D::Connection> {
        let options = self.options();
        let error = match timeout(self.connect_timeout, D::connect(&options)).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => D::ERRORS.of(operation, true, &error),
            Err(_) => {
                let text = format!("no connection within {:?}", self.connect_timeout);
                let (problem, outcome) = (Problem::Connection, Outcome::Unavailable);
                D::ERRORS.fault(operation, problem, outcome, text)
            }
        };
        Err(at(&D::address(&options), error))
    }
}

impl<D: Driver> Pooled<'_, D> {
    /// Gives back a connection that has replied to the end.
    fn put_back(mut self) {
        self.open.used = Instant::now();
        lock(&self.pool.idle).push_back(self.open);
    }

    /// Gives the connection back, or closes it, as the error demands.
    fn failed(self, error: &BackendError, kind: Kind) {
        let (pool, fault) = (self.pool, fault_of(error));
        let replied = fault.is_some_and(|fault| fault.code().is_some());
        if fault.is_some_and(|fault| fault.problem() == Problem::ReadOnly) {
            drop(self);
            pool.close_idle();
            // The host name may lead to the primary by now.
            if error.outcome() == Outcome::Unavailable {
                *lock(&pool.refused) = Some(Instant::now());
            }
        } else if D::ERRORS.is_unprepared(error) {
            // The driver believes that the connection knows the statement.
            drop(self);
        } else if replied
            && (error.outcome() != Outcome::Indeterminate || D::ERRORS.is_conflict(error))
        {
            if kind != Kind::Transaction {
                self.put_back();
            }
        } else {
            drop(self);
            // The connection was lost, or ended by the server: the idle ones are likely to be lost too.
            pool.close_idle();
        }
    }
}

impl<D: Driver> fmt::Debug for Pool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

#[cfg(feature = "sqlite")]
#[cfg(test)]
mod tests {
    use sqlx::sqlite::SqliteConnectOptions;

    use super::*;
    use crate::table::Table;

    fn pool(file: &std::path::Path) -> Pool<sqlx::Sqlite> {
        let file = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true);
        Pool::new(file.into(), |file| file, &Options::default(), false)
    }

    #[tokio::test]
    async fn connection_older_than_the_largest_age_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        // Seen by its own connection alone.
        let own = "CREATE TEMP TABLE own (n INTEGER)";
        let look = "SELECT n FROM own";
        let pool = pool(&dir.path().join("a.db"));
        let before = Instant::now();
        let ends = pool.open("open").await.unwrap().ends - before;
        assert!(OLDEST.mul_f64(0.75) <= ends, "{ends:?}");
        assert!(ends <= OLDEST + before.elapsed(), "{ends:?}");
        pool.ask("open", own).await.unwrap();
        pool.ask("open", look).await.unwrap();

        assert_eq!(pool.idle(), 1);
        lock(&pool.idle)[0].ends = Instant::now();
        let error = pool.ask("open", look).await.unwrap_err();
        assert_eq!(fault_of(&error).unwrap().problem(), Problem::Schema);
    }

    /// A server that refuses writes executes the looks of waiters.
    #[tokio::test]
    async fn only_writes_prove_that_the_server_takes_them() {
        let dir = tempfile::tempdir().unwrap();
        let pool = pool(&dir.path().join("a.db"));
        pool.ask("attempt", "CREATE TABLE own (n INTEGER)")
            .await
            .unwrap();
        for (text, takes_writes) in [
            ("SELECT n FROM own", false),
            ("INSERT INTO own VALUES (1)", true),
            ("UPDATE own SET n = 2", true),
            ("SELECT 1; DELETE FROM own", true),
        ] {
            *lock(&pool.refused) = Some(Instant::now());
            pool.ask("attempt", text).await.unwrap();
            assert_eq!(lock(&pool.refused).is_none(), takes_writes, "{text}");
        }
        let syntax = sqlx::Sqlite::SYNTAX;
        let look = Template::read("SELECT n FROM own;", &Table::default(), syntax);
        *lock(&pool.refused) = Some(Instant::now());
        let looked = pool.step("attempt", &look, &Values::new()).await;
        assert_eq!(looked.unwrap().len(), 1);
        assert!(lock(&pool.refused).is_some());
    }
}
