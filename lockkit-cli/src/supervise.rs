//! What `lockkit run` does while the program runs: it passes signals on, watches the hold and moves the terminal.

use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use lockkit::{Error, LossReason, MultiGuard};
use nix::sys::signal::Signal;
use rustix::process::Pid;
use tokio::time::{Instant, sleep_until};

use crate::args::RunArgs;
use crate::child::Child;
use crate::clock::now;
use crate::exit::Code;
use crate::ipc::Message;
use crate::output::say;
use crate::render::{plain, rounded};
use crate::signals::{ENDS, Signals, asked_to_end};

/// How much later than expected the shim may end a program before it is killed itself.
const MARGIN: Duration = Duration::from_secs(6);

/// How soon a program stops after a stop signal that it does not ignore. A later stop is another's.
const STOPPING: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    pub(crate) code: Code,
    /// The hold was lost before the program's end.
    pub(crate) lost: bool,
    /// The program had the terminal, and Ctrl-C ended it.
    pub(crate) interrupted: bool,
    /// A signal asked the command to end, or the program.
    pub(crate) told_to_end: bool,
    /// Until when the lock is kept, even if the program has ended.
    pub(crate) kept: Option<Instant>,
}

struct Supervision<'a> {
    guard: &'a MultiGuard,
    child: Child,
    args: &'a RunArgs,
    /// The lock is lost: when to stop waiting for the shim to end the program.
    give_up: Option<Instant>,
    /// When `lockkit run` got a stop signal and passed it on; it stops once the program has, if that is soon.
    stopping: Option<Instant>,
    told_to_end: bool,
    kept: Option<Instant>,
}

/// Supervises the program until no process of it is left.
pub(crate) async fn supervise(
    guard: &MultiGuard,
    child: Child,
    signals: &mut Signals,
    args: &RunArgs,
) -> Ran {
    let mut lost = pin!(guard.lost());
    let mut next_lease = Instant::now();
    let mut here = Supervision {
        guard,
        child,
        args,
        give_up: None,
        stopping: None,
        told_to_end: false,
        kept: None,
    };
    let end = loop {
        tokio::select! {
            message = here.child.link.receive() => match message {
                Some(Message::Started(pid)) => here.started(pid),
                Some(Message::Overdue) => here.lose(),
                Some(Message::Changed(status)) => match status.stopped_signal() {
                    Some(signal) => here.stopped(signal).await,
                    None => break Some(status),
                },
                _ => break None,
            },
            signal = signals.next() => here.pass_on(signal),
            _ = &mut lost, if here.give_up.is_none() => here.lose(),
            // Not after a loss: the message `Lost` leaves the program time to clean up.
            () = sleep_until(next_lease), if here.give_up.is_none() => next_lease = here.tell_lease(),
            () = sleep_until(here.give_up.unwrap_or_else(Instant::now)), if here.give_up.is_some() => break None,
        }
    };
    here.child.ended = end.is_some();
    let signal = end.and_then(|status| status.signal());
    let interrupted = signal == Some(Signal::SIGINT as i32) && here.child.has_terminal;
    let told_to_end = here.told_to_end || end.is_some_and(asked_to_end);
    let (lost, kept) = (here.give_up.is_some(), here.kept);
    // Kills what the shim has not.
    drop(here);
    if lost && end.is_none() {
        say("the program was killed, because the shim did not end it in time");
    }
    let code = if lost { Code::LOST } else { code(end) };
    Ran {
        code,
        lost,
        interrupted,
        told_to_end,
        kept,
    }
}

/// The exit code for a program that ended in this way; `None` if that is not known.
fn code(end: Option<ExitStatus>) -> Code {
    let Some(end) = end else {
        say("the shim, the parent process of the program, was killed; the program was killed too");
        return Code::of_signal(Signal::SIGKILL as i32);
    };
    match (end.code().map(u8::try_from), end.signal()) {
        (Some(Ok(code)), _) => Code(code),
        (_, signal) => Code::of_signal(signal.unwrap_or(0)),
    }
}

