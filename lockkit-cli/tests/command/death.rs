//! Whichever process is killed, the program never continues without the lock.

#[cfg(target_os = "linux")]
use std::time::Duration;

#[cfg(target_os = "linux")]
use lockkit::clock::{BootClock, Clock};
#[cfg(target_os = "linux")]
use rustix::process::Pid;
use rustix::process::{Signal, kill_process};

#[cfg(target_os = "linux")]
use crate::stage::Running;
use crate::stage::{Stage, eventually, gone, runs};

/// Prints its own number and that of a child in the background.
const FAMILY: &str = "echo $$; sh -c 'echo $$; exec sleep 600' & sleep 600";

#[test]
fn kill_9_of_the_command_takes_the_program_and_its_children() {
    let stage = Stage::new();
    let mut running = stage.run(&[], "job", FAMILY);
    let family = [running.line_pid(), running.line_pid()];
    running.signal(Signal::KILL);
    running.wait();
    gone(&family);
    eventually("the lock is free", || stage.is_free("job"));
}

#[test]
fn kill_9_of_the_shim_takes_the_program_and_its_children() {
    let stage = Stage::new();
    let mut running = stage.run(&[], "job", FAMILY);
    let family = [running.line_pid(), running.line_pid()];
    kill_process(running.shim(), Signal::KILL).unwrap();
    assert_eq!(running.code(), Some(137));
    // They are gone before the lock is released, not some time later.
    assert!(!runs(family[0]) && !runs(family[1]));
    assert!(stage.is_free("job"));
}

/// It does not end the program when the lock is lost.
#[test]
fn stopped_shim_does_not_wait_for_kill_after() {
    let stage = Stage::new();
    let arguments = ["--ttl", "3s", "--kill-after", "10m"];
    let mut running = stage.run(&arguments, "job", "echo $$; exec sleep 600");
    let program = running.line_pid();
    kill_process(running.shim(), Signal::STOP).unwrap();
    assert_eq!(stage.code(&["break", "job", "--yes"]), Some(0));
    assert_eq!(running.code(), Some(76));
    gone(&[program]);
}

#[test]
fn kill_9_of_both_takes_the_program() {
    let stage = Stage::new();
    let mut running = stage.run(&[], "job", "echo $$; exec sleep 600");
    let program = running.line_pid();
    let shim = running.shim();
    running.signal(Signal::STOP);
    kill_process(shim, Signal::KILL).unwrap();
    running.signal(Signal::KILL);
    gone(&[program]);
    eventually("the lock is free", || stage.is_free("job"));
}

#[test]
fn what_the_program_left_running_ends_before_the_lock_is_released() {
    let stage = Stage::new();
    let ready = stage.dir().join("ready");
    let script = format!(
        "sh -c 'echo $$; : > {0}; exec sleep 600' & \
         until test -e {0}; do sleep 0.02; done; exit 5",
        ready.display()
    );
    let mut running = stage.run(&[], "job", &script);
    let left = running.line_pid();
    assert_eq!(running.code(), Some(5));
    assert!(!runs(left));
    assert!(stage.is_free("job"));
}

#[test]
fn what_was_left_running_and_will_not_end_is_killed() {
    let stage = Stage::new();
    let ready = stage.dir().join("ready");
    let script = format!(
        "sh -c 'trap \"\" TERM; echo $$; : > {0}; while :; do sleep 1; done' & \
         until test -e {0}; do sleep 0.02; done; exit 5",
        ready.display()
    );
    let mut running = stage.run(&["--kill-after", "200ms"], "job", &script);
    let left = running.line_pid();
    assert_eq!(running.code(), Some(5));
    assert!(!runs(left));
}

#[test]
fn leave_lets_it_go_on() {
    let stage = Stage::new();
    let ready = stage.dir().join("ready");
    let script = format!(
        "sh -c 'echo $$; : > {0}; exec sleep 600 >/dev/null 2>&1' & \
         until test -e {0}; do sleep 0.02; done; exit 5",
        ready.display()
    );
    let mut running = stage.run(&["--leave"], "job", &script);
    let left = running.line_pid();
    assert_eq!(running.code(), Some(5));
    assert!(stage.is_free("job"));
    assert!(runs(left));
    kill_process(left, Signal::KILL).unwrap();
}

#[test]
fn a_daemon_with_a_session_of_its_own_is_left_alone() {
    let stage = Stage::new();
    let ready = stage.dir().join("ready");
    let script = format!(
        "setsid sh -c 'echo $$; : > {0}; exec sleep 600 >/dev/null 2>&1' & \
         until test -e {0}; do sleep 0.02; done",
        ready.display()
    );
    let mut running = stage.run(&[], "job", &script);
    let daemon = running.line_pid();
    assert_eq!(running.code(), Some(0));
    assert!(runs(daemon));
    kill_process(daemon, Signal::KILL).unwrap();
}

