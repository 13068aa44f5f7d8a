//! The shim: the program's parent, a process between it and `lockkit run`.
//!
//! The program leads a process group, and the shim has another one. The shim ends the program and all its
//! descendants when `lockkit run` has ended (end of file on its socket), when the hold is lost, or when the
//! lease is about to end without a message from `lockkit run`, which may be frozen. The system kills the
//! program when the shim ends. So neither `kill -9` nor `kill -STOP` of a single process leaves the program
//! running without the lock.
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
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, wait};

use crate::clock::now;
use crate::exec::{self, this_program};
use crate::exit::{Code, Failure};
use crate::family::{
    DEATH, TELLS_DESCENDANTS, adopt_orphans, has_members, signal_all, signal_group,
};
use crate::ipc::{self, End, Order, Report, Start};
use crate::plan::Plan;
use crate::signals;

/// The hidden first argument that makes this binary a shim.
pub(crate) const ARGUMENT: &str = "__shim";

/// The pause between two polls for ended processes.
const POLL: Duration = Duration::from_millis(10);

/// The signals that ask a program to end.
const ENDS: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP];

/// Serves one program from start to end.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let plan = Plan::parse(arguments).ok_or_else(Failure::internal)?;
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    let socket = UnixStream::from(stdin.map_err(|_| Failure::internal())?);
    signals::block_all_but_children()?;
    adopt_orphans();
    let (children, wake) = UnixStream::pair()?;
    children.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGCHLD, wake)?;
    let Some(start) = ipc::receive_start(&socket).map_err(|_| Failure::internal())? else {
        return Ok(());
    };
    let Start { until, stdin, lock } = start;
    match spawn(&plan, stdin) {
        Ok(command) => {
            ipc::write_report(&socket, Report::Started(command.as_raw_nonzero().get()));
            let shim = Shim {
                socket,
                children,
                command,
                end: None,
                deadline: until,
                stopped: false,
                ending: false,
                kill_at: None,
                plan,
            };
            shim.serve();
        }
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(0);
            ipc::write_report(&socket, Report::Ended(End::NotStarted(errno)));
        }
    }
    // Not before this line: even after `kill -9` of `lockkit run`, no other client gets the lock while the
    // program runs.
    drop(lock);
    Ok(())
}

/// Starts the program through this binary, which first sets the parent-death signal.
///
/// That signal depends on the thread that forks: the shim has only this one.
fn spawn(plan: &Plan, stdin: OwnedFd) -> io::Result<Pid> {
    let child = Command::new(this_program()?)
        .arg0(exec::NAME)
        .arg(exec::ARGUMENT)
        .arg(getpid().to_string())
        .arg(plan.foreground.to_string())
        .args(&plan.command)
        .stdin(Stdio::from(stdin))
        .process_group(0)
        .spawn()?;
    Ok(Pid::from_child(&child))
}

#[derive(Debug)]
struct Shim {
    socket: UnixStream,
    children: UnixStream,
    /// The program, which leads the process group of this number.
    command: Pid,
    /// How the program has ended.
    end: Option<End>,
    deadline: Moment,
    stopped: bool,
    /// All descendants of the program have to end, and not only its group.
    ending: bool,
    kill_at: Option<Moment>,
    plan: Plan,
}

impl Shim {
    fn serve(mut self) {
        let end = loop {
            self.reap();
            if let Some(end) = self.end {
                break end;
            }
            self.keep_time();
            self.rest(self.until_next());
        };
        if !self.plan.leave || self.kill_at.is_some() {
            self.ending |= matches!(end, End::Killed(_));
            self.sweep();
        }
        ipc::write_report(&self.socket, Report::Ended(end));
    }

