//! What the keys of a lock mean for one ticket.

use lockkit_core::backend::{Grant, Wake};
use lockkit_core::{FencingToken, LossReason};

use super::place::Place;
use crate::contenders::{Before, Gone, Key};
use crate::mutant::{Broken, EtcdMutant};

impl Place {
    /// A key of its lock is gone. Nothing is decided on it before all that went with the same revision
    /// are known: a lease that ends takes the key of a holder and that of a waiter of the same client
    /// in one. Tells whether it stood before its own.
    pub(super) fn deleted(&mut self, gone: &Gone, broken: Broken) -> bool {
        if gone.key == self.at.key {
            // Nobody else ever has this key.
            if self.at.created.is_some_and(|at| at < gone.revision) {
                self.vanish(broken);
            }
            return false;
        }
        let before = self.before.as_mut();
        before.is_some_and(|before| before.remove(gone))
    }

    /// The keys of its lock were read at a revision; there may be `more` before these.
    ///
    /// Before an answer has told when its own key was created, one of that name may be the former one:
    /// keys are used again.
    pub(super) fn read(&mut self, revision: i64, keys: &[Key], more: bool, broken: Broken) {
        let Some(created) = self.at.created.filter(|created| *created <= revision) else {
            // It comes with an answer that is under way, and that lists the others.
            return;
        };
        let own = keys.iter().find(|(key, _)| *key == self.at.key);
        let there = own.is_some_and(|(_, at)| *at == created);
        if there || broken.is(EtcdMutant::GrantToExpiredLease) {
            self.before = Some(Before::of(created, keys, more));
            self.listed = None;
        }
        if !there {
            // It was there, and everything since is known.
            self.vanish(broken);
        }
    }

    /// Its own key is gone.
    fn vanish(&mut self, broken: Broken) {
        if !broken.is(EtcdMutant::GrantToExpiredLease) {
            self.lose(LossReason::Superseded);
        }
    }

    /// Decides, at the end of a revision, whether it is the first.
    pub(super) fn look(&mut self) {
        let first = self.before.as_ref().is_some_and(Before::is_empty);
        if first && self.lost.is_none() && !self.at.held {
            self.at.held = true;
            self.granted = true;
            self.ring();
        }
    }

    /// What there is to tell, a loss first.
    pub(super) fn news(&mut self, token_base: u64, broken: Broken) -> Option<Wake> {
        let granted_first = broken.is(EtcdMutant::GrantInMidRevision) && self.granted;
        if let Some(reason) = self.lost
            && !granted_first
        {
            if self.told_loss {
                return None;
            }
            self.told_loss = true;
            self.granted = false;
            return Some(Wake::Lost(reason));
        }
        if !std::mem::take(&mut self.granted) {
            return None;
        }
        let token = self
            .at
            .created
            .and_then(|created| token(created, token_base))?;
        Some(Wake::Granted(self.at.session.grant(token)))
    }
}

/// The token of a key that was created at a revision.
pub(crate) fn token(created: i64, base: u64) -> Option<FencingToken> {
    let created = u64::try_from(created).ok()?;
    FencingToken::new(created.saturating_add(base))
}

impl crate::session::Session {
    /// A grant on the lease of this session.
    pub(crate) fn grant(&self, token: FencingToken) -> Grant {
        Grant::new(token, self.ttl()).with_since(self.since())
    }
}
