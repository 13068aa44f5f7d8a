//! Waits at the store for one local queue, with one ticket at a time, and serves those in it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use crate::attempt::{AttemptFuture, attempt};
use crate::backend::{Attempt, Grant, Ticket, Wake, Watch};
use crate::capability::Waiting;
use crate::clock::Moment;
use crate::core::Core;
use crate::error::{BackendError, Error, Outcome};
use crate::guard::Guard;
use crate::lease::recheck;
use crate::mutants::Mutant;
use crate::runtime::Runtime;
use crate::table::Key;
use crate::waiter::{Look, pause, retry_delay};

/// Where a ticket stands when a driver takes it over.
pub(crate) struct Progress {
    pub(crate) ticket: Ticket,
    pub(crate) sent: Moment,
    pub(crate) step: Step,
}

pub(crate) enum Step {
    InFlight(AttemptFuture),
    Answered(Result<Attempt, BackendError>),
}

/// Serves one local queue until nobody waits in it.
pub(crate) struct Driver {
    runtime: Runtime,
    service: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// The local queue that a driver serves.
struct Line {
    core: Arc<Core>,
    key: Key,
    done: bool,
}

/// How the service with one ticket ended.
enum Served {
    /// Its grant went to a waiter, or its place was lost: the next waiter needs a new ticket.
    Next,
    /// Nobody waits any more.
    Done,
}

/// What ended a pause.
enum Event {
    Again,
    Woken,
    Wake(Result<Wake, BackendError>),
}

/// One ticket at the store.
struct Seat {
    ticket: Ticket,
    /// When the last acknowledged attempt was written. A pushed grant counts from there.
    acknowledged: Option<Moment>,
    /// Whether the store may know the ticket.
    known: bool,
    watch: Option<Box<dyn Watch>>,
    looks: u32,
    errors: u32,
    failing_since: Option<Instant>,
}

impl Driver {
    /// Goes on with a ticket that was attempted for the queue, or begins with a new one.
    pub(crate) fn new(core: Arc<Core>, key: Key, progress: Option<Progress>) -> Self {
        let runtime = core.runtime.clone();
        let line = Line {
            core,
            key,
            done: false,
        };
        Self {
            runtime,
            service: Box::pin(line.run(progress)),
        }
    }

    /// Ready when nobody waits any more.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.service.as_mut().poll(context)
    }

    pub(crate) fn spawn(self) {
        // Detached: it ends when nobody waits.
        drop(self.runtime.spawn(self.service));
    }
}

impl Line {
    async fn run(mut self, mut progress: Option<Progress>) {
        let Some(woken) = self.core.table.wake(&self.key) else {
            return;
        };
        while matches!(self.serve(progress.take(), &woken).await, Served::Next) {
            // Whoever gives the lock back at once does so before the next attempt is written, which
            // then finds it free: nobody has to be told.
            yield_now().await;
        }
        self.done = true;
    }

    /// Gets the lock once for the queue.
    async fn serve(&self, progress: Option<Progress>, woken: &Notify) -> Served {
        let progress = progress.unwrap_or_else(|| self.begin());
        let mut seat = Seat::new(progress.ticket);
        let (mut sent, mut step) = (progress.sent, progress.step);
        loop {
            let answer = match step {
                Step::InFlight(attempt) => attempt.await,
                Step::Answered(answer) => answer,
            };
            let pause = match self.settle(&mut seat, answer, sent) {
                Settled::Served(served) => return served,
                Settled::Pause(pause) => Instant::now() + pause,
            };
            if self.leave_if_idle(&mut seat) {
                return Served::Done;
            }
            self.open_watch(&mut seat).await;
            loop {
                match self.wait(&mut seat, woken, pause).await {
                    Event::Again => break,
                    Event::Woken if self.leave_if_idle(&mut seat) => return Served::Done,
                    Event::Woken => {}
                    Event::Wake(Ok(Wake::Retry)) => {
                        seat.looks = 0;
                        break;
                    }
                    Event::Wake(Ok(Wake::Granted(grant))) => {
                        let since = grant.since.or(seat.acknowledged);
                        match since.and_then(|since| self.deliver(&mut seat, grant, since)) {
                            Some(served) => return served,
                            // The grant is too old to be believed; the attempt will tell.
                            None => break,
                        }
                    }
                    Event::Wake(Ok(Wake::Lost(_))) => {
                        self.core.release_later(seat.ticket.clone());
                        return if self.close_if_idle() {
                            Served::Done
                        } else {
                            Served::Next
                        };
                    }
                    Event::Wake(Err(_)) => seat.watch = None,
                }
            }
            sent = self.core.clock.now();
            step = Step::InFlight(attempt(&self.core, &seat.ticket));
        }
    }

    fn begin(&self) -> Progress {
        let ticket = self.core.ticket(&self.key, true);
        let step = Step::InFlight(attempt(&self.core, &ticket));
        Progress {
            ticket,
            sent: self.core.clock.now(),
            step,
        }
    }

    /// Draws the consequences of an answer that came to an attempt written at `sent`.
    fn settle(
        &self,
        seat: &mut Seat,
        answer: Result<Attempt, BackendError>,
        sent: Moment,
    ) -> Settled {
        let jitter = self.core.jitter();
        match answer {
            Ok(Attempt::Granted(grant)) => {
                seat.answered(sent);
                self.core.table.note_failure(&self.key, None);
                let since = self.core.since(&grant, sent);
                match self.deliver(seat, grant, since) {
                    Some(served) => Settled::Served(served),
                    None => {
                        seat.errors += 1;
                        Settled::Pause(retry_delay(seat.errors, jitter))
                    }
                }
            }
            Ok(held @ Attempt::Held { .. }) => {
                seat.answered(sent);
                seat.errors = 0;
                self.core.table.note_failure(&self.key, None);
                let woken = seat.watch.is_some() || self.core.capabilities.waiting == Waiting::Push;
                let look = Look {
                    looks: seat.looks,
                    woken,
                    jitter,
                };
                seat.looks += 1;
                if self.core.broken.is(Mutant::NoRecheck) {
                    return Settled::Pause(Duration::from_secs(86_400));
                }
                Settled::Pause(pause(&self.core.capabilities, seat.ticket.ttl, &held, look))
            }
            Err(error) => self.failed(seat, error),
        }
    }

