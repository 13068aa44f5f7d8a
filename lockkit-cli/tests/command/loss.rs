//! The lock is lost while the program runs.

use rustix::process::Signal;

use crate::stage::{Stage, gone, runs};

#[test]
fn a_lost_lock_ends_the_group_and_is_76() {
    let stage = Stage::new();
    let script = "echo $$; sh -c 'echo $$; exec sleep 600' & sleep 600";
    let mut running = stage.run(&["--ttl", "3s"], "job", script);
    let family = [running.line_pid(), running.line_pid()];
    assert_eq!(stage.code(&["break", "job", "--yes"]), Some(0));
    assert_eq!(running.code(), Some(76));
    assert!(!runs(family[0]) && !runs(family[1]));
    let said = running.said();
    assert!(said.starts_with("lockkit: lock `job` (token "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(stage.is_free("job"));
}

#[test]
fn the_program_gets_sigterm_and_time_to_clean_up() {
    let stage = Stage::new();
    let script = "trap 'echo cleaned; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let mut running = stage.run(&["--ttl", "3s"], "job", script);
    assert_eq!(running.line(), "ready");
    stage.call(&["break", "job", "--yes"]);
    assert_eq!(running.line(), "cleaned");
    assert_eq!(running.code(), Some(76));
}

#[test]
fn a_program_that_will_not_end_is_killed() {
    let stage = Stage::new();
    let script = "trap '' TERM; echo $$; sh -c 'echo $$; while :; do sleep 0.1; done' & \
                  while :; do sleep 0.1; done";
    let mut running = stage.run(&["--ttl", "3s", "--kill-after", "300ms"], "job", script);
    let family = [running.line_pid(), running.line_pid()];
    stage.call(&["break", "job", "--yes"]);
    assert_eq!(running.code(), Some(76));
    gone(&family);
    // The shim did it, and not the command in its place some seconds later.
    let said = running.said();
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_command_that_stands_still_does_not_leave_the_program_unwatched() {
    let stage = Stage::new();
    let mut running = stage.run(&["--ttl", "3s"], "job", "echo $$; exec sleep 600");
    let program = running.line_pid();
    running.signal(Signal::STOP);
    gone(&[program]);
    assert!(running.is_running());
    running.signal(Signal::CONT);
    assert_eq!(running.code(), Some(76));
    assert!(stage.is_free("job"));
}
