//! The names of keys.
//!
//! A lock is a directory of keys, one for each holder and waiter: `<root>/<name>/<lease>-<n>` for a writer,
//! `<root>/<name>/s<lease>-<n>` for a reader, and `<root>/<name>/s4.<lease>-<n>` for one of four permits.
//! Slashes in the name are encoded: otherwise the keys of the lock `a/b` would also belong to the lock `a`.

use std::num::NonZeroU32;

use lockkit_core::LockName;
use lockkit_core::contract::{Mode, Ticket};
use lockkit_core::store::tag;
use lockkit_core::url::percent_decode;

/// What the keys of tickets that share begin with, below their lock. It sorts behind all digits of a lease.
const SHARED: char = 's';
/// The keys of writers, ours and those of others, are before this one, and those of tickets that share behind it.
const BEHIND_WRITERS: char = 'g';

/// Whether names of locks are encoded in keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Names {
    /// `/` is written `%2F` and `%` is written `%25`: no name is part of another.
    Encoded,
    /// As they are, as `etcdctl lock` and Go's `concurrency.Mutex` write them. A holder or waiter of
    /// `a/b` then blocks `a` too, as with those programs.
    Raw,
}

/// How names become keys.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The prefix of every name, with its slash; may be empty.
    root: String,
    names: Names,
}

impl Layout {
    pub(crate) fn new(root: &str, names: Names) -> Self {
        let root = if root.is_empty() {
            String::new()
        } else {
            format!("{root}/")
        };
        Self { root, names }
    }

    /// The prefix of all keys of a lock.
    pub(crate) fn directory(&self, name: &LockName) -> String {
        format!("{}{}/", self.root, self.encode(name.as_str()))
    }

    /// The prefix of the keys of all locks whose names begin with `prefix`.
    pub(crate) fn beginning(&self, prefix: &str) -> String {
        format!("{}{}", self.root, self.encode(prefix))
    }

    /// The name of the lock of a key; `None` if it belongs to no lock.
    pub(crate) fn name_of(&self, key: &str) -> Option<LockName> {
        let rest = key.strip_prefix(&self.root)?;
        let (name, contender) = rest.rsplit_once('/')?;
        if !is_contender(contender) {
            return None;
        }
        let name = match self.names {
            // Only what `encode` writes.
            Names::Encoded => percent_decode(name).filter(|it| self.encode(it) == name)?,
            Names::Raw => name.to_owned(),
        };
        LockName::new(name).ok()
    }

    /// The value of the key of a ticket with a note. Where keys are shared with Go's elections, a note is the whole value.
    pub(crate) fn value(&self, ticket: &Ticket, note: &str) -> String {
        match self.names {
            Names::Raw => note.to_owned(),
            Names::Encoded => tag::write(ticket, Some(note)),
        }
    }

    fn encode(&self, name: &str) -> String {
        match self.names {
            Names::Encoded => name.replace('%', "%25").replace('/', "%2F"),
            Names::Raw => name.to_owned(),
        }
    }
}

/// The key of a holder or waiter. Its `number` is unique under its lease.
pub(crate) fn contender(directory: &str, mode: Mode, lease: i64, number: u64) -> String {
    match mode {
        Mode::Read => format!("{directory}{SHARED}{lease:x}-{number}"),
        Mode::Permit { of } => format!("{directory}{SHARED}{of}.{lease:x}-{number}"),
        _ => format!("{directory}{lease:x}-{number}"),
    }
}

/// The end of the range of writers' keys, which begins with the directory.
pub(crate) fn end_of_writers(directory: &str) -> String {
    format!("{directory}{BEHIND_WRITERS}")
}

/// The mode of a key. A writer's is [`Mode::Exclusive`], and so is that of a stranger.
pub(crate) fn mode(key: &str) -> Mode {
    match last_part(key).strip_prefix(SHARED) {
        None => Mode::Exclusive,
        Some(rest) => match rest.split_once('.').map(|(of, _)| of.parse()) {
            Some(Ok(of)) => Mode::Permit { of },
            _ => Mode::Read,
        },
    }
}

/// The prefix of all keys of the lock of a contender's key.
pub(crate) fn directory(key: &str) -> &str {
    let part = last_part(key);
    key.strip_suffix(part).unwrap_or(key)
}

