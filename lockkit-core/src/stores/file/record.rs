//! The content of a lock file: a line that names the format, and two records of fixed length.
//!
//! ```text
//! lockkit lock file, format 2
//! seq <n> token <n> holder <holder or -> pid <n> name <length> who <length> sum <16 hex digits>
//! <the lock's name>
//! <holder, label and note>
//! ```
//!
//! The two records are written alternately and the valid one with the larger `seq` counts, so that a write
//! that was torn costs its own record and never the token before it. A file that is empty, or nothing but
//! zeros after a power failure, is a lock that was never taken: its next token is still larger, because the
//! clock is its floor. What is said of the holder is for the eyes of operators.

use crate::contract::{FencingToken, Holder, HolderId, LockName, LockState, Mode, Ticket};
use crate::store::tag;

const MAGIC: &[u8] = b"lockkit lock file, format 2\n";
/// More than a line, the longest name, and the longest label and note.
const ENTRY_LEN: usize = 1536;
/// More than the longest file that we write.
pub(super) const MAX_LEN: usize = 4096;
/// The holder of a lock that was released.
const NOBODY: &str = "-";
/// The holder shown for a lock that another program took, such as `flock(1)`.
const OTHER_PROGRAM: &str = "flock";

/// The last token and who got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    seq: u64,
    /// The last token that was given.
    token: u64,
    /// Who got it and runs in which process; `None` after a release.
    holder: Option<(HolderId, u32)>,
    name: LockName,
    /// What is said of the holder.
    tag: String,
}

impl Entry {
    /// Of a ticket that holds in this process.
    pub(super) fn held(ticket: &Ticket, token: u64, pid: u32, note: Option<&str>) -> Self {
        Self {
            holder: Some((ticket.holder, pid)),
            tag: tag::write(ticket, note),
            ..Self::free(&ticket.name, token)
        }
    }

    pub(super) fn free(name: &LockName, token: u64) -> Self {
        Self {
            seq: 0,
            token,
            holder: None,
            name: name.clone(),
            tag: String::new(),
        }
    }

    fn render(&self) -> Vec<u8> {
        let (holder, pid) = match self.holder {
            Some((holder, pid)) => (holder.to_string(), pid),
            None => (NOBODY.to_owned(), 0),
        };
        let Self {
            seq,
            token,
            name,
            tag,
            ..
        } = self;
        let (name, who) = (name.as_str(), tag.len());
        let head = format!(
            "seq {seq} token {token} holder {holder} pid {pid} name {} who {who} sum",
            name.len()
        );
        let texts = format!("\n{name}\n{tag}\n");
        let sum = checksum(&[&head, &*texts].concat());
        let mut bytes = format!("{head} {sum:016x}{texts}").into_bytes();
        // Nothing, so that short texts are in the first sector of the disk.
        bytes.resize(ENTRY_LEN, 0);
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, texts) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
        let words: Vec<&str> = head.split(' ').collect();
        let [_, seq, _, token, _, holder, _, pid, _, name, _, who, _, _] = words[..] else {
            return None;
        };
        let (name, who): (usize, usize) = (name.parse().ok()?, who.parse().ok()?);
        let holder = match holder {
            NOBODY => None,
            id => Some((id.parse().ok()?, pid.parse().ok()?)),
        };
        let entry = Self {
            seq: seq.parse().ok()?,
            token: token.parse().ok()?,
            holder,
            name: LockName::new(texts.get(..name)?).ok()?,
            tag: texts.get(name..)?.get(1..)?.get(..who)?.to_owned(),
        };
        // Written again it must be the same to the byte, checksum included.
        (entry.render() == bytes).then_some(entry)
    }
}

