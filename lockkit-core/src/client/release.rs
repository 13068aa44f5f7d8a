//! A release that somebody waits for.

use std::pin::Pin;
use std::sync::Arc;

use tokio::time::{Instant, sleep, timeout};

use crate::client::hold::Hold;
use crate::client::reaper::{Before, Outstanding};
use crate::client::shared::Core;
use crate::contract::error::{BackendError, Error, LossReason, Outcome, Result};
use crate::contract::{Release, Ticket};
use crate::mutants::Mutant;
use crate::time::backoff::retry_delay;
use crate::time::clock::Moment;

/// A release in flight; dropping it hands the rest to the reaper.
pub(crate) struct Releasing {
    core: Arc<Core>,
    ticket: Ticket,
    steps: Option<Steps>,
    outstanding: Option<Outstanding>,
}

type Steps = Pin<Box<dyn Future<Output = Result<Release, BackendError>> + Send>>;

impl Releasing {
    pub(crate) fn begin(hold: &Arc<Hold>, until: Moment) -> Self {
        let core = Arc::clone(&hold.core);
        let outstanding = Some(core.reaper.outstanding());
        let steps: Steps = Box::pin(release(Arc::clone(&core), hold.ticket.clone(), until));
        Self {
            core,
            ticket: hold.to_release(),
            steps: Some(steps),
            outstanding,
        }
    }

    pub(crate) async fn finish(self, hold: &Arc<Hold>) -> Result<()> {
        let (runtime, hold) = (self.core.runtime.clone(), Arc::clone(hold));
        runtime.run(async move { self.ask(&hold).await }).await?
    }

    async fn ask(mut self, hold: &Hold) -> Result<()> {
        let answer = match &mut self.steps {
            Some(steps) => steps.await,
            None => return Ok(()),
        };
        self.steps = None;
        match answer {
            Ok(Release::Released) => Ok(()),
            Ok(Release::NotHeld) => Err(Error::Lost {
                name: hold.ticket.name.clone(),
                token: hold.token,
                reason: LossReason::Superseded,
                source: None,
            }),
            Err(error) => {
                self.core.release_later(self.ticket.clone());
                Err(error.into())
            }
        }
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        let (Some(steps), Some(outstanding)) = (self.steps.take(), self.outstanding.take()) else {
            return;
        };
        let before: Before = Box::pin(async move { steps.await.is_err() });
        self.core
            .release_after(self.ticket.clone(), Some(before), outstanding);
    }
}

/// Repeats a release for as long as one request may take. `until` is the end of the hold's window.
async fn release(core: Arc<Core>, ticket: Ticket, until: Moment) -> Result<Release, BackendError> {
    let give_up = Instant::now() + core.timeout;
    let mut unanswered = false;
    let mut errors = 0;
    loop {
        let sent = core.clock.now();
        let answer = match timeout(core.timeout, core.store.release(&ticket)).await {
            Ok(answer) => answer,
            Err(_) => Err(BackendError::timeout(
                core.store.backend(),
                "release",
                core.timeout,
            )),
        };
        match answer {
            // An earlier release whose reply was lost has ended the hold; it is not a loss.
            Ok(Release::NotHeld) if unanswered => return Ok(Release::Released),
            Ok(release) => return Ok(release),
            Err(error) => {
                let ambiguous = error.outcome() == Outcome::Indeterminate;
                unanswered |=
                    ambiguous && sent < until && !core.broken.is(Mutant::AmbiguousReleaseForgotten);
                let pause = retry_delay(errors, core.jitter());
                if error.outcome() == Outcome::Rejected || Instant::now() + pause >= give_up {
                    return Err(error);
                }
                errors += 1;
                sleep(pause).await;
            }
        }
    }
}
