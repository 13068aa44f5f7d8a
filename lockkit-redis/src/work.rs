//! Commands of the caller, and the work of a ticket that is made of them.

use std::sync::{Arc, Mutex};

use lockkit_core::contract::{Ticket, Work};
use lockkit_core::store::lock;
use lockkit_core::{FencingToken, Outcome};
use redis::Cmd;

use crate::error::{Result, fault};
use crate::reply::Reply;

/// A command of the caller, with at most 7 000 words. It does not say which of them are keys: one server
/// does not need that.
#[derive(Clone, Debug)]
#[must_use = "a command does nothing by itself"]
pub struct Command {
    words: Vec<Vec<u8>>,
}

impl Command {
    /// A command without arguments, such as `SET`.
    pub fn new(verb: &str) -> Self {
        Self {
            words: vec![verb.into()],
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, word: impl AsRef<[u8]>) -> Self {
        self.words.push(word.as_ref().to_vec());
        self
    }

    /// Adds commands to a step, as `commands.lua` reads them.
    pub(crate) fn add_all(commands: &[Self], step: &mut Cmd) {
        for command in commands {
            step.arg(command.words.len()).arg(&command.words);
        }
    }

    /// How many words [`add_all`](Self::add_all) adds.
    fn words_of(commands: &[Self]) -> usize {
        commands.iter().map(|command| command.words.len() + 1).sum()
    }
}

/// What is read in the step that grants.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    pub(crate) commands: Vec<Command>,
    /// The replies that came with the last grant.
    replies: Mutex<Option<(FencingToken, Result<Vec<Reply>>)>>,
}

impl Reads {
    pub(crate) fn new(commands: Vec<Command>) -> Self {
        Self {
            commands,
            replies: Mutex::default(),
        }
    }

    /// What an attempt of this ticket is to read.
    pub(crate) fn of(ticket: &Ticket) -> Option<&Self> {
        Self::of_work(&ticket.work)
    }

    /// What this work reads.
    pub(crate) fn of_work(work: &Option<Work>) -> Option<&Self> {
        work.as_ref().and_then(Work::get)
    }

    /// Keeps what came with a grant.
    pub(crate) fn keep(&self, token: FencingToken, reply: &Reply) {
        let replies = replies(reply, "attempt", Outcome::Rejected);
        *lock(&self.replies) = Some((token, replies));
    }

    /// What came with the grant of this token; `None` if nothing did.
    pub(crate) fn take(&self, token: FencingToken) -> Option<Result<Vec<Reply>>> {
        let kept = lock(&self.replies).take_if(|kept| kept.0 == token)?;
        Some(kept.1)
    }
}

/// What is written in the step that ends a hold.
#[derive(Debug)]
pub(crate) struct Writes {
    token: FencingToken,
    /// What the section has read: a waiter that reads the same is told with its grant.
    reads: Arc<Reads>,
    commands: Vec<Command>,
    replies: Mutex<Option<Result<Vec<Reply>>>>,
}

impl Writes {
    pub(crate) fn new(token: FencingToken, reads: Arc<Reads>, commands: &[Command]) -> Self {
        Self {
            token,
            reads,
            commands: commands.to_vec(),
            replies: Mutex::default(),
        }
    }

    /// What a release of this ticket is to write.
    pub(crate) fn of(ticket: &Ticket) -> Option<&Self> {
        ticket.work.as_ref().and_then(Work::get)
    }

    /// Adds the arguments of `commit.lua`.
    pub(crate) fn add(&self, step: &mut Cmd) {
        const FIRST: usize = 9;
        let reads = &self.reads.commands;
        step.arg(self.token.to_string());
        step.arg(FIRST + Command::words_of(reads));
        Command::add_all(reads, step);
        Command::add_all(&self.commands, step);
    }

    /// Keeps what came with the end of the hold.
    pub(crate) fn keep(&self, reply: &Reply) {
        // As in every script, the writes before the error stay.
        *lock(&self.replies) = Some(replies(reply, "commit", Outcome::Indeterminate));
    }

    /// What came with the end of the hold; `None` if nothing did.
    pub(crate) fn take(&self) -> Option<Result<Vec<Reply>>> {
        lock(&self.replies).take()
    }
}

/// What `commands_or_error` returned.
fn replies(reply: &Reply, operation: &'static str, outcome: Outcome) -> Result<Vec<Reply>> {
    if let Reply::List(replies) = reply {
        return Ok(replies.clone());
    }
    let mut why = reply.as_str().unwrap_or("a command failed").to_owned();
    if why.contains("non local key") {
        why += ": give the lock and all keys the same `{tag}`";
    }
    Err(fault(operation, outcome, why))
}
