//! The running program as `lockkit run` sees it: the shim, the process group and the terminal.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockkit::clock::Moment;
use nix::sys::signal::Signal as Mask;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, getpid, kill_process, kill_process_group, waitpgid, waitpid,
};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use crate::clock::now;
use crate::exec;
use crate::foreground::Terminal;
use crate::link::{self, FRAME, Frame, Order, Report};
use crate::plan::Plan;
use crate::shim;
use crate::signals::unblocked;

/// How long a killed group may take to vanish.
const DEATH: Duration = Duration::from_secs(5);

/// A program that runs. Dropping it kills the whole process group.
#[derive(Debug)]
pub(crate) struct Job {
    /// The shim, which is also the number of the process group.
    group: Pid,
    link: UnixStream,
    partial: Frame,
    filled: usize,
    terminal: Option<Terminal>,
    /// The program's group has the foreground.
    given: bool,
    over: bool,
}

impl Job {
    /// Starts the shim for a hold that is good `until` then, gives it the foreground if it is ours to give, and lets the program go.
    ///
    /// The foreground is given at once where both standard input and output are the terminal. In a
    /// pipeline our group has other members that may need it too; there the program gets it when it
    /// asks, that is when a read of the terminal stops it.
    pub(crate) fn start(
        plan: &Plan,
        environment: [(&str, String); 2],
        until: Moment,
    ) -> io::Result<Self> {
        adopt_orphans();
        let (near, far) = StdStream::pair()?;
        near.set_nonblocking(true)?;
        let shim = Command::new(exec::this_program()?)
            .arg0(exec::NAME)
            .arg(shim::ARGUMENT)
            .args(plan.arguments())
            .envs(environment)
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(far)))
            .process_group(0)
            .spawn()?;
        let sent = near.try_clone()?;
        let mut job = Self {
            group: Pid::from_child(&shim),
            link: UnixStream::from_std(near)?,
            partial: [0; FRAME],
            filled: 0,
            terminal: Terminal::open(),
            given: false,
            over: false,
        };
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            job.give_terminal();
        }
        link::send_start(&sent, until, io::stdin().as_fd())?;
        Ok(job)
    }

    /// What the shim tells next; `None` if it is gone.
    ///
    /// # Cancel safety
    /// Cancel safe: what was read of a frame is kept.
    pub(crate) async fn report(&mut self) -> Option<Report> {
        while self.filled < FRAME {
            match self.link.read(&mut self.partial[self.filled..]).await {
                Ok(0) | Err(_) => return None,
                Ok(read) => self.filled += read,
            }
        }
        self.filled = 0;
        Report::decode(self.partial)
    }

    /// Tells the shim. A shim that does not read any longer is dealt with by [`Self::settle`].
    pub(crate) fn order(&self, order: Order) {
        let _ = self.link.try_write(&order.encode());
    }

    /// Passes a signal on to the process group.
    pub(crate) fn signal(&self, signal: Signal) {
        self.order(Order::Signal(signal.as_raw()));
    }

    /// Whether the program's group has the foreground of the terminal.
    pub(crate) fn has_terminal(&self) -> bool {
        self.given
    }

    /// Gives the program's group the foreground if our group has it, and says whether it got it.
    pub(crate) fn give_terminal(&mut self) -> bool {
        if let Some(terminal) = &self.terminal
            && terminal.is_home()
        {
            self.given = terminal.give(self.group);
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
        if !ended {
            // The shim has not been collected yet, so that the number is that of our group.
            let _ = kill_process_group(self.group, Signal::KILL);
        }
        let group = self.group;
        let deadline = now() + DEATH;
        let mut pause = Duration::from_micros(100);
        while is_child(waitpid(Some(group), WaitOptions::NOHANG))
            || (!ended && is_child(waitpgid(group, WaitOptions::NOHANG)))
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

impl Drop for Job {
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
