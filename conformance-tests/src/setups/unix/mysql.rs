//! The store in MariaDB and MySQL: leases and pins.

use async_trait::async_trait;
use lockkit_sql::{Mysql, MysqlStore, SqlStoreBuilder};
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

use super::sql::{SqlServer, SqlSetup};
use crate::failure::Outcome;
use crate::servers::{MysqlPrograms, MysqlServer};
use crate::setups::pauses::{pauses, poll_option};

const PASSWORD: &str = "of-the-site";

/// Opens a [`MysqlStore`] on a server of this machine.
pub type MysqlSetup = SqlSetup<MysqlServer>;

impl MysqlSetup {
    /// Leases in MariaDB: `mariadb`.
    #[must_use]
    pub fn mariadb() -> Self {
        Self::new("mariadb", MysqlPrograms::mariadb())
    }

    /// Pinned holds in MariaDB: `mariadb-pin`.
    #[must_use]
    pub fn mariadb_pins() -> Self {
        Self::new("mariadb-pin", MysqlPrograms::mariadb()).pin()
    }

    /// Leases in MySQL 8: `mysql8`.
    #[must_use]
    pub fn mysql() -> Self {
        Self::new("mysql8", MysqlPrograms::mysql()).other_than("mariadb")
    }

    /// Pinned holds in MySQL 8: `mysql8-pin`.
    #[must_use]
    pub fn mysql_pins() -> Self {
        Self::new("mysql8-pin", MysqlPrograms::mysql())
            .pin()
            .other_than("mariadb-pin")
    }
}

#[async_trait]
impl SqlServer for MysqlServer {
    type Dialect = Mysql;
    type Programs = MysqlPrograms;

    fn missing(programs: &MysqlPrograms) -> Option<String> {
        programs.missing()
    }

    async fn start(programs: &MysqlPrograms) -> Outcome<Self> {
        Self::start(programs, &[]).await
    }

    fn port(&self) -> u16 {
        self.port()
    }

    async fn create(&self, namespace: &str) -> Outcome {
        let sql = format!(
            "drop database if exists {namespace}; create database {namespace}; \
             drop user if exists {namespace}@'127.0.0.1'; \
             create user {namespace}@'127.0.0.1' identified by '{PASSWORD}'; \
             grant create, select, insert, update, delete on {namespace}.* \
             to {namespace}@'127.0.0.1'"
        );
        Ok(self.run(&sql).await?)
    }

    async fn wipe(&self, namespace: &str) -> Outcome {
        // A locked row would wait for its holder.
        self.end_transactions(namespace).await?;
        let sql = format!("delete from {namespace}.lockkit_locks");
        Ok(self.run(&sql).await?)
    }

    async fn residue(&self, namespace: &str, name: &str) -> Outcome<Vec<String>> {
        // The row of the lock keeps its token and stays.
        let sql = format!(
            "select concat('held by ', holder) from {namespace}.lockkit_locks \
             where name = x'{name}' and holder is not null and expires_at > 0 \
             union all select concat('a row of ', holder) from {namespace}.lockkit_locks_holds \
             where name = x'{name}'"
        );
        let mut left = self.ask(&sql).await?;
        let open = self.transactions(namespace).await?;
        left.extend(
            open.iter()
                .map(|id| format!("the transaction of session {id}")),
        );
        Ok(left)
    }

    fn builder(namespace: &str, port: u16) -> SqlStoreBuilder<Mysql> {
        let server = MySqlConnectOptions::new()
            .host("127.0.0.1")
            .port(port)
            .ssl_mode(MySqlSslMode::Disabled)
            .username(namespace)
            .password(PASSWORD)
            .database(namespace);
        MysqlStore::builder(server).poll(pauses())
    }

    fn url(namespace: &str, port: u16) -> String {
        let poll = poll_option();
        format!("mysql://{namespace}:{PASSWORD}@127.0.0.1:{port}/{namespace}?{poll}")
    }
}
