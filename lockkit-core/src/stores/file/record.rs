//! The content of a lock file.
//!
//! ```text
//! lockkit lock file, format 1
//! seq <20 digits> token <20 digits> holder <57 characters> pid <10 digits> sum <16 hex digits>
//! seq <20 digits> token <20 digits> holder <57 characters> pid <10 digits> sum <16 hex digits>
//! name <length> sum <16 hex digits>
//! <the lock's name>
//! who <length> sum <16 hex digits>
//! <holder, label and note>
//! ```
//!
//! The two lines of fixed width are written alternately and the valid one with the larger `seq`
//! counts, so that a write that was torn costs its own line and never the token before it. A file
//! that is empty, or nothing but zeros after a power failure, is a lock that was never taken: its
//! next token is still larger, because the clock is its floor. What is said of the holder after the name is for
//! the eyes of operators, and counts where it names the holder of the line.

use crate::contract::{FencingToken, Holder, HolderId, LockName, LockState, Mode};
use crate::store::tag;

const MAGIC: &[u8] = b"lockkit lock file, format 1\n";
const ENTRY_LEN: usize = 153;
const NAME_AT: usize = MAGIC.len() + 2 * ENTRY_LEN;
/// More than the longest file that we write.
pub(super) const MAX_LEN: usize = 2048;
/// What a text is of.
const NAME: &str = "name";
const TAG: &str = "who";
/// The holder of a lock that was released.
const NOBODY: &str = "-";
/// The holder shown for a lock that another program took, such as `flock(1)`.
const OTHER_PROGRAM: &str = "flock";

/// One line of a lock file: the last token and who got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    seq: u64,
    /// The last token that was given.
    token: u64,
    /// Who got it and runs in which process; `None` after a release.
    holder: Option<(HolderId, u32)>,
}

impl Entry {
    fn render(&self) -> String {
        let (holder, pid) = match self.holder {
            Some((holder, pid)) => (holder.to_string(), pid),
            None => (NOBODY.to_owned(), 0),
        };
        let Self { seq, token, .. } = self;
        let line = format!("seq {seq:020} token {token:020} holder {holder:<57} pid {pid:010}");
        let sum = checksum(line.as_bytes());
        format!("{line} sum {sum:016x}\n")
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?;
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [_, seq, _, token, _, holder, _, pid, _, _] = words[..] else {
            return None;
        };
        let holder = match holder {
            NOBODY => None,
            id => Some((id.parse().ok()?, pid.parse().ok()?)),
        };
        let entry = Self {
            seq: seq.parse().ok()?,
            token: token.parse().ok()?,
            holder,
        };
        // Written again it must be the same to the byte, checksum included.
        (entry.render().as_bytes() == line).then_some(entry)
    }
}

/// The content of a lock file; the default is that of a lock that was never taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// The line that counts, and its place; `None` if a power failure tore both.
    current: Option<(usize, Entry)>,
    /// The lock's name; `None` if a power failure tore it.
    pub(super) name: Option<LockName>,
    /// What is said of the holder.
    tag: Option<String>,
}

impl Record {
    /// `None` if these are data of another program.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.iter().all(|&byte| byte == 0) || MAGIC.starts_with(bytes) {
            return Some(Self::default());
        }
        if !bytes.starts_with(MAGIC) || bytes.len() >= MAX_LEN {
            return None;
        }
        let entry = |place: usize| {
            let start = MAGIC.len() + place * ENTRY_LEN;
            let entry = Entry::parse(bytes.get(start..start + ENTRY_LEN)?)?;
            Some((place, entry))
        };
        let entries = entry(0).into_iter().chain(entry(1));
        let rest = bytes
            .get(NAME_AT..)
            .and_then(|rest| std::str::from_utf8(rest).ok());
        let (name, rest) = rest.and_then(|rest| parse_text(NAME, rest)).unzip();
        let (tag, _) = rest.and_then(|rest| parse_text(TAG, rest)).unzip();
        Some(Self {
            current: entries.max_by_key(|(_, entry)| entry.seq),
            name: name.and_then(|name| LockName::new(name).ok()),
            tag: tag.map(str::to_owned),
        })
    }

    /// Whether the lock was ever taken, as far as is known.
    pub(super) const fn is_used(&self) -> bool {
        self.current.is_some() || self.name.is_some()
    }

    /// The last token that was given, zero if there is none.
    pub(super) fn token(&self) -> u64 {
        self.current.map_or(0, |(_, entry)| entry.token)
    }

    /// Who got the last token and runs in which process; `None` after a release.
    pub(super) fn holder(&self) -> Option<(HolderId, u32)> {
        self.current?.1.holder
    }

    /// What an operator sees of a lock that is held.
    pub(super) fn state(&self, name: &LockName) -> LockState {
        let state = LockState::new(name.clone());
        let token = FencingToken::new(self.token());
        let Some((id, _)) = self.holder() else {
            let state = state.with_holder(OTHER_PROGRAM);
            return LockState { token, ..state };
        };
        let id = id.to_string();
        let tag = self.tag.as_deref().and_then(tag::read);
        let holder = tag.filter(|holder| holder.id == id);
        let holder = holder.unwrap_or_else(|| Holder::new(id));
        state.with_holder(Holder {
            mode: Some(Mode::Exclusive),
            token,
            ..holder
        })
    }

    /// The bytes of the file with the next line. The line that counts until then stays as it is.
    pub(super) fn next(
        &self,
        name: &LockName,
        token: u64,
        holder: Option<(HolderId, u32)>,
        tag: &str,
    ) -> Vec<u8> {
        let blank = || " ".repeat(ENTRY_LEN - 1) + "\n";
        let mut lines = [blank(), blank()];
        let (place, seq) = match self.current {
            Some((place, entry)) => {
                lines[place] = entry.render();
                (1 - place, entry.seq.saturating_add(1))
            }
            None => (0, 1),
        };
        lines[place] = Entry { seq, token, holder }.render();
        let [one, two] = lines.each_ref().map(String::as_bytes);
        let texts = render_text(NAME, name.as_str()) + &render_text(TAG, tag);
        [MAGIC, one, two, texts.as_bytes()].concat()
    }
}

