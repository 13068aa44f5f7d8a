//! A server of MariaDB or MySQL, and queries to it that do not use the store under test.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, MySqlConnection, Row};

use super::fresh::Fresh;
use super::unprivileged::run;
use super::{Processes, ServerCommand, ServerProcess, free_port};
use crate::failure::{Failure, Outcome};
use crate::foreign::{directory, program};
use crate::storage::Storage;

/// Where the programs of one of them lie.
#[derive(Clone, Debug)]
pub struct MysqlPrograms {
    kind: Kind,
    /// Data that no server has used yet.
    fresh: Fresh,
    storage: Storage,
}

#[derive(Clone, Debug)]
enum Kind {
    /// The system's.
    MariaDb,
    /// Below this directory.
    Mysql(PathBuf),
}

impl MysqlPrograms {
    /// The system's MariaDB.
    #[must_use]
    pub fn mariadb() -> Self {
        Self {
            kind: Kind::MariaDb,
            fresh: Fresh::default(),
            storage: Storage::default(),
        }
    }

    /// MySQL 8, which came over the network.
    #[must_use]
    pub fn mysql() -> Self {
        Self {
            kind: Kind::Mysql(directory().join("mysql8")),
            fresh: Fresh::default(),
            storage: Storage::default(),
        }
    }

    /// Where the data of its servers lie; otherwise [`Storage::Memory`].
    #[must_use]
    pub const fn storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }

    /// Why no server can be started from them.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        match &self.kind {
            Kind::MariaDb => ["mariadbd", "mariadb-install-db"]
                .into_iter()
                .find_map(crate::foreign::missing),
            Kind::Mysql(base) if base.join("bin/mysqld").is_file() => None,
            Kind::Mysql(_) => Some("no MySQL 8 here; `cargo x setup` brings it".to_owned()),
        }
    }

    fn server(&self) -> Outcome<PathBuf> {
        match &self.kind {
            Kind::MariaDb => {
                let missing = || Failure::new("no MariaDB server here");
                program("mariadbd").ok_or_else(missing)
            }
            Kind::Mysql(base) => Ok(base.join("bin/mysqld")),
        }
    }

    /// The words that both the making of data and the server need.
    fn words(&self, data: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["--no-defaults".into()];
        if let Kind::Mysql(base) = &self.kind {
            words.push(option("basedir", base.as_os_str()));
        }
        if rustix::process::geteuid().is_root() {
            words.push("--user=root".into());
        }
        words.push(option("datadir", data.as_os_str()));
        // What the system has is not lost with the server, and needs no disk.
        words.push("--innodb-flush-method=nosync".into());
        words.push("--innodb-log-file-size=64M".into());
        // Its contexts are few on a machine, and servers many.
        words.push("--innodb-use-native-aio=0".into());
        words
    }

    /// Makes the data of a new server in this directory.
    fn data(&self, parent: &Path) -> Outcome<PathBuf> {
        let make = |parent: &Path| {
            let (data, tmp) = (parent.join("data"), parent.join("tmp"));
            std::fs::create_dir(&tmp)?;
            let (program, more) = match &self.kind {
                Kind::MariaDb => ("mariadb-install-db".into(), INSTALL),
                Kind::Mysql(_) => (self.server()?.into_os_string(), INITIALIZE),
            };
            let mut words = vec![program];
            words.extend(self.words(&data));
            words.extend(more.iter().map(OsString::from));
            // Not shared: a server deletes at its start all temporary tables in it, also those with which
            // another server makes its data.
            words.push(option("tmpdir", tmp.as_os_str()));
            run(&words, parent)
        };
        self.fresh.copy(parent, make)
    }
}

const INSTALL: &[&str] = &[
    "--auth-root-authentication-method=normal",
    "--skip-test-db",
    "--skip-name-resolve",
];
const INITIALIZE: &[&str] = &["--initialize-insecure"];

fn option(name: &str, value: &std::ffi::OsStr) -> OsString {
    let mut option = OsString::from(format!("--{name}="));
    option.push(value);
    option
}

/// Done at each start: a user that may do everything and comes over TCP without a password.
const START: &str = "create user if not exists admin@'127.0.0.1' identified by '';\n\
                     grant all on *.* to admin@'127.0.0.1' with grant option;\n";

/// Enough connections for all cases that run at once; a write reaches the system with its commit,
/// so that none is lost when the server is killed.
const SETTINGS: &[&str] = &[
    "--bind-address=127.0.0.1",
    "--skip-log-bin",
    "--skip-name-resolve",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-buffer-pool-size=32M",
    "--max-connections=600",
    "--performance-schema=OFF",
];

