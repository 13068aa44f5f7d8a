//! At a terminal: the program can read it, Ctrl-C and Ctrl-Z do what they do without lockkit.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::stage::{Stage, eventually, runs};

/// A terminal with a shell on it.
struct Console {
    keys: File,
    screen: Arc<Mutex<String>>,
    shell: Child,
}

impl Console {
    /// Runs `bash` with job control on a terminal of its own. `$L` is the command.
    fn new(stage: &Stage) -> Self {
        let keys = File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap());
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let path = ptsname(&keys, Vec::new()).unwrap().into_string().unwrap();
        let end = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .unwrap()
        };
        let mut shell = Command::new("setsid");
        stage.lead(&mut shell);
        let shell = shell
            .args(["--ctty", "--wait", "bash", "--norc", "--noprofile", "-i"])
            .env("L", env!("CARGO_BIN_EXE_lockkit"))
            .env("PS1", "> ")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let mut output = keys.try_clone().unwrap();
        let shown = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..read]);
                shown.lock().unwrap().push_str(&text);
            }
        });
        Self {
            keys,
            screen,
            shell,
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn enter(&mut self, line: &str) {
        self.press(&format!("{line}\r"));
    }

    /// Waits until `text` is shown. Returns what was shown before it, and forgets both.
    fn shows(&self, text: &str) -> String {
        let shown = || self.screen.lock().unwrap().find(text);
        for _ in 0..2000 {
            if let Some(at) = shown() {
                let mut screen = self.screen.lock().unwrap();
                let before = screen[..at].to_owned();
                screen.drain(..at + text.len());
                return before;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("not shown: {text}\n{}", self.screen.lock().unwrap());
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

#[test]
fn the_program_reads_the_terminal_and_the_shell_gets_it_back() {
    let stage = Stage::new();
    let mut console = Console::new(&stage);
    console.enter(r#"$L run job -- sh -c 'echo ask"ing"; read a; echo got-$a'; echo c"o"de $?"#);
    console.shows("asking");
    console.enter("blue");
    console.shows("got-blue");
    console.shows("code 0");
    console.enter("echo ag'ai'n");
    console.shows("again");
}

#[test]
fn a_script_reads_the_terminal_after_the_program_has() {
    let stage = Stage::new();
    let mut console = Console::new(&stage);
    console.enter(
        r#"sh -c '$L run job -- sh -c "echo ask""ing; read a"; echo n"ext"; read b; echo got-$b'"#,
    );
    console.shows("asking");
    console.enter("blue");
    console.shows("next");
    console.enter("green");
    console.shows("got-green");
}

#[test]
fn a_program_in_a_pipeline_gets_the_terminal_when_it_asks() {
    let stage = Stage::new();
    let mut console = Console::new(&stage);
    console.enter(
        r#"$L run job -- sh -c 'read a < /dev/tty; echo got-$a' | tr a-z A-Z; echo c"o"de $?"#,
    );
    eventually("the lock is held", || !stage.is_free("job"));
    console.enter("blue");
    console.shows("GOT-BLUE");
    console.shows("code 0");
}

#[test]
fn ctrl_c_ends_the_program_and_a_script_around_it() {
    let stage = Stage::new();
    let mut console = Console::new(&stage);
    console.enter(r#"$L run job -- sh -c 'echo re"a"dy; exec sleep 600'; echo c"o"de $?"#);
    console.shows("ready");
    console.press(CTRL_C);
    // Bash gives up the rest of the line, just as it does without lockkit.
    console.shows("> ");
    console.enter("echo c\"o\"de $?");
    console.shows("code 130");
    assert!(stage.is_free("job"));

    console.enter(
        r#"sh -c '$L run job -- sh -c "echo re''ady; exec sleep 600"; echo went-on'; echo e"n"d"#,
    );
    console.shows("ready");
    console.press(CTRL_C);
    let mut shown = console.shows("> ");
    console.enter("echo d\"o\"ne");
    shown += &console.shows("done");
    assert!(!shown.contains("went-on"), "{shown}");
}

#[test]
fn ctrl_c_ends_a_program_that_has_left_the_group() {
    let stage = Stage::new();
    let mut console = Console::new(&stage);
    for leaver in ["timeout 600", "setsid -w"] {
        console.enter(&format!(
            r#"$L run job -- {leaver} sh -c 'echo re"a"dy-$$.; exec sleep 600'"#
        ));
        console.shows("ready-");
        let pid = console.shows(".");
        console.press(CTRL_C);
        console.shows("> ");
        console.enter("echo c\"o\"de $?");
        console.shows("code 130");
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        assert!(!runs(pid), "{leaver}");
        assert!(stage.is_free("job"));
    }
}

#[test]
fn ctrl_c_that_the_program_handles_ends_what_has_left_the_group() {
    let stage = Stage::new();
    let mut console = Console::new(&stage);
    // A shell exits with 128 and the number of the signal.
    console.enter(
        r#"$L run job -- sh -c 'trap "exit 130" INT; setsid -w sh -c "echo re""ady-\$\$.; exec sleep 600" & wait'; echo c"o"de $?"#,
    );
    console.shows("ready-");
    let pid = console.shows(".");
    console.press(CTRL_C);
    console.shows("code 130");
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    assert!(!runs(pid));
    assert!(stage.is_free("job"));
}

#[test]
fn a_program_under_timeout_reads_the_terminal() {
    let stage = Stage::new();
    let mut console = Console::new(&stage);
    console.enter(r#"$L run job -- timeout 600 sh -c 'echo ask"ing"; read a; echo got-$a'"#);
    console.shows("asking");
    console.enter("blue");
    console.shows("got-blue");
}

#[test]
fn the_embedded_store_is_named_at_a_terminal() {
    let stage = Stage::at(None);
    let mut console = Console::new(&stage);
    console.enter("$L run job -- echo r\"a\"n");
    console.shows(&format!(
        "the locks are files in `{}/lockkit`: they exclude programs on this host only",
        stage.dir().display()
    ));
    console.shows("ran");
    console.enter("$L run -q job -- echo qu\"i\"et");
    assert!(!console.shows("quiet").contains("this host only"));
}

#[test]
fn ctrl_c_ends_the_wait() {
    let stage = Stage::new();
    let mut holder = stage.run(&[], "job", "echo ready; exec sleep 600");
    holder.line();
    let mut console = Console::new(&stage);
    console.enter("$L run job -- true");
    console.shows("waiting: `job` is held by ");
    console.press(CTRL_C);
    console.shows("> ");
    console.enter("echo c\"o\"de $?");
    console.shows("code 130");
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let stage = Stage::new();
    let mut console = Console::new(&stage);
    console.enter(r#"$L run job -- sh -c 'echo ask"ing"; read a; echo got-$a'"#);
    console.shows("asking");
    console.press(CTRL_Z);
    console.shows("Stopped");
    assert!(!stage.is_free("job"));
    console.enter("fg");
    console.shows("fg\r\n");
    console.shows("$L run job");
    console.enter("blue");
    console.shows("got-blue");
    console.enter("echo c\"o\"de $?");
    console.shows("code 0");
}

#[test]
fn a_job_continued_after_its_lease_is_ended() {
    let stage = Stage::new();
    let mut console = Console::new(&stage);
    // Not a shell, whose `vfork` may be caught by the stop half way.
    let script = r#"$| = 1; $SIG{TERM} = $SIG{CONT} = sub { print "went-", "on" }; print "rea", "dy"; sleep 1 while 1"#;
    console.enter(&format!("$L run --ttl 1500ms job -- perl -e '{script}'"));
    console.shows("ready");
    console.press(CTRL_Z);
    console.shows("Stopped");
    console.enter("sleep 2; fg; echo c\"o\"de $?");
    let shown = console.shows("code 76");
    assert!(!shown.contains("went-on"), "{shown}");
}

#[test]
fn what_has_left_the_group_of_a_stopped_job_does_not_run_longer_than_its_lease() {
    let stage = Stage::new();
    let (script, written) = (stage.dir().join("work"), stage.dir().join("written"));
    let work = format!(
        "echo ready; while :; do echo x >> {}; sleep 0.02; done",
        written.display()
    );
    std::fs::write(&script, work).unwrap();
    let mut console = Console::new(&stage);
    console.enter(&format!(
        "$L run --ttl 1500ms job -- sh -c 'timeout 600 sh {}; true'",
        script.display()
    ));
    console.shows("ready");
    console.press(CTRL_Z);
    console.shows("Stopped");
    let length = || std::fs::metadata(&written).map_or(0, |file| file.len());
    // Longer than its lease, which the terminal's stop let begin no later.
    std::thread::sleep(std::time::Duration::from_millis(1_600));
    let before = length();
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(before > 0 && length() == before);
    console.enter("fg; echo c\"o\"de $?");
    console.shows("code 76");
}

#[test]
fn break_asks_at_a_terminal() {
    let stage = Stage::new();
    let mut holder = stage.run(&["--ttl", "3s"], "job", "echo ready; exec sleep 600");
    holder.line();
    let mut console = Console::new(&stage);
    console.enter("$L break job; echo c\"o\"de $?");
    console.shows("[y/N] ");
    console.enter("n");
    console.shows("code 64");
    assert!(!stage.is_free("job"));
    console.enter("$L break job; echo c\"o\"de $?");
    console.shows("[y/N] ");
    console.enter("y");
    console.shows("code 0");
    assert_eq!(holder.code(), Some(76));
}

#[test]
fn break_ends_no_hold_that_came_after_the_question() {
    let stage = Stage::new();
    let mut first = stage.run(&[], "job", "echo ready; exec sleep 600");
    first.line();
    let mut console = Console::new(&stage);
    console.enter("$L break job; echo c\"o\"de $?");
    console.shows("[y/N] ");
    first.signal(Signal::TERM);
    first.wait();
    let mut second = stage.run(&[], "job", "echo ready; exec sleep 600");
    second.line();
    console.enter("y");
    console.shows("another");
    console.shows("code 64");
    assert!(!stage.is_free("job"));
}
