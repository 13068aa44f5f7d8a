//! The shim: the program's parent, a process of its own between it and `lockkit run`.
//!
//! It leads the process group in which the program runs, and ends that group when `lockkit run` is
//! gone (end of file on its socket), when the hold is lost, or when the lease ends without any word
//! from `lockkit run`, which may be frozen. The program in turn is killed by the system when the
//! shim dies. So neither `kill -9` nor `kill -STOP` of any one process leaves it running unlocked.
//!
//! The socket is the shim's standard input; the program's own comes over it as a message.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockkit::clock::Moment;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgrp, getpid, kill_process_group, setpgid,
    test_kill_process_group, wait,
};

use crate::clock::now;
use crate::exec::this_program;
use crate::exit::{Code, Failure};
use crate::link::{self, End, Order, Report};
use crate::plan::Plan;
use crate::signals;

/// The hidden first argument that makes this binary a shim.
pub(crate) const ARGUMENT: &str = "__shim";

/// How long the shim waits for a group that was sent `SIGKILL`.
const DEATH: Duration = Duration::from_secs(5);

/// Serves one program from start to end.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let plan = Plan::parse(arguments).ok_or_else(refuse)?;
    let link = UnixStream::from(duplicate_stdin().map_err(|_| refuse())?);
    let system = |error: io::Error| Failure::from_error(Code::System, &error);
    signals::block_all_but_children().map_err(system)?;
    adopt_orphans();
    let (children, wake) = UnixStream::pair().map_err(system)?;
    children.set_nonblocking(true).map_err(system)?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGCHLD, wake).map_err(system)?;
    let Some((until, stdin)) = link::receive_start(&link).map_err(|_| refuse())? else {
        return Ok(());
    };
    match spawn(&plan.command, stdin) {
        Ok(command) => {
            let shim = Shim {
                link,
                children,
                group: getpgrp(),
                command,
                deadline: until,
                stopped: false,
                kill_at: None,
                plan,
            };
            shim.serve();
        }
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(0);
            link::write_report(&link, Report::Ended(End::NotStarted(errno)));
        }
    }
    Ok(())
}

fn refuse() -> Failure {
    Failure::new(Code::Usage, "`lockkit run` starts the shim, nobody else")
}

fn duplicate_stdin() -> io::Result<OwnedFd> {
    io::stdin().as_fd().try_clone_to_owned()
}

/// Becomes the parent of what the program leaves behind, so that its end is seen where nobody else
/// collects it.
fn adopt_orphans() {
    // A kernel without it leaves orphans to the first process, which is just as well.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
}

/// Starts the program by way of this binary, which arms the parent-death signal first.
///
/// That signal is tied to the thread that forks: the shim has but this one.
fn spawn(command: &[OsString], stdin: OwnedFd) -> io::Result<Pid> {
    let child = Command::new(this_program()?)
        .arg0(crate::exec::NAME)
        .arg(crate::exec::ARGUMENT)
        .arg(getpid().to_string())
        .args(command)
        .stdin(Stdio::from(stdin))
        .spawn()?;
    Ok(Pid::from_child(&child))
}

#[derive(Debug)]
struct Shim {
    link: UnixStream,
    children: UnixStream,
    group: Pid,
    command: Pid,
    deadline: Moment,
    stopped: bool,
    kill_at: Option<Moment>,
    plan: Plan,
}

impl Shim {
    fn serve(mut self) {
        let end = loop {
            if let Some(end) = self.reap() {
                break end;
            }
            self.keep_time();
            self.rest(self.until_next());
        };
        if !self.plan.leave || self.kill_at.is_some() {
            self.sweep();
        }
        link::write_report(&self.link, Report::Ended(end));
    }

