//! What `lockkit run` does while the program runs: it passes signals on, watches the hold and moves the terminal.

use std::pin::pin;
use std::time::Duration;

use lockkit::Guard;
use nix::sys::signal::Signal;
use rustix::process::Signal as Raw;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::child::Child;
use crate::clock::now;
use crate::ipc::{End, Order, Report};
use crate::output::say;
use crate::render::{plain, rounded};
use crate::signals::Signals;

/// How much later than expected the shim may end a program before it is killed itself.
const MARGIN: Duration = Duration::from_secs(6);

/// How a program ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    /// How it ended; `None` if that is not known because the shim was killed.
    pub(crate) end: Option<End>,
    /// The hold was lost before the program's end.
    pub(crate) lost: bool,
    /// The program had the terminal, and Ctrl-C ended it.
    pub(crate) interrupted: bool,
}

struct Supervision<'a> {
    guard: &'a Guard,
    child: Child,
    kill_after: Duration,
    /// When to stop waiting for the shim to end a program whose lock is lost.
    give_up: Option<Instant>,
    /// `lockkit run` got a stop signal and passed it on; it stops once the program has.
    stopping: bool,
}

/// Supervises the program until no process of it is left.
pub(crate) async fn supervise(
    guard: &Guard,
    child: Child,
    signals: &mut Signals,
    kill_after: Duration,
) -> Ran {
    let mut lost = pin!(guard.lost());
    let mut lease =
        interval((guard.remaining() / 10).clamp(Duration::from_millis(20), Duration::from_secs(1)));
    lease.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut here = Supervision {
        guard,
        child,
        kill_after,
        give_up: None,
        stopping: false,
    };
    let end = loop {
        tokio::select! {
            report = here.child.report() => match report {
                Some(Report::Started(pid)) => here.child.started(pid),
                Some(Report::Stopped(signal)) => here.stopped(signal).await,
                Some(Report::Overdue) => here.lose(),
                Some(Report::Ended(end)) => break Some(end),
                None => break None,
            },
            signal = signals.next() => here.pass_on(signal),
            _ = &mut lost, if here.give_up.is_none() => here.lose(),
            // Not after a loss: the order `Lost` leaves the program time to clean up.
            _ = lease.tick() => if guard.check().is_ok() {
                let until = now() + guard.remaining();
                here.child.order(Order::Lease(until));
            },
            () = expired(here.give_up) => {
                say("the program did not end in time, and the shim did not kill it; killing it now");
                break None;
            }
        }
    };
    let interrupted = end == Some(End::Killed(Signal::SIGINT as i32)) && here.child.has_terminal();
    Ran {
        end,
        lost: here.give_up.is_some(),
        interrupted,
    }
}

async fn expired(limit: Option<Instant>) {
    match limit {
        Some(limit) => sleep_until(limit).await,
        None => std::future::pending().await,
    }
}

impl Supervision<'_> {
    /// The hold is gone, or about to be: the program must end, by itself or not.
    fn lose(&mut self) {
        if self.give_up.is_some() {
            return;
        }
        let name = self.guard.name();
        match self.guard.check() {
            Err(error) => say(format_args!("{error}; terminating the program")),
            Ok(()) => say(format_args!(
                "the lease of `{}` was not renewed in time and ends in {}; terminating the program",
                plain(name),
                rounded(self.guard.remaining())
            )),
        }
        self.child.order(Order::Lost);
        self.give_up = Some(Instant::now() + self.kill_after + MARGIN);
    }

    fn pass_on(&mut self, signal: Signal) {
        match signal {
            Signal::SIGCONT => return self.resume(),
            Signal::SIGTSTP => self.stopping = true,
            _ => {}
        }
        if let Some(signal) = Raw::from_named_raw(signal as i32) {
            self.child.signal(signal);
        }
    }

    /// Continues a stopped program, but never without the lock: the lease may have ended.
    fn resume(&mut self) {
        self.stopping = false;
        if self.guard.check().is_ok() {
            self.child.signal(Raw::CONT);
        }
    }

    /// A signal has stopped the program.
    ///
    /// - It wants the terminal and we have it: it gets the terminal and continues.
    /// - The terminal stopped it (Ctrl-Z), or our own stop was passed on: we stop too, so that
    ///   the shell takes over, and continue with it once a signal continues us.
    /// - A signal stopped only the program: the lock is kept.
    async fn stopped(&mut self, signal: i32) {
        let wants_terminal = signal == Raw::TTIN.as_raw() || signal == Raw::TTOU.as_raw();
        if wants_terminal && self.child.give_terminal() {
            return self.resume();
        }
        if !wants_terminal && !self.stopping && !self.child.has_terminal() {
            return;
        }
        let had = self.child.suspend(wants_terminal);
        let has = had && self.child.give_terminal();
        if wants_terminal && !has && !self.child.give_terminal() {
            // Where no shell can stop us, this keeps a reader of a lost terminal from spinning.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.resume();
    }
}
