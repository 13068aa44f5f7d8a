//! Taking, keeping and giving back: what a ticket does to its file.

use std::path::Path;
use std::time::Duration;

use super::FileStore;
use super::lock_file::{Inode, LockFile, TryLock};
use super::problem::Problem;
use super::record::{self, Content};
use super::tickets::Hold;
use crate::contract::token::FencingToken;
use crate::contract::{Release, Ticket};
use crate::store::sync::lock;

/// How often an attempt begins again because of a file that was replaced under its hands, or of
/// somebody who looked.
const TRIES: u32 = 32;

/// What came of locking a file once.
enum Try {
    Taken(FencingToken),
    Held,
    /// The file is no longer the one at its path.
    Replaced,
    Shared,
}

impl FileStore {
    /// Takes the lock for `ticket`, or finds that it holds; `None` if another ticket or process does.
    pub(super) async fn take(&self, ticket: &Ticket) -> Result<Option<FencingToken>, Problem> {
        if let Some(token) = self.still_holds(ticket)? {
            return Ok(Some(token));
        }
        if lock(&self.tickets).tombstones.contains(ticket.holder) {
            return Err(Problem::WasReleased);
        }
        for _ in 0..TRIES {
            match self.try_take(ticket)? {
                Try::Taken(token) => return Ok(Some(token)),
                Try::Held => return Ok(None),
                Try::Replaced => {}
                // Nothing is held here, so an attempt that is dropped leaves nothing.
                Try::Shared => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
        // Another process shares it for longer than a look takes.
        Ok(None)
    }

    fn try_take(&self, ticket: &Ticket) -> Result<Try, Problem> {
        let path = self.path(&ticket.name);
        let name = ticket.name.as_str();
        let lock_file = LockFile::open_or_create(&path)?;
        match lock_file.try_lock(&path)? {
            TryLock::Taken => {}
            TryLock::Held => return Ok(Try::Held),
            TryLock::Shared => return Ok(Try::Shared),
        }
        let pid = std::process::id();
        let before = read(&lock_file, &path, name)?;
        let token = next_token(&before, &path)?;
        let holder = Some((ticket.holder, pid));
        record::write(&lock_file.file, &before, name, token.get(), holder)
            .map_err(|error| Problem::io(&path, error))?;
        // Only after the token is written: an operator who breaks this hold reads the token of the old
        // file after it has put a new one in place, and this order lets it find ours. INV-4.
        if !lock_file.is_at(&path)? {
            return Ok(Try::Replaced);
        }
        // In one step with the look for a release, which may have come while we were here.
        let mut tickets = lock(&self.tickets);
        if tickets.tombstones.contains(ticket.holder) {
            return Err(Problem::WasReleased);
        }
        tickets.held.insert(
            ticket.holder,
            Hold {
                lock_file,
                token,
                pid,
            },
        );
        Ok(Try::Taken(token))
    }

    /// The token of a ticket whose file is still the one at its path; `None` if it does not hold.
    pub(super) fn still_holds(&self, ticket: &Ticket) -> Result<Option<FencingToken>, Problem> {
        let Some((token, inode)) = self.held_by(ticket) else {
            return Ok(None);
        };
        if Inode::at(&self.path(&ticket.name))? == Some(inode) {
            return Ok(Some(token));
        }
        lock(&self.tickets).held.remove(&ticket.holder);
        Ok(None)
    }

    fn held_by(&self, ticket: &Ticket) -> Option<(FencingToken, Inode)> {
        let tickets = lock(&self.tickets);
        let hold = tickets.held.get(&ticket.holder)?;
        hold.is_ours().then_some((hold.token, hold.lock_file.inode))
    }

    /// Ends the hold of `ticket`.
    pub(super) fn give_back(&self, ticket: &Ticket) -> Result<Release, Problem> {
        let path = self.path(&ticket.name);
        lock(&self.tickets).tombstones.insert(ticket.holder);
        // The hold has not ended yet: a failure here has no effect, and the client repeats the release.
        let in_place = match self.held_by(ticket) {
            Some((_, inode)) => Inode::at(&path)? == Some(inode),
            None => true,
        };
        let hold = lock(&self.tickets).held.remove(&ticket.holder);
        let Some(hold) = hold.filter(Hold::is_ours) else {
            return Ok(Release::NotHeld);
        };
        if !in_place {
            return Ok(Release::NotHeld);
        }
        // Who held it is a help for the eyes of an operator: the release succeeds without it.
        let _ = sign_off(&hold, ticket);
        drop(hold);
        Ok(Release::Released)
    }
}

/// The next token of a lock whose file had `before` in it.
pub(super) fn next_token(before: &Content, path: &Path) -> Result<FencingToken, Problem> {
    let next = before.token().checked_add(1);
    let next = next.map(|next| next.max(host_micros()));
    next.and_then(FencingToken::new)
        .ok_or_else(|| Problem::LastToken(path.to_owned()))
}

/// Reads a file that must be empty or the lock file of `name`.
pub(super) fn read(lock_file: &LockFile, path: &Path, name: &str) -> Result<Content, Problem> {
    let content = record::read(&lock_file.file).map_err(|error| Problem::io(path, error))?;
    if content == Content::Foreign {
        return Err(Problem::Foreign(path.to_owned()));
    }
    if content.name().is_some_and(|other| other != name) {
        return Err(Problem::OtherName(path.to_owned()));
    }
    Ok(content)
}

/// Writes that the lock is free. The token stays, also if another program truncated the file.
fn sign_off(hold: &Hold, ticket: &Ticket) -> std::io::Result<()> {
    let file = &hold.lock_file.file;
    let before = record::read(file)?;
    if before == Content::Foreign {
        return Ok(());
    }
    let token = before.token().max(hold.token.get());
    record::write(file, &before, ticket.name.as_str(), token, None)
}

/// The machine's wall clock in microseconds: the floor of tokens, never the measure of a lease.
#[expect(
    clippy::disallowed_methods,
    reason = "all holders of this store run on this machine, so that its clock is the store's own clock; only tokens depend on it"
)]
pub(super) fn host_micros() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::contract::holder::{ClientId, HolderId};
    use crate::contract::name::LockName;
    use crate::stores::file::scratch::Scratch;

    fn ticket() -> Ticket {
        let holder = HolderId::new(ClientId::random(), 1);
        Ticket::new(LockName::new("a").unwrap(), holder, Duration::from_secs(30))
    }

    /// A second handle of the open file, as a child between `fork` and `exec` has it.
    fn copy(store: &FileStore, ticket: &Ticket) -> File {
        let tickets = lock(&store.tickets);
        tickets.held[&ticket.holder]
            .lock_file
            .file
            .try_clone()
            .unwrap()
    }

    #[tokio::test]
    async fn a_copy_of_the_open_file_keeps_nothing() {
        let scratch = Scratch::new();
        let store = scratch.store();
        for _ in 0..2 {
            let (first, second) = (ticket(), ticket());
            assert!(store.take(&first).await.unwrap().is_some());
            let copy = copy(&store, &first);
            assert_eq!(store.give_back(&first).unwrap(), Release::Released);
            assert!(store.take(&second).await.unwrap().is_some());
            drop(copy);
            store.give_back(&second).unwrap();
        }
        let first = ticket();
        assert!(store.take(&first).await.unwrap().is_some());
        let copy = copy(&store, &first);
        drop(store);
        assert!(scratch.store().take(&ticket()).await.unwrap().is_some());
        drop(copy);
    }

    /// A directory that cannot be looked into for a moment must not make a clean release a loss.
    #[tokio::test]
    async fn a_release_that_fails_has_no_effect_and_can_be_repeated() {
        let scratch = Scratch::new();
        let dir = scratch.path("locks");
        let store = FileStore::new(&dir).unwrap();
        let ours = ticket();
        assert!(store.take(&ours).await.unwrap().is_some());
        std::fs::rename(&dir, scratch.path("away")).unwrap();
        std::fs::write(&dir, "").unwrap();
        assert!(store.give_back(&ours).is_err());
        std::fs::remove_file(&dir).unwrap();
        std::fs::rename(scratch.path("away"), &dir).unwrap();
        assert_eq!(
            store.still_holds(&ours).unwrap(),
            Some(token(&store, &ours))
        );
        assert_eq!(store.give_back(&ours).unwrap(), Release::Released);
    }

    fn token(store: &FileStore, ticket: &Ticket) -> FencingToken {
        lock(&store.tickets).held[&ticket.holder].token
    }

    #[tokio::test]
    async fn a_forked_child_neither_holds_nor_frees() {
        let scratch = Scratch::new();
        let store = scratch.store();
        let ours = ticket();
        assert!(store.take(&ours).await.unwrap().is_some());
        let parent = copy(&store, &ours);
        if let Some(hold) = lock(&store.tickets).held.get_mut(&ours.holder) {
            hold.pid += 1;
        }
        assert_eq!(store.still_holds(&ours).unwrap(), None);
        assert_eq!(store.give_back(&ours).unwrap(), Release::NotHeld);
        assert_eq!(scratch.store().take(&ticket()).await.unwrap(), None);
        drop(parent);
    }
}
