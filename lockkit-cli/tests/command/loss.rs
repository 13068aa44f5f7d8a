//! The lock is lost while the program runs.

#[cfg(target_os = "linux")]
use rustix::process::Pid;
use rustix::process::Signal;

#[cfg(target_os = "linux")]
use crate::stage::{Running, eventually};
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

#[test]
fn what_the_program_left_running_does_not_outlive_the_lease() {
    let stage = Stage::new();
    let ready = stage.dir().join("ready");
    let script = format!(
        "echo $$; sh -c 'trap \"\" TERM; echo $$; : > {0}; while :; do sleep 0.1; done' & \
         until test -e {0}; do sleep 0.02; done",
        ready.display()
    );
    let options = ["--ttl", "3s", "--kill-after", "10m"];
    let mut running = stage.run(&options, "job", &script);
    let [program, left] = [running.line_pid(), running.line_pid()];
    gone(&[program]);
    running.signal(Signal::STOP);
    gone(&[left]);
    assert!(running.is_running());
    running.signal(Signal::CONT);
    assert_eq!(running.code(), Some(76));
    assert!(stage.is_free("job"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_lock_that_is_lost_before_the_program_begins_is_69_and_begins_none() {
    let stage = Stage::database();
    let ran = stage.dir().join("ran");
    // As much as a pipe holds: the command stands still when it says that it has the lock.
    let mut command = stage.under("printf %65536s '' >&2; exec \"$0\" \"$@\"");
    command.args(["run", "-v", "--ttl", "2s", "job", "--", "touch"]);
    command.arg(&ran);
    let mut running = Running::start(command);
    eventually("it has the lock", || {
        stage.code(&["status", "job"]) == Some(0)
    });
    running.signal(Signal::STOP);
    eventually("the lease has ended", || stage.is_free("job"));
    running.signal(Signal::CONT);
    let said = running.said();
    assert_eq!(running.code(), Some(69));
    assert!(said.contains("was lost: "), "{}", said.trim());
    assert!(!ran.exists());
}

#[test]
fn sigkill_comes_before_the_lease_ends() {
    let stage = Stage::database();
    let beside = stage.dir().join("beside");
    let script = format!(
        "trap '' TERM; exec 9>{}; flock 9; echo ready; while :; do sleep 0.05; done",
        beside.display()
    );
    // A hundredth of the lease is left, which must be longer than a busy machine delays a process.
    let mut running = stage.run(&["--ttl", "10s", "--kill-after", "1m"], "job", &script);
    assert_eq!(running.line(), "ready");
    running.signal(Signal::STOP);
    let script = format!("flock -n {} echo alone || echo overlap", beside.display());
    let mut next = stage.run(&[], "job", &script);
    assert_eq!(next.line(), "alone");
    running.signal(Signal::CONT);
    assert_eq!(running.code(), Some(76));
}

#[test]
fn a_job_that_reaches_the_longest_hold_time_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}?max_hold=1s", dir.path().display());
    let mut running = Stage::at(Some(url)).run(&[], "job", "exec sleep 600");
    assert_eq!(running.code(), Some(76));
    let said = running.said();
    assert!(
        said.starts_with("lockkit: the hold of `job` reaches its longest time, `max_hold`, in "),
        "{said}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_file_stays_locked_until_the_program_of_a_killed_command_is_dead() {
    let stage = Stage::at(None);
    let mut running = stage.run(&[], "job", "echo $$; exec sleep 600");
    let program = running.line_pid();
    let has_the_lock_open = |pid: Pid| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let mut files = files.map(|file| std::fs::read_link(file.unwrap().path()));
        files.any(|file| file.is_ok_and(|file| file.ends_with("lockkit/job.lock")))
    };
    // The kernel keeps it while the process is there that kills the program.
    assert!(has_the_lock_open(running.shim()) && !has_the_lock_open(program));
    running.signal(Signal::KILL);
    running.wait();
    eventually("the lock is free", || stage.is_free("job"));
    assert!(!runs(program));
}
