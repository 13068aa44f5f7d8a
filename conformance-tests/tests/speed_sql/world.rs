//! One server, clients of it, and slow links to it.

use conformance_tests::servers::{MysqlPrograms, MysqlServer, PostgresPrograms, PostgresServer};
use conformance_tests::{Failure, Outcome, Storage};
use lockkit_core::LockClient;
use lockkit_sql::{MysqlStore, PostgresStore};
#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{ConnectOptions as _, MySqlConnection, PgConnection};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// What a server is to be good at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Speed,
    /// Every commit waits for the disk.
    Durability,
    /// Its statements can be counted.
    Count,
}

impl For {
    const fn storage(self) -> Storage {
        match self {
            Self::Durability => Storage::Disk,
            Self::Speed | Self::Count => Storage::Memory,
        }
    }
}

/// A server, and a bare connection of its client library.
pub(crate) trait Database: Sized + 'static {
    type Connection: Updates;

    /// How many times longer than two updates of a row a cycle of one client may take.
    const SOLO: f64;
    /// A turn of one of eight clients that all want one lock, in cycles of one client alone, without optimisation.
    const TURN: f64;

    async fn start(kind: For) -> Outcome<Self>;
    fn port(&self) -> u16;
    async fn client_at(port: u16, pin: bool) -> Outcome<LockClient>;
    async fn connect(&self, port: u16) -> Outcome<Self::Connection>;
    /// As the administrator: the first number of the answer.
    async fn number(&self, sql: &str) -> Outcome<u64>;
    async fn run(&self, sql: &str) -> Outcome;
    /// How many statements have changed the table of locks.
    async fn updates(&self) -> Outcome<u64>;
}

/// The least that a lock in a row needs: one row that is changed twice.
pub(crate) trait Updates: Send {
    async fn update(&mut self, n: i64) -> Outcome;
    async fn ask(&mut self) -> Outcome;
}

pub(crate) struct Postgres(PostgresServer);

impl Database for Postgres {
    type Connection = PgConnection;

    const SOLO: f64 = 1.3;
    const TURN: f64 = 2.5;

    async fn start(kind: For) -> Outcome<Self> {
        let settings: &[&str] = match kind {
            For::Speed => &[],
            For::Durability => &["fsync=on", "full_page_writes=on"],
            For::Count => &["log_duration=on"],
        };
        let programs = PostgresPrograms::system().storage(kind.storage());
        let server = PostgresServer::start(&programs, settings).await?;
        let sql = "create table bare (name bytea primary key, n bigint); \
                   insert into bare values ('bare', 0)";
        server.run(sql).await?;
        Ok(Self(server))
    }

    fn port(&self) -> u16 {
        self.0.port()
    }

    async fn client_at(port: u16, pin: bool) -> Outcome<LockClient> {
        let store = PostgresStore::builder(options(port)).pin(pin);
        Ok(LockClient::new(store.connect().await?)?)
    }

    async fn connect(&self, port: u16) -> Outcome<PgConnection> {
        Ok(options(port).connect().await?)
    }

    async fn number(&self, sql: &str) -> Outcome<u64> {
        first(&self.0.ask(sql).await?)
    }

    async fn run(&self, sql: &str) -> Outcome {
        Ok(self.0.run(sql).await?)
    }

    async fn updates(&self) -> Outcome<u64> {
        // Each is told with its end, and of the renewals alone.
        let log = self.0.process().log();
        let renewals = log.lines().filter(|line| line.contains("duration: "));
        u64::try_from(renewals.count()).map_err(Failure::from)
    }
}

pub(crate) fn options(port: u16) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .host("127.0.0.1")
        .port(port)
        .ssl_mode(PgSslMode::Disable)
        .username("postgres")
        .database("postgres")
}

/// 1 if the server has written what is not yet on its disk, else 0.
pub(crate) async fn unwritten(asker: &mut PgConnection) -> Outcome<u32> {
    let text = "select pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()";
    let behind: bool = sqlx::query_scalar(text).fetch_one(asker).await?;
    Ok(u32::from(behind))
}

