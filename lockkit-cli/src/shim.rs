//! The shim: the program's parent, a process between it and `lockkit run`.
//!
//! The program leads a process group, and the shim has another one. The shim ends the program and all its
//! descendants when `lockkit run` has ended (end of file on its socket), or when the hold is lost. It does so, too,
//! when the lease is about to end without a message from `lockkit run`, which may be frozen. The system kills the
//! program when the shim ends. So neither `kill -9` nor `kill -STOP` of a single process leaves the program
//! running without the lock.
//!
//! The socket is the shim's standard input; the program's own comes over it as a message.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use lockkit::clock::Moment;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, wait};
use tokio::runtime::Builder;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::sleep;

use crate::clock::now;
use crate::exec::{self, this_program};
use crate::exit::{Code, Failure};
use crate::family::{self, DEATH, TELLS_DESCENDANTS, adopt_orphans, has_members};
use crate::ipc::{self, Link, Message};
use crate::output::say;
use crate::plan::Plan;
use crate::signals::{self, ENDS};

/// The hidden first argument that makes this binary a shim.
pub(crate) const ARGUMENT: &str = "__shim";

/// The shortest pause between two polls for ended processes.
const POLL: Duration = Duration::from_millis(10);

/// The longest pause, because timers do not run while the machine is suspended.
const LONGEST: Duration = Duration::from_secs(1);

/// Serves one program from start to end.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let plan = Plan::take(&mut arguments).ok_or_else(Failure::internal)?;
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    let socket = UnixStream::from(stdin.map_err(|_| Failure::internal())?);
    signals::block_all_but_children()?;
    adopt_orphans();
    let files = ipc::receive_files(&socket).map_err(|_| Failure::internal())?;
    let mut files = files.into_iter();
    let Some(stdin) = files.next() else {
        return Ok(());
    };
    // Locks that are files are held for as long as these are open. Even after `kill -9` of `lockkit run`, no
    // other client gets them while the program runs.
    let _locks: Vec<_> = files.collect();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let link = Link::new(socket)?;
        // Before the program starts, so that no end of a child is missed.
        let children = unix::signal(SignalKind::child())?;
        match spawn(plan.foreground, stdin, arguments) {
            Ok(command) => {
                link.send(Message::Started(command.as_raw_nonzero().get()));
                let shim = Shim {
                    link,
                    children,
                    longest: plan.deadline.since(now()),
                    plan,
                    command,
                    end: None,
                    stopped: false,
                    all_stopped: false,
                    ending: false,
                    kill_at: None,
                    abandoned: false,
                };
                shim.serve().await;
            }
            Err(error) => {
                say(format_args!("cannot start a process: {error}"));
                let code = i32::from(Code::SYSTEM.0);
                link.send(Message::Changed(ExitStatus::from_raw(code << 8)));
            }
        }
        Ok(())
    })
}

/// Starts the program through this binary, which first sets the parent-death signal.
///
/// That signal depends on the thread that forks: the shim has only this one.
fn spawn(
    foreground: bool,
    stdin: OwnedFd,
    command: impl Iterator<Item = OsString>,
) -> io::Result<Pid> {
    let child = Command::new(this_program()?)
        .arg0(exec::NAME)
        .arg(exec::ARGUMENT)
        .arg(getpid().to_string())
        .arg(foreground.to_string())
        .args(command)
        .stdin(Stdio::from(stdin))
        .process_group(0)
        .spawn()?;
    Ok(Pid::from_child(&child))
}

#[derive(Debug)]
struct Shim {
    link: Link,
    children: unix::Signal,
    plan: Plan,
    /// The longest lease that the hold has had. A grant that was pushed to a waiter begins with a short one.
    longest: Duration,
    /// The program, which leads the process group of this number.
    command: Pid,
    end: Option<ExitStatus>,
    stopped: bool,
    /// While it was stopped, its lease was about to end: its other processes were stopped as well.
    all_stopped: bool,
    /// All descendants of the program have to end, and not only its group.
    ending: bool,
    /// When the processes that have to end are killed.
    kill_at: Option<Moment>,
    /// `lockkit run` has ended.
    abandoned: bool,
}

impl Shim {
    /// Returns when the program has ended, and what it left running.
    async fn serve(mut self) {
        loop {
            let has_children = self.reap();
            if let Some(end) = self.end
                && !self.is_left(end, has_children)
            {
                self.continue_all();
                return self.link.send(Message::Changed(end));
            }
            self.keep_time();
            self.rest().await;
        }
    }

