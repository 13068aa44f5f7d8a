//! Maps lock names to paths, and tells the nodes of a queue from others.

use std::fmt::Write as _;

use lockkit_core::LockName;
use lockkit_core::contract::{Mode, Ticket};
use lockkit_core::store::tag;
use lockkit_core::url::percent_decode;
use uuid::Uuid;

use crate::config::{Dialect, Names};

/// What precedes the number at the end of the name of a node in a queue: that of Curator and go-zookeeper, of
/// kazoo, of the readers and writers of both, and of our permits.
const MARKS: [&str; 6] = ["lock-", "__lock__", "__rlock__", READ, WRITE, PERMIT];
const READ: &str = "__READ__";
const WRITE: &str = "__WRIT__";
const PERMIT: &str = "__PERM__";
/// Encodes an empty segment. A name cannot hold NUL.
const EMPTY: &str = "%00";

/// The root of the locks and the encoding of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    root: String,
    names: Names,
    dialect: Dialect,
}

impl Keys {
    /// `root` is a path without a slash at its end, and empty for the root of the tree.
    pub(crate) fn new(root: &str, names: Names, dialect: Dialect) -> Self {
        Self {
            root: root.trim_end_matches('/').to_owned(),
            names,
            dialect,
        }
    }

    /// The path of a node below the node that contains all locks, or of that node.
    pub(crate) fn path(&self, below: &str) -> String {
        match (self.root.as_str(), below) {
            ("", "") => "/".to_owned(),
            (root, "") => root.to_owned(),
            (root, below) => format!("{root}/{below}"),
        }
    }

    /// Whether the path of one name may be below that of another.
    pub(crate) fn nested(&self) -> bool {
        self.names == Names::Raw
    }

    /// The path of the node of a lock, which contains its queue.
    pub(crate) fn of(&self, name: &LockName) -> String {
        let parts: Vec<&str> = match self.names {
            Names::Encoded => vec![name.as_str()],
            Names::Raw => name.as_str().split('/').collect(),
        };
        let mut path = self.root.clone();
        for (at, part) in parts.into_iter().map(segment).enumerate() {
            path.push('/');
            path.push_str(match part.as_str() {
                // The servers keep their own nodes there.
                "zookeeper" if at == 0 && self.root.is_empty() => "zookeepe%72",
                part => part,
            });
        }
        path
    }

    /// The name of the lock at a path below the root, given without the root and its slash.
    pub(crate) fn name_at(&self, below: &str) -> Option<LockName> {
        let parts: Option<Vec<String>> = below.split('/').map(unescape).collect();
        let name = LockName::new(parts?.join("/")).ok()?;
        // Only our own spelling: another one is another program's node.
        let path = self.of(&name);
        (path.get(self.root.len() + 1..) == Some(below)).then_some(name)
    }

    /// The data of the node of a ticket with a note. Where nodes are shared with Curator's `LeaderSelector`, a note is all of it.
    pub(crate) fn data(&self, ticket: &Ticket, note: &str) -> String {
        match self.names {
            Names::Raw => note.to_owned(),
            Names::Encoded => tag::write(ticket, Some(note)),
        }
    }

    /// What precedes the number in the name of a new node of a queue. Unique.
    pub(crate) fn new_prefix(&self, mode: Mode) -> String {
        let id = Uuid::new_v4();
        match (self.dialect, mode) {
            (Dialect::Curator, Mode::Read) => format!("_c_{}-{READ}", id.hyphenated()),
            // Unlike Curator's, which has hyphens: see `may_become_reader`.
            (Dialect::Curator, Mode::Write) => format!("_c_{}-{WRITE}", id.simple()),
            (Dialect::Kazoo, Mode::Read) => format!("{}__rlock__", id.simple()),
            // No other program knows permits.
            (_, Mode::Permit { of }) => format!("_c_{}-{of}{PERMIT}", id.hyphenated()),
            (Dialect::Curator, _) => format!("_c_{}-lock-", id.hyphenated()),
            (Dialect::Kazoo, _) => format!("{}__lock__", id.simple()),
        }
    }
}

