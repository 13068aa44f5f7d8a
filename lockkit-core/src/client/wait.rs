//! What serves one local queue: it waits at the store, with one ticket at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use crate::client::attempt::Attempting;
use crate::client::guard::Guard;
use crate::client::queue::{Key, Waiter};
use crate::client::reaper::release_later;
use crate::client::shared::{Held, Shared};
use crate::contract::{Attempt, BackendError, Error, Grant, Outcome, Ticket, Waiting, Wake, Watch};
use crate::time::backoff::{Backoff, jitter, pause};
use crate::time::clock::Moment;
use crate::time::lease::recheck;

/// A local queue and its ticket at the store.
struct Queued {
    shared: Arc<Shared>,
    key: Key,
    /// Notified when the queue has changed.
    changed: Arc<Notify>,
    turn: Turn,
    /// Whether all wake-ups had been read when the last attempt was written.
    all_read: bool,
    /// Between attempts that fail.
    pauses: Backoff,
    failing_since: Option<Instant>,
    done: bool,
}

/// A ticket, until it is granted, refused or withdrawn.
struct Turn {
    ticket: Ticket,
    /// From when on a pushed grant counts. INV-2. At first the moment at which the first attempt was
    /// written, for a grant that was not read yet may be as old; then that of the last acknowledged
    /// attempt before which all wake-ups had been read.
    since: Option<Moment>,
    /// Whether the store may know the ticket.
    known: bool,
    watch: Option<Box<dyn Watch>>,
    polls: u32,
}

impl Turn {
    const fn new(ticket: Ticket) -> Self {
        Self {
            ticket,
            since: None,
            known: false,
            watch: None,
            polls: 0,
        }
    }
}

/// What follows for the queue.
enum Step {
    /// The answer to this attempt.
    Answer(Attempting),
    /// Attempt again after this time.
    Pause(Duration),
    /// The ticket went to a waiter, or was refused: the next waiter needs a new one.
    Next,
    /// The queue has no waiter left.
    Done,
}

/// What ended a pause.
enum Event {
    Elapsed,
    Changed,
    Wake(Result<Wake, BackendError>),
}

/// Serves a local queue until no caller waits in it. Returns after the first attempt, which the caller sends itself on the
/// client's runtime, so that a free lock costs no task: a task does the rest. A caller on another runtime may end or
/// stand still at any moment.
pub(crate) async fn serve(shared: &Arc<Shared>, key: &Key) {
    let Some(changed) = shared.queues.wake(key) else {
        return;
    };
    let queued = Queued {
        shared: Arc::clone(shared),
        key: key.clone(),
        changed,
        turn: Turn::new(shared.ticket(key, true)),
        all_read: false,
        pauses: Backoff::default(),
        failing_since: None,
        done: false,
    };
    let attempt = queued.attempt();
    let mut first = First(Some((queued, attempt)));
    if shared.context.runtime.is_current()
        && let Some((_, attempt)) = &mut first.0
    {
        let answer = (&mut attempt.answer).await;
        if let Some((mut queued, attempt)) = first.0.take() {
            match queued.answered(answer, attempt.sent) {
                Step::Done => queued.done = true,
                step => queued.spawn(step),
            }
        }
    }
}

/// The first attempt for a queue. Dropped, it leaves the rest to a task: the ticket belongs to the queue and not to its
/// first caller.
struct First(Option<(Queued, Attempting)>);

impl Drop for First {
    fn drop(&mut self) {
        if let Some((queued, attempt)) = self.0.take() {
            queued.spawn(Step::Answer(attempt));
        }
    }
}

impl Queued {
    /// Goes on in a task of the client's runtime.
    fn spawn(self, step: Step) {
        let shared = Arc::clone(&self.shared);
        // Detached: it ends when no caller waits.
        drop(shared.context.runtime.spawn(self.run(step)));
    }

    async fn run(mut self, mut step: Step) {
        loop {
            step = match step {
                Step::Answer(attempt) => self.answered(attempt.answer.await, attempt.sent),
                Step::Pause(pause) => self.wait_for_turn(Instant::now() + pause).await,
                Step::Next => {
                    // At once: the former ticket belongs to a hold, or to the reaper.
                    self.begin_anew();
                    // If the new holder releases at once, the next attempt finds the lock free and needs no
                    // wake-up.
                    yield_now().await;
                    self.pauses.reset();
                    self.failing_since = None;
                    Step::Answer(self.attempt())
                }
                Step::Done => break,
            };
        }
        self.done = true;
    }