    /// Collects children that ended, and says whether others are left.
    fn reap(&mut self) -> bool {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        loop {
            match wait(options) {
                Ok(Some((pid, status))) if pid == self.command => self.changed(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn changed(&mut self, status: WaitStatus) {
        self.stopped = status.stopped();
        let change = ExitStatus::from_raw(status.as_raw());
        if self.stopped {
            self.link.send(Message::Changed(change));
        } else if !status.continued() {
            self.end = Some(change);
        }
    }

    /// Whether a process is left that has to end, after the program has: one of its group, or, while `ending`,
    /// any descendant. This process is the parent of every orphan: without a child it has no descendant. The
    /// number of the group is not reused while it has members.
    fn is_left(&mut self, end: ExitStatus, has_children: bool) -> bool {
        if self.plan.leave && self.kill_at.is_none() {
            return false;
        }
        let gives_up = self.kill_at.is_some_and(|at| at + DEATH <= now()) && !self.abandoned;
        self.ending |= end.signal().is_some() || signals::asked_to_end(end);
        if self.ending && TELLS_DESCENDANTS {
            has_children && !gives_up
        } else {
            has_members(self.command) && !gives_up
        }
    }

    /// Ends what the program has left running, and all of it when its lease is about to end: `lockkit run`
    /// could not renew it, or is frozen. A stopped program does no harm and may wait, but a stop reaches only
    /// its group: what has left that is stopped then, until the program continues.
    fn keep_time(&mut self) {
        let moment = now();
        let deadline = self.plan.deadline;
        if self.end.is_some() {
            self.end_by(moment + self.plan.kill_after);
        }
        let outlives = self.kill_at.is_none_or(|at| at > deadline.max(moment));
        let overdue = outlives && deadline <= moment + self.notice();
        if overdue && self.stopped {
            if !self.all_stopped {
                self.send(Signal::STOP, true);
            }
            self.all_stopped = true;
            // Again, because one may have begun meanwhile.
            self.send(Signal::STOP, true);
        } else if overdue {
            self.link.send(Message::Overdue);
            self.lose();
        } else if !self.stopped {
            self.continue_all();
        }
        if self.kill_at.is_some_and(|at| at <= moment) {
            self.signal(Signal::KILL);
        }
    }

    /// Continues what was stopped with the program.
    fn continue_all(&mut self) {
        if std::mem::take(&mut self.all_stopped) {
            self.send(Signal::CONT, true);
        }
    }

    /// Waits for a message, a change of a child, or the moment at which the clock must be read again, and does
    /// what the message says.
    async fn rest(&mut self) {
        let pause = self.pause();
        tokio::select! {
            message = self.link.receive(), if !self.abandoned => self.obey(message),
            _ = self.children.recv() => {}
            () = sleep(pause) => {}
        }
    }

    fn pause(&self) -> Duration {
        let moment = now();
        let pause = match self.kill_at {
            // Processes that do not end are killed again, but ever more seldom.
            Some(at) if at <= moment => moment.since(at).max(POLL),
            // The system does not tell of the end of other processes than children.
            _ if self.end.is_some() => POLL,
            Some(at) => at.since(moment),
            None if self.all_stopped => LONGEST,
            None => self
                .plan
                .deadline
                .since(moment)
                .saturating_sub(self.notice()),
        };
        pause.min(LONGEST)
    }

    fn obey(&mut self, message: Option<Message>) {
        match message {
            Some(Message::Lease(until)) => {
                self.plan.deadline = until;
                self.longest = self.longest.max(until.since(now()));
            }
            Some(Message::Signal(number)) => self.pass_on(number),
            Some(Message::Lost) => self.lose(),
            // `lockkit run` has ended, and with it the hold: no process of the program may continue.
            _ => {
                self.abandoned = true;
                self.ending = true;
                self.kill_at = Some(now());
            }
        }
    }

    /// A signal that asks programs to end goes to all of them, any other one to the group.
    fn pass_on(&mut self, number: i32) {
        if let Some(signal) = Signal::from_named_raw(number) {
            let ends = ENDS.contains(&number);
            self.ending |= ends;
            self.send(signal, ends);
        }
    }

    /// The hold is lost, or about to be. `SIGKILL` comes before the end of its lease, unless it has ended
    /// already.
    fn lose(&mut self) {
        self.ending = true;
        let moment = now();
        let end = (moment + self.notice()).min(self.plan.deadline);
        if end <= moment {
            // A stopped program must not continue before it is killed.
            self.kill_at = Some(moment);
            return self.signal(Signal::KILL);
        }
        self.end_by(end);
    }

    /// From `SIGTERM` to `SIGKILL` when the lock is lost. The end of the program begins this long before the end of the
    /// lease, of which it is so small a part that a renewal in time comes first.
    fn notice(&self) -> Duration {
        self.plan.kill_after.min(self.longest / 3)
    }

    /// Sends SIGTERM to the processes that have to end, and continues the stopped ones. They are killed then,
    /// unless an earlier moment is set.
    fn end_by(&mut self, kill_at: Moment) {
        if self.kill_at.is_none() {
            self.signal(Signal::TERM);
            self.signal(Signal::CONT);
        }
        self.kill_at = Some(self.kill_at.map_or(kill_at, |at| at.min(kill_at)));
    }

    fn signal(&self, signal: Signal) {
        self.send(signal, self.ending);
    }

    fn send(&self, signal: Signal, all: bool) {
        match all {
            true => family::send_to_all(signal, self.command, self.end.is_some()),
            false => family::send(signal, self.command),
        }
    }
}
