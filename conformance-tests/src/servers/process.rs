//! A server process and its guardian.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use super::guardian::MARK;
use crate::failure::{Failure, Outcome};
use crate::storage::Storage;

/// How to start a server.
///
/// # Examples
/// ```no_run
/// # async fn example(guard: &std::path::Path) -> conformance_tests::Outcome {
/// use conformance_tests::servers::{ServerCommand, free_port};
///
/// let port = free_port()?;
/// let server = ServerCommand::new(guard, "redis-server")
///     .args(["--port", &port.to_string(), "--save", ""])
///     .start()?;
/// let connect = || tokio::net::TcpStream::connect(("127.0.0.1", port));
/// server.ready(|| async { connect().await.map(drop) }).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ServerCommand {
    guard: PathBuf,
    program: OsString,
    arguments: Vec<OsString>,
    data: Option<TempDir>,
    storage: Storage,
}

impl ServerCommand {
    /// Starts `program` below `guard`, the program that calls [`super::guardian::serve`].
    #[must_use]
    pub fn new(guard: impl Into<PathBuf>, program: impl Into<OsString>) -> Self {
        Self {
            guard: guard.into(),
            program: program.into(),
            arguments: Vec::new(),
            data: None,
            storage: Storage::default(),
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Uses a directory that was prepared, such as one with a configuration in it, instead of an
    /// empty one. It is removed with the server.
    #[must_use]
    pub fn data(mut self, data: TempDir) -> Self {
        self.data = Some(data);
        self
    }

    /// Where its data lie, if none were prepared; otherwise [`Storage::Memory`].
    #[must_use]
    pub const fn storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }

    /// Starts it. Its working directory is its data directory.
    ///
    /// # Errors
    /// - [`Failure`] if the guardian or the server cannot be started.
    pub fn start(self) -> Outcome<ServerProcess> {
        let data = match self.data {
            Some(data) => data,
            None => self.storage.directory()?,
        };
        let server = ServerProcess {
            guard: self.guard,
            program: self.program,
            arguments: self.arguments,
            data,
            link: Mutex::new(None),
        };
        server.restart()?;
        Ok(server)
    }
}

/// A server that runs. Dropping it kills it and removes its data.
#[derive(Debug)]
pub struct ServerProcess {
    guard: PathBuf,
    program: OsString,
    arguments: Vec<OsString>,
    data: TempDir,
    link: Mutex<Option<Link>>,
}

/// The pipes to the guardian.
#[derive(Debug)]
struct Link {
    guardian: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    pid: u32,
}

impl Link {
    fn open(server: &ServerProcess) -> io::Result<Self> {
        let mut guardian = Command::new(&server.guard)
            .args([OsStr::new(MARK), server.log_path().as_os_str()])
            .arg(&server.program)
            .args(&server.arguments)
            .current_dir(server.data.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let missing = || io::Error::other("the guardian has no pipes");
        let orders = guardian.stdin.take().ok_or_else(missing)?;
        let answers = BufReader::new(guardian.stdout.take().ok_or_else(missing)?);
        let mut link = Self {
            guardian,
            orders,
            answers,
            pid: 0,
        };
        let answer = link.answer()?;
        let pid = answer
            .strip_prefix("started ")
            .and_then(|pid| pid.parse().ok());
        link.pid = pid.ok_or_else(|| io::Error::other(answer))?;
        Ok(link)
    }

    fn order(&mut self, order: &str) -> io::Result<String> {
        writeln!(self.orders, "{order}")?;
        let answer = self.answer()?;
        if answer.starts_with("failed") {
            return Err(io::Error::other(answer));
        }
        Ok(answer)
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // A guardian that does not answer has ended, and the server with it.
        drop(self.order("kill"));
        drop(self.guardian.kill());
        drop(self.guardian.wait());
    }
}

impl ServerProcess {
    /// Where its data lie.
    #[must_use]
    pub fn data(&self) -> &Path {
        self.data.path()
    }

    /// The server's process number.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        link.as_ref().map(|link| link.pid)
    }

    /// Waits until `probe` succeeds.
    ///
    /// # Errors
    /// - [`Failure`] with the end of the log if the server ends, or does not answer for 60 seconds.
    pub async fn ready<F, E>(&self, probe: impl Fn() -> F + Send + Sync) -> Outcome
    where
        F: Future<Output = Result<(), E>> + Send,
        E: Display + Send,
    {
        let mut last = "no probe was made".to_owned();
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            match timeout(Duration::from_secs(2), probe()).await {
                Ok(Ok(())) => last.clear(),
                Ok(Err(error)) => last = error.to_string(),
                Err(error) => last = error.to_string(),
            }
            // Also after a success: another server may have the port.
            if let Some(end) = self.ended()? {
                return Err(self.failure(&format!("the server has {end}")));
            }
            if last.is_empty() {
                return Ok(());
            }
            // There is no event to wait for: servers do not tell when they listen.
            sleep(Duration::from_millis(20)).await;
        }
        Err(self.failure(&format!("the server is not ready: {last}")))
    }

    /// How the server ended, if it did.
    ///
    /// # Errors
    /// - [`Failure`] if the guardian does not answer.
    pub fn ended(&self) -> Outcome<Option<String>> {
        let answer = self.order("status")?;
        Ok((answer != "running").then_some(answer))
    }

    /// Freezes it: connections stay open, nothing is answered.
    ///
    /// # Errors
    /// - [`Failure`] if it has ended.
    pub fn stop(&self) -> Outcome {
        self.order("stop").map(drop)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// - [`Failure`] if it has ended.
    pub fn resume(&self) -> Outcome {
        self.order("cont").map(drop)
    }

    /// Kills it as a power cut would; its data stay for [`restart`](Self::restart).
    pub fn kill(&self) {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        link.take();
    }

    /// Kills it if it runs, and starts it on the same data.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be started.
    pub fn restart(&self) -> Outcome {
        self.kill();
        let link = Link::open(self).map_err(|error| {
            let program = self.program.to_string_lossy();
            Failure::new(format!(
                "the server cannot be started: `{program}`: {error}"
            ))
        })?;
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(link);
        Ok(())
    }

    /// All that it wrote, since its first start.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The last lines that it wrote.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = self.log();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    fn failure(&self, message: &str) -> Failure {
        Failure::new(message).with_detail(&self.log_tail())
    }

    fn log_path(&self) -> PathBuf {
        self.data.path().join("server.log")
    }

    fn order(&self, order: &str) -> Outcome<String> {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        match link.as_mut() {
            Some(link) => Ok(link.order(order)?),
            None => Err(Failure::new("the server does not run")),
        }
    }
}