impl Supervision<'_> {
    /// The program has begun, and with it the time of `--at-least`: the lock is not kept for one that never began.
    fn started(&mut self, pid: i32) {
        self.child.group = Pid::from_raw(pid);
        if let Some(least) = self.args.at_least {
            self.guard.keep_for(least);
            self.kept = Some(Instant::now() + least);
        }
    }

    /// The hold is gone, or about to be: the program must end, by itself or not.
    fn lose(&mut self) {
        if self.give_up.is_some() {
            return;
        }
        // First: the reader of standard error may stand still.
        self.child.link.send(Message::Lost);
        let patience = self.patience();
        self.give_up = Some(Instant::now() + patience + MARGIN);
        let guards = self.guard.guards().iter();
        match (
            self.guard.check(),
            guards.min_by_key(|guard| guard.remaining()),
        ) {
            (Err(error), _) => say(format_args!("{error}; terminating the program")),
            (Ok(()), Some(first)) => {
                let (name, left) = (plain(first.name()), first.remaining());
                let why = first.renewal_failure().map_or_else(String::new, |error| {
                    format!("; the last renewal failed: {}", plain(Error::from(error)))
                });
                // A renewal that came when the shim had begun to end the program.
                let what = match left > patience {
                    true => "was renewed too late".to_owned(),
                    false => format!("was not renewed in time and ends in {}{why}", rounded(left)),
                };
                say(match first.next_loss() {
                    LossReason::MaxHold => format!(
                        "the hold of `{name}` reaches its longest time, `max_hold`, in {}; terminating the program",
                        rounded(left)
                    ),
                    _ => format!("the lease of `{name}` {what}; terminating the program"),
                });
            }
            (Ok(()), None) => {}
        }
    }

    /// Tells the shim until when the hold lasts. Returns when to tell it again: the nearer the end, the sooner, so
    /// that it learns of a late renewal before it ends the program.
    fn tell_lease(&self) -> Instant {
        let left = self.guard.remaining();
        if self.guard.check().is_ok() {
            self.child.link.send(Message::Lease(now() + left));
        }
        let rest = left.saturating_sub(self.patience());
        Instant::now() + (rest / 10).clamp(Duration::from_millis(20), Duration::from_secs(1))
    }

    /// How long before the end of the lease the shim begins to end the program, at most.
    fn patience(&self) -> Duration {
        let guards = self.guard.guards().iter();
        let lease = guards.map(|guard| guard.ticket().ttl).min();
        self.args.kill_after.min(lease.unwrap_or_default() / 3)
    }

    fn pass_on(&mut self, signal: Signal) {
        if signal == Signal::SIGCONT {
            return self.resume();
        }
        if signal == Signal::SIGTSTP {
            self.stopping = Some(Instant::now());
        }
        // Many programs take SIGHUP for something else: it counts if it ends them.
        self.told_to_end |= signal != Signal::SIGHUP && ENDS.contains(&(signal as i32));
        self.child.link.send(Message::Signal(signal as i32));
    }

    /// Continues a stopped program, but never without the lock: the lease may have ended.
    fn resume(&mut self) {
        self.stopping = None;
        if self.guard.check().is_ok() {
            self.child
                .link
                .send(Message::Signal(Signal::SIGCONT as i32));
        }
    }

    /// A signal has stopped the program.
    ///
    /// - It wants the terminal and we have it: it gets the terminal and continues.
    /// - The terminal stopped it (Ctrl-Z), or our own stop was passed on: we stop too, so that
    ///   the shell takes over, and continue with it once a signal continues us.
    /// - A signal stopped only the program: the lock is kept.
    async fn stopped(&mut self, signal: i32) {
        let wants_terminal = [Signal::SIGTTIN as i32, Signal::SIGTTOU as i32].contains(&signal);
        if wants_terminal && self.child.give_terminal() {
            return self.resume();
        }
        let passed_on = self.stopping.is_some_and(|at| at.elapsed() < STOPPING);
        if !wants_terminal && !passed_on && !self.child.has_terminal {
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
