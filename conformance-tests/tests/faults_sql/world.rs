//! One server with an application's user, and clients of each kind on it.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conformance_tests::proxy::Proxy;
use conformance_tests::servers::{
    MysqlPrograms, MysqlServer, PostgresPrograms, PostgresServer, ServerProcess,
};
use conformance_tests::task::until;
use conformance_tests::{Outcome, Server, ensure};
use lockkit_core::{Guard, Lease, Lock, LockClient, PollRange};
use lockkit_sql::{
    Dialect, GuardedError, Mysql, MysqlStore, PostgresStore, ReleaseIn, SqlStoreBuilder, StillHeld,
    UncommittedRelease,
};
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use sqlx::pool::PoolOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Pool, Transaction};

/// The lease of the tests in which one ends.
pub(crate) const TTL: Duration = Duration::from_millis(2500);
/// The lease of those in which none may end.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// The time that a busy machine or a new connection adds.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// How holds are kept.
pub(crate) const WAYS: [&str; 2] = ["lease", "pin"];

/// What makes sessions different.
pub(crate) struct Setting {
    pub(crate) statements: &'static str,
    /// Questions to such a session, and what it returns.
    pub(crate) shown: &'static [(&'static str, &'static str)],
}

type ConnectOptions<D> =
    <<<D as Database>::Driver as sqlx::Database>::Connection as sqlx::Connection>::Options;

