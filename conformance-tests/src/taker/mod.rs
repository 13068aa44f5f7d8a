//! A process that takes locks, so that it can be killed and stopped.
//!
//! The program reads commands from its standard input, one on a line, and writes the history of what
//! it does to its standard output; the line `done` ends the answer to a command. [`serve`] is that
//! program for any store, [`Taker`] is a running one as a case sees it.
//!
//! | command | what it does |
//! |---|---|
//! | `acquire NAME` | waits for the lock, then looks at the guard |
//! | `check` | looks at the guard |
//! | `put` | does a guarded write under the hold, whether it still stands or not |
//! | `release` | gives the lock back |
//! | `work NAME MILLIS` | takes the lock, looks at it twice and gives it back, again and again |
//! | `write NAME MILLIS` | the same with a guarded write after each look, whatever it saw; holds for longer |
//! | `mix MILLIS NAME...` | the same as `work` in random modes, of one or two of the names; holds for longer |
//! | `sections NAME MILLIS` | runs sections of a store that has them, again and again |

mod mixed;
mod program;
mod sections;
mod worker;
mod writer;

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::failure::{Failure, Outcome};
use crate::history::{Event, History, Op, Phase, parse};
use crate::task::within;

pub use mixed::Mixed;
pub use program::{serve, serve_writing};
pub use worker::Worker;
pub use writer::{Writer, Writing};

/// Ends the answer to a command.
const DONE: &str = "done";

/// A lock-taker that runs. It is killed with its handle.
#[derive(Debug)]
pub struct Taker {
    child: Child,
    commands: ChildStdin,
    answers: mpsc::UnboundedReceiver<io::Result<String>>,
    events: Vec<Event>,
    _reader: JoinSet<()>,
}

impl Taker {
    /// Starts `program` on the store at `url`, with renewed leases of `ttl`.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be started, or cannot open the store.
    pub async fn start(program: &Path, url: &str, ttl: Duration) -> Outcome<Self> {
        let mut child = Command::new(program)
            .arg(url)
            .arg(ttl.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let missing = || Failure::new("the lock-taker has no pipes");
        let commands = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        // Read all the time: a full pipe would stop the process in the middle of a hold.
        let (tell, answers) = mpsc::unbounded_channel();
        let mut reader = JoinSet::new();
        reader.spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Some(line) = lines.next_line().await.transpose() {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        let mut taker = Self {
            child,
            commands,
            answers,
            events: Vec::new(),
            _reader: reader,
        };
        taker.answer(Duration::from_secs(30)).await?;
        Ok(taker)
    }

    /// Sends a command without waiting for its answer.
    ///
    /// # Errors
    /// - [`Failure`] if the process is gone.
    pub async fn send(&mut self, command: &str) -> Outcome {
        self.commands
            .write_all(format!("{command}\n").as_bytes())
            .await?;
        Ok(())
    }

    /// Waits for the end of the answer to the next command that has none yet, and gives its last
    /// event.
    ///
    /// # Errors
    /// - [`Failure`] if the process ends or `limit` passes.
    pub async fn answer(&mut self, limit: Duration) -> Outcome<Option<Event>> {
        let mut last = None;
        let ended = || Failure::new("the lock-taker ended");
        loop {
            let line = within(limit, self.answers.recv()).await?;
            let line = line.ok_or_else(ended)??;
            if line == DONE {
                return Ok(last);
            }
            let event = parse(&line)?;
            self.events.push(event.clone());
            // A loss may be told at any time and is no answer.
            if event.op != Op::Lost {
                last = Some(event);
            }
        }
    }

    /// Carries out a command.
    ///
    /// # Errors
    /// - [`Failure`] if the process ends, takes longer than 20 seconds, or gives no answer.
    pub async fn run(&mut self, command: &str) -> Outcome<Event> {
        self.send(command).await?;
        let answer = self.answer(Duration::from_secs(20)).await?;
        answer.ok_or_else(|| Failure::new(format!("`{command}` has no answer")))
    }

    /// Takes a lock and returns the token.
    ///
    /// # Errors
    /// - [`Failure`] if the process did not get it.
    pub async fn acquire(&mut self, name: &str) -> Outcome<u64> {
        let event = self.run(&format!("acquire {name}")).await?;
        let stands = event.op == Op::Check && event.phase == Phase::Ok;
        match event.token.filter(|_| stands) {
            Some(token) => Ok(token),
            None => Err(Failure::new(format!("not acquired: {}", event.line()))),
        }
    }

    /// Its process number, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends `SIGKILL`, and waits for the end.
    ///
    /// # Errors
    /// - [`Failure`] if the system refuses.
    pub async fn kill(&mut self) -> Outcome {
        Ok(self.child.kill().await?)
    }

    /// Freezes it.
    ///
    /// # Errors
    /// - [`Failure`] if it is gone.
    #[cfg(unix)]
    pub fn stop(&self) -> Outcome {
        let id = self.signal(rustix::process::Signal::STOP)?;
        Ok(crate::servers::wait_for_stop(id)?)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// - [`Failure`] if it is gone.
    #[cfg(unix)]
    pub fn resume(&self) -> Outcome {
        self.signal(rustix::process::Signal::CONT).map(drop)
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) -> Outcome<rustix::process::Pid> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.and_then(rustix::process::Pid::from_raw);
        let id = id.ok_or_else(|| Failure::new("the lock-taker has ended"))?;
        rustix::process::kill_process(id, signal)?;
        Ok(id)
    }

    /// What it told so far.
    #[must_use]
    pub fn history(&self) -> History {
        History::new(self.events.clone())
    }
}
