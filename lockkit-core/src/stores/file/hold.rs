//! Taking, keeping and giving back: what a ticket does to its file.

use std::ops::ControlFlow::{self, Break, Continue};
use std::path::Path;
use std::time::Duration;

use super::FileStore;
use super::gate::{self, Gate};
use super::lock_file::{LockFile, TryLock, host_micros};
use super::names;
use super::problem::Problem;
use super::record::{Entry, Record};
use super::tickets::{Hold, Waiting};
use crate::contract::{FencingToken, Release, Ticket};
use crate::store::sync::lock;

/// How often an attempt begins again because of a file that was replaced under its hands, or of
/// a process that looked.
const TRIES: u32 = 32;

impl FileStore {
    /// Takes the lock for `ticket`, or finds that it holds; `None` if another ticket or process does.
    pub(super) async fn take(&self, ticket: &Ticket) -> Result<Option<FencingToken>, Problem> {
        if let Some(token) = self.still_holds(ticket)? {
            return Ok(Some(token));
        }
        let path = self.path(&ticket.name);
        if self.has_to_wait(ticket, &path)? {
            return Ok(None);
        }
        for _ in 0..TRIES {
            if let Break(taken) = self.try_take(ticket, &path)? {
                return Ok(taken);
            }
            // Nothing is held here, so an attempt that is dropped leaves nothing.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Another process shares it for longer than a look takes.
        Ok(None)
    }

    /// Whether a waiter keeps `ticket` out that came earlier. Asked before the lock is tried: who has to
    /// wait must not take it for an instant either, or it would refuse that waiter.
    fn has_to_wait(&self, ticket: &Ticket, path: &Path) -> Result<bool, Problem> {
        let tickets = lock(&self.tickets);
        if tickets.tombstones.contains(ticket.holder) {
            return Err(Problem::WasReleased);
        }
        let waiting = tickets.waiting.get(&ticket.holder);
        let since = waiting.map_or(u64::MAX, |waiting| waiting.since);
        drop(tickets);
        Ok(gate::is_shut(&names::gate_of(path), since, self.window()))
    }

    /// Notes that `ticket` was refused. From the second time on it keeps out those that came later: two that
    /// pass the lock to each other within one pause need no gate. Returns after which pause it polls best.
    pub(super) fn wait(&self, ticket: &Ticket) -> Option<Duration> {
        let now = host_micros();
        let mut tickets = lock(&self.tickets);
        if !ticket.enqueue || tickets.tombstones.contains(ticket.holder) {
            return None;
        }
        let Some(waiting) = tickets.waiting.get_mut(&ticket.holder) else {
            let (since, gate) = (now, None);
            let waiting = Waiting { since, gate };
            tickets.waiting.insert(ticket.holder, waiting);
            return None;
        };
        let Waiting { since, gate } = waiting;
        if !matches!(gate.as_ref().map(|gate| gate.keep(*since)), Some(Ok(true))) {
            // A waiter that can have no gate waits without one.
            let path = names::gate_of(&self.path(&ticket.name));
            *gate = Gate::shut(&path, *since, self.window()).ok().flatten();
        }
        // While it keeps others out, a free lock must not lie idle for much longer than they held it.
        let waited = Duration::from_micros(now.saturating_sub(*since));
        gate.as_ref().map(|_| (waited / 8).max(self.poll.min))
    }

    /// How long a gate stays shut that its waiter does not write: waiters poll three times within it.
    fn window(&self) -> Duration {
        self.poll.max.saturating_mul(3)
    }

    /// Locks the file once. It has to be repeated if the file is no longer the one at its path, or if
    /// another process looks at it.
    fn try_take(
        &self,
        ticket: &Ticket,
        path: &Path,
    ) -> Result<ControlFlow<Option<FencingToken>>, Problem> {
        let lock_file = LockFile::open_or_create(path)?;
        match lock_file.try_lock()? {
            TryLock::Taken => {}
            TryLock::Held => return Ok(Break(None)),
            TryLock::Shared => return Ok(Continue(())),
        }
        self.hold(ticket, lock_file)
    }

    /// Makes a file that was just locked the hold of a ticket.
    fn hold(
        &self,
        ticket: &Ticket,
        lock_file: LockFile,
    ) -> Result<ControlFlow<Option<FencingToken>>, Problem> {
        let token = write_holder(ticket, &lock_file).inspect_err(|_| {
            // A child between `fork` and `exec` may have it open too: closing it would leave it locked.
            let _ = lock_file.unlock();
        })?;
        // From here on, its drop unlocks the file.
        let hold = Hold {
            lock_file,
            token,
            pid: std::process::id(),
        };
        // Only after the token is written: an operator who breaks this hold reads the token of the old
        // file after it has put a new one in place, and this order lets it find ours. INV-4.
        if !hold.lock_file.is_in_place()? {
            return Ok(Continue(()));
        }
        // In one step with the look for a release, which may have come while we were here.
        let mut tickets = lock(&self.tickets);
        if tickets.tombstones.contains(ticket.holder) {
            return Err(Problem::WasReleased);
        }
        tickets.waiting.remove(&ticket.holder);
        tickets.held.insert(ticket.holder, hold);
        Ok(Break(Some(token)))
    }

    /// The token of a ticket whose file is still the one at its path; `None` if it does not hold.
    pub(super) fn still_holds(&self, ticket: &Ticket) -> Result<Option<FencingToken>, Problem> {
        let mut tickets = lock(&self.tickets);
        Ok(tickets.held_by(ticket.holder)?.map(|hold| hold.token))
    }

    /// Writes a note beside the holder of the file; returns whether `ticket` holds.
    pub(super) fn write_note(&self, ticket: &Ticket, text: &str) -> Result<bool, Problem> {
        let mut tickets = lock(&self.tickets);
        let Some(hold) = tickets.held_by(ticket.holder)? else {
            return Ok(false);
        };
        let before = hold.lock_file.read_of(&ticket.name)?;
        let entry = Entry::held(ticket, hold.token.get(), hold.pid, Some(text));
        hold.lock_file.write(&before, entry)?;
        Ok(true)
    }

    /// Ends the hold of `ticket`.
    pub(super) fn give_back(&self, ticket: &Ticket) -> Result<Release, Problem> {
        let mut tickets = lock(&self.tickets);
        tickets.tombstones.insert(ticket.holder);
        tickets.waiting.remove(&ticket.holder);
        // The hold has not ended yet: a failure here has no effect, and the client repeats the release.
        if tickets.held_by(ticket.holder)?.is_none() {
            return Ok(Release::NotHeld);
        }
        let hold = tickets.held.remove(&ticket.holder);
        drop(tickets);
        // Who held it is a help for the eyes of an operator: the release succeeds without it.
        let _ = hold.map(|hold| hold.sign_off(ticket));
        Ok(Release::Released)
    }
}

/// Writes who holds a file that is locked. Returns the token.
fn write_holder(ticket: &Ticket, lock_file: &LockFile) -> Result<FencingToken, Problem> {
    let before = lock_file.read_of(&ticket.name)?;
    let token = next_token(&before, &lock_file.path)?;
    let entry = Entry::held(ticket, token.get(), std::process::id(), None);
    lock_file.write(&before, entry)?;
    Ok(token)
}

/// The next token of a lock whose file had `before` in it.
pub(super) fn next_token(before: &Record, path: &Path) -> Result<FencingToken, Problem> {
    let next = before.token().checked_add(1);
    let next = next.map(|next| next.max(host_micros()));
    next.and_then(FencingToken::new)
        .ok_or_else(|| Problem::LastToken(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::LockName;
    use crate::contract::{ClientId, HolderId};

    #[tokio::test]
    async fn a_forked_child_neither_holds_nor_frees() {
        let dir = std::env::temp_dir().join(format!("lockkit-{}", ClientId::random()));
        let store = FileStore::new(&dir).unwrap();
        let ticket = |n| {
            let holder = HolderId::new(ClientId::random(), n);
            Ticket::new(LockName::new("a").unwrap(), holder, Duration::from_secs(30))
        };
        let ours = ticket(1);
        assert!(store.take(&ours).await.unwrap().is_some());
        let parent = store.open_file(ours.holder);
        if let Some(hold) = lock(&store.tickets).held.get_mut(&ours.holder) {
            hold.pid += 1;
        }
        assert_eq!(store.still_holds(&ours).unwrap(), None);
        assert_eq!(store.give_back(&ours).unwrap(), Release::NotHeld);
        drop(store);
        let other = FileStore::new(&dir).unwrap();
        assert_eq!(other.take(&ticket(2)).await.unwrap(), None);
        drop(parent);
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// A child of another thread between `fork` and `exec` has a copy of each open file.
    #[tokio::test]
    async fn refused_file_is_unlocked_for_children_too() {
        let dir = std::env::temp_dir().join(format!("lockkit-{}", ClientId::random()));
        let store = FileStore::new(&dir).unwrap();
        let holder = HolderId::new(ClientId::random(), 1);
        let name = LockName::new("a").unwrap();
        let ticket = Ticket::new(name, holder, Duration::from_secs(30));
        let path = store.path(&ticket.name);
        let lock_file = || {
            let lock_file = LockFile::open_or_create(&path).unwrap();
            assert_eq!(lock_file.try_lock().unwrap(), TryLock::Taken);
            lock_file
        };
        let child_of = |lock_file: &LockFile| lock_file.file.try_clone().unwrap();
        // The data of another program.
        std::fs::write(&path, "x").unwrap();
        let foreign = lock_file();
        let child = child_of(&foreign);
        assert!(store.hold(&ticket, foreign).is_err());
        drop(lock_file());
        drop(child);
        // It is not at its path any more.
        std::fs::write(&path, "").unwrap();
        let (replaced, other) = (lock_file(), LockFile::open(&path).unwrap().unwrap());
        let child = child_of(&replaced);
        std::fs::remove_file(&path).unwrap();
        assert!(store.hold(&ticket, replaced).unwrap().is_continue());
        assert_eq!(other.try_lock().unwrap(), TryLock::Taken);
        drop((child, other));
        // The ticket was released meanwhile.
        store.give_back(&ticket).unwrap();
        let late = lock_file();
        let child = child_of(&late);
        assert!(store.hold(&ticket, late).is_err());
        drop(lock_file());
        drop(child);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