/// The content of a lock file; the default is that of a lock that was never taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// The entry that counts, and its place; `None` if a power failure tore both.
    current: Option<(usize, Entry)>,
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
            let entry = bytes.get(start(place)..start(place + 1))?;
            Some((place, Entry::parse(entry)?))
        };
        let entries = entry(0).into_iter().chain(entry(1));
        let current = entries.max_by_key(|(_, entry)| entry.seq);
        Some(Self { current })
    }

    fn entry(&self) -> Option<&Entry> {
        self.current.as_ref().map(|(_, entry)| entry)
    }

    /// The lock's name; `None` if the lock was never taken, as far as is known.
    pub(super) fn name(&self) -> Option<&LockName> {
        self.entry().map(|entry| &entry.name)
    }

    /// The last token that was given, zero if there is none.
    pub(super) fn token(&self) -> u64 {
        self.entry().map_or(0, |entry| entry.token)
    }

    /// Who got the last token and runs in which process; `None` after a release.
    pub(super) fn holder(&self) -> Option<(HolderId, u32)> {
        self.entry()?.holder
    }

    /// What an operator sees of a lock that is held.
    pub(super) fn state(&self, name: &LockName) -> LockState {
        let state = LockState::new(name.clone());
        let token = FencingToken::new(self.token());
        let Some((id, _)) = self.holder() else {
            let state = state.with_holder(OTHER_PROGRAM);
            return LockState { token, ..state };
        };
        let holder = self.entry().and_then(|entry| tag::read(&entry.tag));
        state.with_holder(Holder {
            mode: Some(Mode::Exclusive),
            token,
            ..holder.unwrap_or_else(|| Holder::new(id.to_string()))
        })
    }

    /// The bytes of an entry as the next one, and where they belong. The entry that counts until then stays as it is.
    pub(super) fn next(&self, entry: Entry) -> (Vec<u8>, usize) {
        let (place, seq, magic) = match &self.current {
            Some((place, last)) => (1 - place, last.seq.saturating_add(1), &[][..]),
            None => (0, 1, MAGIC),
        };
        let bytes = Entry { seq, ..entry }.render();
        ([magic, &bytes].concat(), start(place) - magic.len())
    }
}

const fn start(place: usize) -> usize {
    MAGIC.len() + place * ENTRY_LEN
}

/// FNV-1a: enough to tell a torn record from a whole one; nothing here guards against malice.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
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

    fn entry(name: &LockName, token: u64, holder: Option<(HolderId, u32)>) -> Entry {
        Entry {
            holder,
            tag: "x".to_owned(),
            ..Entry::free(name, token)
        }
    }

    fn parse(bytes: &[u8]) -> Record {
        Record::parse(bytes).unwrap()
    }

    /// The file after a write.
    fn written(before: &[u8], (bytes, at): (Vec<u8>, usize)) -> Vec<u8> {
        let rest = before.get(at + bytes.len()..).unwrap_or_default();
        [&before[..at], &bytes, rest].concat()
    }

    #[test]
    fn the_longest_texts_fit() {
        let longest = name(&("\n\"x".repeat(170) + "ab"));
        assert_eq!(longest.as_str().len(), LockName::MAX_LEN);
        // Of a holder, a label and a note.
        let tag = "x".repeat(57 + 1 + 128 + 1 + 512);
        for holder in [None, someone(u64::MAX)] {
            let entry = Entry {
                seq: u64::MAX,
                token: u64::MAX,
                holder,
                name: longest.clone(),
                tag: tag.clone(),
            };
            let bytes = entry.render();
            assert_eq!(bytes.len(), ENTRY_LEN);
            assert_eq!(bytes.last(), Some(&0), "nothing was cut off");
            assert_eq!(Entry::parse(&bytes), Some(entry));
        }
        assert!(start(2) < MAX_LEN);
    }

    /// Plays every way in which the bytes of a write may reach the disk in part.
    #[test]
    fn a_torn_write_never_loses_the_token_before_it() {
        let mut token = 100;
        let first = entry(&name("a"), token, someone(0));
        let mut before = Record::default().next(first).0;
        for n in 1..6 {
            let record = parse(&before);
            assert_eq!(record.token(), token);
            token += 1;
            let next = record.next(entry(&name("a"), token, someone(n)));
            before.resize(start(2), 0);
            let after = written(&before, next);
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
        let (image, _) = Record::default().next(entry(&name, 7, None));
        for cut in 0..image.len() {
            let next = parse(&image[..cut]).next(entry(&name, 8, someone(1)));
            let record = parse(&written(&image[..cut], next));
            assert_eq!(record.token(), 8, "{cut}");
            assert_eq!(record.name(), Some(&name), "{cut}");
        }
        // The first sector is missing.
        let torn = [&[0; 512], &image[512..]].concat();
        assert_eq!(Record::parse(&torn), Some(Record::default()));
    }

    #[test]
    fn zeros_are_fresh_and_other_data_is_foreign() {
        assert_eq!(Record::parse(&[0; 300]), Some(Record::default()));
        for text in ["x", "[lockkit]\n", "lockkit lock file, format 3\n"] {
            assert_eq!(Record::parse(text.as_bytes()), None, "{text}");
        }
    }
}
