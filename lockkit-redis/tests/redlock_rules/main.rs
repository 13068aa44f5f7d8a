//! The rules of a lock over several servers, as models: searches through all that can happen.
#![expect(clippy::unwrap_used, reason = "a test may fail by a panic")]

mod leases;
mod tokens;

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

/// How many nodes decide.
const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Searches all states that can be reached. Returns how many there are, or the steps to the first bad one.
fn search<S: Clone + Eq + Hash>(
    first: S,
    next: impl Fn(&S, &mut Vec<S>),
    is_bad: impl Fn(&S) -> bool,
) -> Result<usize, usize> {
    let mut seen = HashSet::from([first.clone()]);
    let mut queue = VecDeque::from([(first, 0)]);
    let mut found = Vec::new();
    while let Some((state, steps)) = queue.pop_front() {
        if is_bad(&state) {
            return Err(steps);
        }
        next(&state, &mut found);
        for state in found.drain(..) {
            if !seen.contains(&state) {
                seen.insert(state.clone());
                queue.push_back((state, steps + 1));
            }
        }
    }
    Ok(seen.len())
}