    /// Waits until it is time for another attempt, at the latest at `until`, or the lock is granted.
    async fn wait_for_turn(&mut self, mut until: Instant) -> Step {
        self.open_watch().await;
        self.all_read = false;
        loop {
            match self.wait(until).await {
                Event::Elapsed => {
                    self.all_read = self.turn.watch.is_some();
                    break;
                }
                Event::Changed if self.leave_if_idle() => return Step::Done,
                Event::Changed => {}
                Event::Wake(Ok(Wake::Retry)) => {
                    self.turn.polls = 0;
                    break;
                }
                Event::Wake(Ok(Wake::Granted(grant))) => {
                    match self.turn.since.and_then(|since| self.deliver(grant, since)) {
                        Some(step) => return step,
                        // The grant is too old to be believed; the attempt will tell.
                        None => break,
                    }
                }
                Event::Wake(Ok(Wake::Lost(_))) => {
                    self.release_later();
                    until = Instant::now() + self.pauses.pause();
                    self.begin_anew();
                }
                Event::Wake(Err(_)) => self.turn.watch = None,
            }
        }
        Step::Answer(self.attempt())
    }

    fn attempt(&self) -> Attempting {
        Attempting::new(&self.shared.context, self.turn.ticket.clone(), None)
    }

    /// Goes on with another ticket.
    fn begin_anew(&mut self) {
        self.turn = Turn::new(self.shared.ticket(&self.key, true));
    }

    /// Draws the consequences of an answer that came to an attempt written at `sent`.
    fn answered(&mut self, answer: Result<Attempt, BackendError>, sent: Moment) -> Step {
        self.turn.since.get_or_insert(sent);
        let held = match answer {
            Ok(Attempt::Granted(grant)) => {
                let step = self.deliver(grant, sent);
                return step.unwrap_or_else(|| self.failed(self.shared.context.late_grant()));
            }
            Err(error) => return self.failed(error),
            Ok(held) => held,
        };
        // Not with the first answer, or a store that loses every place would be asked without a pause.
        if self.turn.known {
            self.pauses.reset();
        }
        self.turn.known = true;
        if self.all_read {
            self.turn.since = Some(sent);
        }
        self.failing_since = None;
        let now = Instant::now();
        self.fail(|waiter| {
            waiter.is_late(now).then(|| Error::Timeout {
                name: self.shared.context.shown(&self.key.name),
                waited: now.saturating_duration_since(waiter.joined),
                state: None,
            })
        });
        let context = &self.shared.context;
        let polls = self.turn.polls;
        self.turn.polls += 1;
        let (rules, ttl) = (&context.capabilities, self.turn.ticket.ttl);
        self.attempt_after(pause(rules, ttl, &held, polls, jitter()))
    }

    /// Attempts again after this time, if a caller waits still.
    fn attempt_after(&self, pause: Duration) -> Step {
        match self.leave_if_idle() {
            true => Step::Done,
            false => Step::Pause(pause),
        }
    }

    fn failed(&mut self, error: BackendError) -> Step {
        if error.outcome() == Outcome::Rejected {
            self.fail(|_| Some(error.clone().into()));
            if self.turn.known {
                self.release_later();
            }
            return self.next_or_done();
        }
        self.turn.known |= error.outcome() == Outcome::Indeterminate;
        let (now, outage) = (Instant::now(), self.shared.context.outage);
        let since = *self.failing_since.get_or_insert(now);
        self.fail(|waiter| {
            let out = now.saturating_duration_since(since.max(waiter.joined)) >= outage;
            let gives_up = waiter.is_late(now) || (waiter.deadline.is_none() && out);
            gives_up.then(|| error.clone().into())
        });
        let capabilities = self.shared.context.capabilities;
        let pause = self.pauses.pause();
        self.attempt_after(pause.min(recheck(&capabilities, self.turn.ticket.ttl)))
    }

