//! Releases tickets in the background: those of dropped guards, of lost holds
//! and of cancelled acquires.

use std::pin::Pin;
use std::sync::Arc;

use tokio::time::sleep;

use crate::client::context::Context;
use crate::client::outstanding::Outstanding;
use crate::contract::{BackendError, Outcome, Ticket};
use crate::time::backoff::Backoff;
use crate::time::clock::Moment;
use crate::time::lease::window;

/// At most this many requests are in flight at once.
pub(crate) const IN_FLIGHT: usize = 256;
/// How much more seldom a release is repeated that the store has refused for good.
const SELDOM: u32 = 30;

/// Carries on a request whose caller has gone; returns whether the ticket is still to be released.
pub(crate) type Before = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Releases a ticket in a task of the client's runtime. Never blocks or panics (INV-8); where that
/// runtime has stopped, the store forgets the ticket, and the lease ends what would have been released.
pub(crate) fn release_later(context: &Arc<Context>, ticket: Ticket) {
    release_after(context, ticket, None, context.pending.begin());
}

/// As [`release_later`], if what is still in flight for the ticket says that it is to be released.
pub(crate) fn release_after(
    context: &Arc<Context>,
    ticket: Ticket,
    before: Option<Before>,
    outstanding: Outstanding,
) {
    // Its caller has gone, and no longer wants what an attempt was to do.
    let ticket = ticket.with_work(None);
    // When the lease of the ticket must have ended, if it has one of its own. One request may still be
    // on its way when this begins, and the clocks may differ as they may within a lease.
    let lease = ticket.ttl.saturating_add(ticket.ttl - window(ticket.ttl));
    let ends = context
        .lease_ends_hold()
        .then(|| context.clock.now() + lease + context.timeout);
    let unreleased = Unreleased {
        context: Arc::clone(context),
        ticket,
        answered: false,
    };
    let task = async move {
        let _outstanding = outstanding;
        release(unreleased, before, ends).await;
    };
    // Detached: it ends when the store answers, or the lease has ended. Without a lease of their own there
    // are as many of these tasks as tickets were given up in an outage.
    drop(context.runtime.spawn(task));
}

/// A ticket to be released. The store forgets it where no answer comes: the client's runtime has stopped, or the lease has
/// ended.
struct Unreleased {
    context: Arc<Context>,
    ticket: Ticket,
    answered: bool,
}

impl Drop for Unreleased {
    fn drop(&mut self) {
        if !self.answered {
            self.context.store.forget(self.ticket.holder);
        }
    }
}

/// Repeats the release until the store answers, or the lease has ended.
async fn release(mut unreleased: Unreleased, before: Option<Before>, ends: Option<Moment>) {
    if let Some(before) = before
        && !before.await
    {
        unreleased.answered = true;
        return;
    }
    let context = Arc::clone(&unreleased.context);
    let mut pauses = Backoff::default();
    while ends.is_none_or(|ends| context.clock.now() < ends) {
        let Err(error) = ask(&context, &unreleased.ticket).await else {
            unreleased.answered = true;
            return;
        };
        let mut pause = pauses.pause();
        if error.outcome() == Outcome::Rejected {
            pause *= SELDOM;
        }
        if let Some(ends) = ends {
            pause = pause.min(ends.since(context.clock.now()));
        }
        sleep(pause).await;
    }
}

/// Asks once, when it has its turn, which it keeps for this request only.
async fn ask(context: &Context, ticket: &Ticket) -> Result<(), BackendError> {
    // Never closed.
    let _turn = context.releases.acquire().await;
    let release = context.store.release(ticket);
    context.bounded("release", release).await.map(drop)
}
