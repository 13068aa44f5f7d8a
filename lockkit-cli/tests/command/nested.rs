//! A run inside a run would wait for itself if both want the same lock.

use std::process::Output;

use crate::stage::{Stage, eventually};

/// Calls runs, each of which runs the next one; the last one prints `ran`.
fn chain(stage: &Stage, runs: &[&[&str]]) -> Output {
    let mut command = stage.lockkit();
    for (depth, arguments) in runs.iter().enumerate() {
        if depth > 0 {
            command.arg(env!("CARGO_BIN_EXE_lockkit"));
        }
        // Without an end to the wait, the test would not end if it fails.
        let wait = ["run", "--wait", "5s"];
        command.args(wait).args(*arguments).arg("--");
    }
    command.args(["echo", "ran"]).output().unwrap()
}

fn is_refused(stage: &Stage, runs: &[&[&str]], name: &str) {
    let output = chain(stage, runs);
    assert_eq!(output.status.code(), Some(64), "{runs:?}: {output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = format!("lockkit: `{name}` is held by a `lockkit run` that runs this one");
    assert!(said.starts_with(&expected), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

fn runs(stage: &Stage, runs: &[&[&str]]) {
    let output = chain(stage, runs);
    assert_eq!(output.stdout, b"ran\n", "{runs:?}: {output:?}");
}

#[test]
fn a_run_inside_a_run_of_the_same_name_is_64() {
    let stage = Stage::new();
    is_refused(&stage, &[&["a"], &["a"]], "a");
    is_refused(&stage, &[&["a"], &["b"], &["a"]], "a");
    is_refused(&stage, &[&["a"], &["b"], &["c"], &["b"]], "b");
    is_refused(&stage, &[&["--also", "b", "a"], &["b"]], "b");
    is_refused(&stage, &[&["a"], &["--also", "a", "b"]], "a");
    runs(&stage, &[&["--also", "b", "a"], &["c"], &["d"]]);
}

#[test]
fn a_prefix_hides_no_outer_run() {
    let stage = Stage::new();
    let url = format!("file:{}/locks", stage.dir().display());
    let prefixed = format!("{url}?prefix=p:");
    let [plain, short] = [["--url", &url, "p:a"], ["--url", &prefixed, "a"]];
    is_refused(&stage, &[&plain, &short], "a");
    is_refused(&stage, &[&short, &plain], "p:a");
    runs(&stage, &[&["--url", &url, "a"], &short]);
}

#[test]
fn a_run_that_shares_inside_one_is_64_while_one_that_excludes_waits() {
    let dir = tempfile::tempdir().unwrap();
    // The embedded store has exclusive locks only.
    let stage = Stage::at(Some(format!("sqlite:{}/locks.db", dir.path().display())));
    for waits in [false, true] {
        let go = dir.path().join(format!("go{waits}"));
        let script = format!(
            "echo ready; until test -e {}; do sleep 0.02; done; \
             {} run --wait 5s --shared a -- echo ran; echo $?",
            go.display(),
            env!("CARGO_BIN_EXE_lockkit")
        );
        let mut outer = stage.run(&["--shared"], "a", &script);
        assert_eq!(outer.line(), "ready");
        let waiter = waits.then(|| stage.run(&[], "a", "true"));
        eventually("the other one waits", || {
            let state = stage.call(&["status", "a", "--json"]).stdout;
            let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
            state["waiters"] == i32::from(waits)
        });
        std::fs::write(go, "").unwrap();
        if !waits {
            assert_eq!(outer.line(), "ran");
        }
        assert_eq!(outer.line(), if waits { "64" } else { "0" });
        assert_eq!(outer.code(), Some(0));
        let said = outer.said();
        let why = "would wait for itself, behind another that waits for it";
        assert_eq!(said.contains(why), waits, "{said}");
        if let Some(mut waiter) = waiter {
            assert_eq!(waiter.code(), Some(0));
        }
    }
}

#[test]
fn odd_names_are_found_again_and_not_confused() {
    let stage = Stage::new();
    let odd = "a \"b\", \\:\n\u{1F512}";
    let shown = "a \"b\", \\:\\u{a}\u{1F512}";
    is_refused(&stage, &[&["--also", odd, "x"], &["b"], &[odd]], shown);
    runs(&stage, &[&[odd], &["a"], &["b"], &["a \"b\""]]);
}

#[test]
fn another_store_may_have_the_same_name() {
    let stage = Stage::new();
    let url = format!("file:{}/another", stage.dir().display());
    let there = ["--url", &url];
    let there = |name| [there[0], there[1], name];
    runs(&stage, &[&["a"], &there("a"), &there("b")]);
    is_refused(&stage, &[&["a"], &there("b"), &["a"]], "a");
    is_refused(&stage, &[&there("a"), &["a"], &there("a")], "a");
}

#[test]
fn the_program_finds_all_locks_that_it_runs_under() {
    let stage = Stage::new();
    let mut command = stage.lockkit();
    let lockkit = env!("CARGO_BIN_EXE_lockkit");
    command.args(["run", "--also", "b", "a", "--", lockkit, "run", "c", "--"]);
    let script = r#"echo "$LOCKKIT_HELD"; echo "$LOCKKIT_TOKEN""#;
    let output = command.args(["sh", "-c", script]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (held, token) = text.trim_end().split_once('\n').unwrap();
    let held: Vec<serde_json::Value> = serde_json::from_str(held).unwrap();
    let mut names: Vec<_> = held.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names.pop(), Some("c"));
    names.sort_unstable();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(held[2]["token"].to_string(), token);
}
