//! Leader election: a lock whose holder says who it is.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::client::guard::Guard;
use crate::client::label::check_note;
use crate::client::lock::Lock;
use crate::contract::{FencingToken, LockName, LockState, Result};
use crate::time::backoff::jitter;

/// The shortest time between two polls of the leader.
const LOOK: Duration = Duration::from_secs(1);

/// An election by its name: candidates wait for the lock, first come, first served where the store is, and the
/// leader is known by a value. It holds nothing, and clones are cheap.
///
/// A leader learns of its end by [`Guard::lost`] and is checked by [`Guard::check`]; the term is
/// [`Guard::token`], which a resource checks as that of any lock. A program that must know at once that
/// the leader is gone is a candidate itself.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkit_core::Result<()> {
/// use lockkit_core::{LockClient, memory::MemoryStore};
///
/// let client = LockClient::new(MemoryStore::new())?;
/// let election = client.election("shard-7")?;
/// let term = election.campaign("10.0.0.5:7001").await?;
/// let leader = election.leader().await?.unwrap();
/// assert_eq!(leader.value.as_deref(), Some("10.0.0.5:7001"));
/// assert_eq!(leader.term, Some(term.token()));
/// term.release().await?;
/// assert!(election.leader().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    lock: Lock,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// What it says of itself; `None` for the moment until its value arrives.
    pub value: Option<String>,
    /// Its term, which grows from leader to leader; `None` where another program leads that has none.
    pub term: Option<FencingToken>,
    /// The identity of its hold in the store.
    pub holder: String,
    /// Which program it is.
    pub label: Option<String>,
}

impl Election {
    pub(crate) const fn new(lock: Lock) -> Self {
        Self { lock }
    }

    /// The election's name.
    #[must_use]
    pub const fn name(&self) -> &LockName {
        self.lock.name()
    }

    /// Waits until this candidate leads, and proclaims `value`, which has at most 512 bytes and no control
    /// characters. Another [`Guard::note`] proclaims another value; the end of the guard resigns.
    ///
    /// # Errors
    /// - Those of [`Lock::acquire`] and of [`Guard::note`]. After an error no candidate is left.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves neither a leader nor a candidate behind.
    ///
    /// # Cost
    /// Without another leader, one round trip more than [`Lock::acquire`].
    pub async fn campaign(&self, value: &str) -> Result<Guard> {
        check_note(value)?;
        let guard = self.lock.acquire().await?;
        match guard.note(value).await {
            Ok(()) => Ok(guard),
            Err(error) => {
                // The reason for the end is the first error.
                let _ = guard.release().await;
                Err(error)
            }
        }
    }

    /// The present leader; `None` if there is none.
    ///
    /// # Errors
    /// - Those of [`Lock::inspect`].
    ///
    /// # Cost
    /// As [`Lock::inspect`].
    pub async fn leader(&self) -> Result<Option<Leader>> {
        Ok(self.lock.inspect().await?.and_then(leader_in))
    }

    /// Follows who leads, beginning with the present leader.
    #[must_use]
    pub fn observe(&self) -> Leaders {
        Leaders {
            election: self.clone(),
            seen: None,
            term: None,
            next: Instant::now(),
        }
    }
}

fn leader_in(state: LockState) -> Option<Leader> {
    let token = state.token;
    let holder = state.holders.into_iter().next()?;
    Some(Leader {
        value: holder.note,
        term: holder.token.or(token),
        holder: holder.id,
        label: holder.label,
    })
}

/// The leaders of an election, one after the other; made by [`Election::observe`].
#[derive(Debug)]
pub struct Leaders {
    election: Election,
    /// The last one that was returned; `None` before the first.
    seen: Option<Option<Leader>>,
    /// The largest term of those that were returned.
    term: Option<FencingToken>,
    next: Instant,
}

impl Leaders {
    /// Waits until the leader is another one than at the last call, or its value is, and returns it; the
    /// first call returns at once. Terms never go back. It polls once a second, so that a leader of less
    /// than that may be missed.
    ///
    /// # Errors
    /// - Those of [`Lock::inspect`]; the next call polls again.
    /// - [`Error::NoRuntime`](crate::Error::NoRuntime) also in a Tokio runtime whose time is not enabled.
    ///
    /// # Cancel safety
    /// Cancel safe: a change that was not returned is returned by the next call.
    pub async fn changed(&mut self) -> Result<Option<Leader>> {
        self.election.lock.needs_time()?;
        loop {
            sleep_until(self.next).await;
            self.next = Instant::now() + LOOK.mul_f64(1.0 + 0.1 * jitter().abs());
            let now = self.election.leader().await?;
            if self.is_news(now.as_ref()) {
                return Ok(now);
            }
        }
    }

    /// Whether it is another state than the last one, and none of before: a store that lags behind, or has lost
    /// something, may show one.
    fn is_news(&mut self, now: Option<&Leader>) -> bool {
        let term = now.and_then(|leader| leader.term);
        let is_older = term.is_some() && term < self.term;
        let is_same = matches!(&self.seen, Some(seen) if seen.as_ref() == now);
        if is_older || is_same {
            return false;
        }
        self.term = self.term.max(term);
        self.seen = Some(now.cloned());
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::LockClient;
    use crate::memory::MemoryStore;

    #[tokio::test]
    async fn terms_do_not_go_back_after_a_time_without_a_leader() {
        let client = LockClient::new(MemoryStore::new()).unwrap();
        let mut seen = client.election("a").unwrap().observe();
        let leader = |term| Leader {
            value: None,
            term: FencingToken::new(term),
            holder: String::new(),
            label: None,
        };
        for (now, is_news) in [
            (None, true),
            (None, false),
            (Some(leader(5)), true),
            (None, true),
            (Some(leader(4)), false),
            (Some(leader(5)), true),
            (Some(leader(0)), true),
            (Some(leader(4)), false),
        ] {
            assert_eq!(seen.is_news(now.as_ref()), is_news, "{now:?}");
        }
    }

    #[tokio::test]
    async fn a_value_that_cannot_be_proclaimed_waits_for_no_turn() {
        let client = LockClient::new(MemoryStore::new()).unwrap();
        let election = client.election("a").unwrap();
        let _leader = election.campaign("x").await.unwrap();
        let soon = timeout(LOOK, election.campaign("two\nlines"));
        assert!(soon.await.unwrap().is_err());
    }
}
