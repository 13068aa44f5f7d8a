//! The store in PostgreSQL: leases and pins, woken and polling, behind a pooler and on a newer server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::{Capabilities, DistributedLock, LockName, PollRange};
use lockkit_sql::{PostgresStore, SqlStoreBuilder, Table, Wake};
use sqlx::postgres::PgConnectOptions;
use tokio::sync::OnceCell;

use crate::case::Case;
use crate::failure::Outcome;
use crate::proxy::Proxy;
use crate::servers::{PgBouncer, PostgresPrograms, PostgresServer};
use crate::setup::{Hook, Setup, Site};

/// How many sites may share a server, each as a user with a schema of its own.
const SITES: u32 = 1024;

/// The modules of cases that a newer server could fail. The others try the client's part, which is
/// the same on any server.
const OF_THE_SERVER: &[&str] = &[
    "exclusion",
    "loss",
    "fencing",
    "names",
    "capabilities",
    "admin",
    "ambiguity",
    "outage",
    "residue",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lease,
    Pin,
    Pooler,
    Newer,
}

/// Opens a [`PostgresStore`] on a server of this machine.
#[derive(Debug)]
pub struct PostgresSetup {
    kind: Kind,
    programs: PostgresPrograms,
    /// For the cases that break nothing.
    shared: OnceCell<Arc<Place>>,
    sites: AtomicU32,
    #[cfg(feature = "mutants")]
    mutant: Option<lockkit_sql::SqlMutant>,
}

/// A server, and what stands before it.
#[derive(Debug)]
struct Place {
    server: PostgresServer,
    pooler: Option<PgBouncer>,
}

impl Place {
    fn port(&self) -> u16 {
        self.pooler
            .as_ref()
            .map_or(self.server.port(), |pooler| pooler.addr().port())
    }
}

impl PostgresSetup {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            programs: match kind {
                Kind::Newer => PostgresPrograms::newer(),
                _ => PostgresPrograms::system(),
            },
            shared: OnceCell::new(),
            sites: AtomicU32::new(0),
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// The same with a promise of the store broken.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn mutant(mut self, mutant: lockkit_sql::SqlMutant) -> Self {
        self.mutant = Some(mutant);
        self
    }

    /// Leases, wake-ups: `postgres`.
    #[must_use]
    pub fn leases() -> Self {
        Self::new(Kind::Lease)
    }

    /// Holds that keep their rows locked: `postgres-pin`.
    #[must_use]
    pub fn pins() -> Self {
        Self::new(Kind::Pin)
    }

    /// Behind the real PgBouncer in transaction mode, where nobody can be woken:
    /// `postgres-pgbouncer`.
    #[must_use]
    pub fn pooler() -> Self {
        Self::new(Kind::Pooler)
    }

    /// As `postgres`, on a newer server: `postgres18`.
    #[must_use]
    pub fn newer() -> Self {
        Self::new(Kind::Newer)
    }

    async fn start(&self) -> Outcome<Arc<Place>> {
        let server = PostgresServer::start(&self.programs, &[]).await?;
        let pooler = match self.kind {
            Kind::Pooler => {
                let users = (0..SITES).map(user);
                Some(PgBouncer::start(server.port(), users).await?)
            }
            _ => None,
        };
        Ok(Arc::new(Place { server, pooler }))
    }

    async fn place(&self, alone: bool) -> Outcome<Arc<Place>> {
        if alone {
            return self.start().await;
        }
        self.shared.get_or_try_init(|| self.start()).await.cloned()
    }
}

fn user(number: u32) -> String {
    format!("site_{number}")
}

impl Kind {
    fn builder(
        self,
        user: &str,
        table: Table,
        port: u16,
    ) -> SqlStoreBuilder<lockkit_sql::Postgres> {
        let server = PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(port)
            .username(user)
            .database("postgres");
        let builder = PostgresStore::builder(server).table(table);
        match self {
            Self::Lease | Self::Newer => builder,
            Self::Pin => builder.pin(true),
            Self::Pooler => builder.wake(Wake::Poll).poll(pauses()),
        }
    }

    fn query(self) -> &'static str {
        match self {
            Self::Lease | Self::Newer => "",
            Self::Pin => "&pin=true",
            Self::Pooler => "&wake=poll&poll=5ms..100ms",
        }
    }
}

/// Short, so that cases end soon.
fn pauses() -> PollRange {
    PollRange::new(Duration::from_millis(5), Duration::from_millis(100))
}

