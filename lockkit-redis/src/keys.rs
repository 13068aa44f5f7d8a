//! The names of keys and channels.
//!
//! What Redisson uses too has Redisson's names: the lock, its token, its channel. Other names do not
//! follow its rule for braces, under which the locks `x` and `{x}` would share a queue.

use lockkit_core::LockName;

use crate::slot;

/// A name must not begin with these, because other keys of ours and of Redisson do.
const RESERVED: [&str; 2] = ["lockkit_", "redisson_"];
/// Precedes names that do.
const ESCAPE: &str = "lockkit_name:";
const QUEUE: &str = "lockkit_queue";

/// The keys of a step for a ticket, in the order of `queue.lua`. All of them hash to the slot of the lock,
/// if its name has no braces or has a hash tag.
pub(crate) fn of_step(name: &LockName, ticket: &str) -> [String; 5] {
    let lock = lock(name);
    let token = token(&lock);
    let queue = own(QUEUE, &lock);
    let waiters = own("lockkit_wait", &lock);
    let tombstone = own("lockkit_gone", &lock) + ":" + ticket;
    [lock, token, queue, waiters, tombstone]
}

/// The slot of a lock; `None` if not all of its keys share one, because of the braces in its name.
pub(crate) fn slot_of(name: &LockName) -> Option<u16> {
    let lock = lock(name);
    let shared = slot::tag_of(&lock).is_some() || !lock.contains(['{', '}']);
    shared.then(|| slot::of(&lock))
}

pub(crate) fn lock(name: &LockName) -> String {
    let name = name.as_str();
    if is_reserved(name) {
        format!("{ESCAPE}{name}")
    } else {
        name.to_owned()
    }
}

fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|it| name.starts_with(it))
}

/// The key of a lock's token.
pub(crate) fn token(lock: &str) -> String {
    redisson("redisson_lock_token", lock)
}

/// The key of the leases of holders that share a lock. The scripts make the same name from that of the queue.
pub(crate) fn shares(lock: &str) -> String {
    own("lockkit_share", lock)
}

/// Redisson's channel of a lock.
pub(crate) fn channel(name: &LockName) -> String {
    redisson("redisson_lock__channel", &lock(name))
}

/// Redisson's channel of a readers-writer lock.
pub(crate) fn rw_channel(name: &LockName) -> String {
    redisson("redisson_rwlock", &lock(name))
}

/// The name of the lock with this key; `None` if it is not the key of a lock.
pub(crate) fn name_of_lock(key: &str) -> Option<LockName> {
    let name = match key.strip_prefix(ESCAPE) {
        Some(name) if is_reserved(name) => name,
        None if !is_reserved(key) => key,
        _ => return None,
    };
    LockName::new(name).ok()
}

pub(crate) fn name_of_queue(key: &str) -> Option<LockName> {
    let rest = key.strip_prefix(QUEUE)?;
    let lock = match rest.strip_prefix(".raw:") {
        Some(lock) => lock,
        None => rest.strip_prefix(":{")?.strip_suffix('}')?,
    };
    name_of_lock(lock)
}

