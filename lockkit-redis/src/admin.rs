//! The requests of operators: inspect, break, list.

use std::collections::BTreeSet;

use std::time::Duration;

use lockkit_core::contract::{Holder, LockState};
use lockkit_core::store::tag;
use lockkit_core::{DistributedLock as _, FencingToken, LockName, Outcome, Queueing};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError};

use crate::backend::{RedisStore, on_lock, wrong_type};
use crate::connection::Link;
use crate::error::{Result, fault};
use crate::keys;
use crate::reply::{Reply, unreadable};
use crate::route::Route;
use crate::scripts::{BREAK, INSPECT, LIST, Step};

/// How many keys the server scans in one step.
const PAGE: usize = 1000;

/// The likely reason: nutcracker closes the connection for a command that it does not know.
const NO_SCAN: &str = "the connection was closed when SCAN was sent: a proxy that does not know it? \
                       Locks are listed at the server itself";

impl RedisStore {
    pub(crate) async fn inspect_name(&self, name: &LockName) -> Result<Option<LockState>> {
        let step = &*INSPECT;
        let look = async |route: Route| {
            let admission = route.link.admission(step.name).await?;
            let command = on_lock(&route.link, step, name, "", "", &[]);
            let reply = route.run(step, command).await?;
            Ok((reply, admission.is_in_quarantine()))
        };
        let (reply, in_quarantine) = self.masters.on(step.name, name, look).await?;
        let (kind, state) = self.read(step, name, &reply)?;
        Ok(Some(match kind {
            // No client is granted it, and the last holder may not know that it is free.
            "none" if in_quarantine => state.with_holder("(the server, in quarantine)"),
            "none" if !is_waited_for(&state) => return Ok(None),
            "none" | "lock" => state,
            // Held for us, by a holder that only its owner knows.
            "string" => state.with_holder("(a string key)"),
            "hash" => state.with_holder("(another kind of hash)"),
            other => return Err(wrong_type(step, name, other)),
        }))
    }

    pub(crate) async fn break_name(&self, name: &LockName) -> Result<Option<LockState>> {
        let step = &*BREAK;
        let end = async |route: Route| {
            let admission = route.link.admission(step.name).await?;
            let primary = admission.for_release();
            let mut command = on_lock(&route.link, step, name, "", primary, &[]);
            command
                .arg(keys::channel(name))
                .arg(u8::from(route.link.config.clustered))
                .arg(keys::rw_channel(name));
            route.run(step, command).await
        };
        let reply = self.masters.on(step.name, name, end).await?;
        let (kind, state) = self.read(step, name, &reply)?;
        match kind {
            "none" => Ok(None),
            "lock" => Ok(Some(state)),
            other => Err(wrong_type(step, name, other)),
        }
    }

