//! Waits at the store for one local queue, with one ticket at a time, and serves those in it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use crate::client::attempt::{AttemptFuture, attempt};
use crate::client::guard::Guard;
use crate::client::queue::{Key, Waiter};
use crate::client::shared::Core;
use crate::contract::capability::Waiting;
use crate::contract::error::{BackendError, Error, Outcome};
use crate::contract::{Attempt, Grant, Ticket, Wake, Watch};
use crate::mutants::Mutant;
use crate::time::backoff::{Look, pause, retry_delay};
use crate::time::clock::Moment;
use crate::time::lease::recheck;

/// An attempt that a driver takes over.
pub(crate) struct Progress {
    pub(crate) ticket: Ticket,
    pub(crate) sent: Moment,
    pub(crate) attempt: AttemptFuture,
}

/// The local queue that a driver serves.
struct Line {
    core: Arc<Core>,
    key: Key,
    done: bool,
}

/// How the service with one ticket ended.
enum Served {
    /// Its grant went to a waiter, or was refused: the next waiter needs a new ticket.
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
    /// From when on a pushed grant counts. INV-2. At first the moment at which the first attempt was
    /// written, for a grant that was not read yet may be as old; then that of the last acknowledged
    /// attempt before which all wake-ups had been read.
    since: Option<Moment>,
    /// Whether all wake-ups had been read when the last attempt was written.
    all_read: bool,
    /// Whether the store may know the ticket.
    known: bool,
    watch: Option<Box<dyn Watch>>,
    looks: u32,
    errors: u32,
    failing_since: Option<Instant>,
}

/// Serves one local queue until nobody waits in it, in a task of the client's runtime: goes on with
/// an attempt for the queue, or begins with a new ticket.
pub(crate) fn start(core: &Arc<Core>, key: &Key, progress: Option<Progress>) {
    let line = Line {
        core: Arc::clone(core),
        key: key.clone(),
        done: false,
    };
    // Detached: it ends when nobody waits.
    drop(core.runtime.spawn(line.run(progress)));
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
        let Progress {
            ticket,
            mut sent,
            mut attempt,
        } = progress.unwrap_or_else(|| self.ask(self.core.ticket(&self.key, true)));
        let mut seat = Seat::new(ticket);
        loop {
            let answer = attempt.await;
            let mut pause = match self.settle(&mut seat, answer, sent) {
                Settled::Served(served) => return served,
                Settled::Pause(pause) => Instant::now() + pause,
            };
            if self.leave_if_idle(&seat) {
                return Served::Done;
            }
            self.open_watch(&mut seat).await;
            seat.all_read = false;
            loop {
                match self.wait(&mut seat, woken, pause).await {
                    Event::Again => {
                        seat.all_read = seat.watch.is_some();
                        break;
                    }
                    Event::Woken if self.leave_if_idle(&seat) => return Served::Done,
                    Event::Woken => {}
                    Event::Wake(Ok(Wake::Retry)) => {
                        seat.looks = 0;
                        break;
                    }
                    Event::Wake(Ok(Wake::Granted(grant))) => {
                        let since = grant.since.or(seat.since);
                        match since.and_then(|since| self.deliver(&mut seat, grant, since)) {
                            Some(served) => return served,
                            // The grant is too old to be believed; the attempt will tell.
                            None => break,
                        }
                    }
                    Event::Wake(Ok(Wake::Lost(_))) => {
                        self.core.release_later(seat.ticket.clone());
                        pause = Instant::now() + self.backoff(&mut seat);
                        seat.begin_anew(self.core.ticket(&self.key, true));
                    }
                    Event::Wake(Err(_)) => seat.watch = None,
                }
            }
            Progress { sent, attempt, .. } = self.ask(seat.ticket.clone());
        }
    }

    fn ask(&self, ticket: Ticket) -> Progress {
        Progress {
            sent: self.core.clock.now(),
            attempt: attempt(&self.core, &ticket),
            ticket,
        }
    }

    /// Draws the consequences of an answer that came to an attempt written at `sent`.
    fn settle(
        &self,
        seat: &mut Seat,
        answer: Result<Attempt, BackendError>,
        sent: Moment,
    ) -> Settled {
        seat.since.get_or_insert(sent);
        match answer {
            Ok(Attempt::Granted(grant)) => {
                let since = self.core.since(&grant, sent);
                match self.deliver(seat, grant, since) {
                    Some(served) => Settled::Served(served),
                    None => self.failed(seat, self.core.late_grant()),
                }
            }
            Ok(held @ Attempt::Held { .. }) => {
                seat.answered(sent);
                let now = Instant::now();
                self.fail(|waiter| {
                    waiter.is_late(now).then(|| Error::Timeout {
                        name: self.key.name.clone(),
                        waited: now.saturating_duration_since(waiter.joined),
                    })
                });
                let woken = seat.watch.is_some() || self.core.capabilities.waiting == Waiting::Push;
                let look = Look {
                    looks: seat.looks,
                    woken,
                    jitter: self.core.jitter(),
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
            self.fail(|_| Some(error.clone().into()));
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
        self.fail(|waiter| {
            let out = now.saturating_duration_since(since.max(waiter.joined)) >= outage;
            let gives_up = waiter.is_late(now) || (waiter.deadline.is_none() && out);
            gives_up.then(|| error.clone().into())
        });
        let pause = self.backoff(seat);
        Settled::Pause(pause.min(recheck(&self.core.capabilities, seat.ticket.ttl)))
    }

    /// How long to wait before the next attempt after a failure.
    fn backoff(&self, seat: &mut Seat) -> Duration {
        let pause = retry_delay(seat.errors, self.core.jitter());
        seat.errors += 1;
        pause
    }

    /// Tells waiters why they wait in vain.
    fn fail(&self, error: impl Fn(&Waiter) -> Option<Error>) {
        let table = &self.core.table;
        table.fail(&self.key, error, || self.core.reaper.outstanding());
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
    fn leave_if_idle(&self, seat: &Seat) -> bool {
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
            self.fail(|_| Some(Error::Shutdown));
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
            let limit = self.until(Instant::now() + self.core.timeout);
            let opening = timeout_at(limit, self.core.store.watch(&seat.ticket));
            seat.watch = opening.await.ok().and_then(Result::ok);
        }
    }

    /// A moment, or the first deadline of a waiter if that is earlier: the store is asked once more
    /// then, so that who gives up knows why.
    fn until(&self, moment: Instant) -> Instant {
        let deadline = self.core.table.first_deadline(&self.key);
        deadline.map_or(moment, |deadline| moment.min(deadline))
    }

    async fn wait(&self, seat: &mut Seat, woken: &Notify, until: Instant) -> Event {
        let until = self.until(match (&seat.watch, self.core.capabilities.waiting) {
            (None, Waiting::Push) => until.min(Instant::now() + self.core.capabilities.poll.max),
            _ => until,
        });
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
            since: None,
            all_read: false,
            known: false,
            watch: None,
            looks: 0,
            errors: 0,
            failing_since: None,
        }
    }

    /// The store has said that others hold.
    fn answered(&mut self, sent: Moment) {
        // Not with the first answer, or a store that loses every place would be asked without a pause.
        if self.known {
            self.errors = 0;
        }
        self.known = true;
        if self.all_read {
            self.since = Some(sent);
        }
        self.failing_since = None;
    }

    /// Goes on with another ticket, after the place of this one was lost.
    fn begin_anew(&mut self, ticket: Ticket) {
        self.ticket = ticket;
        self.since = None;
        self.known = false;
        self.watch = None;
        self.looks = 0;
    }
}
