//! A client that takes a lock repeatedly and records what it sees.

use std::time::Duration;

use lockkit_core::{Error, Guard, Lock, Result};
use tokio::time::Instant;

use crate::history::{Event, Op, Phase, Recorder, now};
use crate::task::spawn;

/// A client of one lock whose acts become a history.
#[derive(Clone, Debug)]
pub struct Worker {
    pub(super) lock: Lock,
    pub(super) recorder: Recorder,
}

impl Worker {
    /// Works on `lock` and tells `recorder`.
    #[must_use]
    pub const fn new(lock: Lock, recorder: Recorder) -> Self {
        Self { lock, recorder }
    }

    /// Takes the lock, looks at it twice and gives it back, until `span` is over; returns how often
    /// it had the lock.
    pub async fn work(&self, span: Duration) -> u64 {
        let end = Instant::now() + span;
        let mut turns = 0;
        while Instant::now() < end {
            let hold = self.recorder.next_hold();
            if let Some(guard) = self.acquire(hold).await {
                turns += 1;
                // Ends with the turn: a released guard reports no loss.
                let _watch = spawn(self.watch(hold, &guard));
                self.check(hold, &guard);
                tokio::task::yield_now().await;
                self.check(hold, &guard);
                self.release(hold, guard).await;
            }
            if fastrand::u8(..) < 64 {
                // Now and then it comes back late, so that others meet in other orders.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        turns
    }

    /// Takes the lock; `None` if it failed.
    pub async fn acquire(&self, hold: u64) -> Option<Guard> {
        self.note(hold, Op::Acquire, Phase::Invoke);
        match self.lock.acquire().await {
            Ok(guard) => {
                self.granted(hold, &guard);
                Some(guard)
            }
            Err(error) => {
                self.refused(hold, &error);
                None
            }
        }
    }

    pub(super) fn granted(&self, hold: u64, guard: &Guard) {
        let event = self.event(now(), hold, Op::Acquire, Phase::Ok);
        self.recorder.push(event.with_token(guard.token().get()));
    }

    pub(super) fn refused(&self, hold: u64, error: &Error) {
        let event = self.event(now(), hold, Op::Acquire, Phase::Fail);
        self.recorder.push(event.with_note(error.to_string()));
        self.lost(hold, error);
    }

    /// Writes down that the hold is gone, if the error says so.
    pub(super) fn lost(&self, hold: u64, error: &Error) {
        if matches!(error, Error::Lost { .. }) {
            let event = self.event(now(), hold, Op::Lost, Phase::Info);
            self.recorder.push(event.with_note(error.to_string()));
        }
    }

    /// Looks at the guard. The line carries the moment before the look, and the mode of the hold, which is not
    /// that of the lock if a writer has become a reader.
    pub fn check(&self, hold: u64, guard: &Guard) {
        let at = now();
        let phase = match guard.check() {
            Ok(()) => Phase::Ok,
            Err(_) => Phase::Fail,
        };
        let event = self.event(at, hold, Op::Check, phase);
        let event = event.with_mode(guard.ticket().mode);
        self.recorder.push(event.with_token(guard.token().get()));
    }

    /// Gives the lock back.
    pub async fn release(&self, hold: u64, guard: Guard) {
        self.note(hold, Op::Release, Phase::Invoke);
        self.released(hold, &guard.release().await);
    }

    pub(super) fn released(&self, hold: u64, result: &Result<()>) {
        match result {
            Ok(()) => self.note(hold, Op::Release, Phase::Ok),
            Err(error) => {
                let event = self.event(now(), hold, Op::Release, Phase::Fail);
                self.recorder.push(event.with_note(error.to_string()));
            }
        }
    }

    /// Waits for the loss of a hold and writes it down.
    pub fn watch(&self, hold: u64, guard: &Guard) -> impl Future<Output = ()> + Send + 'static {
        let (this, lost) = (self.clone(), guard.lost());
        async move {
            let reason = lost.await;
            let event = this.event(now(), hold, Op::Lost, Phase::Info);
            this.recorder.push(event.with_note(reason.to_string()));
        }
    }

    pub(super) fn note(&self, hold: u64, op: Op, phase: Phase) {
        self.recorder.push(self.event(now(), hold, op, phase));
    }

    pub(super) fn event(&self, at: u64, hold: u64, op: Op, phase: Phase) -> Event {
        Event::new(at, hold, self.lock.name().as_str(), op, phase).with_mode(self.lock.mode())
    }
}
