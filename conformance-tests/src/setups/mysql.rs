//! The store in MariaDB and MySQL: leases and pins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::{Capabilities, DistributedLock, LockName, PollRange};
use lockkit_sql::{MysqlStore, SqlStoreBuilder};
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use tokio::sync::OnceCell;

use super::postgres::hexadecimal;
use crate::case::Case;
use crate::failure::Outcome;
use crate::proxy::Proxy;
use crate::servers::{MysqlPrograms, MysqlServer};
use crate::setup::{Hook, Setup, Site};

/// How many sites may share a server, each with a database of its own.
const SITES: u32 = 1024;
const PASSWORD: &str = "of-the-site";

/// The modules of cases that another make of the server could fail. The others try the client's
/// part, which is the same on any server.
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
    Mysql,
    MysqlPin,
}

/// Opens a [`MysqlStore`] on a server of this machine.
#[derive(Debug)]
pub struct MysqlSetup {
    kind: Kind,
    programs: MysqlPrograms,
    /// For the cases that break nothing.
    shared: OnceCell<Arc<MysqlServer>>,
    sites: AtomicU32,
    #[cfg(feature = "mutants")]
    mutant: Option<lockkit_sql::SqlMutant>,
}

impl MysqlSetup {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            programs: match kind {
                Kind::Lease | Kind::Pin => MysqlPrograms::mariadb(),
                Kind::Mysql | Kind::MysqlPin => MysqlPrograms::mysql(),
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

    /// Leases in MariaDB: `mariadb`.
    #[must_use]
    pub fn mariadb() -> Self {
        Self::new(Kind::Lease)
    }

    /// Holds that keep their rows locked: `mariadb-pin`.
    #[must_use]
    pub fn mariadb_pins() -> Self {
        Self::new(Kind::Pin)
    }

    /// Leases in MySQL 8: `mysql8`.
    #[must_use]
    pub fn mysql() -> Self {
        Self::new(Kind::Mysql)
    }

    /// The same as pins: `mysql8-pin`.
    #[must_use]
    pub fn mysql_pins() -> Self {
        Self::new(Kind::MysqlPin)
    }

    async fn start(&self) -> Outcome<Arc<MysqlServer>> {
        Ok(Arc::new(MysqlServer::start(&self.programs, &[]).await?))
    }

    async fn server(&self, alone: bool) -> Outcome<Arc<MysqlServer>> {
        if alone {
            return self.start().await;
        }
        self.shared.get_or_try_init(|| self.start()).await.cloned()
    }
}

impl Kind {
    const fn pins(self) -> bool {
        matches!(self, Self::Pin | Self::MysqlPin)
    }

    const fn comes_over_the_network(self) -> bool {
        matches!(self, Self::Mysql | Self::MysqlPin)
    }

    fn builder(self, database: &str, port: u16) -> SqlStoreBuilder<lockkit_sql::Mysql> {
        let server = MySqlConnectOptions::new()
            .host("127.0.0.1")
            .port(port)
            .ssl_mode(MySqlSslMode::Disabled)
            .username(database)
            .password(PASSWORD)
            .database(database);
        MysqlStore::builder(server).poll(pauses()).pin(self.pins())
    }
}

/// Short, so that cases end soon.
fn pauses() -> PollRange {
    PollRange::new(Duration::from_millis(5), Duration::from_millis(100))
}

#[async_trait]
impl Setup for MysqlSetup {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Lease => "mariadb",
            Kind::Pin => "mariadb-pin",
            Kind::Mysql => "mysql8",
            Kind::MysqlPin => "mysql8-pin",
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.kind.builder("", 0).capabilities()
    }

    fn hooks(&self) -> &[Hook] {
        &[
            Hook::Url,
            Hook::Wipe,
            Hook::Restart,
            Hook::Freeze,
            Hook::Proxy,
            Hook::Residue,
        ]
    }

    fn missing(&self) -> Option<String> {
        self.programs.missing()
    }

    fn skips(&self, case: &Case) -> Option<String> {
        let skip = self.kind.comes_over_the_network() && !OF_THE_SERVER.contains(&case.module());
        skip.then(|| "either make of the server will do; `mariadb` runs it".to_owned())
    }

    fn is_one_of_all(&self) -> bool {
        !self.kind.comes_over_the_network()
    }

    async fn site(&self, alone: bool) -> Outcome<Box<dyn Site>> {
        let server = self.server(alone).await?;
        let number = self.sites.fetch_add(1, Ordering::Relaxed) % SITES;
        let name = format!("site_{number}");
        let sql = format!(
            "drop database if exists {name}; create database {name}; \
             drop user if exists {name}@'127.0.0.1'; \
             create user {name}@'127.0.0.1' identified by '{PASSWORD}'; \
             grant create, select, insert, update, delete on {name}.* to {name}@'127.0.0.1'"
        );
        server.run(&sql).await?;
        Ok(Box::new(MysqlSite {
            server,
            name,
            kind: self.kind,
            #[cfg(feature = "mutants")]
            mutant: self.mutant,
        }))
    }
}

#[derive(Debug)]
struct MysqlSite {
    server: Arc<MysqlServer>,
    /// Of the user and of the database.
    name: String,
    kind: Kind,
    #[cfg(feature = "mutants")]
    mutant: Option<lockkit_sql::SqlMutant>,
}

impl MysqlSite {
    async fn open_at(&self, port: u16) -> Outcome<Arc<dyn DistributedLock>> {
        let builder = self.kind.builder(&self.name, port);
        #[cfg(feature = "mutants")]
        let builder = match self.mutant {
            Some(mutant) => builder.mutant(mutant),
            None => builder,
        };
        Ok(Arc::new(builder.connect().await?))
    }
}

#[async_trait]
impl Site for MysqlSite {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        self.open_at(self.server.port()).await
    }

    fn url(&self) -> Option<String> {
        let (name, port, pin) = (&self.name, self.server.port(), self.kind.pins());
        Some(format!(
            "mysql://{name}:{PASSWORD}@127.0.0.1:{port}/{name}?poll=5ms..100ms&pin={pin}"
        ))
    }

    async fn wipe(&self) -> Outcome {
        // A row that is locked would wait for its holder.
        self.server.end_transactions(&self.name).await?;
        let sql = format!("delete from {}.lockkit_locks", self.name);
        Ok(self.server.run(&sql).await?)
    }

    async fn restart(&self) -> Outcome {
        self.server.restart().await
    }

    async fn freeze(&self) -> Outcome {
        self.server.process().stop()
    }

    async fn thaw(&self) -> Outcome {
        self.server.process().resume()
    }

    async fn open_through_proxy(&self) -> Outcome<(Arc<dyn DistributedLock>, Proxy)> {
        let proxy = Proxy::start(([127, 0, 0, 1], self.server.port()).into()).await?;
        let store = self.open_at(proxy.addr().port()).await?;
        Ok((store, proxy))
    }

    async fn residue(&self, name: &LockName) -> Outcome<Vec<String>> {
        let name = hexadecimal(name);
        // The row of the lock keeps its token and stays.
        let sql = format!(
            "select concat('held by ', holder) from {}.lockkit_locks \
             where name = x'{name}' and holder is not null and expires_at > 0",
            self.name
        );
        let mut left = self.server.ask(&sql).await?;
        let open = self.server.transactions(&self.name).await?;
        left.extend(
            open.iter()
                .map(|id| format!("the transaction of session {id}")),
        );
        Ok(left)
    }
}
