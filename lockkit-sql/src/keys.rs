//! How a lock name becomes a key, and a key a name again.
//!
//! The key is the name's bytes as they are: a column of bytes knows neither case nor accents nor
//! blanks at the end, all of which text columns may take for equal.

use lockkit_core::{HolderId, LockName};

/// The name that has this key; `None` for a row that another program has made.
pub(crate) fn name_of(key: &[u8]) -> Option<LockName> {
    LockName::new(std::str::from_utf8(key).ok()?).ok()
}

/// Whether a text of the column `holder` is one of ours.
pub(crate) fn is_ticket(holder: &str) -> bool {
    holder.parse::<HolderId>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again() {
        for name in ["a", "a ", "A", "ä", "a\u{308}", "a%b_c", "\\x61"] {
            let found = name_of(name.as_bytes()).unwrap();
            assert_eq!(found.as_str(), name);
        }
        assert_eq!(name_of(b""), None);
        assert_eq!(name_of(b"\xff"), None);
        assert_eq!(name_of(b"a\0b"), None);
    }
}
