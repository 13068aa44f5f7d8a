//! Whatever dies, the program never goes on without the lock.

use rustix::process::{Signal, kill_process};

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
