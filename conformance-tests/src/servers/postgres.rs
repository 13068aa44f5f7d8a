//! A PostgreSQL server, and queries to it that do not use the store under test.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use async_trait::async_trait;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row};

use super::fresh::Fresh;
use super::unprivileged::Unprivileged;
use super::{Processes, ServerCommand, ServerProcess, free_port};
use crate::failure::{Failure, Outcome};
use crate::foreign::{directory, program};
use crate::storage::Storage;

/// Where the programs of one version lie.
#[derive(Clone, Debug)]
pub struct PostgresPrograms {
    bin: Option<PathBuf>,
    /// What to say if they are not there.
    what: &'static str,
    /// A cluster that no server has used yet.
    fresh: Fresh,
    storage: Storage,
}

impl PostgresPrograms {
    /// The newest that the system has. Debian keeps its programs out of `PATH`.
    #[must_use]
    pub fn system() -> Self {
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let versions = versions.flatten().filter_map(|entry| {
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            let bin = entry.path().join("bin");
            bin.join("initdb").is_file().then_some((version, bin))
        });
        let in_path = || program("initdb").and_then(|path| Some(path.parent()?.to_owned()));
        Self {
            bin: versions.max().map(|(_, bin)| bin).or_else(in_path),
            what: "no PostgreSQL server here",
            fresh: Fresh::default(),
            storage: Storage::default(),
        }
    }

    /// A newer one, which came over the network.
    #[must_use]
    pub fn newer() -> Self {
        let bin = directory().join("postgres18/bin");
        Self {
            bin: bin.join("initdb").is_file().then_some(bin),
            what: "no PostgreSQL 18 here",
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
        let user = user();
        match &self.bin {
            None => Some(format!("{}; `cargo x setup` brings it", self.what)),
            Some(bin) if !user.may_enter(bin) => {
                Some("its user may not enter the directory of the server".to_owned())
            }
            Some(_) => user.missing(),
        }
    }

    fn path(&self, name: &str) -> Outcome<PathBuf> {
        let bin = self.bin.as_ref().ok_or_else(|| Failure::new(self.what))?;
        Ok(bin.join(name))
    }

    /// Makes a cluster in this directory.
    fn cluster(&self, parent: &Path) -> Outcome<PathBuf> {
        let make = |parent: &Path| {
            let user = user();
            let cluster = user.directory(parent, "data")?;
            let options = "-U postgres -A trust -E UTF8 --locale=C --no-sync --no-instructions -D";
            let options = options.split(' ').map(OsString::from);
            let options = options.chain([cluster.into()]);
            user.run(&self.path("initdb")?, options, parent)
        };
        self.fresh.copy(parent, make)
    }
}

/// It refuses to run as root.
fn user() -> Unprivileged {
    Unprivileged::like("postgres")
}

/// A `postgres` on a free port of the loopback address, whose superuser `postgres` needs no password.
#[derive(Debug)]
pub struct PostgresServer {
    process: ServerProcess,
    port: u16,
}

impl PostgresServer {
    /// Starts one below this program itself, whose `main` calls
    /// [`guardian::serve`](super::guardian::serve) first, with further settings such as `fsync=on`.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be started.
    pub async fn start(programs: &PostgresPrograms, settings: &[&str]) -> Outcome<Self> {
        Self::start_with(programs, settings, &[]).await
    }