/// Encodes one segment of a path: percent-encodes what the server refuses and what is ambiguous.
fn segment(text: &str) -> String {
    if text.is_empty() {
        return EMPTY.to_owned();
    }
    let dots = text == "." || text == "..";
    let mut written = String::with_capacity(text.len());
    for c in text.chars() {
        let refused = matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..);
        if refused || c == '/' || c == '%' || (dots && c == '.') {
            escape(c, &mut written);
        } else {
            written.push(c);
        }
    }
    // With nested names, a node that looks like one of a queue must be one.
    if number(&written).is_some()
        && let Some(digit) = written.pop()
    {
        escape(digit, &mut written);
    }
    written
}

fn escape(c: char, written: &mut String) {
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        // Writing to a string cannot fail.
        let _ = write!(written, "%{byte:02X}");
    }
}

fn unescape(text: &str) -> Option<String> {
    match text {
        EMPTY => Some(String::new()),
        _ => percent_decode(text),
    }
}

/// The number of a node in a queue; `None` if it is not in one. After the last number of 32 bits, servers
/// write it with a sign.
pub(crate) fn number(node: &str) -> Option<i32> {
    MARKS.iter().find_map(|mark| {
        let (_, text) = node.rsplit_once(mark)?;
        let number = text.parse().ok()?;
        // As the servers write it.
        (format!("{number:010}") == text).then_some(number)
    })
}

/// The mode of a node in a queue. That of a node which no client of ours creates is [`Mode::Exclusive`].
pub(crate) fn mode(node: &str) -> Mode {
    let permit = |(before, _): (&str, &str)| before.rsplit_once('-')?.1.parse().ok();
    if let Some(of) = node.rsplit_once(PERMIT).and_then(permit) {
        Mode::Permit { of }
    } else if node.contains(READ) || node.contains("__rlock__") {
        Mode::Read
    } else if node.contains(WRITE) {
        Mode::Write
    } else {
        Mode::Exclusive
    }
}

