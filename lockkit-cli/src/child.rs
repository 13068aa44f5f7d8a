//! The running program as `lockkit run` sees it: the shim, the process group and the terminal.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockkit::clock::Moment;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::sync::mpsc;

use crate::clock::now;
use crate::exec;
use crate::family::{self, DEATH, TELLS_DESCENDANTS};
use crate::foreground::Terminal;
use crate::ipc::{self, Order, Report};
use crate::plan::Plan;
use crate::shim;
use crate::signals::suspend;

/// A program that runs. Dropping it kills all its processes.
#[derive(Debug)]
pub(crate) struct Child {
    shim: Pid,
    /// The program's process group, once the shim has reported it.
    group: Option<Pid>,
    /// The children that this process had before: those of a shell that became it by `exec`.
    strangers: Vec<Pid>,
    socket: UnixStream,
    /// What a thread of its own reads from the socket.
    reports: mpsc::UnboundedReceiver<Report>,
    terminal: Option<Terminal>,
    /// The program's group has the foreground.
    given: bool,
    /// The shim has reported the end of the program.
    ended: bool,
}

impl Child {
    /// Starts the shim for a hold that lasts `until` then, and the program. Where the lock is a file,
    /// the shim keeps it open too.
    ///
    /// The program gets the foreground at once if it is ours and both standard input and output are the
    /// terminal. In a pipeline our group has other members that may need it too; there the program gets
    /// it when a read of the terminal stops it.
    pub(crate) fn start(
        mut plan: Plan,
        environment: &[(&str, String)],
        until: Moment,
        lock: Option<BorrowedFd<'_>>,
    ) -> io::Result<Self> {
        family::adopt_orphans();
        let strangers = family::descendants(&[]);
        let terminal = Terminal::open();
        plan.foreground = io::stdin().is_terminal()
            && io::stdout().is_terminal()
            && terminal.as_ref().is_some_and(Terminal::is_home);
        let (near, far) = UnixStream::pair()?;
        let shim = Command::new(exec::this_program()?)
            .arg0(exec::NAME)
            .arg(shim::ARGUMENT)
            .args(plan.arguments())
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(far)))
            .process_group(0)
            .spawn()?;
        let (reported, reports) = mpsc::unbounded_channel();
        let child = Self {
            shim: Pid::from_child(&shim),
            group: None,
            strangers: strangers.iter().map(|process| process.pid).collect(),
            socket: near,
            reports,
            terminal,
            given: plan.foreground,
            ended: false,
        };
        let socket = child.socket.try_clone()?;
        std::thread::Builder::new()
            .name("reports".to_owned())
            .spawn(move || {
                while let Some(report) = ipc::read_report(&socket) {
                    if reported.send(report).is_err() {
                        return;
                    }
                }
            })?;
        ipc::send_start(&child.socket, until, io::stdin().as_fd(), lock)?;
        Ok(child)
    }

    /// The next report of the shim; `None` if it has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn report(&mut self) -> Option<Report> {
        let report = self.reports.recv().await;
        self.ended |= matches!(report, Some(Report::Ended(_)));
        report
    }

    /// The program has begun, and leads the process group of this number.
    pub(crate) fn started(&mut self, pid: i32) {
        self.group = Pid::from_raw(pid);
    }

    /// Tells the shim. Dropping the child ends a shim that does not read any longer.
    pub(crate) fn order(&self, order: Order) {
        ipc::send_order(&self.socket, order);
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

    /// Takes the foreground back and stops as a job does, with our whole group if the terminal stopped the
    /// program's group. Returns when a signal continues us, or at once where there is no shell.
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
    /// Makes sure that nothing of the program is left, and takes the terminal back.
    ///
    /// After the shim has reported the end there is nothing to kill; what the program was allowed
    /// to leave behind stays.
    fn drop(&mut self) {
        if !self.ended
            && let Some(group) = self.group
        {
            // The shim has ended, or has not collected the program: the number still belongs to the program.
            family::signal_group(group, Signal::KILL);
        }
        let deadline = now() + DEATH;
        let mut pause = Duration::from_micros(100);
        while is_child(waitpid(Some(self.shim), WaitOptions::NOHANG))
            || (!self.ended && self.is_left())
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

/// Whether that wait found a child, so that there may be more to collect.
fn is_child<T>(waited: Result<T, Errno>) -> bool {
    !matches!(waited, Err(Errno::CHILD))
}