/// A database server, its user `app`, and a table `counter` of that user.
pub(crate) trait Database: Sized + Send + Sync + 'static {
    type Driver: sqlx::Database;
    type Dialect: Dialect<Driver = Self::Driver>;

    fn missing() -> Option<String>;

    /// As the last argument of `command`, if there is one.
    async fn start_below(command: &[OsString]) -> Outcome<Self>;

    async fn start() -> Outcome<Self> {
        Self::start_below(&[]).await
    }

    fn process(&self) -> &ServerProcess;
    async fn restart(&self) -> Outcome;

    /// As the administrator.
    fn run(&self, sql: &str) -> impl Future<Output = Outcome> + Send;
    async fn ask(&self, sql: &str) -> Outcome<Vec<String>>;

    /// How to connect as `app`.
    fn options(&self) -> ConnectOptions<Self> {
        self.options_at(self.port())
    }

    /// The same to another port, of a proxy.
    fn options_at(&self, port: u16) -> ConnectOptions<Self>;
    fn builder(&self) -> SqlStoreBuilder<Self::Dialect>;
    fn url(&self, query: &str) -> String;
    fn port(&self) -> u16;

    /// Ends every session of `app`. Returns of how many.
    async fn end_sessions(&self) -> Outcome<usize>;
    /// Ends only those that pin a row: a client that waits has a session too, and may get the lock a moment
    /// later. Returns of how many.
    async fn end_pins(&self) -> Outcome<usize>;

    /// Ends every session of `app`. There must be one, or soon be one again.
    async fn kill_sessions(&self) -> Outcome {
        let killed = async || Ok(self.end_sessions().await? > 0);
        until("a session is killed", killed).await
    }

    /// Ends those that pin a row. There must be one.
    async fn kill_pins(&self) -> Outcome {
        ensure(self.end_pins().await? > 0, "no pin was killed")
    }

    /// Makes all later sessions of `app` so, and looks whether one is.
    async fn set(&self, setting: &Setting) -> Outcome {
        self.run(setting.statements).await?;
        let pool = self.pool(1).await?;
        for (question, expected) in setting.shown {
            let value = Self::ask_of(&pool, question).await?;
            ensure(value == *expected, format!("{question}: {value}"))?;
        }
        pool.close().await;
        Ok(())
    }

    /// The text that a session of a pool returns.
    async fn ask_of(pool: &Pool<Self::Driver>, question: &'static str) -> Outcome<String>;

    /// How many sessions `app` has.
    async fn sessions(&self) -> Outcome<u64>;
    /// Statements that failed, from the server's log.
    async fn errors(&self) -> Outcome<Vec<String>>;

    /// A pool of the application, with this many connections.
    async fn pool(&self, most: u32) -> Outcome<Pool<Self::Driver>> {
        self.pool_at(self.port(), most).await
    }

    async fn pool_at(&self, port: u16, most: u32) -> Outcome<Pool<Self::Driver>> {
        let pool = PoolOptions::new()
            .max_connections(most)
            .acquire_timeout(SOON);
        Ok(pool.connect_with(self.options_at(port)).await?)
    }

    /// Carries out a statement inside a transaction.
    fn execute(
        transaction: &mut Transaction<'_, Self::Driver>,
        sql: String,
    ) -> impl Future<Output = Outcome> + Send;

    /// Counts one up.
    fn count(
        transaction: &mut Transaction<'_, Self::Driver>,
    ) -> impl Future<Output = Outcome> + Send {
        Self::execute(transaction, "update counter set n = n + 1".to_owned())
    }

    /// Locks the row of a name until the transaction ends.
    fn lock_row(
        transaction: &mut Transaction<'_, Self::Driver>,
        name: &str,
    ) -> impl Future<Output = Outcome> + Send {
        let sql = format!("select 1 from app.lockkit_locks where name = '{name}' for update");
        Self::execute(transaction, sql)
    }

    async fn counted(&self) -> Outcome<u64> {
        Ok(self.ask("select n from app.counter").await?[0].parse()?)
    }

    /// Whether the hold lasts, so that no other takes it over before the transaction ends.
    async fn still_held(
        client: &LockClient,
        guard: &Guard,
        transaction: &mut Transaction<'_, Self::Driver>,
    ) -> Result<(), GuardedError>;

    /// Releases with the commit.
    fn release_in(
        guard: Guard,
        transaction: &mut Transaction<'_, Self::Driver>,
    ) -> impl Future<Output = Result<UncommittedRelease, GuardedError>> + Send;

    /// Locks the row of a name for this time, as another program would.
    fn row_lock(name: &str, span: Duration) -> String {
        let [unlimited, sleep] = Self::SLEEP;
        format!(
            "{unlimited} begin; select 1 from app.lockkit_locks where name = '{name}' for update; \
             select {sleep}({}); commit",
            span.as_secs_f64()
        )
    }

    /// The server's clock, in microseconds since 1970.
    const NOW: &'static str;
    /// What lets a statement of the administrator last, and the function that waits for seconds.
    const SLEEP: [&'static str; 2];
    const IMPATIENT: Setting;
    const KILLS_THE_IDLE: Setting;
    const STRICT: Setting;
    /// Statements that make all of `app`'s later sessions so, each with what ends it again.
    const READ_ONLY: &'static [[&'static str; 2]];
    /// Statements that let the server take no writes, also from sessions that there are; and those that end it.
    const DEMOTED: [&'static [&'static str]; 2];
    /// Takes the right from `app` to make a table.
    const NO_TABLES: &'static str;
    /// What the documents say that a user needs, and a user without more.
    const RIGHTS: &'static str;
    /// A URL that leads to a socket which is not there.
    const NO_SOCKET: &'static str;
}

pub(crate) struct Postgres(PostgresServer);

impl Database for Postgres {
    type Driver = sqlx::Postgres;
    type Dialect = lockkit_sql::Postgres;

    fn missing() -> Option<String> {
        PostgresPrograms::system().missing()
    }

    async fn start_below(command: &[OsString]) -> Outcome<Self> {
        let programs = PostgresPrograms::system();
        let server = PostgresServer::start_with(&programs, &[], command).await?;
        let sql = "create role app login; create schema app authorization app; \
                   alter role app set search_path = app; \
                   create table app.counter (n bigint); alter table app.counter owner to app; \
                   insert into app.counter values (0)";
        server.run(sql).await?;
        Ok(Self(server))
    }

    fn process(&self) -> &ServerProcess {
        self.0.process()
    }

    async fn restart(&self) -> Outcome {
        self.0.restart().await
    }

    async fn run(&self, sql: &str) -> Outcome {
        Ok(self.0.run(sql).await?)
    }

    async fn ask(&self, sql: &str) -> Outcome<Vec<String>> {
        Ok(self.0.ask(sql).await?)
    }

