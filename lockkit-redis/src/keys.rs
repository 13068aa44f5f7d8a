//! The names of keys and channels.
//!
//! What Redisson uses too has Redisson's names: the lock, its token, its channel. Other names do not
//! follow its rule for braces, under which the locks `x` and `{x}` would share a queue.

use lockkit_core::LockName;

/// A name must not begin with these, because other keys of ours and of Redisson do.
const RESERVED: [&str; 2] = ["lockkit_", "redisson_"];
/// Precedes names that do.
const ESCAPE: &str = "lockkit_name:";
const QUEUE: &str = "lockkit_queue";

/// The keys of one lock. All of them hash to the slot of the lock, if its name has no braces or has a
/// hash tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) lock: String,
    pub(crate) token: String,
    pub(crate) queue: String,
    pub(crate) waiters: String,
    /// Redisson's channel of this lock.
    pub(crate) channel: String,
}

impl Keys {
    pub(crate) fn of(name: &LockName) -> Self {
        let lock = lock(name);
        Self {
            token: redisson("redisson_lock_token", &lock),
            queue: own(QUEUE, &lock),
            waiters: own("lockkit_wait", &lock),
            channel: channel(name),
            lock,
        }
    }

    /// All keys of a step, in the order of `queue.lua`.
    pub(crate) fn all<'a>(&'a self, gone: &'a str) -> [&'a str; 5] {
        [&self.lock, &self.token, &self.queue, &self.waiters, gone]
    }

    /// The tombstone of a ticket.
    pub(crate) fn gone(&self, ticket: &str) -> String {
        let mut key = own("lockkit_gone", &self.lock);
        key.push(':');
        key.push_str(ticket);
        key
    }
}

/// The key of a lock.
pub(crate) fn lock(name: &LockName) -> String {
    let name = name.as_str();
    if RESERVED.iter().any(|reserved| name.starts_with(reserved)) {
        format!("{ESCAPE}{name}")
    } else {
        name.to_owned()
    }
}

/// The key of the token, for renewals.
pub(crate) fn token(lock: &str) -> String {
    redisson("redisson_lock_token", lock)
}

/// Redisson's channel of a lock.
pub(crate) fn channel(name: &LockName) -> String {
    redisson("redisson_lock__channel", &lock(name))
}

/// The name of the lock with this key; `None` if it is not the key of a lock.
pub(crate) fn name_of_lock(key: &str) -> Option<LockName> {
    let name = match key.strip_prefix(ESCAPE) {
        Some(name) => RESERVED
            .iter()
            .any(|reserved| name.starts_with(reserved))
            .then_some(name)?,
        None if RESERVED.iter().any(|reserved| key.starts_with(reserved)) => return None,
        None => key,
    };
    LockName::new(name).ok()
}

/// The name of the lock with this queue.
pub(crate) fn name_of_queue(key: &str) -> Option<LockName> {
    let rest = key.strip_prefix(QUEUE)?;
    let lock = match rest.strip_prefix(".raw:") {
        Some(lock) => lock,
        None => rest.strip_prefix(":{")?.strip_suffix('}')?,
    };
    name_of_lock(lock)
}

/// Patterns of `SCAN` for the locks, and for the queues, of the names that begin with `prefix`. They
/// may match more: each pattern costs a scan of the whole database.
pub(crate) fn patterns(prefix: &str) -> (Vec<String>, String) {
    let escaped = RESERVED.iter().any(|it| prefix.starts_with(it));
    let perhaps = !prefix.is_empty() && RESERVED.iter().any(|it| it.starts_with(prefix));
    let prefix = escape_glob(prefix);
    let mut locks = Vec::new();
    if !escaped {
        locks.push(format!("{prefix}*"));
    }
    if escaped || perhaps {
        locks.push(format!("{ESCAPE}{prefix}*"));
    }
    (locks, format!("{QUEUE}*{prefix}*"))
}

/// The channel of one store object, on which its waiters receive their grants.
pub(crate) fn client_channel(id: impl std::fmt::Display) -> String {
    format!("lockkit_client:{id}")
}

fn redisson(prefix: &str, lock: &str) -> String {
    if lock.contains('{') {
        [prefix, ":", lock].concat()
    } else {
        [prefix, ":{", lock, "}"].concat()
    }
}

fn own(prefix: &str, lock: &str) -> String {
    if lock.contains('{') {
        [prefix, ".raw:", lock].concat()
    } else {
        [prefix, ":{", lock, "}"].concat()
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

    fn keys(name: &str) -> Keys {
        Keys::of(&LockName::new(name).unwrap())
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
                "redisson_lock__channel:{orders/42}",
                "lockkit_gone:{orders/42}:t",
            ),
            (
                "a{b}c",
                "a{b}c",
                "redisson_lock_token:a{b}c",
                "lockkit_queue.raw:a{b}c",
                "lockkit_wait.raw:a{b}c",
                "redisson_lock__channel:a{b}c",
                "lockkit_gone.raw:a{b}c:t",
            ),
            (
                "lockkit_x",
                "lockkit_name:lockkit_x",
                "redisson_lock_token:{lockkit_name:lockkit_x}",
                "lockkit_queue:{lockkit_name:lockkit_x}",
                "lockkit_wait:{lockkit_name:lockkit_x}",
                "redisson_lock__channel:{lockkit_name:lockkit_x}",
                "lockkit_gone:{lockkit_name:lockkit_x}:t",
            ),
            (
                "redisson_lock_token:{a}",
                "lockkit_name:redisson_lock_token:{a}",
                "redisson_lock_token:lockkit_name:redisson_lock_token:{a}",
                "lockkit_queue.raw:lockkit_name:redisson_lock_token:{a}",
                "lockkit_wait.raw:lockkit_name:redisson_lock_token:{a}",
                "redisson_lock__channel:lockkit_name:redisson_lock_token:{a}",
                "lockkit_gone.raw:lockkit_name:redisson_lock_token:{a}:t",
            ),
        ];
        for (name, lock, token, queue, waiters, channel, gone) in table {
            let keys = keys(name);
            assert_eq!(keys.gone("t"), gone);
            let expected = Keys {
                lock: lock.into(),
                token: token.into(),
                queue: queue.into(),
                waiters: waiters.into(),
                channel: channel.into(),
            };
            assert_eq!(keys, expected);
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
        for name in names {
            let keys = keys(name);
            for key in [keys.gone("t"), keys.lock, keys.queue, keys.waiters] {
                assert!(seen.insert(key.clone()), "{key} of {name}");
            }
        }
    }

    #[test]
    fn names_are_found_again() {
        for name in ["x", "{x}", "a{b}c", "lockkit_x", "lockkit_name:y", "x}"] {
            let keys = keys(name);
            assert_eq!(name_of_lock(&keys.lock).unwrap().as_str(), name);
            assert_eq!(name_of_queue(&keys.queue).unwrap().as_str(), name);
            for other in [&keys.token, &keys.queue, &keys.waiters] {
                assert_eq!(name_of_lock(other), None, "{other}");
            }
        }
    }

    #[test]
    fn patterns_match_literally() {
        assert_eq!(escape_glob("a*[b]?\\"), "a\\*\\[b\\]\\?\\\\");
    }
}
