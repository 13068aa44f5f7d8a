//! A release that a caller waits for.

use std::pin::Pin;
use std::sync::Arc;

use tokio::time::{Instant, sleep};

use crate::client::context::Context;
use crate::client::outstanding::Outstanding;
use crate::client::reaper::{Before, release_after, release_later};
use crate::client::shared::Held;
use crate::contract::{BackendError, Error, Outcome, Release, Result, Ticket, Work};
use crate::time::backoff::Backoff;
use crate::time::clock::Moment;

/// A release in flight; dropping it hands the rest to the reaper.
struct Releasing {
    context: Arc<Context>,
    ticket: Ticket,
    request: Option<(Request, Outstanding)>,
}

type Request = Pin<Box<dyn Future<Output = Result<Release, BackendError>> + Send>>;

/// Releases the ticket of a hold that the client believed in until the moment `until`, with work for the store.
/// `unfinished` counts it.
pub(crate) async fn release(
    held: &Held,
    until: Moment,
    unfinished: Outstanding,
    work: Option<Work>,
) -> Result<()> {
    let context = Arc::clone(&held.shared.context);
    let ticket = held.hold.ticket.clone().with_work(work);
    let request = repeat(Arc::clone(&context), ticket, until);
    let mut releasing = Releasing {
        ticket: held.hold.to_release(),
        request: Some((Box::pin(request), unfinished)),
        context: Arc::clone(&context),
    };
    let answer = async move { releasing.answer().await };
    match context.runtime.run(answer).await?? {
        Release::Released => Ok(()),
        Release::NotHeld => {
            let hold = &held.hold;
            Err(Error::superseded(&hold.name, hold.token))
        }
    }
}

impl Releasing {
    async fn answer(&mut self) -> Result<Release, BackendError> {
        let answer = match &mut self.request {
            Some((request, _)) => request.await,
            None => std::future::pending().await,
        };
        if answer.is_err() {
            release_later(&self.context, self.ticket.clone());
        }
        self.request = None;
        answer
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if let Some((request, outstanding)) = self.request.take() {
            let before: Before = Box::pin(async move { request.await.is_err() });
            let ticket = self.ticket.clone();
            release_after(&self.context, ticket, Some(before), outstanding);
        }
    }
}

/// Repeats a release for as long as one request may take.
async fn repeat(
    context: Arc<Context>,
    ticket: Ticket,
    until: Moment,
) -> Result<Release, BackendError> {
    let give_up = Instant::now() + context.timeout;
    let mut unanswered = None;
    let mut pauses = Backoff::default();
    loop {
        let sent = context.clock.now();
        let request = context.store.release(&ticket);
        match context.bounded("release", request).await {
            Ok(Release::NotHeld) => {
                return match unanswered {
                    None => Ok(Release::NotHeld),
                    // Either an earlier request has done the work, or the lease has ended.
                    Some(error) if ticket.work.is_some() => Err(error),
                    // An earlier release whose reply was lost has ended the hold; it is not a loss.
                    Some(_) => Ok(Release::Released),
                };
            }
            Ok(Release::Released) => return Ok(Release::Released),
            Err(error) => {
                // Work may have been done later than the client believed in the hold.
                let counts = sent < until || ticket.work.is_some();
                if error.outcome() == Outcome::Indeterminate && counts {
                    unanswered = Some(error.clone());
                }
                let pause = pauses.pause();
                if error.outcome() == Outcome::Rejected || Instant::now() + pause >= give_up {
                    // What became of the work is unknown, whatever became of the last request.
                    let unknown = unanswered.filter(|_| ticket.work.is_some());
                    return Err(unknown.unwrap_or(error));
                }
                sleep(pause).await;
            }
        }
    }
}
