//! Where a step runs: the requests to one server, and what their replies say about it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lockkit_core::Outcome;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};

use crate::connection::{Link, Request};
use crate::error::{Result, fault, is_demoted, is_elsewhere, is_no_script};
use crate::reply::{Reply, unreadable};
use crate::scripts::Step;

/// A server that is asked for a lock.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) link: Arc<Link>,
    /// Whether the lock is on its way to this server, which then serves only those who know it.
    asking: bool,
}

/// Whether enough replicas have what a step did for it to count: a failover may lose it.
pub(crate) type Acked = Result<()>;

impl Route {
    pub(crate) const fn to(link: Arc<Link>) -> Self {
        Self {
            link,
            asking: false,
        }
    }

    /// To a server that the lock is moving to.
    pub(crate) const fn asking(link: Arc<Link>) -> Self {
        Self { link, asking: true }
    }

    /// Runs a step.
    pub(crate) async fn run(&self, step: &Step, command: Cmd) -> Result<Reply> {
        let (reply, acked) = self.run_acked(step, command).await?;
        acked.map(|()| reply)
    }

    /// Runs a step that may have done nothing, and also returns whether enough replicas have what it did.
    pub(crate) async fn run_acked(&self, step: &Step, command: Cmd) -> Result<(Reply, Acked)> {
        let (mut replies, acked) = self.run_all(step, [command]).await;
        let reply = replies.pop();
        Ok((reply.unwrap_or_else(|| Err(unreadable(step.name)))?, acked))
    }

    /// Runs a step by each of these commands, in one pipeline; returns one reply for each. Also asks how many
    /// replicas have what a step did that is to be acked.
    pub(crate) async fn run_all(
        &self,
        step: &Step,
        commands: impl IntoIterator<Item = Cmd>,
    ) -> (Vec<Result<Reply>>, Acked) {
        let config = &self.link.config;
        let wanted = if step.acked { config.acks } else { 0 };
        // The server does nothing else meanwhile for the connection, which is checked: while replicas are lacking, one
        // request at a time waits for them.
        let lacks_replicas = self.link.lacks_replicas.load(Ordering::Relaxed);
        let turn = (wanted > 0).then(|| self.link.waits.try_lock());
        let waits = |turn: &Result<_, _>| turn.is_ok() || !lacks_replicas;
        let wait = turn.as_ref().is_some_and(waits).then(|| {
            let mut wait = redis::cmd("WAIT");
            let patience = config.patience() / 2;
            // Zero would be for ever.
            wait.arg(wanted).arg(patience.as_millis().max(1));
            wait
        });
        let commands: Vec<Cmd> = commands.into_iter().collect();
        let mut connection = match self.link.connection(step.name).await {
            Ok(connection) => connection,
            Err(error) => return (vec![Err(error); commands.len()], Ok(())),
        };
        let all = commands.iter().cloned().chain(wait.clone());
        let mut replies = self.send(&mut connection, all).await;
        let mut waited = wait.as_ref().and_then(|_| replies.pop());
        let unknown = |at: &usize| replies[*at].as_ref().is_err_and(is_no_script);
        let unknown: Vec<usize> = (0..replies.len()).filter(unknown).collect();
        if !unknown.is_empty() {
            // The first one loads it for the others.
            let texts = unknown.iter().enumerate().map(|(place, &at)| match place {
                0 => step.with_text(&commands[at]),
                _ => commands[at].clone(),
            });
            let mut again = self.send(&mut connection, texts.chain(wait.clone())).await;
            waited = wait.and_then(|_| again.pop());
            for (at, reply) in unknown.into_iter().zip(again) {
                replies[at] = reply;
            }
        }
        let replicas = waited.and_then(Result::ok).map(Reply::of);
        let replicas = replicas.and_then(|reply| reply.as_u64());
        if let Some(replicas) = replicas {
            let lacks = replicas < wanted.into();
            self.link.lacks_replicas.store(lacks, Ordering::Relaxed);
        }
        let replicas = replicas.unwrap_or(0);
        let acked = if replicas >= wanted.into() {
            Ok(())
        } else {
            let why = format!("{replicas} replicas have it, `acks={wanted}` are wanted");
            Err(fault(step.name, Outcome::Indeterminate, why))
        };
        let failure = |error| self.link.failure(step.name, &error);
        let read = |reply: Result<Value, _>| reply.map(Reply::of).map_err(failure);
        (replies.into_iter().map(read).collect(), acked)
    }

    /// Sends commands; returns one reply for each.
    async fn send(
        &self,
        connection: &mut MultiplexedConnection,
        commands: impl IntoIterator<Item = Cmd>,
    ) -> Vec<Result<Value, RedisError>> {
        let mut pipeline = Pipeline::new();
        for command in commands {
            if self.asking {
                pipeline.cmd("ASKING");
            }
            pipeline.add_command(command);
        }
        let (count, each) = (pipeline.len(), if self.asking { 2 } else { 1 });
        let request = Request::new(&self.link);
        let replies = connection.send_packed_commands(&pipeline, 0, count).await;
        request.replied(&replies);
        let replies: Vec<_> = match replies {
            Ok(replies) => {
                let of_commands = replies.into_iter().skip(each - 1).step_by(each);
                // An error within a reply is what a script of the caller returns: it was carried out.
                let failed = |reply| match reply {
                    Value::ServerError(error) => Err(error.into()),
                    reply => Ok(reply),
                };
                of_commands.map(failed).collect()
            }
            Err(error) => vec![Err(error); count / each],
        };
        let any = |says: fn(&RedisError) -> bool| {
            let mut replies = replies.iter();
            replies.any(|reply| reply.as_ref().is_err_and(says))
        };
        // A demoted server may keep its connections open.
        if any(is_demoted) {
            self.link.demoted.notify_one();
        }
        if any(is_elsewhere) {
            self.link.misplaced.notify_one();
        }
        replies
    }
}