fn render_text(word: &str, text: &str) -> String {
    let sum = checksum(text.as_bytes());
    format!("{word} {} sum {sum:016x}\n{text}\n", text.len())
}

/// A text and what comes after it; `None` if a power failure tore it.
fn parse_text<'a>(word: &str, bytes: &'a str) -> Option<(&'a str, &'a str)> {
    let (head, rest) = bytes.split_once('\n')?;
    let len = head.split(' ').nth(1)?.parse().ok()?;
    let text = rest.get(..len)?;
    let rest = bytes.strip_prefix(&render_text(word, text))?;
    Some((text, rest))
}

/// FNV-1a: enough to tell a torn line from a whole one; nothing here guards against malice.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ClientId;

    fn someone(n: u64) -> Option<(HolderId, u32)> {
        Some((HolderId::new(ClientId::random(), n), 1234))
    }

    fn name(text: &str) -> LockName {
        LockName::new(text).unwrap()
    }

    fn parse(bytes: &[u8]) -> Record {
        Record::parse(bytes).unwrap()
    }

    #[test]
    fn an_entry_has_its_fixed_width_and_is_read_back() {
        for holder in [None, someone(1), someone(u64::MAX)] {
            let entry = Entry {
                seq: u64::MAX,
                token: 1_795_000_000_000_000,
                holder,
            };
            let line = entry.render();
            assert_eq!(line.len(), ENTRY_LEN, "{line}");
            assert_eq!(Entry::parse(line.as_bytes()), Some(entry));
        }
    }

    #[test]
    fn the_longest_name_fits() {
        let longest = name(&("\n\"x".repeat(170) + "ab"));
        assert_eq!(longest.as_str().len(), LockName::MAX_LEN);
        let image = Record::default().next(&longest, 1, None, "x");
        assert!(image.len() < MAX_LEN);
        assert_eq!(parse(&image).name, Some(longest));
    }

    /// Plays every way in which the bytes of a write may reach the disk in part.
    #[test]
    fn a_torn_write_never_loses_the_token_before_it() {
        let mut token = 100;
        let mut before = Record::default().next(&name("a"), token, someone(0), "x");
        for n in 1..20 {
            let record = parse(&before);
            assert_eq!(record.token(), token);
            token += 1;
            let after = record.next(&name("a"), token, someone(n), "x");
            for cut in 0..after.len() {
                for (one, two) in [(&after, &before), (&before, &after)] {
                    let torn = [&one[..cut], &two[cut..]].concat();
                    let seen = parse(&torn).token();
                    assert!(seen == token || seen == token - 1, "{cut}: {seen}");
                }
            }
            before = after;
        }
    }

    #[test]
    fn a_first_write_that_was_torn_is_written_again() {
        let name = name("a\nb");
        let image = Record::default().next(&name, 7, None, "x");
        for cut in 0..image.len() {
            let again = parse(&image[..cut]).next(&name, 8, someone(1), "x");
            let record = parse(&again);
            assert_eq!(record.token(), 8, "{cut}");
            assert_eq!(record.name.as_ref(), Some(&name), "{cut}");
        }
    }

    #[test]
    fn zeros_are_fresh_and_other_data_is_foreign() {
        assert_eq!(Record::parse(&[0; 300]), Some(Record::default()));
        for text in ["x", "[lockkit]\n", "lockkit lock file, format 2\n"] {
            assert_eq!(Record::parse(text.as_bytes()), None, "{text}");
        }
    }
}
