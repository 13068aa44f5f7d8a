//! A real pooler in front of PostgreSQL.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;

use super::unprivileged::Unprivileged;
use super::{ServerCommand, ServerProcess, free_port};
use crate::failure::Outcome;
use crate::foreign::{missing, program};

/// PgBouncer in transaction mode: a client has a connection of the server for one transaction only,
/// and the next statement may meet another.
#[derive(Debug)]
pub struct PgBouncer {
    process: ServerProcess,
    addr: SocketAddr,
}

impl PgBouncer {
    /// What the system calls it.
    pub const PROGRAM: &'static str = "pgbouncer";

    /// Why it cannot be used here.
    #[must_use]
    pub fn missing() -> Option<String> {
        missing(Self::PROGRAM).or_else(|| user().missing())
    }

    /// Starts it in front of the server on this port, for these users of its database `postgres`,
    /// below this program itself, whose `main` calls [`guardian::serve`](super::guardian::serve)
    /// first.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it cannot be started.
    pub async fn start(server: u16, users: impl Iterator<Item = String>) -> Outcome<Self> {
        Self::start_with(server, users, "").await
    }

    /// As [`start`](Self::start), with further lines of its settings.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it cannot be started.
    pub async fn start_with(
        server: u16,
        users: impl Iterator<Item = String>,
        settings: &str,
    ) -> Outcome<Self> {
        let (port, user) = (free_port()?, user());
        let data = TempDir::new()?;
        let own = user.directory(data.path(), "data")?;
        let (list, file) = (
            data.path().join("users.txt"),
            data.path().join("pgbouncer.ini"),
        );
        let users: Vec<String> = users.map(|user| format!("\"{user}\" \"\"\n")).collect();
        std::fs::write(&list, format!("\"postgres\" \"\"\n{}", users.concat()))?;
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
             pool_mode = transaction\nmax_client_conn = 2000\ndefault_pool_size = 20\n\
             server_idle_timeout = 5\nlog_connections = 0\nlog_disconnections = 0\n\
             admin_users = postgres\npidfile = {}\n{settings}",
            list.display(),
            own.join("pid").display(),
        );
        std::fs::write(&file, settings)?;
        super::unprivileged::readable(&list)?;
        super::unprivileged::readable(&file)?;
        let program = program(Self::PROGRAM).unwrap_or_else(|| Self::PROGRAM.into());
        let mut words = user.words();
        words.extend([program.into(), OsString::from(file)]);
        let mut words = words.into_iter();
        let program = words.next().unwrap_or_default();
        let process = ServerCommand::new(std::env::current_exe()?, program)
            .args(words)
            .data(data)
            .start()?;
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let pooler = Self { process, addr };
        let probe = || async {
            let options = PgConnectOptions::new_without_pgpass()
                .host("127.0.0.1")
                .port(port)
                .username("postgres")
                .database("postgres")
                // The pooler refuses parameters that it does not know.
                .extra_float_digits(None);
            options.connect().await?.close().await
        };
        pooler.process.ready(probe).await?;
        Ok(pooler)
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The pooler's process, to be frozen or killed.
    #[must_use]
    pub const fn process(&self) -> &ServerProcess {
        &self.process
    }
}

/// It refuses to run as root.
fn user() -> Unprivileged {
    Unprivileged::like("postgres")
}
