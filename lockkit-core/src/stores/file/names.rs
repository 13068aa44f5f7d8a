//! The file name of a lock: an escape that keeps different names apart on every file system.
//!
//! Lowercase ASCII letters, digits, `-`, `_` and `.` stand for themselves; every other byte, and a
//! dot at the beginning, is written `%` and two lowercase hexadecimal digits. Uppercase letters are
//! escaped because some file systems fold case, and everything beyond ASCII because some normalise
//! it. `.lock` follows, so that neither `.` nor `..` can come out, and no name has a separator.
//!
//! What would be longer than 255 bytes is cut, and `~` and the SHA-256 of the whole name follow.
//! `~` itself is always escaped, so that a cut name never equals one that was not cut.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// The longest file name that file systems in use accept, in bytes.
const MAX_FILE_NAME: usize = 255;
const SUFFIX: &str = ".lock";
/// How much of a long name stays readable: room for `~`, the hash and the suffix must be left.
const MAX_HEAD: usize = MAX_FILE_NAME - SUFFIX.len() - 1 - 64;

/// The file name of the lock `name`.
pub(super) fn encode(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len() + SUFFIX.len());
    // Where the last piece ends that fits beside a hash; a piece is a byte or a whole escape.
    let mut head = 0;
    for (index, byte) in name.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => escaped.push(char::from(byte)),
            b'.' if index > 0 => escaped.push('.'),
            _ => {
                escaped.push('%');
                push_hex(&mut escaped, byte);
            }
        }
        if escaped.len() <= MAX_HEAD {
            head = escaped.len();
        }
    }
    if escaped.len() + SUFFIX.len() > MAX_FILE_NAME {
        escaped.truncate(head);
        escaped.push('~');
        for byte in Sha256::digest(name.as_bytes()) {
            push_hex(&mut escaped, byte);
        }
    }
    escaped.push_str(SUFFIX);
    escaped
}

fn push_hex(text: &mut String, byte: u8) {
    // Writing into a `String` cannot fail.
    let _ = write!(text, "{byte:02x}");
}

/// What a file name says about its lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// The whole name.
    Name(String),
    /// The name was cut; the file holds it.
    Cut,
}

/// Reads a file name; `None` if [`encode`] never writes it.
pub(super) fn decode(file_name: &str) -> Option<Decoded> {
    let escaped = file_name.strip_suffix(SUFFIX)?;
    if escaped.contains('~') {
        return Some(Decoded::Cut);
    }
    let name = unescape(escaped)?;
    // Only what we would write: no foreign spelling of the same name counts as its lock.
    (encode(&name) == file_name).then_some(Decoded::Name(name))
}

fn unescape(escaped: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = char::from(rest.next()?).to_digit(16)?;
            let low = char::from(rest.next()?).to_digit(16)?;
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Frozen: a change here makes old and new processes lock different files.
    #[test]
    fn golden_vectors() {
        let long = "x".repeat(512);
        let emoji = "\u{1F512}".repeat(128);
        let heads: [(&str, String); 16] = [
            ("orders/42", "orders%2f42.lock".into()),
            ("nightly", "nightly.lock".into()),
            ("a.b-c_d.lock", "a.b-c_d.lock.lock".into()),
            ("Orders", "%4frders.lock".into()),
            (".", "%2e.lock".into()),
            ("..", "%2e..lock".into()),
            ("../a", "%2e.%2fa.lock".into()),
            (".hidden", "%2ehidden.lock".into()),
            ("%2f", "%252f.lock".into()),
            ("{a}:b c", "%7ba%7d%3ab%20c.lock".into()),
            ("a\nb\\c", "a%0ab%5cc.lock".into()),
            ("~", "%7e.lock".into()),
            ("\u{e9}", "%c3%a9.lock".into()),
            ("\u{1F512}", "%f0%9f%94%92.lock".into()),
            (
                &long,
                format!(
                    "{}~{}.lock",
                    "x".repeat(185),
                    "64164443bb63e338ef1cfdb12a57117cd1212270cc935a798f6e8a665cdf4659"
                ),
            ),
            (
                &emoji,
                format!(
                    "{}%f0~{}.lock",
                    "%f0%9f%94%92".repeat(15),
                    "54551fbc076431f296d27a77a672267ce4a3dc034355820f5d5021ab56cc5a9f"
                ),
            ),
        ];
        for (name, file_name) in heads {
            assert_eq!(encode(name), file_name, "{name:?}");
        }
    }

    #[test]
    fn names_stay_apart_and_inside_the_directory() {
        let pieces = [
            "a", "A", ".", "/", "%", "~", "\n", "\u{e9}", "e\u{301}", "2e",
        ];
        let mut names = Vec::new();
        for first in pieces {
            for second in pieces {
                for third in pieces {
                    names.push(format!("{first}{second}{third}"));
                }
                names.push(format!("{first}{second}{}", "long".repeat(100)));
                names.push(format!("{}{first}{second}", "long".repeat(100)));
            }
        }
        names.sort();
        names.dedup();
        let mut folded = HashSet::new();
        for name in &names {
            let file_name = encode(name);
            assert!(file_name.len() <= MAX_FILE_NAME, "{file_name}");
            assert!(file_name.is_ascii() && !file_name.contains('/'));
            assert!(!file_name.starts_with('.'), "{file_name}");
            assert_eq!(file_name, file_name.to_ascii_lowercase());
            match decode(&file_name) {
                Some(Decoded::Name(decoded)) => assert_eq!(&decoded, name),
                other => assert_eq!((other, name.len() > 83), (Some(Decoded::Cut), true)),
            }
            assert!(folded.insert(file_name), "{name:?}");
        }
    }

    #[test]
    fn foreign_file_names_are_no_locks() {
        for file_name in [
            "",
            ".lock.tmp",
            "readme",
            "A.lock",
            "%2F.lock",
            "%2.lock",
            "%61.lock",
            "%ff.lock",
        ] {
            assert_eq!(decode(file_name), None, "{file_name}");
        }
    }
}