/// Programs that leave the process group in which they begin, or start one that does. Each prints the
/// number of the program and that of the process that does its work.
#[cfg(target_os = "linux")]
const LEAVERS: [&str; 5] = [
    "echo $$; exec timeout 600 sh -c 'echo $$; exec sleep 600'",
    "echo $$; exec setsid -w sh -c 'echo $$; exec sleep 600'",
    "echo $$; setsid -w sh -c 'echo $$; exec sleep 600'; exit 9",
    // As `bash -i` does.
    "echo $$; perl -e 'setpgrp; exec @ARGV' sh -c 'echo $$; exec sleep 600'; exit 9",
    // A daemon whose parent is gone.
    "echo $$; sh -c 'setsid sh -c \"echo \\$\\$; exec sleep 600\" &'; sleep 600; exit 9",
];

#[cfg(target_os = "linux")]
fn started(stage: &Stage, script: &str) -> (Running, [Pid; 2]) {
    let mut running = stage.run(&["--ttl", "2s"], "job", script);
    let family = [running.line_pid(), running.line_pid()];
    (running, family)
}

#[test]
#[cfg(target_os = "linux")]
fn kill_9_of_the_command_takes_what_has_left_the_group() {
    let stage = Stage::new();
    for script in LEAVERS {
        let (mut running, family) = started(&stage, script);
        running.signal(Signal::KILL);
        running.wait();
        gone(&family);
        eventually("the lock is free", || stage.is_free("job"));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn kill_9_of_the_shim_takes_what_has_left_the_group() {
    let stage = Stage::new();
    for script in LEAVERS {
        let (mut running, family) = started(&stage, script);
        kill_process(running.shim(), Signal::KILL).unwrap();
        assert_eq!(running.code(), Some(137), "{script}");
        assert!(!runs(family[0]) && !runs(family[1]), "{script}");
        assert!(stage.is_free("job"));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_lost_lock_ends_what_has_left_the_group() {
    let stage = Stage::new();
    let clock = BootClock::default();
    for script in LEAVERS {
        let (mut running, family) = started(&stage, script);
        assert_eq!(stage.code(&["break", "job", "--yes"]), Some(0));
        let broken = clock.now();
        assert_eq!(running.code(), Some(76), "{script}");
        let took = clock.now().since(broken);
        assert!(!runs(family[0]) && !runs(family[1]), "{script}");
        assert!(took < Duration::from_secs(2), "{script}: {took:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn sigterm_ends_what_has_left_the_group() {
    let stage = Stage::new();
    for script in LEAVERS {
        let (mut running, family) = started(&stage, script);
        running.signal(Signal::TERM);
        assert_eq!(running.code(), Some(143), "{script}");
        assert!(!runs(family[0]) && !runs(family[1]), "{script}");
        assert!(stage.is_free("job"));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn what_has_left_the_group_and_will_not_end_is_killed() {
    let stage = Stage::new();
    let script =
        "echo $$; setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & wait";
    for signal in [Signal::TERM, Signal::INT] {
        let mut running = stage.run(&["--kill-after", "200ms"], "job", script);
        let family = [running.line_pid(), running.line_pid()];
        running.signal(signal);
        assert_eq!(running.code(), Some(128 + signal.as_raw()));
        assert!(!runs(family[0]) && !runs(family[1]));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn children_that_the_command_had_before_are_left_alone() {
    let stage = Stage::new();
    // The shell becomes the command, and its background job is a child of it.
    let mut command = stage.under("sleep 600 & echo $!; exec \"$0\" \"$@\"");
    command.args(["run", "job", "--", "sh", "-c", "echo $$; exec sleep 600"]);
    let mut running = Running::start(command);
    let before = running.line_pid();
    let program = running.line_pid();
    let shim = running
        .children()
        .into_iter()
        .find(|&pid| pid != before)
        .unwrap();
    kill_process(shim, Signal::KILL).unwrap();
    assert_eq!(running.code(), Some(137));
    assert!(runs(before) && !runs(program));
    kill_process(before, Signal::KILL).unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn a_process_is_found_whatever_its_name() {
    let stage = Stage::new();
    // What the system shows of a process has its name in parentheses, and then a letter for its state.
    let script = format!(
        "cp \"$(command -v sleep)\" '{0}'; setsid '{0}' 600 & echo $!; wait",
        stage.dir().join("a) Z 9 (b").display()
    );
    let mut running = stage.run(&["--ttl", "2s"], "job", &script);
    let pid = running.line_pid();
    running.signal(Signal::TERM);
    assert_eq!(running.code(), Some(143));
    assert!(!runs(pid));
}
