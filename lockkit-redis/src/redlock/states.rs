//! What operators see of a lock that several nodes keep.

use std::collections::BTreeMap;

use lockkit_core::LockName;
use lockkit_core::contract::{Holder, LockState};

use super::quorum::majority;
use super::tickets::original;

/// The states of each lock, by its name.
pub(crate) fn by_name(
    states: impl IntoIterator<Item = LockState>,
) -> BTreeMap<LockName, Vec<LockState>> {
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for state in states {
        found.entry(state.name.clone()).or_default().push(state);
    }
    found
}

/// One state of those that nodes have returned; `silent` nodes of all have returned none. A holder is one that may have
/// a majority: fewer nodes are what a waiter tries, or what a dead client left.
pub(crate) fn merge(
    name: &LockName,
    states: &[LockState],
    nodes: usize,
    silent: usize,
) -> Option<LockState> {
    let mut holders = BTreeMap::<String, Vec<Holder>>::new();
    for holder in states.iter().flat_map(|state| &state.holders) {
        let id = holder.id.parse().map(original);
        let id = id.map_or_else(|_| holder.id.clone(), |id| id.to_string());
        holders.entry(id).or_default().push(holder.clone());
    }
    holders.retain(|_, at| at.len() + silent >= majority(nodes));
    let waiters = states.iter().filter_map(|state| state.waiters).max();
    if holders.is_empty() && waiters.unwrap_or(0) == 0 {
        return None;
    }
    let mut merged = LockState::new(name.clone()).with_waiters(waiters);
    for (id, at) in holders {
        merged = merged.with_holder(one(id, &at));
    }
    let last = states.iter().filter_map(|state| state.token).max();
    if merged.token.is_none() {
        merged = merged.with_token(last);
    }
    Some(merged)
}

/// A holder at several nodes. Its token is that of most of them: a node that was repaired has accepted another one.
fn one(id: String, at: &[Holder]) -> Holder {
    let count = |token| at.iter().filter(|holder| holder.token == token).count();
    let tokens = at.iter().filter(|holder| holder.token.is_some());
    let most = tokens.max_by_key(|holder| count(holder.token));
    let mut holder = most.or(at.first()).cloned();
    let left = at.iter().filter_map(|holder| holder.remaining).max();
    if let Some(holder) = &mut holder {
        holder.id.clone_from(&id);
    }
    holder
        .unwrap_or_else(|| Holder::new(id))
        .with_remaining(left)
}