/// The part of a key below its lock.
pub(crate) fn last_part(key: &str) -> &str {
    key.rsplit_once('/').map_or(key, |(_, part)| part)
}

pub(crate) fn lease(key: &str) -> &str {
    let part = last_part(key);
    let lease = part.rsplit_once('-').map_or(part, |(lease, _)| lease);
    lease.rsplit([SHARED, '.']).next().unwrap_or(lease)
}

/// The number of a key of this library.
pub(crate) fn number(key: &[u8]) -> Option<u64> {
    let (_, number) = std::str::from_utf8(key).ok()?.rsplit_once('-')?;
    number.parse().ok()
}

/// Whether the last part of a key is that of a contender: ours, or Go's, which is the lease alone.
pub(crate) fn is_contender(part: &str) -> bool {
    let part = match part.strip_prefix(SHARED) {
        Some(rest) => match rest.split_once('.') {
            Some((of, _)) if of.parse::<NonZeroU32>().is_err() => return false,
            Some((_, rest)) => rest,
            None => rest,
        },
        None => part,
    };
    let (lease, number) = part.split_once('-').unwrap_or((part, "0"));
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let lease_fits = (1..=16).contains(&lease.len()) && lease.bytes().all(hex);
    lease_fits && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).unwrap()
    }

    /// Other versions and other programs read these: they must not change.
    #[test]
    fn keys_are_as_documented() {
        let encoded = Layout::new("lockkit", Names::Encoded);
        for (text, directory) in [
            ("orders/42", "lockkit/orders%2F42/"),
            ("100%", "lockkit/100%25/"),
            ("%2F", "lockkit/%252F/"),
            ("/", "lockkit/%2F/"),
            ("naïve name", "lockkit/naïve name/"),
        ] {
            assert_eq!(encoded.directory(&name(text)), directory);
        }
        let raw = Layout::new("", Names::Raw);
        assert_eq!(raw.directory(&name("orders/42")), "orders/42/");
        let rooted = Layout::new("app/locks", Names::Raw);
        assert_eq!(rooted.directory(&name("a")), "app/locks/a/");
        let of = NonZeroU32::new(4).unwrap();
        for (shown, expected) in [
            (Mode::Exclusive, "a-b/694d7c3f-12"),
            (Mode::Read, "a-b/s694d7c3f-12"),
            (Mode::Permit { of }, "a-b/s4.694d7c3f-12"),
        ] {
            let key = contender("a-b/", shown, 0x694d_7c3f, 12);
            assert_eq!(key, expected);
            assert_eq!(number(key.as_bytes()), Some(12));
            assert_eq!((lease(&key), mode(&key)), ("694d7c3f", shown));
            assert_eq!(key < end_of_writers("a-b/"), shown.is_exclusive(), "{key}");
        }
        let written = contender("a/", Mode::Write, 7, 1);
        assert_eq!((&*written, mode(&written)), ("a/7-1", Mode::Exclusive));
        assert_eq!(number(b"a-b/694d7c3f"), None);
        assert_eq!(lease("a-b/694d7c3f"), "694d7c3f");
    }

    #[test]
    fn name_is_read_from_key() {
        for layout in [
            Layout::new("lockkit", Names::Encoded),
            Layout::new("", Names::Raw),
        ] {
            for text in ["a", "a/b", "100%", "%2F", "a/694d7c3f-1"] {
                let directory = layout.directory(&name(text));
                let key = contender(&directory, Mode::Read, 77, 3);
                assert_eq!(layout.name_of(&key).unwrap().as_str(), text);
                let beginning = layout.beginning(&text[..1]);
                assert!(key.starts_with(&beginning), "{key} {beginning}");
            }
        }
    }

    #[test]
    fn foreign_key_is_no_lock() {
        let layout = Layout::new("lockkit", Names::Encoded);
        for key in [
            "other/a/77-1",
            "lockkit/a",
            "lockkit/a/config",
            "lockkit/a/77-",
            "lockkit/a/-1",
            "lockkit/a/7F-1",
            "lockkit/a/b/77-1",
            "lockkit/a/s0.77-1",
            "lockkit/a/s4-77-1",
            "lockkit/a%2/77-1",
        ] {
            assert_eq!(layout.name_of(key), None, "{key}");
        }
        assert_eq!(layout.name_of("lockkit/a/77").unwrap().as_str(), "a");
    }
}