/// A server on a free port of the loopback address, with a user `admin` who needs no password.
#[derive(Debug)]
pub struct MysqlServer {
    process: ServerProcess,
    port: u16,
}

impl MysqlServer {
    /// Starts one below this program itself, whose `main` calls
    /// [`guardian::serve`](super::guardian::serve) first, with further settings.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be started.
    pub async fn start(programs: &MysqlPrograms, settings: &[&str]) -> Outcome<Self> {
        Self::start_with(programs, settings, &[]).await
    }

    /// The same, as the last argument of a command such as `env A=b`.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be started.
    pub async fn start_with(
        programs: &MysqlPrograms,
        settings: &[&str],
        command: &[OsString],
    ) -> Outcome<Self> {
        let port = free_port()?;
        let directory = programs.storage.directory()?;
        let data = programs.data(directory.path())?;
        let start = directory.path().join("start.sql");
        std::fs::write(&start, START)?;
        let mut words = command.to_vec();
        words.push(programs.server()?.into());
        words.extend(programs.words(&data));
        words.push(option("init-file", start.as_os_str()));
        words.push(format!("--port={port}").into());
        // Of its own, as while the data were made.
        std::fs::create_dir(directory.path().join("tmp"))?;
        for (name, file) in [("socket", "socket"), ("pid-file", "pid"), ("tmpdir", "tmp")] {
            words.push(option(name, directory.path().join(file).as_os_str()));
        }
        words.extend(SETTINGS.iter().chain(settings).map(OsString::from));
        if matches!(programs.kind, Kind::Mysql(_)) {
            let only = [
                "--mysqlx=OFF",
                "--default-authentication-plugin=mysql_native_password",
            ];
            words.extend(only.map(OsString::from));
        }
        let mut words = words.into_iter();
        let program = words.next().unwrap_or_default();
        let process = ServerCommand::new(std::env::current_exe()?, program)
            .args(words)
            .data(directory)
            .start()?;
        let server = Self { process, port };
        server.ready().await?;
        Ok(server)
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The server's process, to be frozen.
    #[must_use]
    pub const fn process(&self) -> &ServerProcess {
        &self.process
    }

    /// A connection of its own to a database, of a client that knows nothing of locks.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    pub async fn connection(&self, database: &str) -> sqlx::Result<MySqlConnection> {
        let options = MySqlConnectOptions::new()
            .host("127.0.0.1")
            .port(self.port)
            .ssl_mode(MySqlSslMode::Disabled)
            .username("admin")
            .database(database);
        options.connect().await
    }

    /// Carries out statements on a connection of its own.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    pub async fn run(&self, sql: &str) -> sqlx::Result<()> {
        let mut connection = self.connection("mysql").await?;
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut connection)
            .await?;
        connection.close().await
    }

    /// The last column of the answer to a question, as text; nothing for nothing.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    pub async fn ask(&self, sql: &str) -> sqlx::Result<Vec<String>> {
        let mut connection = self.connection("mysql").await?;
        let rows = sqlx::raw_sql(AssertSqlSafe(sql))
            .fetch_all(&mut connection)
            .await?;
        connection.close().await?;
        // Bytes are what this protocol sends, whatever the type.
        let column = |row: &sqlx::mysql::MySqlRow| {
            let bytes: Option<Vec<u8>> = row.try_get_unchecked(row.len() - 1)?;
            Ok(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned())
        };
        rows.iter().map(column).collect()
    }

    /// The sessions of a user that are in a transaction.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    pub async fn transactions(&self, user: &str) -> sqlx::Result<Vec<String>> {
        // The server shows an old copy to those who look more often than every 100 ms.
        tokio::time::sleep(Duration::from_millis(150)).await;
        let sql = format!(
            "select t.trx_mysql_thread_id from information_schema.innodb_trx t \
             join information_schema.processlist p on p.id = t.trx_mysql_thread_id \
             where p.user = '{user}'"
        );
        self.ask(&sql).await
    }

    /// Ends them.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    pub async fn end_transactions(&self, user: &str) -> Outcome {
        for id in self.transactions(user).await? {
            // It may have ended by itself.
            drop(self.run(&format!("kill {id}")).await);
        }
        Ok(())
    }
}

#[async_trait]
impl Processes for MysqlServer {
    fn processes(&self) -> Vec<&ServerProcess> {
        vec![&self.process]
    }

    async fn ready(&self) -> Outcome {
        let probe = || async { self.connection("mysql").await?.ping().await };
        self.process.ready(probe).await
    }
}
