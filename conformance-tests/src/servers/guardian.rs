//! The process between the tests and a server.
//!
//! Its arguments are [`MARK`], the log file and the server's command line. It reads orders from its
//! standard input, one word on a line, and replies to each with one line: `stop`, `cont` and `kill` send
//! the signal to the server's group and to what has left it, `status` replies `running` or
//! `ended ...`. The end of the input is the order to kill and leave.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::process::{Pid, Signal};

use super::family;

/// The first argument that makes a program the guardian.
pub const MARK: &str = "--guard-server";
/// The first argument that makes it the server itself, after it has asked for the parent-death signal.
const LAUNCH: &str = "--launch-server";

/// Acts as the guardian if the program was started as one; otherwise returns `None` at once.
///
/// Call it first in `main`, before there are threads.
#[must_use]
pub fn serve() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let mark = arguments.next()?;
    let rest: Vec<OsString> = arguments.collect();
    let done = match mark.to_str()? {
        MARK => guard(&rest),
        LAUNCH => Err(launch(&rest)),
        _ => return None,
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The pipe may be gone, and with it everybody who could read this.
            drop(writeln!(io::stdout(), "failed: {error}"));
            ExitCode::FAILURE
        }
    })
}

/// Becomes the server. The arguments are the guardian's process number and the command line.
fn launch(arguments: &[OsString]) -> io::Error {
    let [guardian, program, arguments @ ..] = arguments else {
        return io::Error::other("no server is named");
    };
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // The guardian may have died before the signal was asked for.
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if parent.as_deref() != guardian.to_str() {
        return io::Error::other("the guardian is gone");
    }
    Command::new(program).args(arguments).exec()
}

fn guard(arguments: &[OsString]) -> io::Result<()> {
    let Some((log, command)) = arguments.split_first() else {
        return Err(io::Error::other("no log is named"));
    };
    // A session of its own, so that Ctrl-C in the tests' terminal does not end it before its work.
    rustix::process::setsid()?;
    family::adopt()?;
    let log = File::options().create(true).append(true).open(log)?;
    let child = Command::new(std::env::current_exe()?)
        .arg(LAUNCH)
        .arg(std::process::id().to_string())
        .args(command)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()?;
    Group::new(child)?.obey()
}

/// The server's process group. The server is not waited for before the end, so that its number
/// cannot come to name another process.
struct Group {
    child: Child,
    id: Pid,
    ended: bool,
}

impl Group {
    fn new(child: Child) -> io::Result<Self> {
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or_else(|| io::Error::other("the server has no process number"))?;
        Ok(Self {
            child,
            id,
            ended: false,
        })
    }

    fn obey(mut self) -> io::Result<()> {
        let result = self.orders();
        self.end();
        result
    }

    fn orders(&mut self) -> io::Result<()> {
        let mut output = io::stdout();
        writeln!(output, "started {}", self.child.id())?;
        for order in io::stdin().lock().lines() {
            let answer = match order?.as_str() {
                "stop" => self.stop(),
                "cont" => self.signal_all(Signal::CONT),
                "kill" => self.end(),
                "status" => self.status()?,
                other => format!("failed: no order is called `{other}`"),
            };
            writeln!(output, "{answer}")?;
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> String {
        if self.ended {
            return "failed: the server has ended".into();
        }
        match rustix::process::kill_process_group(self.id, signal) {
            Ok(()) => "done".into(),
            Err(error) => format!("failed: {error}"),
        }
    }

    /// The server first: a process that stands still makes no others meanwhile.
    fn stop(&self) -> String {
        let answer = self.signal(Signal::STOP);
        family::signal(Signal::STOP);
        match family::wait_for_stop(self.id) {
            Ok(()) => answer,
            Err(error) => format!("failed: {error}"),
        }
    }

    fn signal_all(&self, signal: Signal) -> String {
        family::signal(signal);
        self.signal(signal)
    }

    fn status(&mut self) -> io::Result<String> {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        if self.ended {
            return Ok("ended".into());
        }
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(match waitid(WaitId::Pid(self.id), look)? {
            Some(status) => format!("ended {:?}", status.exit_status()),
            None => "running".into(),
        })
    }

    fn end(&mut self) -> String {
        if self.ended {
            return "failed: the server has ended".into();
        }
        self.stop();
        let answer = self.signal_all(Signal::KILL);
        // Killed, or gone before: it is waited for in any case, once, and then what it left behind.
        drop(self.child.wait());
        family::bury();
        self.ended = true;
        answer
    }
}
