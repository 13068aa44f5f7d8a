//! Commands of the caller, and the work of a ticket that is made of them.

use std::sync::Arc;

use lockkit_core::store::section::Exchange;
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
pub(crate) type Reads = Exchange<Vec<Command>, (FencingToken, Result<Vec<Reply>>)>;

/// What is written in the step that ends a hold.
pub(crate) type Writes = Exchange<Commit, Result<Vec<Reply>>>;

/// The arguments of `commit.lua`.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) token: FencingToken,
    /// What the section has read: a waiter that reads the same is told with its grant.
    pub(crate) reads: Arc<Reads>,
    pub(crate) commands: Vec<Command>,
}

impl Commit {
    pub(crate) fn add(&self, step: &mut Cmd) {
        const FIRST: usize = 9;
        let reads = &self.reads.request;
        step.arg(self.token.to_string());
        step.arg(FIRST + Command::words_of(reads));
        Command::add_all(reads, step);
        Command::add_all(&self.commands, step);
    }
}

/// What was read with a grant.
pub(crate) fn read(reply: &Reply) -> Result<Vec<Reply>> {
    replies(reply, "attempt", Outcome::Rejected)
}

/// What was written with the end of a hold: as in every script, the writes before an error stay.
pub(crate) fn written(reply: &Reply) -> Result<Vec<Reply>> {
    replies(reply, "commit", Outcome::Indeterminate)
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
