//! Attempts: puts the key of a ticket under a session, or reads whether it has its turn.
//!
//! There is one session for all tickets with the same ttl.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::contract::{Attempt, Ticket};
use lockkit_core::store::lock;
use lockkit_core::{LossReason, Outcome};
use tokio::sync::mpsc;

use crate::error::{Failed, Result, fault, unreadable};
use crate::keep_alive::KeepAlive;
use crate::keys;
use crate::queue::{self, Contender, Listing, Reads, split};
use crate::session::{Lease, Session};
use crate::shared::Shared;

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
                Ok(Some(attempt)) => return Ok(attempt),
                Ok(None) => self.lose(ticket.holder, &at.key, LossReason::Superseded),
                Err(Failed::LeaseGone) => self.session_ended(&at.session.lease),
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
        self.enter(ticket, &session)
    }

    /// Returns a session for a new key.
    pub(crate) async fn session(self: &Arc<Self>, ttl: Duration) -> Result<Arc<Session>> {
        // Rounded up: a fixed lease may be of any length, and the server keeps none for less than is believed.
        let fraction = u64::from(ttl.subsec_nanos() > 0);
        let ttl = Duration::from_secs(ttl.as_secs().saturating_add(fraction));
        if let Some(session) = self.fresh(ttl).await {
            return Ok(session);
        }
        let _creating = self.creating.lock().await;
        if let Some(session) = self.fresh(ttl).await {
            return Ok(session);
        }
        let session = Box::pin(self.create(ttl)).await?;
        let mut sessions = lock(&self.sessions);
        // Their tickets keep the former ones for as long as they need them.
        sessions.retain(|_, former| former.lease.takes_tickets());
        sessions.insert(ttl, Arc::clone(&session));
        Ok(session)
    }

    /// The newest session, if it can be used.
    async fn fresh(&self, ttl: Duration) -> Option<Arc<Session>> {
        let session = lock(&self.sessions).get(&ttl).map(Arc::clone);
        let session = session.filter(|session| session.lease.takes_tickets())?;
        session.is_fresh().await.then_some(session)
    }

    /// Creates a lease, and spawns the task that keeps it alive.
    async fn create(self: &Arc<Self>, ttl: Duration) -> Result<Arc<Session>> {
        let confirmed = self.clock.now();
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        let granted = self.link.ask(
            "attempt",
            self.link.request_timeout(),
            |client| async move { client.lease_client().grant(seconds, None).await },
        );
        // A lease without a key blocks no client.
        let granted = granted
            .await
            .map_err(|failed| failed.into_error("attempt").without_effect())?;
        if granted.ttl() < seconds {
            let why = format!("the server grants a lease of {} s only", granted.ttl());
            return Err(fault("attempt", Outcome::Rejected, why));
        }
        let lease = Arc::new(Lease::new(granted.id(), ttl, &self.clock, confirmed));
        let (requests, requested) = mpsc::unbounded_channel();
        let task = KeepAlive {
            shared: Arc::clone(self),
            lease: Arc::clone(&lease),
            sweep: None,
        };
        // Detached: it ends with the session.
        drop(self.runtime.spawn(task.run(requested)));
        Ok(Arc::new(Session { lease, requests }))
    }

    /// Tries under one session. `None` if the ticket's key was deleted, so that it needs another.
    async fn try_under(
        self: &Arc<Self>,
        ticket: &Ticket,
        at: &Contender,
    ) -> Result<Option<Attempt>, Failed> {
        if self.still_waits(ticket, at).await? {
            return Ok(Some(Attempt::held()));
        }
        // Before it is written, so that a key of a late request is not taken for one without a ticket.
        self.tickets
            .with(ticket.holder, |entry| entry.data.unanswered += 1);
        let txn = queue::attempt(at, ticket);
        let answer = self.link.txn("attempt", &txn).await?;
        let (results, found) = split(ticket, &answer);
        let listing = Listing::read(&results, answer.header());
        let mut listing = listing.ok_or_else(|| Failed::Other(unreadable("attempt")))?;
        let holds = listing.holds(keys::mode(&at.key));
        if at.created.is_none() && !holds && !ticket.enqueue && listing.created.is_some() {
            // The key of a permit. A try leaves nothing behind.
            self.delete("attempt", at).await.map_err(|failed| {
                // A late deletion would end a hold of this key.
                self.lose(ticket.holder, &at.key, LossReason::Superseded);
                let error = failed.into_error("attempt");
                Failed::Other(error.with_outcome(Outcome::Indeterminate))
            })?;
            listing.created = None;
        }
        let created = listing.created;
        self.tried(at, ticket.holder, (listing, holds));
        if at.created.is_some() && created != at.created {
            // Its key was deleted, and no event has reported that yet.
            return Ok(None);
        }
        let Some(created) = created.filter(|_| holds) else {
            return Ok(Some(Attempt::held()));
        };
        let token = self.token(created);
        // Not before the ticket holds: a holder before it may still write.
        if let Some(reads) = Reads::of(ticket) {
            reads.keep((token, found));
        }
        Ok(Some(Attempt::Granted(at.session.lease.grant(token))))
    }

    /// Whether a key that blocked the ticket's still exists. The whole check follows if not.
    async fn still_waits(&self, ticket: &Ticket, at: &Contender) -> Result<bool, Failed> {
        let blocker = self
            .tickets
            .with(ticket.holder, |entry| entry.data.blocker());
        let (Some(own), Some(blocker)) = (at.own(), blocker.flatten()) else {
            return Ok(false);
        };
        let txn = queue::still_waits([own, blocker]);
        Ok(self.link.txn("attempt", &txn).await?.succeeded())
    }
}
