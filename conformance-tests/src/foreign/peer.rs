//! A foreign client behind lines of text.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::failure::{Failure, Outcome};
use crate::task::within;

/// A process that takes locks with another library. Dropping it kills it.
///
/// A command is `THREAD VERB ...`, its answer a line that begins with the same word. Each thread is an
/// owner of its own, and carries out one command after the other; a name begins a thread.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    commands: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    answers: HashMap<String, VecDeque<String>>,
}

impl Peer {
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Starts the program and waits until it is ready.
    ///
    /// # Errors
    /// - [`Failure`] if it does not come up within 60 seconds.
    pub async fn start(command: &mut Command) -> Outcome<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let missing = || Failure::new("the foreign client has no pipes");
        let commands = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let mut peer = Self {
            child,
            commands,
            lines: BufReader::new(output).lines(),
            answers: HashMap::new(),
        };
        // A virtual machine takes its time on a busy processor.
        within(Duration::from_secs(60), peer.next("main")).await??;
        Ok(peer)
    }

    /// Sends a command without waiting for its answer.
    ///
    /// # Errors
    /// - [`Failure`] if the process is gone.
    pub async fn send(&mut self, command: &str) -> Outcome {
        Ok(self
            .commands
            .write_all(format!("{command}\n").as_bytes())
            .await?)
    }

    /// The next answer of a thread.
    ///
    /// # Errors
    /// - [`Failure`] if the process ends, or does not answer for 20 seconds.
    pub async fn answer(&mut self, thread: &str) -> Outcome<String> {
        within(Self::PATIENCE, self.next(thread)).await?
    }

    /// Carries out a command.
    ///
    /// # Errors
    /// - [`Failure`] if the process ends, or does not answer for 20 seconds.
    pub async fn ask(&mut self, command: &str) -> Outcome<String> {
        self.send(command).await?;
        let thread = command.split(' ').next().unwrap_or_default();
        self.answer(thread).await
    }

    /// Carries out a command whose answer is known.
    ///
    /// # Errors
    /// - [`Failure`] if the answer is another one.
    pub async fn expect(&mut self, command: &str, expected: &str) -> Outcome {
        let answer = self.ask(command).await?;
        if answer == expected {
            return Ok(());
        }
        Err(Failure::new(format!("`{command}` answers `{answer}`")))
    }

    /// Takes a lock that has a token: `THREAD lock fenced NAME WAIT LEASE`.
    ///
    /// # Errors
    /// - [`Failure`] if it is not granted.
    pub async fn token(&mut self, command: &str) -> Outcome<u64> {
        self.send(command).await?;
        let thread = command.split(' ').next().unwrap_or_default();
        self.token_of(thread).await
    }

    /// The token in the next answer of a thread.
    ///
    /// # Errors
    /// - [`Failure`] if there is none in it.
    pub async fn token_of(&mut self, thread: &str) -> Outcome<u64> {
        let answer = self.answer(thread).await?;
        let token = answer.strip_prefix("got ").and_then(|it| it.parse().ok());
        token.ok_or_else(|| Failure::new(format!("no token in `{answer}`")))
    }

    /// Sends `SIGKILL`, and waits for the end.
    ///
    /// # Errors
    /// - [`Failure`] if the system refuses.
    pub async fn kill(&mut self) -> Outcome {
        Ok(self.child.kill().await?)
    }

    async fn next(&mut self, thread: &str) -> Outcome<String> {
        loop {
            let early = self.answers.get_mut(thread).and_then(VecDeque::pop_front);
            if let Some(answer) = early {
                return Ok(answer);
            }
            let line = self.lines.next_line().await?;
            let line = line.ok_or_else(|| Failure::new("the foreign client ended"))?;
            let (thread, answer) = line.split_once(' ').unwrap_or((&line, ""));
            let answers = self.answers.entry(thread.to_owned()).or_default();
            answers.push_back(answer.to_owned());
        }
    }
}