    /// Waits for an order, a change of a child, or `limit`, and carries the orders out.
    fn rest(&mut self, limit: Option<Duration>) {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut sources = [
            PollFd::new(&self.link, PollFlags::IN),
            PollFd::new(&self.children, PollFlags::IN),
        ];
        if poll(&mut sources, limit.as_ref()).is_err() {
            return;
        }
        let [orders, children] = sources.map(|source| !source.revents().is_empty());
        if children {
            let _ = io::copy(&mut &self.children, &mut io::sink());
        }
        if orders {
            match link::read_order(&self.link) {
                Some(order) => self.obey(order),
                None => self.abandoned(),
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.signal(signal);
                }
            }
            Order::Start(until) | Order::Lease(until) => self.deadline = until,
            Order::Lost => self.begin_end(),
        }
    }

    /// `lockkit run` is gone, and with it the lock: nothing of the group may run any longer. The
    /// signal ends the shim too, unless it has left the group already.
    fn abandoned(&self) -> ! {
        self.signal(Signal::KILL);
        std::process::exit(Code::Software.number().into());
    }

    fn signal(&self, signal: Signal) {
        // It fails if nobody is left in the group, or nobody whom we may signal.
        let _ = kill_process_group(self.group, signal);
    }

    /// Collects children that ended; the program's own end is the answer.
    fn reap(&mut self) -> Option<End> {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        loop {
            match wait(options) {
                Ok(Some((pid, status))) if pid == self.command => {
                    if let Some(end) = self.changed(status) {
                        return Some(end);
                    }
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }

    fn changed(&mut self, status: WaitStatus) -> Option<End> {
        if let Some(signal) = status.stopping_signal() {
            self.stopped = true;
            link::write_report(&self.link, Report::Stopped(signal));
        } else if status.continued() {
            self.stopped = false;
        }
        let exited = status
            .exit_status()
            .and_then(|code| u8::try_from(code).ok());
        let killed = status.terminating_signal();
        exited.map(End::Exited).or(killed.map(End::Killed))
    }

    /// Ends the group when the lease is over and `lockkit run` has not said a word: it would have,
    /// unless something froze it. A stopped program does no harm and may wait.
    fn keep_time(&mut self) {
        let moment = now();
        if self.kill_at.is_none() && !self.stopped && self.deadline <= moment {
            link::write_report(&self.link, Report::Overdue);
            self.begin_end();
        }
        if self.kill_at.is_some_and(|at| at <= moment) {
            self.leave_group();
            self.signal(Signal::KILL);
            self.kill_at = Some(moment + DEATH);
        }
    }

    /// How long nothing needs a look at the clock. At most a second, for timers do not see a
    /// suspended machine.
    fn until_next(&self) -> Option<Duration> {
        let next = match self.kill_at {
            Some(at) => at,
            None if self.stopped => return None,
            None => self.deadline,
        };
        let limit = next.since(now()) + Duration::from_millis(1);
        Some(limit.min(Duration::from_secs(1)))
    }

    /// Asks the group to end, and the stopped ones among it too.
    fn begin_end(&mut self) {
        if self.kill_at.is_none() {
            self.signal(Signal::TERM);
            self.signal(Signal::CONT);
            self.kill_at = Some(now() + self.plan.kill_after);
        }
    }

    /// Moves to the group of `lockkit run`. The number of the group stays taken, for it is that of
    /// this process, so that no stranger is ever signalled.
    fn leave_group(&self) {
        // It fails if that group is gone: then so is `lockkit run`, and we may go with the rest.
        let _ = setpgid(None, Some(self.plan.home));
    }

    /// Ends what the program left running in its group, and returns when nobody is left.
    fn sweep(&mut self) {
        self.leave_group();
        let mut killed = false;
        while test_kill_process_group(self.group) != Err(Errno::SRCH) {
            self.begin_end();
            let moment = now();
            if self.kill_at.is_some_and(|at| at <= moment) {
                if killed {
                    return;
                }
                killed = true;
                self.signal(Signal::KILL);
                self.kill_at = Some(moment + DEATH);
            }
            self.rest(Some(Duration::from_millis(10)));
            self.reap();
        }
    }
}
