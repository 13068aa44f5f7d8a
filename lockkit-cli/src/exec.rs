//! The last step before the program: a process that becomes it by `exec`.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::getppid;

use crate::exit::{Code, Failure};
use crate::foreground::Terminal;
use crate::signals;

/// The hidden first argument that makes this binary turn into the program.
pub(crate) const ARGUMENT: &str = "__exec";

/// The name of our own processes in a process list.
pub(crate) const NAME: &str = "lockkit";

/// The path of this binary, even if an upgrade has replaced it.
pub(crate) fn this_program() -> io::Result<PathBuf> {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() {
        Ok(own)
    } else {
        std::env::current_exe()
    }
}

/// Ties this process to the life of the shim, and becomes the program. Returns only on a failure.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> Failure {
    let shim = arguments.next().and_then(|pid| pid.to_str()?.parse().ok());
    let foreground = arguments.next().is_some_and(|flag| flag == "true");
    let (Some(shim), Some(program)) = (shim, arguments.next()) else {
        return Failure::internal();
    };
    die_with_parent();
    // If the shim ended before the line above, the system sends no signal.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(shim) {
        return Failure::new(Code::SOFTWARE, "the shim ended before the program began");
    }
    if foreground && let Some(terminal) = Terminal::open() {
        terminal.take_back();
    }
    if let Err(error) = signals::unblock_all() {
        return error.into();
    }
    let error = Command::new(&program).args(arguments).exec();
    let program = program.display();
    let message = format!("cannot run `{program}`: {error}");
    Failure::new(code_of(&error), message)
}

/// The exit code for a program that did not start, as in a shell.
pub(crate) fn code_of(error: &io::Error) -> Code {
    match error.kind() {
        io::ErrorKind::NotFound => Code::NOT_FOUND,
        _ => Code::CANNOT_RUN,
    }
}

fn die_with_parent() {
    // Where the kernel refuses, the shim still ends the group; only a `kill -9` of the shim itself
    // is then left to `lockkit run`.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

/// Sets the name of this process, which would otherwise come from the path that started it.
pub(crate) fn take_name() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::thread::set_name(c"lockkit");
}
