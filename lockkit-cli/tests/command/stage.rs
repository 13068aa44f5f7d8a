//! What every test needs: a store of its own, the command, and waiting with an end to it.
//!
//! The store is the embedded one. `LOCKKIT_COMMAND_STORE` names another, and every test must end in
//! the same way on that one: `sqlite:`, with a file for each test, or the URL of a database, with a
//! table for each.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Once};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::flag::register_conditional_shutdown;
use tempfile::TempDir;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

/// An embedded store that no other test sees.
pub(crate) struct Stage {
    dir: TempDir,
    url: Option<String>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let mut stage = Self::at(None);
        if let Ok(store) = std::env::var("LOCKKIT_COMMAND_STORE") {
            stage.url = Some(match store.as_str() {
                "sqlite:" => format!("sqlite:{}/locks.db", stage.dir().display()),
                url => {
                    static STAGES: AtomicU32 = AtomicU32::new(0);
                    let number = STAGES.fetch_add(1, Ordering::Relaxed);
                    format!("{url}?table=stage_{}_{number}", std::process::id())
                }
            });
        }
        stage
    }

    /// The same for the store at `url`.
    pub(crate) fn at(url: Option<String>) -> Self {
        heed_signals();
        let dir = tempfile::tempdir().unwrap();
        Self { dir, url }
    }

    /// A store that ends holds by their lease alone.
    pub(crate) fn database() -> Self {
        let mut stage = Self::at(None);
        stage.url = Some(format!("sqlite:{}/locks.db", stage.dir().display()));
        stage
    }

    pub(crate) const fn is_embedded(&self) -> bool {
        self.url.is_none()
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The command with nothing of the environment that could lead it elsewhere.
    pub(crate) fn lockkit(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkit"));
        self.lead(&mut command);
        command
    }

    /// Leads a command to this store.
    pub(crate) fn lead(&self, command: &mut Command) {
        command
            .env_remove("LOCKKIT_URL")
            .env_remove("LOCKKIT_URL_FILE")
            .env_remove("LOCKKIT_HELD")
            .env("XDG_STATE_HOME", self.dir())
            .stdin(Stdio::null());
        if let Some(url) = &self.url {
            command.env("LOCKKIT_URL", url);
        }
    }

    /// The command, started by a shell script that finds it and its arguments in `"$0" "$@"`.
    pub(crate) fn under(&self, script: &str) -> Command {
        let lockkit = self.lockkit();
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(lockkit.get_program());
        self.lead(&mut shell);
        shell
    }

    /// Runs the command to its end.
    pub(crate) fn call(&self, arguments: &[&str]) -> Output {
        self.lockkit().args(arguments).output().unwrap()
    }

    /// Runs the command to its end and returns its exit code.
    pub(crate) fn code(&self, arguments: &[&str]) -> Option<i32> {
        self.call(arguments).status.code()
    }

    /// Starts `lockkit run` with a shell script.
    pub(crate) fn run(&self, options: &[&str], name: &str, script: &str) -> Running {
        let mut command = self.lockkit();
        command
            .arg("run")
            .args(options)
            .args([name, "--", "sh", "-c", script]);
        Running::start(command)
    }

    /// The store as it is after the first lock: looks make nothing that is missing.
    pub(crate) fn used() -> Self {
        let stage = Self::new();
        assert!(stage.is_free("first"));
        stage
    }

    /// Whether the lock is free at this moment.
    pub(crate) fn is_free(&self, name: &str) -> bool {
        self.code(&["run", "--no-wait", "--quiet", name, "--", "true"]) == Some(0)
    }
}

/// Lets the commands of the tests begin with signals that are not ignored, even if the parent of the tests
/// ignores some, as a shell does for background jobs: a handler in this process becomes the default action
/// in its children.
fn heed_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [SIGINT, SIGQUIT, SIGHUP, SIGTERM, SIGUSR1, SIGUSR2] {
            let always = Arc::new(AtomicBool::new(true));
            register_conditional_shutdown(signal, 128 + signal, always).unwrap();
        }
    });
}

/// A command under way. Killed when the test ends.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (read, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if read.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn stdin(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().unwrap()
    }

    /// The next line of standard output; empty at its end.
    pub(crate) fn line(&mut self) -> String {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => String::new(),
            Err(RecvTimeoutError::Timeout) => panic!("no line came within {LIMIT:?}"),
        }
    }

    /// The next line, which is a process number.
    pub(crate) fn line_pid(&mut self) -> Pid {
        Pid::from_raw(self.line().parse().unwrap()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The one child of the command: the shim.
    pub(crate) fn shim(&self) -> Pid {
        self.children()[0]
    }

    /// The children of the command.
    pub(crate) fn children(&self) -> Vec<Pid> {
        let all = Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output();
        let all = String::from_utf8(all.unwrap().stdout).unwrap();
        let own = self.pid().to_string();
        let children = all.lines().filter_map(|line| {
            let (child, parent) = line.trim().split_once(char::is_whitespace)?;
            (parent.trim() == own).then(|| Pid::from_raw(child.parse().unwrap()).unwrap())
        });
        children.collect()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        eventually("the command ends", || !self.is_running());
        self.child.wait().unwrap()
    }

    /// Waits for its end and returns the exit code.
    pub(crate) fn code(&mut self) -> Option<i32> {
        self.wait().code()
    }

    /// The next line of standard error.
    pub(crate) fn said_line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        let stderr = self.child.stderr.as_mut().unwrap();
        while !line.ends_with(b"\n") && stderr.read(&mut byte).unwrap() == 1 {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    /// What it said on standard error, once it and all that it started have ended.
    pub(crate) fn said(&mut self) -> String {
        let mut said = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something is so, and fails after a time that no test should take.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let pause = Duration::from_millis(10);
    for _ in 0..LIMIT.as_millis() / pause.as_millis() {
        if is_so() {
            return;
        }
        std::thread::sleep(pause);
    }
    panic!("it did not happen within {LIMIT:?}: {what}");
}

/// Whether that process runs; a zombie does not.
pub(crate) fn runs(pid: Pid) -> bool {
    let state = Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .output()
        .unwrap();
    let state = String::from_utf8(state.stdout).unwrap();
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}

/// Waits until those processes are gone.
pub(crate) fn gone(pids: &[Pid]) {
    for &pid in pids {
        eventually(&format!("process {pid} is gone"), || !runs(pid));
    }
}
