//! Signals to the command reach the program.

use rustix::process::{Signal, kill_process};

use crate::stage::{Running, Stage, eventually};

#[test]
fn signals_are_passed_on_to_the_whole_group() {
    let stage = Stage::new();
    let names = [
        ("TERM", Signal::TERM),
        ("INT", Signal::INT),
        ("HUP", Signal::HUP),
        ("QUIT", Signal::QUIT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
    ];
    for (name, signal) in names {
        // Perl notices a signal between two calls: one that comes right before a sleep waits for its end.
        let script = format!(
            "trap 'echo parent; wait; exit 3' {name}; \
             perl -e '$SIG{{{name}}} = sub {{ print \"child\\n\"; exit }}; $| = 1; print \"ready\\n\"; sleep 1 while 1' & \
             while :; do sleep 0.02; done"
        );
        let mut running = stage.run(&[], "job", &script);
        assert_eq!(running.line(), "ready");
        running.signal(signal);
        let mut heard = [running.line(), running.line()];
        heard.sort();
        assert_eq!(heard, ["child", "parent"], "{name}");
        assert_eq!(running.code(), Some(3), "{name}");
    }
}

#[test]
fn a_signal_that_ends_the_program_ends_the_command_and_frees_the_name() {
    let stage = Stage::new();
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut running = stage.run(&[], "job", "echo ready; exec sleep 600");
        running.line();
        running.signal(signal);
        assert_eq!(running.code(), Some(code));
        assert!(stage.is_free("job"));
    }
}

#[test]
fn a_second_signal_is_passed_on_like_the_first() {
    let stage = Stage::new();
    let script = "n=0; trap 'n=$((n+1)); echo $n; [ $n = 3 ] && exit 4' TERM; \
                  echo ready; while :; do sleep 0.02; done";
    let mut running = stage.run(&[], "job", script);
    assert_eq!(running.line(), "ready");
    for n in ["1", "2", "3"] {
        running.signal(Signal::TERM);
        assert_eq!(running.line(), n);
    }
    assert_eq!(running.code(), Some(4));
}

#[test]
fn a_signal_ends_the_wait_for_the_lock() {
    let stage = Stage::new();
    let mut holder = stage.run(&[], "job", "echo ready; exec sleep 600");
    holder.line();
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut waiter = stage.run(&["-v"], "job", "echo ran");
        let mut said = waiter.said_line();
        if said.contains("does not respond yet") {
            // A store that opened slowly, on a busy machine.
            said = waiter.said_line();
        }
        assert!(said.contains("waiting: "), "{said}");
        waiter.signal(signal);
        assert_eq!(waiter.code(), Some(code));
        assert_eq!(waiter.line(), "");
    }
    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), Some(143));
    assert!(stage.is_free("job"));
}

#[test]
fn a_stopped_program_keeps_the_lock() {
    let stage = Stage::new();
    // Long enough for a disk or a machine that stands still for a second or two.
    let mut running = stage.run(&["--ttl", "4s"], "job", "echo $$; exec sleep 600");
    let program = running.line_pid();
    kill_process(program, Signal::STOP).unwrap();
    // Longer than the lease: the command itself runs on and renews.
    let waited = stage.code(&["run", "--wait", "5s", "job", "--", "true"]);
    assert_eq!(waited, Some(75));
    running.signal(Signal::CONT);
    running.signal(Signal::TERM);
    assert_eq!(running.code(), Some(143));
    eventually("the lock is free", || stage.is_free("job"));
}

/// It was passed on, and says nothing about a later one.
#[test]
fn a_stop_that_the_program_ignores_stops_nothing_later() {
    let stage = Stage::new();
    let script = "trap '' TSTP; echo $$; while :; do sleep 0.02; done";
    let mut running = stage.run(&["--ttl", "2s"], "job", script);
    let program = running.line_pid();
    running.signal(Signal::TSTP);
    // One that comes soon would be taken for the one that was passed on.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    kill_process(program, Signal::STOP).unwrap();
    // Longer than the lease: the command itself runs on and renews.
    let waited = stage.code(&["run", "--wait", "4s", "job", "--", "true"]);
    assert_eq!(waited, Some(75));
    kill_process(program, Signal::CONT).unwrap();
    running.signal(Signal::TERM);
    assert_eq!(running.code(), Some(143));
}

#[test]
#[cfg(target_os = "linux")]
fn a_signal_that_was_ignored_stays_ignored() {
    let stage = Stage::new();
    let mut holder = stage.run(&[], "job", "echo ready; exec sleep 600");
    holder.line();
    let mut command = stage.under("trap '' HUP; exec \"$0\" \"$@\"");
    command.args([
        "run",
        "-v",
        "job",
        "--",
        "sh",
        "-c",
        "kill -HUP $$; echo alive",
    ]);
    let mut waiter = Running::start(command);
    waiter.said_line();
    waiter.signal(Signal::HUP);
    holder.signal(Signal::TERM);
    assert_eq!(waiter.line(), "alive");
    assert_eq!(waiter.code(), Some(0));
}
