//! A try: it asks once, does not wait in any queue and leaves nothing behind.

use std::sync::Arc;

use tokio::time::{Instant, sleep};

use crate::client::attempt::{AttemptFuture, attempt};
use crate::client::guard::Guard;
use crate::client::queue::{Key, Wish};
use crate::client::reaper::{Before, Outstanding};
use crate::client::shared::Core;
use crate::contract::error::{BackendError, Error, Outcome, Result};
use crate::contract::{Attempt, Grant, Ticket};
use crate::mutants::Mutant;
use crate::time::backoff::retry_delay;
use crate::time::clock::Moment;

/// A try in flight; dropping it withdraws the ticket, unless its answers leave nothing behind.
pub(crate) struct Trying {
    core: Arc<Core>,
    ticket: Ticket,
    attempt: Option<AttemptFuture>,
    /// Whether the store may hold for the ticket.
    known: bool,
    /// Ends after all that the attempt leaves behind is known.
    _attempting: Outstanding,
}

impl Trying {
    pub(crate) fn new(core: &Arc<Core>, key: &Key) -> Self {
        let ticket = core.ticket(key, false);
        Self {
            core: Arc::clone(core),
            ticket,
            attempt: None,
            known: false,
            _attempting: core.reaper.attempting(),
        }
    }

    /// Asks until the store answers, for as long as one request may take.
    pub(crate) async fn finish(self, wish: Wish) -> Result<Option<Guard>> {
        let runtime = self.core.runtime.clone();
        // A task may go on without its caller; `drain` waits for it then, and for its guard.
        let outstanding = (!runtime.is_current()).then(|| self.core.reaper.outstanding());
        let request = async move { (self.ask(wish).await, outstanding) };
        runtime.run(request).await?.0
    }

    async fn ask(mut self, wish: Wish) -> Result<Option<Guard>> {
        let give_up = Instant::now() + self.core.timeout;
        let mut errors = 0;
        loop {
            let sent = self.core.clock.now();
            let error = match self.answer().await {
                Ok(Attempt::Held { .. }) => return Ok(None),
                Ok(Attempt::Granted(grant)) => match self.begin(grant, sent, wish) {
                    Some(_) if self.core.is_closing() => return Err(Error::Shutdown),
                    Some(guard) => return Ok(Some(guard)),
                    None => self.core.late_grant(),
                },
                Err(error) => error,
            };
            let pause = retry_delay(errors, self.core.jitter());
            if error.outcome() == Outcome::Rejected || Instant::now() + pause >= give_up {
                return Err(error.into());
            }
            errors += 1;
            sleep(pause).await;
        }
    }

    async fn answer(&mut self) -> Result<Attempt, BackendError> {
        let answer = self.attempt.insert(attempt(&self.core, &self.ticket)).await;
        self.attempt = None;
        // An answer "held" says nothing about an earlier request that may still be on its way.
        self.known |= match &answer {
            Ok(Attempt::Granted(_)) => true,
            Ok(Attempt::Held { .. }) => false,
            Err(error) => error.outcome() == Outcome::Indeterminate,
        };
        answer
    }

    /// Begins the hold, unless the grant is too old to be believed.
    fn begin(&mut self, grant: Grant, sent: Moment, wish: Wish) -> Option<Guard> {
        let since = self.core.since(&grant, sent);
        if !self.core.believes(&grant, since) {
            return None;
        }
        self.known = false;
        self.core.table.hold_began(&self.ticket.name);
        Some(Guard::begin(
            &self.core,
            self.ticket.clone(),
            grant,
            since,
            wish,
            None,
        ))
    }
}

impl Drop for Trying {
    fn drop(&mut self) {
        if self.core.broken.is(Mutant::CancelLeavesTicket) {
            return;
        }
        let known = self.known;
        let before = self.attempt.take().map(|attempt| -> Before {
            Box::pin(async move {
                match attempt.await {
                    Ok(Attempt::Held { .. }) => known,
                    Err(error) => known || error.outcome() == Outcome::Indeterminate,
                    Ok(Attempt::Granted(_)) => true,
                }
            })
        });
        if known || before.is_some() {
            let outstanding = self.core.reaper.outstanding();
            self.core
                .release_after(self.ticket.clone(), before, outstanding);
        }
    }
}
