//! The store in PostgreSQL: leases and pins, woken and polling, behind a pooler and on a newer server.

use async_trait::async_trait;
use lockkit_sql::{Postgres, PostgresStore, SqlStoreBuilder, Table};
use sqlx::postgres::PgConnectOptions;

use super::sql::{SqlServer, SqlSetup};
use crate::failure::Outcome;
use crate::servers::{PostgresPrograms, PostgresServer};

/// Opens a [`PostgresStore`] on a server of this machine.
pub type PostgresSetup = SqlSetup<PostgresServer>;

impl PostgresSetup {
    /// Leases, wake-ups: `postgres`.
    #[must_use]
    pub fn leases() -> Self {
        Self::new("postgres", PostgresPrograms::system())
    }

    /// Pinned holds: `postgres-pin`.
    #[must_use]
    pub fn pins() -> Self {
        Self::new("postgres-pin", PostgresPrograms::system()).pin()
    }

    /// Behind the real PgBouncer in transaction mode, where no client can be woken:
    /// `postgres-pgbouncer`.
    #[must_use]
    pub fn behind_pooler() -> Self {
        Self::new("postgres-pgbouncer", PostgresPrograms::system()).pooler()
    }

    /// As `postgres`, on a newer server: `postgres18`.
    #[must_use]
    pub fn newer() -> Self {
        Self::new("postgres18", PostgresPrograms::newer()).other_than("postgres")
    }
}

#[async_trait]
impl SqlServer for PostgresServer {
    type Dialect = Postgres;
    type Programs = PostgresPrograms;

    fn missing(programs: &PostgresPrograms) -> Option<String> {
        programs.missing()
    }

    async fn start(programs: &PostgresPrograms) -> Outcome<Self> {
        Self::start(programs, &[]).await
    }

    fn port(&self) -> u16 {
        self.port()
    }

    async fn create(&self, namespace: &str) -> Outcome {
        let sql = format!(
            "drop schema if exists {namespace} cascade; drop role if exists {namespace}; \
             create role {namespace} login; create schema {namespace} authorization {namespace}"
        );
        self.run(&sql).await?;
        self.lose_pushes(namespace, false).await
    }

    async fn wipe(&self, namespace: &str) -> Outcome {
        // A locked row would wait for its holder.
        let sql = format!(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity \
             where usename = '{namespace}' and xact_start is not null; \
             delete from {namespace}.lockkit_locks"
        );
        Ok(self.run(&sql).await?)
    }

    async fn residue(&self, namespace: &str, name: &str) -> Outcome<Vec<String>> {
        // The row of the lock keeps its token and stays.
        let sql = format!(
            "select 'held by ' || holder from {namespace}.lockkit_locks \
             where name = '\\x{name}' and holder is not null \
             union all select 'a row of ' || holder from {namespace}.lockkit_locks_holds \
             where name = '\\x{name}' \
             union all select 'a transaction: ' || query from pg_stat_activity \
             where usename = '{namespace}' and state like 'idle in transaction%'"
        );
        Ok(self.ask(&sql).await?)
    }

    /// A function of the namespace hides that of the server.
    async fn lose_pushes(&self, namespace: &str, lose: bool) -> Outcome {
        let body = if lose {
            "select"
        } else {
            "select pg_catalog.pg_notify($1, $2)"
        };
        let sql = format!(
            "create or replace function {namespace}.pg_notify(text, text) returns void \
             language sql as '{body}'; \
             alter role {namespace} set search_path = {namespace}, pg_catalog;"
        );
        Ok(self.run(&sql).await?)
    }

    fn builder(namespace: &str, port: u16) -> SqlStoreBuilder<Postgres> {
        let server = PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(port)
            .username(namespace)
            .database("postgres");
        // One database has the tables of all namespaces.
        let table = format!("{namespace}.lockkit_locks").parse();
        PostgresStore::builder(server).table(table.unwrap_or_else(|_| Table::default()))
    }

    fn url(namespace: &str, port: u16) -> String {
        format!("postgres://{namespace}@127.0.0.1:{port}/postgres?table={namespace}.lockkit_locks")
    }
}
