//! Work in Redis that the server does only while a lock is held, in one step.

use lockkit_core::contract::Ticket;
use lockkit_core::store::section::FencedError;
use lockkit_core::{BackendError, FencingToken, Guard, LockClient, Outcome};
use redis::Cmd;

use crate::backend::{RedisStore, on_lock};
use crate::error::{PARTLY, fault, text_of};
use crate::keys;
use crate::reply::Reply;
use crate::route::Route;
use crate::scripts::{COMMANDS, Step};
use crate::work::Command;

const FENCED: &str = "LOCKKITFENCED";
const HELD: &str = "LOCKKITHELD";

/// A script of the caller, which runs only while the lock is held.
///
/// # Examples
/// ```
/// let script = lockkit_redis::Script::new(
///     "local left = tonumber(redis.call('GET', KEYS[1]) or '0') - tonumber(ARGV[1])
///      if left < 0 then return -1 end
///      redis.call('SET', KEYS[1], left)
///      return left",
/// );
/// # let _ = script;
/// ```
#[derive(Debug)]
pub struct Script {
    /// While the lock is held.
    guarded: Step,
    /// If the lock is free.
    applied: Step,
}

impl Script {
    /// Takes the text of a script as the server's `EVAL` would: `KEYS`, `ARGV`, one `return`. An error in a list that it
    /// returns is a part of its reply, and not its failure.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self {
            guarded: Step::guarded(text),
            applied: Step::applied(text),
        }
    }

    /// Runs the script if the lock is free and has no waiters; `None` if not, or if no server can be asked now.
    pub(crate) async fn apply(
        &self,
        store: &RedisStore,
        ticket: &Ticket,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> Result<Option<Reply>, BackendError> {
        let (step, holder) = (&self.applied, ticket.holder.to_string());
        let work = async |route: Route| {
            let admission = route.link.admission(step.name).await?;
            let primary = admission.for_release();
            let mut command = on_lock(&route.link, step, &ticket.name, &holder, primary, keys);
            command.arg(arguments);
            route.run(step, command).await
        };
        match store.masters.on(step.name, &ticket.name, work).await {
            Ok(reply) => Ok(Some(reply)),
            Err(error) if text_of(&error).starts_with(HELD) => Ok(None),
            Err(error) if error.outcome() == Outcome::Unavailable => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Work that the server does only while one hold lasts.
///
/// It replaces `WATCH`, `MULTI` and `EXEC`. The server checks the hold and does the work in one step, so
/// that it refuses the work of a stale holder, whatever the clocks say. As in every script, writes before
/// an error stay.
///
/// # Examples
/// ```no_run
/// use lockkit_core::{Guard, LockClient};
/// use lockkit_redis::{Command, Fenced, FencedError};
///
/// # async fn example(client: LockClient, guard: Guard) -> Result<(), FencedError> {
/// if let Some(fenced) = Fenced::by(&client, &guard) {
///     fenced
///         .commands(&[Command::new("SET").arg("stock:42").arg("7")])
///         .await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is done before `commands` or `script`"]
pub struct Fenced<'a> {
    store: &'a RedisStore,
    ticket: Ticket,
    token: FencingToken,
}

impl<'a> Fenced<'a> {
    /// Work under the hold of `guard`, which comes from `client`; `None` if its store is not Redis.
    pub fn by(client: &'a LockClient, guard: &Guard) -> Option<Self> {
        let store = client.store()?;
        Some(Self::new(store, guard.ticket().clone(), guard.token()))
    }

    /// Work under the hold of a ticket, to which `store` gave `token`.
    pub const fn new(store: &'a RedisStore, ticket: Ticket, token: FencingToken) -> Self {
        Self {
            store,
            ticket,
            token,
        }
    }

    /// Runs a script if the lock is still held.
    ///
    /// # Errors
    /// - [`FencedError::Fenced`] if the hold has ended; nothing was done.
    /// - [`FencedError::Backend`] if the server or the script failed. If the script may have written before, the
    ///   outcome is [`Indeterminate`](Outcome::Indeterminate); also if too few replicas have what it wrote
    ///   ([`acks`](crate::RedisStoreBuilder::acks)).
    ///
    /// # Cancel safety
    /// After it is dropped, the script may still run, if the lock is still held then.
    ///
    /// # Cost
    /// One round trip.
    pub async fn script(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> Result<Reply, FencedError> {
        let mut command = self.guarded(&script.guarded, keys);
        command.arg(arguments);
        self.run(&script.guarded, &command).await
    }

    /// The command of a step that follows `guard.lua`.
    fn guarded(&self, step: &Step, keys: &[&str]) -> Cmd {
        let lock = keys::lock(&self.ticket.name);
        let shares = keys::shares(&lock);
        let mut command = step.on(&[&[lock.as_str(), &shares], keys].concat());
        command
            .arg(self.ticket.holder.to_string())
            .arg(self.token.to_string());
        command
    }

    async fn run(&self, step: &Step, command: &Cmd) -> Result<Reply, FencedError> {
        let work = async |route: Route| route.run(step, command.clone()).await;
        let reply = self.store.masters.on(step.name, &self.ticket.name, work);
        reply.await.map_err(of_script)
    }

    /// Runs commands, one after the other, if the lock is still held; returns one reply for each.
    ///
    /// # Errors
    /// As [`script`](Self::script). After a command that fails, the others are not run.
    ///
    /// # Cancel safety
    /// As [`script`](Self::script).
    ///
    /// # Cost
    /// One round trip.
    pub async fn commands(&self, commands: &[Command]) -> Result<Vec<Reply>, FencedError> {
        let step = &*COMMANDS;
        let mut guarded = self.guarded(step, &[]);
        Command::add_all(commands, &mut guarded);
        match self.run(step, &guarded).await? {
            Reply::List(replies) => Ok(replies),
            other => Ok(vec![other]),
        }
    }
}

fn of_script(error: BackendError) -> FencedError {
    match text_of(&error).starts_with(FENCED) {
        true => FencedError::Fenced,
        false => failed(error).into(),
    }
}

/// The error of a script. Its writes before it failed stay.
fn failed(error: BackendError) -> BackendError {
    let text = text_of(&error);
    if let Some(own) = text.strip_prefix(PARTLY) {
        return fault(error.operation(), Outcome::Indeterminate, own.trim_start());
    }
    // A script cannot cause this text itself: it must not call `EVAL`.
    let never_ran = text.starts_with("NOPERM ") && text.contains("'eval");
    // Neither does it get there if its keys are in several slots of a cluster.
    let never_ran = never_ran || text.starts_with("CROSSSLOT ");
    match error.outcome() {
        Outcome::Rejected if !never_ran => fault(error.operation(), Outcome::Indeterminate, text),
        _ => error,
    }
}
