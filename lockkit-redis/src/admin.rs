//! The requests of operators: inspect, break, list.

use std::collections::BTreeSet;
use std::time::Duration;

use lockkit_core::contract::LockState;
use lockkit_core::{BackendError, DistributedLock as _, FencingToken, LockName, Outcome, Queueing};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError};

use crate::backend::{RedisStore, wrong_type};
use crate::error::fault;
use crate::keys::{self, Keys};
use crate::reply::{Reply, unreadable};
use crate::scripts::Step;

/// How many keys the server scans in one step.
const PAGE: usize = 1000;

/// The likely reason: nutcracker closes the connection for a command that it does not know.
const NO_SCAN: &str = "the connection was closed when SCAN was sent: a proxy that does not know it? \
                       Locks are listed at the server itself";

/// What the key of a lock holds.
struct Found {
    kind: String,
    state: LockState,
}

impl RedisStore {
    /// Inspects one lock.
    pub(crate) async fn inspect_name(
        &self,
        name: &LockName,
    ) -> Result<Option<LockState>, BackendError> {
        let step = &self.steps().inspect;
        let keys = Keys::of(name);
        let token_ttl = self.link().token_ttl().to_string();
        let reply = self
            .link()
            .step(step, &keys.all(&keys.gone("")), &[token_ttl.as_str(), ""])
            .await?;
        let found = read(step, name, &Reply::from(reply))?;
        let state = match found.kind.as_str() {
            "none" if found.state.waiters == Some(0) => return Ok(None),
            "none" | "lock" => found.state,
            // Held for us, by a holder that only its owner knows.
            "string" => found.state.with_holder("(a string key)"),
            "hash" => found.state.with_holder("(another kind of hash)"),
            other => return Err(wrong_type(step.name(), name, other)),
        };
        Ok(Some(self.as_seen(state)))
    }

    /// Ends the hold on a name.
    pub(crate) async fn break_name(
        &self,
        name: &LockName,
    ) -> Result<Option<LockState>, BackendError> {
        let step = &self.steps().break_lock;
        let keys = Keys::of(name);
        let token_ttl = self.link().token_ttl().to_string();
        let arguments = [&token_ttl, "", &keys.channel];
        let reply = self
            .link()
            .step(step, &keys.all(&keys.gone("")), &arguments)
            .await?;
        let found = read(step, name, &Reply::from(reply))?;
        match found.kind.as_str() {
            "none" => Ok(None),
            "lock" => Ok(Some(self.as_seen(found.state))),
            other => Err(wrong_type(step.name(), name, other)),
        }
    }

    /// Lists the locks whose names begin with `prefix`.
    pub(crate) async fn list_prefix(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        let names = self.names(prefix).await?;
        let names: Vec<LockName> = names.into_iter().collect();
        let mut found = Vec::new();
        for page in names.chunks(PAGE) {
            found.extend(self.inspect_all(page).await?);
        }
        Ok(found)
    }

    /// Without a queue most waiters are not recorded: an empty queue does not mean that no client waits.
    fn as_seen(&self, state: LockState) -> LockState {
        let counted = self.capabilities().queueing == Queueing::Fifo || state.waiters != Some(0);
        let waiters = state.waiters.filter(|_| counted);
        state.with_waiters(waiters)
    }

    /// Scans the keys of locks and queues on a separate connection: a proxy that does not know `SCAN`
    /// closes it, which must not fail other requests.
    async fn names(&self, prefix: &str) -> Result<BTreeSet<LockName>, BackendError> {
        let mut hung_up = false;
        loop {
            let mut own = self.link().another("list").await?;
            if own.ping().await.is_err() {
                let why = "the connection ended before the first request";
                return Err(fault("list", Outcome::Unavailable, why));
            }
            match scan(&mut own.connection, prefix).await {
                Ok(names) => return names.ok_or_else(|| unreadable("list")),
                Err(error) if !error.is_connection_dropped() => {
                    return Err(self.link().failure("list", &error));
                }
                // Twice: the first time the server may have been restarted.
                Err(_) if hung_up => return Err(fault("list", Outcome::Rejected, NO_SCAN)),
                Err(_) => hung_up = true,
            }
        }
    }

    /// Inspects several names in one pipeline, and leaves out what is not a lock.
    async fn inspect_all(&self, names: &[LockName]) -> Result<Vec<LockState>, BackendError> {
        let step = &self.steps().inspect;
        let token_ttl = self.link().token_ttl().to_string();
        let call = |name: &LockName| {
            let keys = Keys::of(name);
            let all = keys.all(&keys.gone("")).map(str::to_owned);
            (all.into(), vec![token_ttl.clone(), String::new()])
        };
        let calls: Vec<_> = names.iter().map(call).collect();
        let replies = self.link().steps("list", step, &calls).await;
        let mut found = Vec::new();
        for (name, reply) in names.iter().zip(replies) {
            let state = read(step, name, &Reply::from(reply?))?;
            let waited_for = state.kind == "none" && state.state.waiters != Some(0);
            if state.kind == "lock" || waited_for {
                found.push(self.as_seen(state.state));
            }
        }
        Ok(found)
    }
}

/// The names of the locks that begin with `prefix`; `None` if a reply is not one of `SCAN`.
async fn scan(
    connection: &mut MultiplexedConnection,
    prefix: &str,
) -> Result<Option<BTreeSet<LockName>>, RedisError> {
    let (locks, queue) = keys::patterns(prefix);
    let locks = locks
        .iter()
        .map(|it| (it, "hash", keys::name_of_lock as NameOf));
    let mut names = BTreeSet::new();
    for (pattern, kind, name_of) in locks.chain([(&queue, "list", keys::name_of_queue as NameOf)]) {
        let mut cursor = "0".to_owned();
        loop {
            let mut command = Cmd::new();
            command.arg("SCAN").arg(&cursor).arg("MATCH").arg(pattern);
            command.arg("COUNT").arg(PAGE).arg("TYPE").arg(kind);
            let reply = connection.send_packed_command(&command).await?;
            let reply = Reply::from(reply.extract_error()?);
            let [next, keys] = reply.as_list() else {
                return Ok(None);
            };
            let keys = keys.as_list().iter().filter_map(Reply::as_str);
            names.extend(keys.filter_map(name_of));
            match next.as_str() {
                None => return Ok(None),
                Some("0") => break,
                Some(next) => next.clone_into(&mut cursor),
            }
        }
    }
    names.retain(|name| name.as_str().starts_with(prefix));
    Ok(Some(names))
}

/// Reads the name of a lock from a key.
type NameOf = fn(&str) -> Option<LockName>;

/// `{kind, ms left, token or '', living waiters, holders...}`
fn read(step: &Step, name: &LockName, reply: &Reply) -> Result<Found, BackendError> {
    let [kind, left, token, waiters, holders @ ..] = reply.as_list() else {
        return Err(unreadable(step.name()));
    };
    let number = |reply: &Reply| reply.as_int().and_then(|n| u64::try_from(n).ok());
    let mut state = LockState::new(name.clone())
        .with_remaining(number(left).map(Duration::from_millis))
        .with_token(number(token).and_then(FencingToken::new))
        .with_waiters(number(waiters).and_then(|n| u32::try_from(n).ok()));
    for holder in holders.iter().filter_map(Reply::as_str) {
        state = state.with_holder(holder);
    }
    Ok(Found {
        kind: kind.as_str().unwrap_or_default().to_owned(),
        state,
    })
}
