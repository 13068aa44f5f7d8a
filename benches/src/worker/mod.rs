//! Other processes that take part in a measurement: this program, started again.
//!
//! Each gets an [`Order`] as a line of standard input and returns an [`Answer`] as a line of standard output.
//! The URL is sent there too, because every user of the machine can read the arguments.

mod contenders;
mod program;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use lockkit::contract::Mode;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

pub use program::serve;

use crate::counter::Control;
use crate::failure::{Failure, Outcome};
use crate::side::Side;

/// The first argument that makes a program a worker.
pub const ARGUMENT: &str = "__bench";

/// Longer than any task of a worker takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// How workers are started: a program that calls [`serve`] when its first argument is [`ARGUMENT`].
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    /// Whether its standard error is shown.
    is_heard: bool,
    /// What its contenders take turns at.
    pub(crate) mode: Mode,
}

impl Program {
    /// This program itself.
    ///
    /// # Errors
    /// - [`Failure`] if the system does not tell where it is.
    pub fn own() -> Outcome<Self> {
        Ok(Self {
            path: std::env::current_exe()?,
            arguments: vec![ARGUMENT.into()],
            environment: Vec::new(),
            is_heard: true,
            mode: Mode::Exclusive,
        })
    }

    /// This program as a contender with the lock of another library.
    ///
    /// # Errors
    /// - [`Failure`] if the system does not tell where it is.
    #[cfg(feature = "peers")]
    pub fn peer(peer: crate::Peer) -> Outcome<Self> {
        let mut program = Self::own()?;
        program.arguments.push(peer.label().into());
        Ok(program)
    }

    /// A foreign program that takes the same orders and gives the same answers, in any language:
    /// `benches/peers/redis_py.py` is one.
    pub fn foreign(
        path: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        Self {
            path: path.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            // Some libraries print a greeting, which would disturb the progress bar.
            is_heard: false,
            mode: Mode::Exclusive,
        }
    }

    /// The same for contenders that want this mode: it is compared with our lock in that mode.
    #[must_use]
    pub const fn in_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The same with a variable of its environment.
    #[must_use]
    pub fn with_env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }
}

/// What a worker is for. Its first order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) url: String,
    pub(crate) side: Side,
    pub(crate) name: String,
    pub(crate) role: Role,
}

/// What a worker does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Some of the contenders that take turns.
    Crowd {
        first: usize,
        count: usize,
        mode: Mode,
    },
    /// Some of the contenders that update one number.
    Updates {
        first: usize,
        count: usize,
        control: Control,
    },
    /// Holds one until it is killed.
    Victim { ttl: Duration },
    /// Holds many and keeps them.
    Keeper { ttl: Duration },
}

/// An order to a worker after its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// A crowd takes turns for this time.
    Turns { span: Duration },
    /// A keeper takes up to `count`, but stops after `limit`.
    Fill { count: usize, limit: Duration },
    /// A keeper reports what keeping costs during this time.
    Window { span: Duration },
}

/// An answer of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It has started; a victim holds.
    Ready,
    /// How many turns each had, and the waits as nanoseconds and counts.
    Turns {
        counts: Vec<u64>,
        took: Duration,
        waits: Vec<(u64, u64)>,
        /// The times of all grants and their contenders: nanoseconds of the clock that the processes share.
        taken: Vec<(u64, usize)>,
    },
    /// How many are held, and the bytes that each takes in this process.
    Filled {
        count: usize,
        bytes: f64,
        /// The limit of open files was reached.
        full: bool,
    },
    /// The processor time that was used, and how many were lost.
    Window { used: Duration, lost: usize },
    /// It did not work.
    Failed { why: String },
}

/// A worker that runs. It dies with this.
pub(crate) struct Worker {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts one and waits until it is ready.
    pub(crate) async fn start(program: &Program, start: &Start) -> Outcome<Self> {
        let mut child = Command::new(&program.path)
            .args(&program.arguments)
            .envs(
                program
                    .environment
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(if program.is_heard {
                Stdio::inherit()
            } else {
                Stdio::null()
            })
            .kill_on_drop(true)
            .spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = pipes else {
            return Err(Failure::new("a worker has no pipes"));
        };
        let mut worker = Self {
            child,
            input,
            output: BufReader::new(output).lines(),
        };
        worker.say(start).await?;
        match worker.hear().await? {
            Answer::Ready => Ok(worker),
            other => Err(unexpected(&other)),
        }
    }

    /// Gives an order.
    pub(crate) async fn say(&mut self, order: &(impl Serialize + Sync)) -> Outcome {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        Ok(self.input.write_all(&line).await?)
    }

    /// Waits for the answer to an order.
    pub(crate) async fn hear(&mut self) -> Outcome<Answer> {
        let line = timeout(PATIENCE, self.output.next_line()).await??;
        let line = line.ok_or_else(|| Failure::new("a worker has ended before its answer"))?;
        match serde_json::from_str(&line)? {
            Answer::Failed { why } => Err(Failure::new(why)),
            answer => Ok(answer),
        }
    }

    /// Gives an order and waits for the answer.
    pub(crate) async fn ask(&mut self, order: &Order) -> Outcome<Answer> {
        self.say(order).await?;
        self.hear().await
    }

    /// Ends it without warning, with `kill -9`.
    pub(crate) fn kill(&mut self) -> Outcome {
        Ok(self.child.start_kill()?)
    }
}

/// The failure of an answer that does not fit its order.
pub(crate) fn unexpected(answer: &Answer) -> Failure {
    Failure::new(format!("unexpected answer of a worker: {answer:?}"))
}
