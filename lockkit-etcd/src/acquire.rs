//! Attempts: puts the key of a ticket under a session, or reads whether it has its turn.

use std::sync::Arc;

use etcd_client::ResponseHeader;
use lockkit_core::contract::{Attempt, Ticket};
use lockkit_core::{FencingToken, LossReason, Outcome};

use crate::error::{Failed, Result, fault, unreadable};
use crate::queue::{self, Contender, Tried};
use crate::shared::Shared;
use crate::work::{Reads, split};

/// A session may end during an attempt. An attempt takes at most this many.
const SESSIONS: usize = 3;

impl Shared {
    pub(crate) async fn attempt(self: &Arc<Self>, ticket: &Ticket) -> Result<Attempt> {
        let number = self.tickets.attempted(ticket);
        let result = Box::pin(self.try_sessions(ticket)).await;
        self.tickets.answered(ticket, number, &result);
        result
    }

    /// Tries under the sessions that it takes, until one lasts.
    async fn try_sessions(self: &Arc<Self>, ticket: &Ticket) -> Result<Attempt> {
        for _ in 0..SESSIONS {
            let Some(at) = self.contender(ticket).await? else {
                continue;
            };
            match self.try_under(ticket, &at).await {
                // Its key was deleted, and no event has reported that yet: it needs another.
                Ok(tried) if at.created.is_some() && tried.created != at.created => {
                    let reason = LossReason::Superseded;
                    self.lose(ticket.holder, &at.key, reason);
                }
                Ok(tried) => return self.read_attempt(&at, &tried),
                Err(Failed::LeaseGone) => self.session_ended(&at.session),
                Err(Failed::Other(error)) => return Err(error),
            }
        }
        let why = "sessions end as soon as they begin";
        Err(fault("attempt", Outcome::Unavailable, why))
    }

    /// Returns the ticket's key under a session that is alive: the one that it has, or a new one. `None` if
    /// that session has just ended.
    async fn contender(self: &Arc<Self>, ticket: &Ticket) -> Result<Option<Contender>> {
        if let Some(at) = self.alive(ticket.holder) {
            at.session.touch(at.created.is_none());
            return Ok(Some(at));
        }
        let session = self.session(ticket.ttl).await?;
        session.touch(true);
        let directory = self.layout.directory(&ticket.name);
        self.enter(ticket, &session, &directory)
    }

    async fn try_under(self: &Arc<Self>, ticket: &Ticket, at: &Contender) -> Result<Tried, Failed> {
        if self.still_waits(ticket, at).await? {
            return Ok(Tried {
                created: at.created,
                holds: false,
                listing: None,
            });
        }
        let txn = if at.created.is_some() {
            queue::check(at, ticket)
        } else if ticket.enqueue {
            queue::enqueue(at, ticket)
        } else {
            queue::try_once(at, ticket)
        };
        // Before it is written, so that a key of a late request is not taken for one without a ticket.
        self.tickets
            .with(ticket.holder, |entry| entry.data.unanswered += 1);
        let answer = self.link.txn("attempt", &txn).await?;
        let unreadable = || Failed::Other(unreadable("attempt"));
        let (results, found) = split(ticket, &answer);
        let revision = answer.header().map(ResponseHeader::revision);
        let tried = revision.and_then(|revision| queue::tried(at, revision, &results));
        let mut tried = tried.ok_or_else(unreadable)?;
        if at.created.is_none() && !tried.holds && !ticket.enqueue && tried.created.is_some() {
            // The key of a permit. A try leaves nothing behind.
            self.delete("attempt", at).await.map_err(|failed| {
                // A late deletion would end a hold of this key.
                self.lose(ticket.holder, &at.key, LossReason::Superseded);
                failed.or_indeterminate()
            })?;
            tried.created = None;
        }
        self.tried(at, ticket.holder, &mut tried);
        // Else a holder before it may still write.
        let holds = tried.created.filter(|_| tried.holds);
        let token = holds.and_then(|created| FencingToken::of_revision(created, self.token_base));
        if let (Some(token), Some(reads)) = (token, Reads::of(ticket)) {
            reads.keep((token, found));
        }
        Ok(tried)
    }

    /// Whether a key that blocked the ticket's still exists. The whole check follows if not.
    async fn still_waits(&self, ticket: &Ticket, at: &Contender) -> Result<bool, Failed> {
        let (Some(created), Some(blocker)) = (at.created, self.blocker(ticket.holder)) else {
            return Ok(false);
        };
        let txn = queue::still_waits((&at.key, created), &blocker);
        Ok(self.link.txn("attempt", &txn).await?.succeeded())
    }

    fn read_attempt(&self, at: &Contender, tried: &Tried) -> Result<Attempt> {
        match tried.created {
            Some(created) if tried.holds => {
                let token = FencingToken::of_revision(created, self.token_base);
                let token = token.ok_or_else(|| {
                    let why = "the token does not fit: is `token_base` too large?";
                    fault("attempt", Outcome::Rejected, why)
                })?;
                Ok(Attempt::Granted(at.session.grant(token)))
            }
            _ => Ok(Attempt::held()),
        }
    }
}