    fn failed(&self, seat: &mut Seat, error: BackendError) -> Settled {
        if error.outcome() == Outcome::Rejected {
            self.core
                .table
                .fail(&self.key, &Error::Backend(error), |_| true);
            if seat.known {
                self.core.release_later(seat.ticket.clone());
            }
            return Settled::Served(if self.close_if_idle() {
                Served::Done
            } else {
                Served::Next
            });
        }
        seat.known |= error.outcome() == Outcome::Indeterminate;
        let (now, outage) = (Instant::now(), self.core.outage);
        let since = *seat.failing_since.get_or_insert(now);
        self.core.table.note_failure(&self.key, Some(error.clone()));
        self.core
            .table
            .fail(&self.key, &Error::Backend(error), |waiter| {
                !waiter.bounded && now.saturating_duration_since(since.max(waiter.joined)) >= outage
            });
        let pause = retry_delay(seat.errors, self.core.jitter());
        seat.errors += 1;
        Settled::Pause(pause.min(recheck(&self.core.capabilities, seat.ticket.ttl)))
    }

    /// Gives the lock to the first waiter that is still there. `None` if the window has closed.
    fn deliver(&self, seat: &mut Seat, grant: Grant, since: Moment) -> Option<Served> {
        if !self.core.believes(&grant, since) {
            return None;
        }
        let core = &self.core;
        // Ends when the hold has begun, or the release is outstanding.
        let _attempting = core.reaper.attempting();
        self.fail_if_closing();
        let mut taken = false;
        while let Some(waiter) = core.table.pop(&self.key) {
            if waiter.reply.is_closed() && !core.broken.is(Mutant::CancelledWaiterKeepsTurn) {
                continue;
            }
            core.table.hold_began(&seat.ticket.name);
            let guard = Guard::begin(
                core,
                seat.ticket.clone(),
                grant,
                since,
                waiter.wish,
                seat.watch.take(),
            );
            taken = true;
            // A receiver that has just gone leaves the guard in our hands: dropped, it releases. INV-7.
            if let Err(unsent) = waiter.reply.send(Ok(guard))
                && core.broken.is(Mutant::CancelledWaiterKeepsTurn)
            {
                std::mem::forget(unsent);
            }
            break;
        }
        let leaving = core.table.close_if_idle(&self.key);
        if !taken {
            core.release_later(seat.ticket.clone());
        }
        Some(if leaving.is_ok() {
            Served::Done
        } else {
            Served::Next
        })
    }

    /// Withdraws the ticket and ends the queue if nobody waits or the client closes.
    fn leave_if_idle(&self, seat: &mut Seat) -> bool {
        let core = &self.core;
        self.fail_if_closing();
        let Ok(leaving) = core.table.close_if_idle(&self.key) else {
            return false;
        };
        if seat.known && !core.broken.is(Mutant::CancelLeavesTicket) {
            core.release_later(seat.ticket.clone());
        }
        // Only now, so that `drain` sees the release before it sees the end of this.
        drop(leaving);
        true
    }

    /// Nobody of a client that closes is given anything.
    fn fail_if_closing(&self) {
        if self.core.is_closing() {
            self.core.table.fail(&self.key, &Error::Shutdown, |_| true);
        }
    }

    fn close_if_idle(&self) -> bool {
        self.core.table.close_if_idle(&self.key).is_ok()
    }

    async fn open_watch(&self, seat: &mut Seat) {
        let capabilities = &self.core.capabilities;
        if seat.watch.is_some() || !seat.known {
            return;
        }
        if capabilities.waiting == Waiting::Push || capabilities.tells_loss {
            // Without a watch the waiter polls, and tries to open one again at its next look.
            let opening = timeout(self.core.timeout, self.core.store.watch(&seat.ticket));
            seat.watch = opening.await.ok().and_then(Result::ok);
        }
    }

    async fn wait(&self, seat: &mut Seat, woken: &Notify, until: Instant) -> Event {
        let until = match (&seat.watch, self.core.capabilities.waiting) {
            (None, Waiting::Push) => until.min(Instant::now() + self.core.capabilities.poll.max),
            _ => until,
        };
        let wake = async {
            match &mut seat.watch {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = woken.notified() => Event::Woken,
            wake = wake => Event::Wake(wake),
            () = tokio::time::sleep_until(until) => Event::Again,
        }
    }
}

impl Drop for Line {
    /// A driver whose runtime stopped leaves nobody waiting for ever.
    fn drop(&mut self) {
        if !self.done {
            self.core.table.abandon(&self.key);
        }
    }
}

enum Settled {
    Served(Served),
    Pause(Duration),
}

impl Seat {
    const fn new(ticket: Ticket) -> Self {
        Self {
            ticket,
            acknowledged: None,
            known: false,
            watch: None,
            looks: 0,
            errors: 0,
            failing_since: None,
        }
    }

    fn answered(&mut self, sent: Moment) {
        self.known = true;
        self.acknowledged = Some(sent);
        self.failing_since = None;
    }
}
