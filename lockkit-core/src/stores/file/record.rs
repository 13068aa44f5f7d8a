//! The content of a lock file.
//!
//! ```text
//! lockkit lock file, format 1
//! seq <20 digits> token <20 digits> holder <57 characters> pid <10 digits> sum <16 hex digits>
//! seq <20 digits> token <20 digits> holder <57 characters> pid <10 digits> sum <16 hex digits>
//! name <length> sum <16 hex digits>
//! <the lock's name>
//! ```
//!
//! The two lines of fixed width are written alternately and the valid one with the larger `seq`
//! counts, so that a write that was torn costs its own line and never the token before it. A file
//! that is empty, or nothing but zeros after a power failure, is a lock that was never taken: its
//! next token is still larger, because the clock is its floor.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::contract::LockState;
use crate::contract::holder::HolderId;
use crate::contract::name::LockName;
use crate::contract::token::FencingToken;

const MAGIC: &[u8] = b"lockkit lock file, format 1\n";
const ENTRY_LEN: usize = 153;
const NAME_AT: usize = MAGIC.len() + 2 * ENTRY_LEN;
/// More than the longest file that we write.
const MAX_LEN: usize = 1024;
/// The holder of a lock that was released.
const NOBODY: &str = "-";
/// The holder shown for a lock that another program took, such as `flock(1)`.
const OTHER_PROGRAM: &str = "flock";

/// One line of a lock file: the last token and who got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    seq: u64,
    /// The last token that was given.
    pub(super) token: u64,
    /// Who got it and runs in which process; `None` after a release.
    pub(super) holder: Option<(HolderId, u32)>,
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

/// What was found in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Nothing yet.
    Fresh,
    /// A lock file of ours.
    Ours(Record),
    /// Data of another program.
    Foreign,
}

/// The content of a lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The line that counts, and its place; `None` if a power failure tore both.
    current: Option<(usize, Entry)>,
    /// The lock's name; `None` if a power failure tore it.
    name: Option<String>,
}

impl Content {
    /// The last token that was given, zero if there is none.
    pub(super) fn token(&self) -> u64 {
        self.entry().map_or(0, |entry| entry.token)
    }

    /// The line that counts.
    pub(super) fn entry(&self) -> Option<Entry> {
        match self {
            Self::Ours(record) => record.current.map(|(_, entry)| entry),
            Self::Fresh | Self::Foreign => None,
        }
    }

    /// The name of the lock that the file belongs to.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Ours(record) => record.name.as_deref(),
            Self::Fresh | Self::Foreign => None,
        }
    }

    /// What an operator sees of a lock that is held.
    pub(super) fn state(&self, name: &LockName) -> LockState {
        let holder = self.entry().and_then(|entry| entry.holder);
        let holder = holder.map_or_else(
            || OTHER_PROGRAM.to_owned(),
            |(holder, _)| holder.to_string(),
        );
        LockState::new(name.clone())
            .with_holder(holder)
            .with_token(FencingToken::new(self.token()))
    }

    fn parse(bytes: &[u8]) -> Self {
        if bytes.iter().all(|&byte| byte == 0) || MAGIC.starts_with(bytes) {
            return Self::Fresh;
        }
        if !bytes.starts_with(MAGIC) || bytes.len() >= MAX_LEN {
            return Self::Foreign;
        }
        let entry = |place: usize| {
            let start = MAGIC.len() + place * ENTRY_LEN;
            let entry = Entry::parse(bytes.get(start..start + ENTRY_LEN)?)?;
            Some((place, entry))
        };
        let current = entry(0)
            .into_iter()
            .chain(entry(1))
            .max_by_key(|(_, entry)| entry.seq);
        Self::Ours(Record {
            current,
            name: bytes.get(NAME_AT..).and_then(parse_name),
        })
    }
}

/// Reads a lock file.
pub(super) fn read(file: &File) -> io::Result<Content> {
    let mut bytes = [0; MAX_LEN];
    let mut len = 0;
    while len < MAX_LEN {
        match file.read_at(&mut bytes[len..], len as u64) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Content::parse(&bytes[..len]))
}

