//! What operators ask: inspect, break, list.

use std::collections::BTreeSet;
use std::time::Duration;

use lockkit_core::backend::LockState;
use lockkit_core::{BackendError, DistributedLock as _, FencingToken, LockName, Queueing};
use redis::Cmd;

use crate::backend::{RedisStore, wrong_type};
use crate::error::{is_no_script, of_request};
use crate::keys::{self, Keys};
use crate::reply::{Reply, unreadable};
use crate::scripts::Step;

/// So many keys are looked through in one step of the server.
const PAGE: usize = 1000;

/// What stands where a lock could be.
struct Found {
    kind: String,
    state: LockState,
}

impl RedisStore {
    /// Looks at one lock.
    pub(crate) async fn look(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let step = &self.steps().inspect;
        let keys = Keys::of(name);
        let token_ttl = self.link().token_ttl().to_string();
        let answer = self
            .link()
            .step(step, &keys.all(&keys.gone("")), &[&token_ttl, ""])
            .await?;
        let found = read(step, name, &Reply::from(answer))?;
        let state = match found.kind.as_str() {
            "none" if found.state.waiters == Some(0) => return Ok(None),
            "none" | "lock" => found.state,
            // Held, as far as we are concerned, but by whom only its owner knows.
            "string" => found.state.with_holder("(a string key)"),
            "hash" => found.state.with_holder("(another kind of hash)"),
            other => return Err(wrong_type(step.name(), name, other)),
        };
        Ok(Some(self.as_seen(state)))
    }

    /// Ends a hold.
    pub(crate) async fn end(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let step = &self.steps().break_lock;
        let keys = Keys::of(name);
        let token_ttl = self.link().token_ttl().to_string();
        let arguments = [&token_ttl, "", &keys.channel];
        let answer = self
            .link()
            .step(step, &keys.all(&keys.gone("")), &arguments)
            .await?;
        let found = read(step, name, &Reply::from(answer))?;
        match found.kind.as_str() {
            "none" => Ok(None),
            "lock" => Ok(Some(self.as_seen(found.state))),
            other => Err(wrong_type(step.name(), name, other)),
        }
    }

    /// Lists the locks whose names begin with `prefix`.
    pub(crate) async fn find(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        let (locks, queues) = keys::patterns(prefix);
        let mut names = BTreeSet::new();
        for pattern in &locks {
            self.scan(pattern, "hash", keys::name_of_lock, &mut names)
                .await?;
        }
        for pattern in &queues {
            self.scan(pattern, "zset", keys::name_of_queue, &mut names)
                .await?;
        }
        names.retain(|name| name.as_str().starts_with(prefix));
        let names: Vec<LockName> = names.into_iter().collect();
        let mut found = Vec::new();
        for page in names.chunks(PAGE) {
            found.extend(self.look_at_all(page).await?);
        }
        Ok(found)
    }

    /// Without an order most waiters stand nowhere: no queue does not mean that nobody waits.
    fn as_seen(&self, state: LockState) -> LockState {
        let counted = self.capabilities().queueing == Queueing::Fifo || state.waiters != Some(0);
        let waiters = state.waiters.filter(|_| counted);
        state.with_waiters(waiters)
    }

    async fn scan(
        &self,
        pattern: &str,
        kind: &str,
        name_of: fn(&str) -> Option<LockName>,
        names: &mut BTreeSet<LockName>,
    ) -> Result<(), BackendError> {
        let mut cursor = "0".to_owned();
        loop {
            let mut command = Cmd::new();
            command.arg("SCAN").arg(&cursor).arg("MATCH").arg(pattern);
            command.arg("COUNT").arg(PAGE).arg("TYPE").arg(kind);
            let answer = Reply::from(self.link().send("list", &command).await?);
            let [next, keys] = answer.as_list() else {
                return Err(unreadable("list"));
            };
            let keys = keys.as_list().iter().filter_map(Reply::as_str);
            names.extend(keys.filter_map(name_of));
            next.as_str()
                .ok_or_else(|| unreadable("list"))?
                .clone_into(&mut cursor);
            if cursor == "0" {
                return Ok(());
            }
        }
    }

    /// Looks at several names in one go, and leaves out what is not a lock.
    async fn look_at_all(&self, names: &[LockName]) -> Result<Vec<LockState>, BackendError> {
        let step = &self.steps().inspect;
        let token_ttl = self.link().token_ttl().to_string();
        let commands = |whole: bool| {
            let command = |name: &LockName| {
                let keys = Keys::of(name);
                let gone = keys.gone("");
                let (keys, arguments) = (keys.all(&gone), [token_ttl.as_str(), ""]);
                if whole {
                    step.by_text(&keys, &arguments)
                } else {
                    step.by_digest(&keys, &arguments)
                }
            };
            names.iter().map(command).collect::<Vec<_>>()
        };
        let mut answers = self.link().batch("list", commands(false)).await?;
        let unknown = |answer: &Result<_, _>| answer.as_ref().is_err_and(is_no_script);
        if answers.iter().any(unknown) {
            answers = self.link().batch("list", commands(true)).await?;
        }
        let mut found = Vec::new();
        for (name, answer) in names.iter().zip(answers) {
            let answer = answer.map_err(|error| of_request("list", &error))?;
            let look = read(step, name, &Reply::from(answer))?;
            let waited_for = look.kind == "none" && look.state.waiters != Some(0);
            if look.kind == "lock" || waited_for {
                found.push(self.as_seen(look.state));
            }
        }
        Ok(found)
    }
}

/// `{kind, ms left, token or '', living waiters, holders...}`
fn read(step: &Step, name: &LockName, answer: &Reply) -> Result<Found, BackendError> {
    let [kind, left, token, waiters, holders @ ..] = answer.as_list() else {
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