    /// Lists the locks whose names begin with `prefix`, and leaves out what is not a lock.
    pub(crate) async fn list_prefix(&self, prefix: &str) -> Result<Vec<LockState>> {
        let step = &*LIST;
        let mut names = BTreeSet::new();
        for server in self.masters.all(step.name).await? {
            names.append(&mut names_on(&server.link, prefix).await?);
        }
        let names: Vec<&LockName> = names.iter().collect();
        let mut found = Vec::new();
        for page in names.chunks(PAGE) {
            let command =
                |link: &Link, places: &[usize]| on_lock(link, step, page[places[0]], "", "", &[]);
            let replies = self.masters.on_all(step, page, 1, Duration::MAX, command);
            for (places, reply) in replies.await {
                let (reply, _) = reply?;
                let (kind, state) = self.read(step, page[places[0]], &reply)?;
                if kind == "lock" || kind == "none" && is_waited_for(&state) {
                    found.push(state);
                }
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    /// `{kind, ms left, token or '', living waiters, clock us}`, and for each holder its field, value, and ms
    /// left.
    fn read<'a>(
        &self,
        step: &Step,
        name: &LockName,
        reply: &'a Reply,
    ) -> Result<(&'a str, LockState)> {
        let [kind, left, token, waiters, now, holders @ ..] = reply.as_list() else {
            return Err(unreadable(step.name));
        };
        let waiters = waiters.as_u64().and_then(|count| u32::try_from(count).ok());
        // Without a queue most waiters are not recorded: an empty queue does not mean that no client
        // waits.
        let counted = self.capabilities().queueing == Queueing::Fifo || waiters != Some(0);
        let mut state = LockState {
            remaining: left.as_millis(),
            waiters: waiters.filter(|_| counted),
            ..LockState::new(name.clone())
        };
        for holder in holders.chunks_exact(3) {
            if let Some(holder) = holder_of(holder, now) {
                state = state.with_holder(holder);
            }
        }
        // The last one given may be that of a share which has ended.
        state.token = state.token.or(token.as_token());
        Ok((kind.as_str().unwrap_or_default(), state))
    }
}

/// Scans the keys of locks and queues on a separate connection: a proxy that does not know `SCAN`
/// closes it, which must not fail other requests.
async fn names_on(link: &Link, prefix: &str) -> Result<BTreeSet<LockName>> {
    let mut hung_up = false;
    loop {
        let mut own = link.another("list").await?;
        if own.ping().await.is_err() {
            let why = "the connection ended before the first request";
            return Err(fault("list", Outcome::Unavailable, why));
        }
        match scan(&mut own.connection, prefix).await {
            Ok(names) => return names.ok_or_else(|| unreadable("list")),
            Err(error) if !error.is_connection_dropped() => {
                return Err(link.failure("list", &error));
            }
            // Twice: the first time the server may have been restarted.
            Err(_) if hung_up => return Err(fault("list", Outcome::Rejected, NO_SCAN)),
            Err(_) => hung_up = true,
        }
    }
}

/// A holder of a lock: its field, value, and ms left.
fn holder_of(reply: &[Reply], now: &Reply) -> Option<Holder> {
    let [id, value, left] = reply else {
        return None;
    };
    let holder = Holder {
        remaining: left.as_millis(),
        ..Holder::new(id.as_str()?)
    };
    let value = value.as_str().unwrap_or_default();
    let (who, note) = match value.split_once('\n') {
        Some((who, note)) => (who, Some(note.to_owned())),
        None => (value, None),
    };
    let mut words = who.splitn(3, ' ');
    let token = words.next().and_then(|token| token.parse().ok());
    let Some(mode) = words.next() else {
        // Redisson's: the number of its reentries.
        return Some(holder);
    };
    let mode = tag::read_mode(mode)?;
    // A token is the server's clock at its grant.
    let since = now.as_u64().zip(token.map(FencingToken::get));
    let held_for = since.map(|(now, since)| Duration::from_micros(now.saturating_sub(since)));
    Some(Holder {
        label: words.next().map(str::to_owned),
        mode: Some(mode),
        token,
        held_for,
        note,
        ..holder
    })
}

fn is_waited_for(state: &LockState) -> bool {
    state.waiters.is_some_and(|count| count > 0)
}

/// The names of the locks that begin with `prefix`; `None` if a reply is not one of `SCAN`.
async fn scan(
    connection: &mut MultiplexedConnection,
    prefix: &str,
) -> Result<Option<BTreeSet<LockName>>, RedisError> {
    let mut names = BTreeSet::new();
    for (pattern, kind, name_of) in keys::scans(prefix) {
        let mut cursor = "0".to_owned();
        loop {
            let mut command = Cmd::new();
            command.arg("SCAN").arg(&cursor).arg("MATCH").arg(&pattern);
            command.arg("COUNT").arg(PAGE).arg("TYPE").arg(kind);
            let reply = connection.send_packed_command(&command).await?;
            let reply = Reply::of(reply.extract_error()?);
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