/// Whether a node is that of a writer of Curator's `InterProcessReadWriteLock`. A writer that becomes a
/// reader creates a node with the same number before it deletes this one. Ours never do.
pub(crate) fn may_become_reader(node: &str) -> bool {
    let id = node
        .split_once(WRITE)
        .map(|(id, _)| id.trim_end_matches('-'));
    id.is_some_and(|id| id.contains('-') || !id.starts_with("_c_"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::num::NonZeroU32;

    use super::*;

    fn keys(names: Names) -> Keys {
        Keys::new("/locks", names, Dialect::Curator)
    }

    fn path(names: Names, name: &str) -> String {
        keys(names).of(&LockName::new(name).unwrap())
    }

    /// Frozen: other versions and other programs read these.
    #[test]
    fn paths_are_as_documented() {
        let table = [
            ("orders", "/locks/orders", "/locks/orders"),
            ("orders/42", "/locks/orders%2F42", "/locks/orders/42"),
            ("/", "/locks/%2F", "/locks/%00/%00"),
            ("a//b", "/locks/a%2F%2Fb", "/locks/a/%00/b"),
            ("50%", "/locks/50%25", "/locks/50%25"),
            ("%2F", "/locks/%252F", "/locks/%252F"),
            (".", "/locks/%2E", "/locks/%2E"),
            ("a/..", "/locks/a%2F..", "/locks/a/%2E%2E"),
            ("a.b", "/locks/a.b", "/locks/a.b"),
            ("tab\t", "/locks/tab%09", "/locks/tab%09"),
            ("\u{7f}", "/locks/%7F", "/locks/%7F"),
            ("\u{1F512}", "/locks/%F0%9F%94%92", "/locks/%F0%9F%94%92"),
            ("ünï", "/locks/ünï", "/locks/ünï"),
            (
                "x-lock-0000000001",
                "/locks/x-lock-000000000%31",
                "/locks/x-lock-000000000%31",
            ),
            (
                "a/__lock__0000000001",
                "/locks/a%2F__lock__000000000%31",
                "/locks/a/__lock__000000000%31",
            ),
        ];
        for (name, encoded, raw) in table {
            assert_eq!(path(Names::Encoded, name), encoded);
            assert_eq!(path(Names::Raw, name), raw);
        }
        assert_eq!(keys(Names::Raw).path(""), "/locks");
        let top = Keys::new("/", Names::Encoded, Dialect::Curator);
        let zookeeper = LockName::new("zookeeper").unwrap();
        assert_eq!(top.of(&zookeeper), "/zookeepe%72");
        assert_eq!(top.name_at("zookeepe%72"), Some(zookeeper));
        assert_eq!(top.name_at("zookeeper"), None);
        assert_eq!(
            (&*top.path(""), top.of(&LockName::new("a").unwrap())),
            ("/", "/a".into())
        );
    }

    #[test]
    fn different_names_have_different_paths_and_can_be_read_back() {
        for names in [Names::Encoded, Names::Raw] {
            let mut seen = HashSet::new();
            for name in [
                "a",
                "a/b",
                "a%2Fb",
                "a//b",
                "/",
                "//",
                "%00",
                "%",
                "..",
                "%2E%2E",
                "\u{FEFF}a",
                "x-lock-0000000001",
                "x-lock-000000000%31",
                "\u{fffd}",
                "-lock--2147483648",
            ] {
                let path = path(names, name);
                let below = path.strip_prefix("/locks/").unwrap();
                let found = keys(names).name_at(below).unwrap();
                assert_eq!(found.as_str(), name, "{path}");
                assert!(seen.insert(path));
            }
        }
        assert_eq!(
            keys(Names::Encoded).name_at("a%2fb"),
            None,
            "not our spelling"
        );
        assert_eq!(keys(Names::Encoded).name_at("50%"), None);
    }

    #[test]
    fn numbers_of_all_dialects_are_read() {
        for (node, expected) in [
            (
                "_c_1c3ba0b8-7a3b-4d8e-8f2a-3f1a2b3c4d5e-lock-0000000007",
                Some(7),
            ),
            (
                "_c_0123456789abcdef0123456789abcdef-lock-0000000008",
                Some(8),
            ),
            ("lock-0000000009", Some(9)),
            (
                "0123456789abcdef0123456789abcdef__lock__0000000010",
                Some(10),
            ),
            ("0123__rlock__0000000011", Some(11)),
            ("_c_1-__WRIT__0000000012", Some(12)),
            ("_c_1-__READ__0000000013", Some(13)),
            ("_c_1-4__PERM__0000000014", Some(14)),
            ("_c_1-lock-2147483647", Some(i32::MAX)),
            ("_c_1-lock--2147483648", Some(i32::MIN)),
            ("_c_1-lock--000000005", Some(-5)),
            ("_c_1-lock-", None),
            ("_c_1-lease-0000000001", None),
            ("lock-000000001", None),
            ("lock-9999999999", None),
            ("leases", None),
            ("\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}x", None),
        ] {
            assert_eq!(number(node), expected, "{node}");
        }
    }

    /// Frozen: other versions and other programs read these.
    #[test]
    fn prefixes_are_those_of_the_dialects() {
        let curator = keys(Names::Encoded);
        let kazoo = Keys::new("/", Names::Raw, Dialect::Kazoo);
        let permit = Mode::Permit {
            of: NonZeroU32::new(12).unwrap(),
        };
        for (keys, shown, read_as, id, rest) in [
            (&curator, Mode::Exclusive, Mode::Exclusive, 39, "-lock-"),
            (&curator, Mode::Read, Mode::Read, 39, "-__READ__"),
            (&curator, Mode::Write, Mode::Write, 35, "-__WRIT__"),
            (&curator, permit, permit, 39, "-12__PERM__"),
            (&kazoo, Mode::Exclusive, Mode::Exclusive, 32, "__lock__"),
            (&kazoo, Mode::Read, Mode::Read, 32, "__rlock__"),
            (&kazoo, Mode::Write, Mode::Exclusive, 32, "__lock__"),
            (&kazoo, permit, permit, 39, "-12__PERM__"),
        ] {
            let prefix = keys.new_prefix(shown);
            assert_eq!(&prefix[id..], rest);
            let node = format!("{prefix}-000000003");
            assert_eq!((number(&node), mode(&node)), (Some(-3), read_as));
            assert!(!may_become_reader(&node), "{node}");
        }
    }

    #[test]
    fn writer_of_curator_may_become_a_reader() {
        let id = Uuid::new_v4().hyphenated();
        assert!(may_become_reader(&format!("_c_{id}-__WRIT__0000000001")));
        assert!(may_become_reader("__WRIT__0000000001"));
        assert!(!may_become_reader(&format!("_c_{id}-__READ__0000000001")));
        assert!(!may_become_reader(&format!("_c_{id}-lock-0000000001")));
    }
}