    /// The same, as the last argument of a command such as `env A=b`.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be started.
    pub async fn start_with(
        programs: &PostgresPrograms,
        settings: &[&str],
        command: &[OsString],
    ) -> Outcome<Self> {
        let (port, user) = (free_port()?, user());
        let data = programs.storage.directory()?;
        let cluster = programs.cluster(data.path())?;
        let mut words = user.words();
        words.extend_from_slice(command);
        words.push(programs.path("postgres")?.into());
        words.extend(["-D".into(), cluster.into()]);
        words.extend(["-p".into(), port.to_string().into()]);
        for setting in SETTINGS.iter().chain(settings) {
            words.extend(["-c".into(), OsString::from(setting)]);
        }
        let mut words = words.into_iter();
        let program = words.next().unwrap_or_default();
        let process = ServerCommand::new(std::env::current_exe()?, program)
            .args(words)
            .data(data)
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

    /// Where a client finds it as the user of this name.
    #[must_use]
    pub fn url(&self, user: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/postgres", self.port)
    }

    /// A connection of its own, of a client that knows nothing of locks.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    pub async fn connection(&self, user: &str) -> sqlx::Result<PgConnection> {
        let options = PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(self.port)
            .username(user)
            .database("postgres");
        options.connect().await
    }

    /// Carries out statements as the superuser on a connection of its own.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    pub async fn run(&self, sql: &str) -> sqlx::Result<()> {
        let mut connection = self.connection("postgres").await?;
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut connection)
            .await?;
        connection.close().await
    }

    /// The first column of the answer to a question, as text; nothing for nothing.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    pub async fn ask(&self, sql: &str) -> sqlx::Result<Vec<String>> {
        let mut connection = self.connection("postgres").await?;
        let rows = sqlx::raw_sql(AssertSqlSafe(sql))
            .fetch_all(&mut connection)
            .await?;
        connection.close().await?;
        // Text is what this protocol sends, whatever the type.
        let column = rows
            .iter()
            .map(|row| row.try_get_unchecked::<Option<String>, _>(0));
        column.map(|it| it.map(Option::unwrap_or_default)).collect()
    }

    /// What it wrote to its log that tells of a statement that failed.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        let log = self.process.log();
        let tells = |line: &&str| {
            ["ERROR:", "FATAL:", "PANIC:"]
                .iter()
                .any(|level| line.contains(level))
        };
        // The probes of its start were early.
        let early = |line: &&str| line.contains("the database system is ");
        let lines = log.lines().filter(tells).filter(|line| !early(line));
        lines.map(str::to_owned).collect()
    }
}

#[async_trait]
impl Processes for PostgresServer {
    fn processes(&self) -> Vec<&ServerProcess> {
        vec![&self.process]
    }

    async fn ready(&self) -> Outcome {
        let probe = || async { self.connection("postgres").await?.ping().await };
        self.process.ready(probe).await
    }
}

impl Drop for PostgresServer {
    /// A server that is killed leaves its segment of shared memory to the system, which has room for
    /// some thousands.
    fn drop(&mut self) {
        let facts = self.process.data().join("data/postmaster.pid");
        let facts = fs::read_to_string(facts).unwrap_or_default();
        // Its key and its number stand in the seventh line.
        let number = facts.lines().nth(6);
        if let Some(number) = number.and_then(|line| line.split_whitespace().nth(1)) {
            // It goes when the last of the server's processes has.
            let remove = Command::new("ipcrm").args(["-m", number]).output();
            drop(remove);
        }
    }
}

/// Enough connections for all cases that run at once; no write is lost when its processes are
/// killed, and none needs to outlast the machine.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=600",
    "shared_buffers=32MB",
    "fsync=off",
    // In a file of its data, which is removed with them: a server that is killed leaves the others.
    "dynamic_shared_memory_type=mmap",
    "full_page_writes=off",
    "log_line_prefix=%m %u ",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_are_not_there_are_named() {
        let none = PostgresPrograms {
            bin: None,
            what: "no PostgreSQL server here",
            fresh: Fresh::default(),
            storage: Storage::default(),
        };
        let missing = none.missing().unwrap();
        assert!(missing.starts_with("no PostgreSQL"), "{missing}");
        let nowhere = PostgresPrograms {
            bin: Some(Path::new("/nowhere").to_owned()),
            ..none
        };
        assert_eq!(user().words().is_empty(), nowhere.missing().is_none());
    }
}