    fn fail(&self, error: impl Fn(&Waiter) -> Option<Error>) {
        self.shared.queues.fail(&self.key, error);
    }

    fn release_later(&self) {
        release_later(&self.shared.context, self.turn.ticket.clone());
    }

    /// Gives the lock to the first waiter that is still there. `None` if the window of the grant, which
    /// answered a request written at `sent`, has closed.
    fn deliver(&mut self, grant: Grant, sent: Moment) -> Option<Step> {
        let shared = &self.shared;
        let context = &shared.context;
        let since = context.since(&grant, sent)?;
        // Ends when the hold has begun, or its release is pending. A waiter that leaves at this moment has left its
        // hold to us, which `drain` waits for.
        let _unfinished = (context.attempts.begin(), context.pending.begin());
        self.fail_if_closing();
        let mut taken = false;
        while !taken && let Some(waiter) = shared.queues.pop(&self.key) {
            let Waiter { reply, options, .. } = waiter;
            if reply.is_closed() {
                continue;
            }
            let (ticket, watch) = (self.turn.ticket.clone(), self.turn.watch.take());
            let held = Held::begin(shared, ticket, grant, since, options, watch);
            taken = true;
            // A receiver that has just gone leaves the hold to us. A guard of it, dropped, releases. INV-7.
            if reply.send(Ok(Arc::clone(&held.hold))).is_err() {
                drop(Guard::new(held));
            }
        }
        if !taken {
            self.release_later();
        }
        Some(self.next_or_done())
    }

    /// What follows once the ticket is served or refused. Comes after its release, so that `drain` sees
    /// that before it sees the end of the queue.
    fn next_or_done(&self) -> Step {
        match self.shared.queues.close_if_idle(&self.key) {
            Ok(_) => Step::Done,
            Err(_) => Step::Next,
        }
    }

    /// Withdraws the ticket and ends the queue if no caller waits or the client closes.
    fn leave_if_idle(&self) -> bool {
        self.fail_if_closing();
        let Ok(leaving) = self.shared.queues.close_if_idle(&self.key) else {
            return false;
        };
        if self.turn.known {
            self.release_later();
        }
        // Only now, so that `drain` sees the release before it sees the end of this.
        drop(leaving);
        true
    }

    /// A client that closes grants nothing.
    fn fail_if_closing(&self) {
        if self.shared.is_closing() {
            self.fail(|_| Some(Error::Shutdown));
        }
    }

    async fn open_watch(&mut self) {
        let context = &self.shared.context;
        let capabilities = &context.capabilities;
        let pushes = capabilities.waiting == Waiting::Push || capabilities.tells_loss;
        if self.turn.watch.is_none() && self.turn.known && pushes {
            // Without a watch the waiter polls, and tries to open one again at its next attempt.
            let limit = self.until(Instant::now() + context.timeout);
            let opening = timeout_at(limit, context.store.watch(&self.turn.ticket));
            self.turn.watch = opening.await.ok().and_then(Result::ok);
        }
    }

    /// A moment, or the first deadline of a waiter if that is earlier: the store is asked once more
    /// then, so that a waiter that gives up knows why.
    fn until(&self, moment: Instant) -> Instant {
        let deadline = self.shared.queues.first_deadline(&self.key);
        deadline.map_or(moment, |deadline| moment.min(deadline))
    }

    async fn wait(&mut self, until: Instant) -> Event {
        let capabilities = &self.shared.context.capabilities;
        let until = self.until(match (&self.turn.watch, capabilities.waiting) {
            (None, Waiting::Push) => until.min(Instant::now() + capabilities.poll.max),
            _ => until,
        });
        let wake = async {
            match &mut self.turn.watch {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.changed.notified() => Event::Changed,
            wake = wake => Event::Wake(wake),
            () = tokio::time::sleep_until(until) => Event::Elapsed,
        }
    }
}

impl Drop for Queued {
    /// When the runtime stops, the store forgets the ticket, also one whose attempt has no answer yet, and no caller is
    /// left waiting for ever.
    fn drop(&mut self) {
        if !self.done {
            // First, as `drain` sees the release before the end of the queue.
            self.release_later();
            self.shared.queues.abandon(&self.key);
        }
    }
}
