//! A Redis server that forgets everything when it ends.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::stage::eventually;

const PROGRAMS: [&str; 2] = ["redis-server", "redis-cli"];

/// Why there can be none.
pub(crate) fn missing() -> Option<String> {
    let absent = |program: &&&str| {
        let asked = Command::new(program).arg("--version").output();
        asked.is_err()
    };
    let program = PROGRAMS.iter().find(absent)?;
    Some(format!("no `{program}` here; `cargo x setup` brings it"))
}

pub(crate) struct Server {
    process: Child,
    port: u16,
    directory: TempDir,
}

/// Below the ports of outgoing connections, one of which could take it while the server is restarted.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 2000).unwrap();
    (0..2000)
        .map(|_| 28_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 2000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap()
}

fn spawn(port: u16, directory: &TempDir) -> Child {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(directory.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

impl Server {
    pub(crate) fn start() -> Self {
        let (port, directory) = (free_port(), tempfile::tempdir().unwrap());
        let process = spawn(port, &directory);
        let server = Self {
            process,
            port,
            directory,
        };
        server.ready();
        server
    }

    fn ready(&self) {
        eventually("the server responds", || self.ask(&["PING"]) == "PONG");
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Ends it without warning.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Stops it without an end of its connections.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues it after [`freeze`](Self::freeze).
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Ends it without warning and starts it again, without its data.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.restart_killed();
    }

    /// Starts it again, without its data.
    pub(crate) fn restart_killed(&mut self) {
        self.process = spawn(self.port, &self.directory);
        self.ready();
    }

    /// Waits until the queue of a lock has an entry.
    pub(crate) fn queued(&self, name: &str) {
        let queue = format!("lockkit_queue:{{{name}}}");
        eventually("the queue has an entry", || {
            self.ask(&["LLEN", &queue]) == "1"
        });
    }

    pub(crate) fn ask(&self, words: &[&str]) -> String {
        let answer = Command::new("redis-cli")
            .args(["-p", &self.port.to_string()])
            .args(words)
            .stderr(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8(answer.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
