//! A `lockkit run` inside another one, which must not wait for it.

use lockkit::contract::{Holder, Mode};
use lockkit::{Guard, Lock};
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::render::plain;

/// The variable that lists the locks that CMD runs under, those of outer runs included.
pub(crate) const HELD: &str = "LOCKKIT_HELD";

/// The value of [`HELD`] for a program that also runs under `own` locks. JSON, because a name can have any
/// character. `stored` is the name with the prefix of the URL.
pub(crate) fn held_with(own: &[Guard]) -> String {
    let entry = |guard: &Guard| {
        let (name, stored) = (guard.name().as_str(), guard.ticket().name.as_str());
        json!({ "name": name, "stored": stored, "token": guard.token().get() })
    };
    let mut held = outer();
    held.extend(own.iter().map(entry));
    Value::Array(held).to_string()
}

/// The locks of the runs that run this one.
fn outer() -> Vec<Value> {
    let held = std::env::var(HELD).unwrap_or_default();
    serde_json::from_str(&held).unwrap_or_default()
}

/// Refuses to wait for a lock that a `lockkit run` holds which runs this one.
pub(crate) async fn refuse(locks: &[Lock]) -> Result<(), Failure> {
    let outer = outer();
    for lock in locks {
        let stored = lock.stored_name().as_str();
        let same_name = outer.iter().filter(|it| it["stored"] == stored);
        let tokens: Vec<_> = same_name.filter_map(|it| it["token"].as_u64()).collect();
        if tokens.is_empty() {
            continue;
        }
        if let Some(behind) = waits_for(lock, &tokens).await {
            let name = plain(lock.name());
            return Err(Failure::usage(format!(
                "`{name}` is held by a `lockkit run` that runs this one, which would wait {behind}; use another name"
            )));
        }
    }
    Ok(())
}

/// How the lock would wait for the holds with these tokens, if it would. The same name and token mean the same
/// store.
async fn waits_for(lock: &Lock, tokens: &[u64]) -> Option<&'static str> {
    // If the store fails, the acquire reports it.
    let state = lock.inspect().await.ok().flatten()?;
    let is_outer = |it: &&Holder| it.token.is_some_and(|token| tokens.contains(&token.get()));
    let outer: Vec<_> = state.holders.iter().filter(is_outer).collect();
    if outer.is_empty() {
        return None;
    }
    if !fits(lock, outer) {
        return Some("for itself");
    }
    // There is room, and still others wait: behind one that excludes others, no run that shares gets in.
    let is_behind = state.waiters > Some(0)
        && fits(lock, &state.holders)
        && matches!(lock.try_acquire().await, Ok(None));
    is_behind.then_some("for itself, behind another that waits for it")
}

/// Whether the lock can be held beside these holders.
pub(crate) fn fits<'a>(lock: &Lock, holders: impl IntoIterator<Item = &'a Holder>) -> bool {
    let modes: Vec<_> = holders.into_iter().map(|holder| holder.mode).collect();
    let excludes = modes.iter().any(|mode| mode.is_none_or(Mode::is_exclusive));
    let count = u32::try_from(modes.len()).unwrap_or(u32::MAX);
    lock.mode().fits(count, excludes)
}
