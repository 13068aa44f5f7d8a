//! Several commands want one lock.

use std::time::Duration;

use lockkit::clock::{BootClock, Clock};
use rustix::process::Signal;

use crate::stage::{Running, Stage, eventually};

const HOLD: &str = "echo $LOCKKIT_TOKEN; exec sleep 600";

#[test]
fn no_wait_on_a_held_name_is_75_at_once_and_runs_nothing() {
    let stage = Stage::new();
    let mut holder = stage.run(&[], "job", HOLD);
    holder.line();
    for options in [
        ["--no-wait"].as_slice(),
        &["-n"],
        &["--wait", "0s"],
        &["--wait", "50ms"],
    ] {
        let mut other = stage.run(options, "job", "echo ran");
        assert_eq!(other.code(), Some(75));
        assert_eq!(other.line(), "");
        let said = other.said();
        assert!(said.starts_with("lockkit: `job` is held by "), "{said}");
    }
    let mut quiet = stage.run(&["-n", "-q"], "job", "echo ran");
    assert_eq!(quiet.code(), Some(75));
    assert_eq!(quiet.said(), "");
}

#[test]
fn one_waits_for_the_other_and_the_token_grows() {
    let stage = Stage::new();
    let go = stage.dir().join("go");
    let until_go = format!(
        "echo $LOCKKIT_TOKEN; until test -e {}; do sleep 0.02; done",
        go.display()
    );
    let mut first = stage.run(&[], "job", &until_go);
    let before: u64 = first.line().parse().unwrap();
    let mut second = stage.run(&["-v"], "job", "echo $LOCKKIT_TOKEN");
    let mut third = stage.run(&["--wait", "1m"], "job", "echo $LOCKKIT_TOKEN");
    assert!(!stage.is_free("job"));
    assert!(second.is_running() && third.is_running());
    std::fs::write(&go, "").unwrap();
    let mut after = [second.line(), third.line()].map(|line| line.parse::<u64>().unwrap());
    after.sort_unstable();
    assert!(
        before < after[0] && after[0] < after[1],
        "{before} {after:?}"
    );
    assert_eq!([first.code(), second.code(), third.code()], [Some(0); 3]);
}

#[test]
fn it_says_once_for_whom_it_waits() {
    let stage = Stage::new();
    let mut holder = stage.run(&[], "job", HOLD);
    let token = holder.line();
    let mut waiter = stage.run(&["-v", "--wait", "1s"], "job", "true");
    assert_eq!(waiter.code(), Some(75));
    let said = waiter.said();
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(
        lines[0].starts_with("lockkit: waiting: `job` is held by "),
        "{said}"
    );
    assert!(lines[0].contains(&token), "{said}");
    assert!(
        lines[0].contains(&format!(":{} sh", holder.pid())),
        "{said}"
    );
    let mut silent = stage.run(&["-q", "--wait", "1s"], "job", "true");
    assert_eq!(silent.code(), Some(75));
    assert_eq!(silent.said(), "");
}

#[test]
fn no_two_run_at_once() {
    let stage = Stage::new();
    let script = format!(
        "mkdir {0} || exit 9; sleep 0.01; rmdir {0} || exit 9",
        stage.dir().join("inside").display()
    );
    let mut all: Vec<_> = (0..12).map(|_| stage.run(&[], "job", &script)).collect();
    for one in &mut all {
        assert_eq!(one.code(), Some(0));
    }
    eventually("the lock is free", || stage.is_free("job"));
}

#[test]
fn a_job_that_ends_sooner_keeps_its_lock() {
    let stage = Stage::new();
    let clock = BootClock::default();
    let began = clock.now();
    let mut running = stage.run(&["--at-least", "2s"], "job", "echo ran; exit 3");
    assert_eq!(running.line(), "ran");
    assert_eq!(stage.code(&["run", "-n", "job", "--", "true"]), Some(75));
    assert_eq!(running.code(), Some(3));
    let took = clock.now().since(began);
    assert!(took >= Duration::from_secs(2), "{took:?}");
    assert!(stage.is_free("job"));
}

/// The system refuses a process that has one more byte in a variable of its environment.
#[test]
#[cfg(target_os = "linux")]
fn the_lock_of_a_job_that_could_not_start_is_not_kept() {
    let stage = Stage::database();
    let mut outer = "[\"\"]".to_owned();
    outer.insert_str(2, &"x".repeat(128 * 1024 - "LOCKKIT_HELD=[\"\"]\0".len()));
    let mut command = stage.lockkit();
    command.args(["run", "--at-least", "10m", "job", "--", "true"]);
    command.env("LOCKKIT_HELD", outer);
    assert_eq!(Running::start(command).code(), Some(71));
    assert!(stage.is_free("job"));
}

#[test]
fn a_signal_ends_the_stay_of_a_lock_whose_job_has_ended() {
    let stage = Stage::new();
    let mut command = stage.lockkit();
    command.args(["run", "-v", "--at-least", "10m", "job", "--", "true"]);
    let mut running = Running::start(command);
    assert!(running.said_line().contains("holds"));
    let said = running.said_line();
    // The rest of ten minutes, of which the job took a few seconds at most.
    assert!(said.contains("keeps `job` for 9m 5"), "{said}");
    // Less than the lease is waited for; more than it, a database is left with.
    if running.is_running() {
        running.signal(Signal::TERM);
    }
    assert_eq!(running.code(), Some(0));
    assert_eq!(stage.is_free("job"), stage.is_embedded());
}

#[test]
fn a_signal_that_ends_a_job_ends_its_stay_too() {
    let stage = Stage::new();
    let mut running = stage.run(&["--at-least", "10m"], "job", "echo ready; exec sleep 600");
    assert_eq!(running.line(), "ready");
    running.signal(Signal::TERM);
    assert_eq!(running.code(), Some(143));
    assert_eq!(stage.is_free("job"), stage.is_embedded());
}

#[test]
fn a_lock_that_is_broken_after_its_job_does_not_fail_the_job() {
    let stage = Stage::new();
    let mut command = stage.lockkit();
    let stay = ["--ttl", "9s", "--at-least", "6s"];
    command.args(["run", "-v"]).args(stay);
    command.args(["job", "--", "sh", "-c", "exit 3"]);
    let mut running = Running::start(command);
    assert!(running.said_line().contains("holds"));
    assert!(running.said_line().contains("keeps"));
    stage.call(&["break", "--yes", "job"]);
    assert_eq!(running.code(), Some(3));
}

#[test]
fn the_process_that_holds_is_the_one_behind_the_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let url = |prefix: &str| format!("file:{}?prefix={prefix}", dir.path().display());
    let [near, other] = ["a:", ""].map(|prefix| Stage::at(Some(url(prefix))));
    let mut holder = near.run(&[], "job", HOLD);
    holder.line();
    let mut stranger = other.run(&[], "job", HOLD);
    stranger.line();
    let refused = near.call(&["run", "-n", "job", "--", "true"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains(&format!(":{} sh", holder.pid())), "{said}");
}
