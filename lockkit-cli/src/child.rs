//! The running program as `lockkit run` sees it: the shim, the process group and the terminal.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockkit::clock::Moment;
use nix::sys::signal::Signal as Mask;
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, getpid, kill_process, kill_process_group, waitpid,
};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use crate::clock::now;
use crate::exec;
use crate::family::{self, TELLS_DESCENDANTS};
use crate::foreground::Terminal;
use crate::ipc::{self, FRAME, Frame, Order, Report};
use crate::plan::Plan;
use crate::shim;
use crate::signals::unblocked;

/// How long killed processes may take to vanish.
const DEATH: Duration = Duration::from_secs(5);

/// A program that runs. Dropping it kills all its processes.
#[derive(Debug)]
pub(crate) struct Child {
    shim: Pid,
    /// The program's process group, once the shim has told its number.
    group: Option<Pid>,
    /// The children that this process had before: of a shell that became it.
    strangers: Vec<Pid>,
    socket: UnixStream,
    partial: Frame,
    filled: usize,
    terminal: Option<Terminal>,
    /// The program's group has the foreground.
    given: bool,
    over: bool,
}

impl Child {
    /// Starts the shim for a hold that is good `until` then, and lets the program go. Where the lock is
    /// a file, the shim keeps it open too.
    ///
    /// The program takes the foreground at once where it is ours and both standard input and output
    /// are the terminal. In a pipeline our group has other members that may need it too; there the
    /// program gets it when it asks, that is when a read of the terminal stops it.
    pub(crate) fn start(
        mut plan: Plan,
        environment: &[(&str, String)],
        until: Moment,
        lock: Option<BorrowedFd<'_>>,
    ) -> io::Result<Self> {
        adopt_orphans();
        let strangers = family::descendants(&[]);
        let terminal = Terminal::open();
        plan.foreground = io::stdin().is_terminal()
            && io::stdout().is_terminal()
            && terminal.as_ref().is_some_and(Terminal::is_home);
        let (near, far) = StdStream::pair()?;
        near.set_nonblocking(true)?;
        let shim = Command::new(exec::this_program()?)
            .arg0(exec::NAME)
            .arg(shim::ARGUMENT)
            .args(plan.arguments())
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(far)))
            .process_group(0)
            .spawn()?;
        let sent = near.try_clone()?;
        let child = Self {
            shim: Pid::from_child(&shim),
            group: None,
            strangers: strangers.iter().map(|process| process.pid).collect(),
            socket: UnixStream::from_std(near)?,
            partial: [0; FRAME],
            filled: 0,
            terminal,
            given: plan.foreground,
            over: false,
        };
        ipc::send_start(&sent, until, io::stdin().as_fd(), lock)?;
        Ok(child)
    }

    /// What the shim tells next; `None` if it is gone.
    ///
    /// # Cancel safety
    /// Cancel safe: what was read of a frame is kept.
    pub(crate) async fn report(&mut self) -> Option<Report> {
        while self.filled < FRAME {
            match self.socket.read(&mut self.partial[self.filled..]).await {
                Ok(0) | Err(_) => return None,
                Ok(read) => self.filled += read,
            }
        }
        self.filled = 0;
        Report::decode(self.partial)
    }

    /// The program has begun, and leads the process group of this number.
    pub(crate) fn started(&mut self, pid: i32) {
        self.group = Pid::from_raw(pid);
    }

    /// Tells the shim. A shim that does not read any longer is dealt with by [`Self::settle`].
    pub(crate) fn order(&self, order: Order) {
        // Not by `try_write` of Tokio, which refuses for as long as its own thread has not looked at
        // the socket.
        let _ = rustix::net::send(&self.socket, &order.encode(), SendFlags::DONTWAIT);
    }

    /// Passes a signal on to the program.
    pub(crate) fn signal(&self, signal: Signal) {
        self.order(Order::Signal(signal.as_raw()));
    }

    /// Whether the program's group has the foreground of the terminal.
    pub(crate) fn has_terminal(&self) -> bool {
        self.given
    }

    /// Gives the program's group the foreground if our group has it, and says whether it got it.
    pub(crate) fn give_terminal(&mut self) -> bool {
        if let (Some(terminal), Some(group)) = (&self.terminal, self.group)
            && terminal.is_home()
        {
            self.given = terminal.give(group);
            return self.given;
        }
        false
    }

    /// Takes the foreground back and stops as a job does, with our whole group if it was the
    /// program's group that the terminal stopped. Returns when somebody continues us, or at once
    /// where no shell is there to do it.
    pub(crate) fn suspend(&mut self, whole: bool) -> bool {
        let had = self.given;
        self.take_terminal();
        suspend(whole || had);
        had
    }

    fn take_terminal(&mut self) {
        if std::mem::take(&mut self.given)
            && let Some(terminal) = &self.terminal
        {
            terminal.take_back();
        }
    }

    /// Makes sure that nothing of the program is left, and takes the terminal back.
    ///
    /// After the shim has reported the end there is nothing to kill; what the program was allowed
    /// to leave behind stays.
    pub(crate) fn settle(&mut self, ended: bool) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        if !ended && let Some(group) = self.group {
            // The shim has died or has not collected the program, so that the number is still its.
            family::signal_group(group, Signal::KILL);
        }
        let deadline = now() + DEATH;
        let mut pause = Duration::from_micros(100);
        while is_child(waitpid(Some(self.shim), WaitOptions::NOHANG)) || (!ended && self.is_left())
        {
            if now() >= deadline {
                break;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
        self.take_terminal();
    }
}

impl Child {
    /// Kills what is left of the program, and says whether there was anything.
    fn is_left(&self) -> bool {
        if !TELLS_DESCENDANTS {
            return self.group.is_some_and(family::has_members);
        }
        let left = family::descendants(&self.strangers);
        for process in &left {
            let _ = kill_process(process.pid, Signal::KILL);
            let _ = waitpid(Some(process.pid), WaitOptions::NOHANG);
        }
        !left.is_empty()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.settle(false);
    }
}

/// Whether that wait found a child, so that there may be more to collect.
fn is_child<T>(answer: Result<T, Errno>) -> bool {
    !matches!(answer, Err(Errno::CHILD))
}

/// Becomes the parent of what a killed shim leaves behind, so that its end can be awaited.
fn adopt_orphans() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
}

/// Stops this process, or its group, until it is continued.
pub(crate) fn suspend(whole: bool) {
    unblocked(Mask::SIGTSTP, || {
        let _ = if whole {
            kill_process_group(getpgrp(), Signal::TSTP)
        } else {
            kill_process(getpid(), Signal::TSTP)
        };
    });
}