/// A `SCAN`: its pattern, the type of the keys, and how to read the name of a lock from a key.
pub(crate) type Scan = (String, &'static str, fn(&str) -> Option<LockName>);

/// The scans for the locks, and for the queues, of the names that begin with `prefix`. They may find
/// more: each costs a scan of the whole database.
pub(crate) fn scans(prefix: &str) -> Vec<Scan> {
    let escaped = is_reserved(prefix);
    let perhaps = !prefix.is_empty() && RESERVED.iter().any(|it| it.starts_with(prefix));
    let prefix = escape_glob(prefix);
    let mut scans: Vec<Scan> = vec![(format!("{QUEUE}*{prefix}*"), "list", name_of_queue)];
    if !escaped {
        scans.push((format!("{prefix}*"), "hash", name_of_lock));
    }
    if escaped || perhaps {
        scans.push((format!("{ESCAPE}{prefix}*"), "hash", name_of_lock));
    }
    scans
}

/// The channel of one store object, on which its waiters receive their grants.
pub(crate) fn client_channel(id: impl std::fmt::Display) -> String {
    format!("lockkit_client:{id}")
}

/// Where a server keeps its quarantine.
pub(crate) const PRIMARY: &str = "lockkit_primary";

/// Where a master of a cluster keeps its quarantine, which serves this slot.
pub(crate) fn primary_of(slot: u16) -> String {
    format!("{PRIMARY}:{{{}}}", slot::tag(slot))
}

fn redisson(prefix: &str, lock: &str) -> String {
    with_lock(prefix, ":", lock)
}

fn own(prefix: &str, lock: &str) -> String {
    with_lock(prefix, ".raw:", lock)
}

fn with_lock(prefix: &str, before_braces: &str, lock: &str) -> String {
    match lock.contains('{') {
        true => [prefix, before_braces, lock].concat(),
        false => [prefix, ":{", lock, "}"].concat(),
    }
}

fn escape_glob(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).unwrap()
    }

    /// Frozen: other versions and other programs read these.
    #[test]
    fn golden() {
        let table = [
            (
                "orders/42",
                "orders/42",
                "redisson_lock_token:{orders/42}",
                "lockkit_queue:{orders/42}",
                "lockkit_wait:{orders/42}",
                "lockkit_gone:{orders/42}:t",
                "redisson_lock__channel:{orders/42}",
            ),
            (
                "a{b}c",
                "a{b}c",
                "redisson_lock_token:a{b}c",
                "lockkit_queue.raw:a{b}c",
                "lockkit_wait.raw:a{b}c",
                "lockkit_gone.raw:a{b}c:t",
                "redisson_lock__channel:a{b}c",
            ),
            (
                "lockkit_x",
                "lockkit_name:lockkit_x",
                "redisson_lock_token:{lockkit_name:lockkit_x}",
                "lockkit_queue:{lockkit_name:lockkit_x}",
                "lockkit_wait:{lockkit_name:lockkit_x}",
                "lockkit_gone:{lockkit_name:lockkit_x}:t",
                "redisson_lock__channel:{lockkit_name:lockkit_x}",
            ),
            (
                "redisson_lock_token:{a}",
                "lockkit_name:redisson_lock_token:{a}",
                "redisson_lock_token:lockkit_name:redisson_lock_token:{a}",
                "lockkit_queue.raw:lockkit_name:redisson_lock_token:{a}",
                "lockkit_wait.raw:lockkit_name:redisson_lock_token:{a}",
                "lockkit_gone.raw:lockkit_name:redisson_lock_token:{a}:t",
                "redisson_lock__channel:lockkit_name:redisson_lock_token:{a}",
            ),
        ];
        for (text, lock, token, queue, waiters, gone, released) in table {
            let expected = [lock, token, queue, waiters, gone];
            assert_eq!(of_step(&name(text), "t"), expected);
            assert_eq!(channel(&name(text)), released);
        }
    }

    #[test]
    fn different_names_share_no_key_of_ours() {
        let names = [
            "x",
            "{x}",
            "x}",
            "{x",
            "raw:x",
            ".raw:x",
            "lockkit_x",
            "lockkit_name:lockkit_x",
            "lockkit_queue:{x}",
            "redisson_lock_token:{x}",
            "x:t",
        ];
        let mut seen = HashSet::new();
        for text in names {
            let [lock, _, queue, waiters, gone] = of_step(&name(text), "t");
            for key in [lock, queue, waiters, gone] {
                assert!(seen.insert(key.clone()), "{key} of {text}");
            }
        }
    }

    #[test]
    fn names_are_found_again() {
        for text in ["x", "{x}", "a{b}c", "lockkit_x", "lockkit_name:y", "x}"] {
            let [lock, token, queue, waiters, _] = of_step(&name(text), "");
            assert_eq!(name_of_lock(&lock).unwrap().as_str(), text);
            assert_eq!(name_of_queue(&queue).unwrap().as_str(), text);
            for other in [&token, &queue, &waiters] {
                assert_eq!(name_of_lock(other), None, "{other}");
            }
        }
    }

    #[test]
    fn keys_of_a_lock_share_a_slot_or_it_is_refused() {
        let parts = ["", "a", "{", "}", "{}", "{b}", "lockkit_"];
        let names = parts
            .iter()
            .flat_map(|one| parts.map(|other| [*one, other, "c"].concat()));
        for text in names.chain(["}".to_owned(), "{}".to_owned(), "a}b{".to_owned()]) {
            let [lock, others @ ..] = of_step(&name(&text), "t").map(|key| slot::of(&key));
            let shared = others.iter().all(|other| *other == lock);
            assert_eq!(slot_of(&name(&text)), shared.then_some(lock), "{text}");
        }
    }

    #[test]
    fn patterns_match_literally() {
        assert_eq!(escape_glob("a*[b]?\\"), "a\\*\\[b\\]\\?\\\\");
    }
}
