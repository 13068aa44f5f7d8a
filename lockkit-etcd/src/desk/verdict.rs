//! What the keys of a lock mean for one ticket.

use lockkit_core::backend::{Grant, Wake};
use lockkit_core::{FencingToken, LossReason};

use super::place::Place;
use super::views::View;
use crate::mutant::{Broken, EtcdMutant};

impl Place {
    /// Looks at the keys of its lock, all of which must be of one revision: a lease that ends takes
    /// the key of a holder and that of a waiter of the same client in one.
    pub(super) fn look(&mut self, view: &View, broken: Broken) {
        let Some(contenders) = view.contenders() else {
            return;
        };
        match (contenders.created(&self.at.key), self.at.created) {
            (Some(created), _) => {
                // Nobody else ever has this key, so that it is ours although no answer said so.
                self.at.created = Some(created);
                if !self.at.held && contenders.before(created) == 0 {
                    self.at.held = true;
                    self.granted = true;
                    self.ring();
                }
            }
            (None, Some(created)) if broken.is(EtcdMutant::GrantToExpiredLease) => {
                if !self.at.held && contenders.before(created) == 0 {
                    self.at.held = true;
                    self.granted = true;
                    self.ring();
                }
            }
            // It was there, and everything since is known.
            (None, Some(created)) if contenders.seen() >= created => {
                self.lose(LossReason::Superseded);
            }
            (None, _) => {}
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
        let grant = Grant::new(token, self.ttl());
        match self.since() {
            Some(since) => grant.with_since(since),
            None => grant,
        }
    }
}