    fn options_at(&self, port: u16) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(port)
            .username("app")
            .database("postgres")
    }

    fn builder(&self) -> SqlStoreBuilder<Self::Dialect> {
        PostgresStore::builder(self.options())
    }

    fn url(&self, query: &str) -> String {
        format!("{}?{query}", self.0.url("app"))
    }

    fn port(&self) -> u16 {
        self.0.port()
    }

    async fn end_sessions(&self) -> Outcome<usize> {
        let sql = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'";
        let ended = self.ask(sql).await?;
        Ok(ended.iter().filter(|it| *it == "t").count())
    }

    async fn end_pins(&self) -> Outcome<usize> {
        let sql = "select pg_terminate_backend(s.pid) from pg_locks as s join app.lockkit_locks as l \
                   on l.session = (s.classid::bigint << 32 | s.objid::bigint) \
                   where s.locktype = 'advisory' and l.holder is not null";
        let ended = self.ask(sql).await?;
        Ok(ended.iter().filter(|it| *it == "t").count())
    }

    async fn ask_of(pool: &Pool<Self::Driver>, question: &'static str) -> Outcome<String> {
        Ok(sqlx::query_scalar(question).fetch_one(pool).await?)
    }

    async fn sessions(&self) -> Outcome<u64> {
        let sql = "select count(*) from pg_stat_activity where usename = 'app'";
        Ok(self.ask(sql).await?[0].parse()?)
    }

    async fn errors(&self) -> Outcome<Vec<String>> {
        Ok(self.0.errors())
    }

    async fn execute(transaction: &mut Transaction<'_, Self::Driver>, sql: String) -> Outcome {
        let query = sqlx::query(AssertSqlSafe(sql));
        query.execute(&mut **transaction).await?;
        Ok(())
    }

    async fn still_held(
        client: &LockClient,
        guard: &Guard,
        transaction: &mut Transaction<'_, Self::Driver>,
    ) -> Result<(), GuardedError> {
        client.still_held(guard, transaction).await
    }

    async fn release_in(
        guard: Guard,
        transaction: &mut Transaction<'_, Self::Driver>,
    ) -> Result<UncommittedRelease, GuardedError> {
        guard.release_in(transaction).await
    }

    const NOW: &'static str = "(extract(epoch from clock_timestamp()) * 1000000)::bigint";
    const SLEEP: [&'static str; 2] = ["", "pg_sleep"];
    const IMPATIENT: Setting = Setting {
        statements: "alter role app set lock_timeout = '10ms'; \
                     alter role app set statement_timeout = '1s'",
        shown: &[
            ("show lock_timeout", "10ms"),
            ("show statement_timeout", "1s"),
        ],
    };
    const KILLS_THE_IDLE: Setting = Setting {
        statements: "alter role app set idle_session_timeout = '300ms'; \
                     alter role app set idle_in_transaction_session_timeout = '300ms'",
        shown: &[
            ("show idle_session_timeout", "300ms"),
            ("show idle_in_transaction_session_timeout", "300ms"),
        ],
    };
    const STRICT: Setting = Setting {
        statements: "alter role app set default_transaction_isolation = 'serializable'",
        shown: &[("show transaction_isolation", "serializable")],
    };
    const READ_ONLY: &'static [[&'static str; 2]] = &[[
        "alter role app set default_transaction_read_only = on",
        "alter role app set default_transaction_read_only = off",
    ]];
    const DEMOTED: [&'static [&'static str]; 2] = [
        &[
            "alter system set default_transaction_read_only = on",
            "select pg_reload_conf()",
        ],
        &[
            "alter system reset default_transaction_read_only",
            "select pg_reload_conf()",
        ],
    ];
    const NO_TABLES: &'static str = "alter schema app owner to postgres; \
         grant usage on schema app to app";
    const RIGHTS: &'static str = "create role poor login; grant usage on schema app to poor; \
         alter role poor set search_path = app; \
         grant select, insert, update, delete on app.lockkit_locks, app.lockkit_locks_holds to poor";
    const NO_SOCKET: &'static str = "postgres://app:secret@/postgres?host=/no/such";
}

