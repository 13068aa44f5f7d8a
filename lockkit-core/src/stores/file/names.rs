//! The file name of a lock: an escape that keeps different names apart on every file system.
//!
//! Lowercase ASCII letters, digits, `-`, `_` and `.` stand for themselves; every other byte, and a
//! dot at the beginning, is written `%` and two lowercase hexadecimal digits. Uppercase letters are
//! escaped because some file systems fold case, and everything beyond ASCII because some normalise
//! it. `.lock` follows, so that neither `.` nor `..` can come out, and no name has a separator.
//!
//! The gate of a lock has the same name with `.gate` in place of `.lock`.
//!
//! What would be longer than 255 bytes is cut, and `~` and the SHA-256 of the whole name follow.
//! `~` itself is always escaped, so that a cut name never equals one that was not cut.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::contract::LockName;
use crate::url::percent_decode;

/// The longest file name that file systems in use accept, in bytes.
const MAX_FILE_NAME: usize = 255;
const SUFFIX: &str = ".lock";
/// The extension of a gate: as long as that of its lock file, so that every name fits.
const GATE: &str = "gate";
/// How much of a long name stays readable: room for `~`, the hash and the suffix must be left.
const MAX_HEAD: usize = MAX_FILE_NAME - SUFFIX.len() - 1 - 64;

/// The file name of the lock `name`.
pub(super) fn encode(name: &LockName) -> String {
    let name = name.as_str();
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
pub(super) enum Decoded {
    /// The whole name.
    Name(LockName),
    /// The name was cut; the file holds it.
    Cut,
}

/// Reads a file name; `None` if [`encode`] never writes it.
pub(super) fn decode(file_name: &str) -> Option<Decoded> {
    let escaped = file_name.strip_suffix(SUFFIX)?;
    if escaped.contains('~') {
        return Some(Decoded::Cut);
    }
    let name = LockName::new(percent_decode(escaped)?).ok()?;
    // Only what we would write: no foreign spelling of the same name counts as its lock.
    (encode(&name) == file_name).then_some(Decoded::Name(name))
}

/// The gate of the lock whose file is at `path`.
pub(super) fn gate_of(path: &Path) -> PathBuf {
    path.with_extension(GATE)
}

pub(super) fn is_gate(path: &Path) -> bool {
    let lock_file = path.with_extension(&SUFFIX[1..]);
    let file_name = lock_file.file_name().and_then(|name| name.to_str());
    file_name.and_then(decode).is_some() && gate_of(&lock_file) == path
}
