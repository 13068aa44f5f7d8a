//! What is known of one ticket.

use std::sync::Arc;

use lockkit_core::LossReason;
use tokio::sync::Notify;

use super::Standing;
use crate::contenders::{Before, Listed};

/// What is known of a ticket.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) at: Standing,
    /// Requests without an answer, which may still create the key or delete it. Those that failed
    /// count, whatever their error says.
    pub(super) unanswered: u32,
    /// It was found to hold, and nobody was told.
    pub(super) granted: bool,
    pub(super) lost: Option<LossReason>,
    pub(super) told_loss: bool,
    pub(super) bell: Option<Arc<Notify>>,
    /// Who stood before it when its key was created, until the watch of its lock takes that over.
    pub(super) listed: Option<Before>,
    /// How many there were with it then.
    pub(super) all: i64,
    /// Who stands before it now. Known only while the deletions of all of them are told, or at least
    /// of those that stand nearest: then some may be gone.
    pub(super) before: Option<Before>,
}

impl Place {
    pub(super) const fn new(at: Standing) -> Self {
        Self {
            at,
            unanswered: 0,
            granted: false,
            lost: None,
            told_loss: false,
            bell: None,
            listed: None,
            all: 0,
            before: None,
        }
    }

    /// Another key, under another session.
    pub(super) fn moved(&mut self, at: Standing) {
        self.at = at;
        self.unanswered = 0;
        self.granted = false;
        self.lost = None;
        self.told_loss = false;
        self.listed = None;
        self.all = 0;
        self.before = None;
    }

    /// The keys at the revision that created its own.
    pub(super) fn list(&mut self, listed: &Listed) {
        self.all = listed.all;
        self.listed = self.at.created.map(|created| listed.before(created));
    }

    pub(super) fn lose(&mut self, reason: LossReason) {
        if self.lost.is_none() {
            self.lost = Some(reason);
            self.ring();
        }
    }

    pub(super) fn ring(&self) {
        if let Some(bell) = &self.bell {
            bell.notify_one();
        }
    }
}
