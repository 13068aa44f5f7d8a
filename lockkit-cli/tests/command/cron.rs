//! The example for cron.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::stage::{Running, Stage, eventually};

/// The script of the examples, where the command is on the path.
fn nightly(stage: &Stage, seconds: &str, at_least: &str) -> Command {
    let directory = Path::new(env!("CARGO_BIN_EXE_lockkit")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut script = Command::new("sh");
    script
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/nightly.sh"))
        .env("PATH", format!("{}:{path}", directory.display()))
        .env("LOCKKIT_URL", format!("file:{}", stage.dir().display()))
        .env("SECONDS_OF_WORK", seconds)
        .env("AT_LEAST", at_least)
        .stdin(Stdio::null());
    script
}

#[test]
fn the_second_of_two_jobs_has_nothing_to_do() {
    let stage = Stage::new();
    let mut first = Running::start(nightly(&stage, "600", "0s"));
    assert!(first.line().starts_with("works under token "));
    let mut second = Running::start(nightly(&stage, "0", "0s"));
    assert_eq!(second.line(), "");
    assert_eq!(second.code(), Some(0));
    assert_eq!(second.said(), "");
    assert!(first.is_running());
    first.signal(Signal::TERM);
    assert_eq!(first.code(), Some(143));
}

#[test]
fn a_job_that_fails_is_not_hidden() {
    let stage = Stage::new();
    let mut job = Running::start(nightly(&stage, "no number", "0s"));
    assert!(job.line().starts_with("works under token "));
    assert_eq!(job.code(), Some(1));
}

#[test]
fn a_machine_whose_clock_is_late_does_not_run_a_short_job_again() {
    let stage = Stage::new();
    let mut first = Running::start(nightly(&stage, "0", "10m"));
    assert!(first.line().starts_with("works under token "));
    eventually("the job has ended", || first.children().is_empty());
    let mut late = Running::start(nightly(&stage, "0", "10m"));
    assert_eq!(late.line(), "");
    assert_eq!(late.code(), Some(0));
    first.signal(Signal::TERM);
    assert_eq!(first.code(), Some(0));
}