impl Updates for PgConnection {
    async fn update(&mut self, n: i64) -> Outcome {
        let update = sqlx::query("update bare set n = $1 where name = 'bare'").bind(n);
        update.execute(self).await?;
        Ok(())
    }

    async fn ask(&mut self) -> Outcome {
        sqlx::raw_sql("select 1").execute(self).await?;
        Ok(())
    }
}

/// MySQL 8, or MariaDB.
pub(crate) struct Mysql<const EIGHT: bool>(MysqlServer);

pub(crate) type Maria = Mysql<false>;
pub(crate) type Mysql8 = Mysql<true>;

impl<const EIGHT: bool> Database for Mysql<EIGHT> {
    type Connection = MySqlConnection;

    /// To pass over a locked row the server needs a temporary table.
    const SOLO: f64 = 1.6;
    /// The looks of those who wait, and the first one's pause between them.
    const TURN: f64 = 12.0;

    async fn start(kind: For) -> Outcome<Self> {
        let settings: &[&str] = match kind {
            For::Durability => &[
                "--innodb-flush-log-at-trx-commit=1",
                "--innodb-flush-method=fsync",
            ],
            For::Speed | For::Count => &[],
        };
        let programs = match EIGHT {
            true => MysqlPrograms::mysql(),
            false => MysqlPrograms::mariadb(),
        };
        let server = MysqlServer::start(&programs.storage(kind.storage()), settings).await?;
        let sql = "create database app; \
                   create table app.bare (name varbinary(512) primary key, n bigint); \
                   insert into app.bare values ('bare', 0)";
        server.run(sql).await?;
        Ok(Self(server))
    }

    fn port(&self) -> u16 {
        self.0.port()
    }

    async fn client_at(port: u16, pin: bool) -> Outcome<LockClient> {
        let store = MysqlStore::builder(my_options(port)).pin(pin);
        Ok(LockClient::new(store.connect().await?)?)
    }

    async fn connect(&self, port: u16) -> Outcome<MySqlConnection> {
        Ok(my_options(port).connect().await?)
    }

    async fn number(&self, sql: &str) -> Outcome<u64> {
        first(&self.0.ask(sql).await?)
    }

    async fn run(&self, sql: &str) -> Outcome {
        Ok(self.0.run(sql).await?)
    }

    async fn updates(&self) -> Outcome<u64> {
        self.number("show global status like 'Com_update_multi'")
            .await
    }
}

fn my_options(port: u16) -> MySqlConnectOptions {
    MySqlConnectOptions::new()
        .host("127.0.0.1")
        .port(port)
        .ssl_mode(MySqlSslMode::Disabled)
        .username("admin")
        .database("app")
}

impl Updates for MySqlConnection {
    async fn update(&mut self, n: i64) -> Outcome {
        let update = sqlx::query("update bare set n = ? where name = 'bare'").bind(n);
        update.execute(self).await?;
        Ok(())
    }

    async fn ask(&mut self) -> Outcome {
        sqlx::raw_sql("select 1").execute(self).await?;
        Ok(())
    }
}

fn first(answer: &[String]) -> Outcome<u64> {
    let number = answer.first().and_then(|it| it.parse().ok());
    number.ok_or_else(|| Failure::new(format!("no number: {answer:?}")))
}

/// Does something on a thread, with all threads that it starts, on the processor of this moment. What it
/// costs to wake a thread on another changes from one run to the next, by as much as all the rest.
pub(crate) async fn on_one_processor<F>(work: fn() -> F) -> Outcome
where
    F: Future<Output = Outcome> + 'static,
{
    let (answer, answered) = oneshot::channel();
    let thread = std::thread::Builder::new();
    thread.spawn(move || {
        // If that fails, no caller waits for it any more.
        drop(answer.send(here(work)));
    })?;
    answered.await?
}

/// Does something on this thread and its processor.
fn here<F: Future<Output = Outcome>>(work: fn() -> F) -> Outcome {
    #[cfg(target_os = "linux")]
    {
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        sched_setaffinity(None, &one)?;
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work())
}
