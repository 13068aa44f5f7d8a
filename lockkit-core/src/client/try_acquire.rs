//! A try: it asks once, waits in no queue and leaves nothing behind.

use std::sync::Arc;

use tokio::time::{Instant, sleep};

use crate::client::attempt::Attempting;
use crate::client::guard::Guard;
use crate::client::hold::HoldOptions;
use crate::client::outstanding::Outstanding;
use crate::client::queue::Key;
use crate::client::reaper::{Before, release_after};
use crate::client::shared::{Held, Shared};
use crate::contract::{Attempt, BackendError, Error, HolderId, Outcome, Result, Ticket};
use crate::time::backoff::Backoff;
use crate::time::clock::Moment;

/// Takes the lock if it is free; or the hold of `adopted`, if it lasts. After the deadline it repeats no request.
pub(crate) async fn try_acquire(
    shared: &Arc<Shared>,
    key: &Key,
    options: HoldOptions,
    adopted: Option<HolderId>,
    deadline: Option<Instant>,
) -> Result<Option<Guard>> {
    let context = &shared.context;
    let trying = TryAcquire {
        shared: Arc::clone(shared),
        ticket: shared.ticket(key, false),
        options,
        adopted,
        attempt: None,
        known: false,
        _unfinished: context.attempts.begin(),
    };
    // A task may go on without its caller; `drain` waits for it then, and for its guard.
    let outstanding = (!context.runtime.is_current()).then(|| context.pending.begin());
    let request = async move { (trying.run(deadline).await, outstanding) };
    context.runtime.run(request).await?.0
}

/// A try in flight; dropping it withdraws the ticket, unless its answers leave nothing behind.
struct TryAcquire {
    shared: Arc<Shared>,
    ticket: Ticket,
    options: HoldOptions,
    adopted: Option<HolderId>,
    attempt: Option<Attempting>,
    /// Whether the store may hold for the ticket.
    known: bool,
    /// Ends after all that the attempt leaves behind is known.
    _unfinished: Outstanding,
}

impl TryAcquire {
    /// Asks until the store answers, for as long as one request may take.
    async fn run(mut self, deadline: Option<Instant>) -> Result<Option<Guard>> {
        let shared = Arc::clone(&self.shared);
        // A shutdown that has not seen this attempt has begun before.
        if self.adopted.is_none() && shared.is_closing() {
            return Err(Error::Shutdown);
        }
        let give_up = Instant::now() + shared.context.timeout;
        let give_up = deadline.map_or(give_up, |deadline| deadline.min(give_up));
        let mut pauses = Backoff::default();
        loop {
            let (sent, answer) = self.answer().await;
            let error = match answer {
                Ok(Attempt::Held { .. }) => return Ok(None),
                Ok(Attempt::Granted(grant)) => match shared.context.since(&grant, sent) {
                    Some(since) => {
                        self.known = false;
                        let (ticket, options) = (self.ticket.clone(), self.options);
                        let held = Held::begin(&shared, ticket, grant, since, options, None);
                        let guard = Guard::new(held);
                        // What was adopted was held already.
                        if self.adopted.is_none() && shared.is_closing() {
                            return Err(Error::Shutdown);
                        }
                        return Ok(Some(guard));
                    }
                    None => shared.context.late_grant(),
                },
                Err(error) => error,
            };
            let pause = pauses.pause();
            if error.outcome() == Outcome::Rejected || Instant::now() + pause >= give_up {
                return Err(error.into());
            }
            sleep(pause).await;
        }
    }

    async fn answer(&mut self) -> (Moment, Result<Attempt, BackendError>) {
        let (context, ticket) = (&self.shared.context, self.ticket.clone());
        let attempt = Attempting::new(context, ticket, self.adopted);
        let attempt = self.attempt.insert(attempt);
        let (sent, answer) = (attempt.sent, (&mut attempt.answer).await);
        self.attempt = None;
        self.known |= may_hold(&answer);
        (sent, answer)
    }
}

/// Whether the store may hold for a ticket with this answer. An answer "held" says nothing about an
/// earlier request that may still be on its way.
fn may_hold(answer: &Result<Attempt, BackendError>) -> bool {
    match answer {
        Ok(Attempt::Granted(_)) => true,
        Ok(Attempt::Held { .. }) => false,
        Err(error) => error.outcome() == Outcome::Indeterminate,
    }
}

impl Drop for TryAcquire {
    fn drop(&mut self) {
        let context = &self.shared.context;
        let known = self.known;
        let before = self.attempt.take().map(|attempt| -> Before {
            Box::pin(async move { may_hold(&attempt.answer.await) || known })
        });
        if known || before.is_some() {
            let (ticket, outstanding) = (self.ticket.clone(), context.pending.begin());
            let longest = ticket.ttl.max(self.options.former);
            release_after(context, ticket.with_ttl(longest), before, outstanding);
        }
    }
}