#[async_trait]
impl Setup for PostgresSetup {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Lease => "postgres",
            Kind::Pin => "postgres-pin",
            Kind::Pooler => "postgres-pgbouncer",
            Kind::Newer => "postgres18",
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.kind.builder("", Table::default(), 0).capabilities()
    }

    fn hooks(&self) -> &[Hook] {
        let all = &[
            Hook::LosePushes,
            Hook::Url,
            Hook::Wipe,
            Hook::Restart,
            Hook::Freeze,
            Hook::Proxy,
            Hook::Residue,
        ];
        let without_pushes = &all[1..];
        if self.kind == Kind::Pooler {
            without_pushes
        } else {
            all
        }
    }

    fn missing(&self) -> Option<String> {
        let pooler = (self.kind == Kind::Pooler).then(PgBouncer::missing);
        self.programs.missing().or_else(|| pooler.flatten())
    }

    fn skips(&self, case: &Case) -> Option<String> {
        if self.kind == Kind::Pin && case.name() == "cost::renewals_share_a_call" {
            return Some("each pin is renewed on its own connection".to_owned());
        }
        let skip = self.kind == Kind::Newer && !OF_THE_SERVER.contains(&case.module());
        skip.then(|| "any version of the server will do; `postgres` runs it".to_owned())
    }

    fn is_one_of_all(&self) -> bool {
        self.kind != Kind::Newer
    }

    async fn site(&self, alone: bool) -> Outcome<Box<dyn Site>> {
        let place = self.place(alone).await?;
        let user = user(self.sites.fetch_add(1, Ordering::Relaxed) % SITES);
        // The function stands before that of the server, so that wake-ups can be lost.
        let sql = format!(
            "drop schema if exists {user} cascade; drop role if exists {user}; \
             create role {user} login; create schema {user} authorization {user}; \
             alter role {user} set search_path = {user}, pg_catalog;"
        );
        place.server.run(&sql).await?;
        let site = PostgresSite {
            place,
            user,
            kind: self.kind,
            #[cfg(feature = "mutants")]
            mutant: self.mutant,
        };
        site.lose_pushes(false).await?;
        Ok(Box::new(site))
    }
}

#[derive(Debug)]
struct PostgresSite {
    place: Arc<Place>,
    user: String,
    kind: Kind,
    #[cfg(feature = "mutants")]
    mutant: Option<lockkit_sql::SqlMutant>,
}

impl PostgresSite {
    async fn open_at(&self, port: u16) -> Outcome<Arc<dyn DistributedLock>> {
        // One database has the tables of all sites.
        let table = format!("{}.lockkit_locks", self.user).parse()?;
        let builder = self.kind.builder(&self.user, table, port);
        #[cfg(feature = "mutants")]
        let builder = match self.mutant {
            Some(mutant) => builder.mutant(mutant),
            None => builder,
        };
        Ok(Arc::new(builder.connect().await?))
    }
}

#[async_trait]
impl Site for PostgresSite {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        self.open_at(self.place.port()).await
    }

    fn url(&self) -> Option<String> {
        let (user, port, query) = (&self.user, self.place.port(), self.kind.query());
        Some(format!(
            "postgres://{user}@127.0.0.1:{port}/postgres?table={user}.lockkit_locks{query}"
        ))
    }

    async fn wipe(&self) -> Outcome {
        // A row that is locked would wait for its holder.
        let user = &self.user;
        let sql = format!(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity \
             where usename = '{user}' and xact_start is not null; delete from {user}.lockkit_locks"
        );
        Ok(self.place.server.run(&sql).await?)
    }

    async fn restart(&self) -> Outcome {
        self.place.server.restart().await
    }

    async fn freeze(&self) -> Outcome {
        self.place.server.process().stop()
    }

    async fn thaw(&self) -> Outcome {
        self.place.server.process().resume()
    }

    async fn open_through_proxy(&self) -> Outcome<(Arc<dyn DistributedLock>, Proxy)> {
        let proxy = Proxy::start(([127, 0, 0, 1], self.place.port()).into()).await?;
        let store = self.open_at(proxy.addr().port()).await?;
        Ok((store, proxy))
    }

    async fn lose_pushes(&self, lose: bool) -> Outcome {
        let user = &self.user;
        let body = if lose {
            "select"
        } else {
            "select pg_catalog.pg_notify($1, $2)"
        };
        let sql = format!(
            "create or replace function {user}.pg_notify(text, text) returns void language sql \
             as '{body}'; alter role {user} set search_path = {user}, pg_catalog;"
        );
        Ok(self.place.server.run(&sql).await?)
    }

    async fn residue(&self, name: &LockName) -> Outcome<Vec<String>> {
        let (user, name) = (&self.user, hexadecimal(name));
        // The row of the lock keeps its token and stays.
        let sql = format!(
            "select 'held by ' || holder from {user}.lockkit_locks \
             where name = '\\x{name}' and holder is not null \
             union all select 'a transaction: ' || query from pg_stat_activity \
             where usename = '{user}' and state like 'idle in transaction%'"
        );
        Ok(self.place.server.ask(&sql).await?)
    }
}

/// The bytes of a name.
pub(super) fn hexadecimal(name: &LockName) -> String {
    name.as_str()
        .bytes()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