/// Writes the next line of a file that we have locked and that held `before`, which is not foreign.
pub(super) fn write(
    file: &File,
    before: &Content,
    name: &str,
    token: u64,
    holder: Option<(HolderId, u32)>,
) -> io::Result<()> {
    let (place, seq) = match before {
        Content::Ours(Record {
            current: Some((place, entry)),
            ..
        }) => (1 - place, entry.seq.saturating_add(1)),
        _ => (0, 1),
    };
    let entry = Entry { seq, token, holder }.render();
    let Content::Ours(record) = before else {
        let blank = " ".repeat(ENTRY_LEN - 1);
        let image = [
            MAGIC,
            entry.as_bytes(),
            blank.as_bytes(),
            b"\n",
            &render_name(name),
        ]
        .concat();
        return file.write_all_at(&image, 0);
    };
    file.write_all_at(entry.as_bytes(), (MAGIC.len() + place * ENTRY_LEN) as u64)?;
    if record.name.is_none() {
        file.write_all_at(&render_name(name), NAME_AT as u64)?;
    }
    Ok(())
}

fn render_name(name: &str) -> Vec<u8> {
    let sum = checksum(name.as_bytes());
    format!("name {} sum {sum:016x}\n{name}\n", name.len()).into_bytes()
}

fn parse_name(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (_, name) = text.split_once('\n')?;
    let name = name.strip_suffix('\n')?;
    (render_name(name) == bytes).then(|| name.to_owned())
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
    use crate::contract::holder::ClientId;
    use crate::stores::file::scratch::Scratch;

    fn someone(n: u64) -> Option<(HolderId, u32)> {
        Some((HolderId::new(ClientId::random(), n), 1234))
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
        let names = "\n\"x".repeat(170) + "ab";
        assert_eq!(names.len(), 512);
        assert!(NAME_AT + render_name(&names).len() < MAX_LEN);
        assert_eq!(parse_name(&render_name(&names)), Some(names));
    }

    /// Plays every way in which the bytes of a write may reach the disk in part.
    #[test]
    fn a_torn_write_never_loses_the_token_before_it() {
        let scratch = Scratch::new();
        let file = scratch.file("a");
        let mut token = 100;
        write(&file, &Content::Fresh, "a", token, someone(0)).unwrap();
        for n in 1..20 {
            let before = read(&file).unwrap();
            assert_eq!(before.token(), token);
            let image = std::fs::read(scratch.path("a")).unwrap();
            write(&file, &before, "a", token + 1, someone(n)).unwrap();
            token += 1;
            let after = std::fs::read(scratch.path("a")).unwrap();
            for cut in 0..after.len() {
                let torn = [&after[..cut], &image[cut..]].concat();
                let seen = Content::parse(&torn).token();
                assert!(seen == token || seen == token - 1, "{cut}: {seen}");
                let torn = [&image[..cut], &after[cut..]].concat();
                let seen = Content::parse(&torn).token();
                assert!(seen == token || seen == token - 1, "{cut}: {seen}");
            }
        }
    }

    #[test]
    fn a_first_write_that_was_torn_is_written_again() {
        let scratch = Scratch::new();
        let file = scratch.file("whole");
        write(&file, &Content::Fresh, "a\nb", 7, None).unwrap();
        let image = std::fs::read(scratch.path("whole")).unwrap();
        for cut in 0..image.len() {
            std::fs::write(scratch.path("torn"), &image[..cut]).unwrap();
            let torn = scratch.file("torn");
            let content = read(&torn).unwrap();
            assert_ne!(content, Content::Foreign, "{cut}");
            write(&torn, &content, "a\nb", 8, someone(1)).unwrap();
            let content = read(&torn).unwrap();
            assert_eq!(
                (content.token(), content.name()),
                (8, Some("a\nb")),
                "{cut}"
            );
        }
    }

    #[test]
    fn zeros_are_fresh_and_other_data_is_foreign() {
        assert_eq!(Content::parse(&[0; 300]), Content::Fresh);
        for text in ["x", "[lockkit]\n", "lockkit lock file, format 2\n"] {
            assert_eq!(Content::parse(text.as_bytes()), Content::Foreign, "{text}");
        }
    }
}