pub(crate) struct Maria(MysqlServer);

impl Database for Maria {
    type Driver = sqlx::MySql;
    type Dialect = Mysql;

    fn missing() -> Option<String> {
        MysqlPrograms::mariadb().missing()
    }

    async fn start_below(command: &[OsString]) -> Outcome<Self> {
        let programs = MysqlPrograms::mariadb();
        // It writes down every statement that fails.
        let settings = ["--plugin-load-add=sql_errlog", "--sql-error-log=ON"];
        let server = MysqlServer::start_with(&programs, &settings, command).await?;
        let sql = "create database app; create user app@'127.0.0.1' identified by 'secret'; \
                   grant create, select, insert, update, delete on app.* to app@'127.0.0.1'; \
                   create table app.counter (n bigint); insert into app.counter values (0)";
        server.run(sql).await?;
        Ok(Self(server))
    }

    fn process(&self) -> &ServerProcess {
        self.0.process()
    }

    async fn restart(&self) -> Outcome {
        self.0.restart().await
    }

    async fn run(&self, sql: &str) -> Outcome {
        Ok(self.0.run(sql).await?)
    }

    async fn ask(&self, sql: &str) -> Outcome<Vec<String>> {
        Ok(self.0.ask(sql).await?)
    }

    fn options_at(&self, port: u16) -> MySqlConnectOptions {
        MySqlConnectOptions::new()
            .host("127.0.0.1")
            .port(port)
            .ssl_mode(MySqlSslMode::Disabled)
            .username("app")
            .password("secret")
            .database("app")
    }

    fn builder(&self) -> SqlStoreBuilder<Self::Dialect> {
        MysqlStore::builder(self.options())
    }

    fn url(&self, query: &str) -> String {
        format!("mysql://app:secret@127.0.0.1:{}/app?{query}", self.0.port())
    }

    fn port(&self) -> u16 {
        self.0.port()
    }

    async fn end_sessions(&self) -> Outcome<usize> {
        let sql = "select id from information_schema.processlist where user = 'app'";
        let mut ended = 0;
        for id in self.ask(sql).await? {
            match self.run(&format!("kill {id}")).await {
                Ok(()) => ended += 1,
                // It has ended by itself.
                Err(failure) if failure.message().contains("Unknown thread id") => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(ended)
    }

    async fn end_pins(&self) -> Outcome<usize> {
        let sql = "select distinct is_used_lock(concat('lockkit_', session)) from app.lockkit_locks \
                   where holder is not null and is_used_lock(concat('lockkit_', session)) is not null";
        let pins = self.ask(sql).await?;
        for id in &pins {
            self.run(&format!("kill {id}")).await?;
        }
        Ok(pins.len())
    }

    async fn ask_of(pool: &Pool<Self::Driver>, question: &'static str) -> Outcome<String> {
        Ok(sqlx::query_scalar(question).fetch_one(pool).await?)
    }

    async fn sessions(&self) -> Outcome<u64> {
        let sql = "select count(*) from information_schema.processlist where user = 'app'";
        Ok(self.ask(sql).await?[0].parse()?)
    }

    async fn errors(&self) -> Outcome<Vec<String>> {
        let log = self.0.process().data().join("data/sql_errors.log");
        let text = std::fs::read_to_string(log)?;
        // It has warnings too.
        let app = text.lines().filter(|line| line.contains("app["));
        let app = app.filter(|line| line.contains(" ERROR "));
        Ok(app.map(str::to_owned).collect())
    }

    async fn execute(transaction: &mut Transaction<'_, Self::Driver>, sql: String) -> Outcome {
        let query = sqlx::query(AssertSqlSafe(sql));
        query.execute(&mut **transaction).await?;
        Ok(())
    }

    async fn still_held(
        client: &LockClient,
        guard: &Guard,
        transaction: &mut Transaction<'_, Self::Driver>,
    ) -> Result<(), GuardedError> {
        client.still_held(guard, transaction).await
    }

    async fn release_in(
        guard: Guard,
        transaction: &mut Transaction<'_, Self::Driver>,
    ) -> Result<UncommittedRelease, GuardedError> {
        guard.release_in(transaction).await
    }

    const NOW: &'static str =
        "timestampdiff(microsecond, timestamp'1970-01-01 00:00:00', utc_timestamp(6))";
    const SLEEP: [&'static str; 2] = ["set max_statement_time = 0;", "sleep"];
    const IMPATIENT: Setting = Setting {
        statements: "set global innodb_lock_wait_timeout = 1; set global max_statement_time = 1",
        shown: &[
            ("select concat(@@innodb_lock_wait_timeout)", "1"),
            ("select concat(@@max_statement_time)", "1.000000"),
        ],
    };
    const KILLS_THE_IDLE: Setting = Setting {
        statements: "set global wait_timeout = 1; set global idle_transaction_timeout = 1",
        shown: &[
            ("select concat(@@wait_timeout)", "1"),
            ("select concat(@@idle_transaction_timeout)", "1"),
        ],
    };
    const STRICT: Setting = Setting {
        statements: "set global tx_isolation = 'SERIALIZABLE'",
        shown: &[("select @@tx_isolation", "SERIALIZABLE")],
    };
    const READ_ONLY: &'static [[&'static str; 2]] = &[
        ["set global read_only = on", "set global read_only = off"],
        [
            "set global init_connect = 'set session transaction read only'",
            "set global init_connect = ''",
        ],
    ];
    const DEMOTED: [&'static [&'static str]; 2] = [
        &["set global read_only = on"],
        &["set global read_only = off"],
    ];
    const NO_TABLES: &'static str = "revoke create on app.* from app@'127.0.0.1'";
    const RIGHTS: &'static str = "create user poor@'127.0.0.1' identified by 'secret'; \
         grant select, insert, update, delete on app.lockkit_locks to poor@'127.0.0.1'; \
         grant select, insert, update, delete on app.lockkit_locks_holds to poor@'127.0.0.1'";
    const NO_SOCKET: &'static str = "mysql://app:secret@localhost/app?socket=/no/such";
}