    /// Waits for an order, a change of a child, or `limit`, and carries the orders out.
    fn rest(&mut self, limit: Option<Duration>) {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut sources = [
            PollFd::new(&self.socket, PollFlags::IN),
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
            match ipc::read_order(&self.socket) {
                Some(order) => self.obey(order),
                None => self.abandoned(),
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.pass_on(signal);
                }
            }
            Order::Lease(until) => self.deadline = until,
            Order::Lost => self.lose(),
        }
    }

    /// A signal that asks programs to end goes to all of them, any other one to the group.
    fn pass_on(&mut self, signal: Signal) {
        self.ending |= ENDS.contains(&signal);
        if ENDS.contains(&signal) {
            signal_all(self.command, signal);
        } else {
            signal_group(self.command, signal);
        }
    }

    /// `lockkit run` has ended, and with it the hold: no process of the program may continue. Exits when none
    /// is left.
    fn abandoned(&mut self) -> ! {
        self.ending = true;
        let mut pause = POLL;
        while self.is_left() {
            signal_all(self.command, Signal::KILL);
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_secs(1));
        }
        std::process::exit(Code::SOFTWARE.0.into());
    }

    /// Whether a process is left that has to end. This process is the parent of every orphan: without a
    /// child it has no descendant.
    fn is_left(&mut self) -> bool {
        let has_children = self.reap();
        if self.ending && TELLS_DESCENDANTS {
            has_children
        } else {
            has_members(self.command)
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
        if let Some(signal) = status.stopping_signal() {
            self.stopped = true;
            ipc::write_report(&self.socket, Report::Stopped(signal));
        } else if status.continued() {
            self.stopped = false;
        }
        let exited = status
            .exit_status()
            .and_then(|code| u8::try_from(code).ok());
        let killed = status.terminating_signal();
        self.end = exited.map(End::Exited).or(killed.map(End::Killed));
    }

    /// Ends the program when its lease is about to end: `lockkit run` could not renew it, or is frozen. A
    /// stopped program does no harm and may wait.
    fn keep_time(&mut self) {
        let moment = now();
        if self.kill_at.is_none() && !self.stopped && self.deadline <= moment + self.plan.notice {
            ipc::write_report(&self.socket, Report::Overdue);
            self.lose();
        }
        if self.kill_at.is_some_and(|at| at <= moment) {
            signal_all(self.command, Signal::KILL);
            self.kill_at = Some(moment + POLL);
        }
    }

    /// The time until the clock must be read again. At most a second, because timers do not run while the
    /// machine is suspended.
    fn until_next(&self) -> Option<Duration> {
        let next = match self.kill_at {
            Some(at) => at.since(now()),
            None if self.stopped => return None,
            None => {
                let left = self.deadline.since(now());
                left.saturating_sub(self.plan.notice)
            }
        };
        let limit = next + Duration::from_millis(1);
        Some(limit.min(Duration::from_secs(1)))
    }

    /// The hold is lost, or about to be. `SIGKILL` comes before the end of its lease, unless it has ended
    /// already.
    fn lose(&mut self) {
        self.ending = true;
        let end = now() + self.plan.notice;
        self.begin_end(end.min(self.deadline));
    }

    /// Sends SIGTERM to the processes that have to end, and continues the stopped ones.
    fn begin_end(&mut self, kill_at: Moment) {
        if self.kill_at.is_some() {
            return;
        }
        for signal in [Signal::TERM, Signal::CONT] {
            self.signal(signal);
        }
        self.kill_at = Some(kill_at);
    }

    fn signal(&self, signal: Signal) {
        if self.ending {
            signal_all(self.command, signal);
        } else {
            signal_group(self.command, signal);
        }
    }

    /// Ends what the program left running, and returns when nothing is left: of its group, or, while
    /// `ending`, of all its descendants. The number of the group is not reused while it has members.
    fn sweep(&mut self) {
        let mut killed = None;
        while self.is_left() {
            let moment = now();
            self.begin_end(moment + self.plan.kill_after);
            if self.kill_at.is_some_and(|at| at <= moment) {
                if *killed.get_or_insert(moment) + DEATH <= moment {
                    return;
                }
                self.signal(Signal::KILL);
                self.kill_at = Some(moment + POLL);
            }
            self.rest(Some(POLL));
        }
    }
}
