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
    let mut merged = LockState {
        waiters,
        ..LockState::new(name.clone())
    };
    for (id, at) in holders {
        merged = merged.with_holder(one(id, &at));
    }
    let last = states.iter().filter_map(|state| state.token).max();
    merged.token = merged.token.or(last);
    Some(merged)
}

/// A holder at several nodes. Its token is that of most of them: a node that was repaired has accepted another one.
fn one(id: String, at: &[Holder]) -> Holder {
    let count = |token| at.iter().filter(|holder| holder.token == token).count();
    let tokens = at.iter().filter(|holder| holder.token.is_some());
    let most = tokens.max_by_key(|holder| count(holder.token));
    let holder = most.or(at.first()).cloned();
    let remaining = at.iter().filter_map(|holder| holder.remaining).max();
    Holder {
        id,
        remaining,
        ..holder.unwrap_or_else(|| Holder::new(""))
    }
}

#[cfg(test)]
mod tests {
    use lockkit_core::{ClientId, FencingToken, HolderId};

    use super::*;

    /// Each state is a holder's number and its token, or free.
    fn merged(states: &[Option<(u64, u64)>], silent: usize) -> Option<(Vec<u64>, Option<u64>)> {
        let (name, client) = (LockName::new("a").unwrap(), ClientId::random());
        let state = |held: &Option<(u64, u64)>| {
            let state = LockState::new(name.clone());
            held.map(|(number, token)| {
                state.with_holder(Holder {
                    token: FencingToken::new(token),
                    ..Holder::new(HolderId::new(client, number).to_string())
                })
            })
        };
        let states: Vec<LockState> = states.iter().filter_map(state).collect();
        let merged = merge(&name, &states, 5, silent)?;
        let number = |id: &str| id.parse::<HolderId>().unwrap().number();
        let holders = merged.holder_ids().map(number).collect();
        Some((holders, merged.token.map(FencingToken::get)))
    }

    #[test]
    fn holder_is_one_that_may_have_a_majority() {
        let (a, b) = (Some((1, 7)), Some((2, 9)));
        for (states, silent, expected) in [
            (vec![None; 5], 0, None),
            (vec![a, a, None, None, None], 0, None),
            (vec![a, a, a, None, None], 0, Some((vec![1], Some(7)))),
            (vec![a, a, a, b, b], 0, Some((vec![1], Some(7)))),
            (vec![a, a, None], 2, Some((vec![1], Some(7)))),
            (vec![a, b, None, None], 1, None),
        ] {
            assert_eq!(merged(&states, silent), expected, "{states:?}, {silent}");
        }
    }

    #[test]
    fn token_is_that_of_most_nodes_and_a_ticket_has_one_name() {
        let again = 1 << 40;
        let states = [Some((1, 7)), Some((1, 8)), Some((1 + again, 7)), None, None];
        assert_eq!(merged(&states, 0), Some((vec![1], Some(7))));
    }
}