pub(crate) fn builder<D: Database>(server: &D, way: &str) -> SqlStoreBuilder<D::Dialect> {
    let pauses = PollRange::new(Duration::from_millis(5), Duration::from_millis(100));
    server.builder().poll(pauses).pin(way == "pin")
}

pub(crate) async fn client<D: Database>(
    server: &D,
    way: &str,
    ttl: Duration,
) -> Outcome<LockClient> {
    let store = builder(server, way).connect().await?;
    let client = LockClient::builder(store).lease(Lease::renewed(ttl));
    Ok(client.timeout(Duration::from_millis(800)).build()?)
}

/// The same lock in `count` clients.
pub(crate) async fn locks<D: Database>(
    server: &D,
    way: &str,
    ttl: Duration,
    count: usize,
) -> Outcome<Vec<Lock>> {
    let mut locks = Vec::new();
    for _ in 0..count {
        let client = client(server, way, ttl).await?;
        locks.push(client.lock(format!("jobs/{way}"))?);
    }
    Ok(locks)
}

pub(crate) fn address<D: Database>(server: &D) -> SocketAddr {
    ([127, 0, 0, 1], server.port()).into()
}

/// The URL of the server through a proxy.
pub(crate) fn through<D: Database>(server: &D, proxy: &Proxy, query: &str) -> String {
    let (direct, proxy) = (address(server).to_string(), proxy.addr().to_string());
    server.url(query).replace(&direct, &proxy)
}

/// No row is held any more, and no ticket holds beside others or waits.
pub(crate) async fn only_rows_left<D: Database>(server: &D) -> Outcome {
    // A withdrawn ticket keeps its row, which refuses late attempts; a hold beside others whose name is not held does
    // not count.
    let sql = format!(
        "select name from app.lockkit_locks where holder is not null union all \
         select name from app.lockkit_locks_holds \
         where token < 0 and token <> -9223372036854775807 and expires_at > {}",
        D::NOW
    );
    until("nothing is held", async || {
        Ok(server.ask(&sql).await?.is_empty())
    })
    .await
}

/// The program that takes locks in a process of its own.
pub(crate) fn taker() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_lock-taker")).to_owned()
}
