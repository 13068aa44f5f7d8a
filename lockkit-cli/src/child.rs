//! The running program as `lockkit run` sees it: the shim, the process group and the terminal.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::clock::now;
use crate::exec;
use crate::family::{self, DEATH, TELLS_DESCENDANTS};
use crate::foreground::Terminal;
use crate::ipc::{self, Link};
use crate::plan::Plan;
use crate::shim;
use crate::signals::suspend;

/// A program that runs. Dropping it kills all its processes.
#[derive(Debug)]
pub(crate) struct Child {
    /// To the shim. Dropping the child ends a shim that does not read any longer.
    pub(crate) link: Link,
    shim: Pid,
    /// The program's process group, once the shim has reported it.
    pub(crate) group: Option<Pid>,
    /// The children that this process had before: those of a shell that became it by `exec`.
    strangers: Vec<Pid>,
    terminal: Option<Terminal>,
    /// The program's group has the foreground of the terminal.
    pub(crate) has_terminal: bool,
    /// The shim has reported the end of the program.
    pub(crate) ended: bool,
}

impl Child {
    /// Starts the shim, and the program. Where locks are files, the shim keeps them open too.
    ///
    /// The program gets the foreground at once if it is ours and both standard input and output are the
    /// terminal. In a pipeline our group has other members that may need it too; there the program gets
    /// it when a read of the terminal stops it.
    pub(crate) fn start(
        mut plan: Plan,
        command: &[OsString],
        environment: Vec<(&str, String)>,
        locks: &[BorrowedFd<'_>],
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
            .args(command)
            .envs(environment)
            .stdin(Stdio::from(OwnedFd::from(far)))
            .process_group(0)
            .spawn()?;
        let stdin = io::stdin();
        let files: Vec<_> = [stdin.as_fd()].iter().chain(locks).copied().collect();
        // If it fails, the end of the socket ends the shim.
        ipc::send_files(&near, &files)?;
        Ok(Self {
            link: Link::new(near)?,
            shim: Pid::from_child(&shim),
            group: None,
            strangers: strangers.iter().map(|process| process.pid).collect(),
            terminal,
            has_terminal: plan.foreground,
            ended: false,
        })
    }

    /// Gives the program's group the foreground if our group has it, and says whether it got it.
    pub(crate) fn give_terminal(&mut self) -> bool {
        if let (Some(terminal), Some(group)) = (&self.terminal, self.group)
            && terminal.is_home()
        {
            self.has_terminal = terminal.give(group);
            return self.has_terminal;
        }
        false
    }

    /// Takes the foreground back and stops as a job does, with our whole group if the terminal stopped the
    /// program's group. Returns when a signal continues us, or at once where there is no shell.
    pub(crate) fn suspend(&mut self, whole: bool) -> bool {
        let had = self.has_terminal;
        self.take_terminal();
        suspend(whole || had);
        had
    }

    fn take_terminal(&mut self) {
        if std::mem::take(&mut self.has_terminal)
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
            family::send(Signal::KILL, group);
        }
        let deadline = now() + DEATH;
        let mut pause = Duration::from_micros(100);
        // Also while the shim is stopped.
        while (!self.ended && self.is_left())
            || waitpid(Some(self.shim), WaitOptions::NOHANG).err() != Some(Errno::CHILD)
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
