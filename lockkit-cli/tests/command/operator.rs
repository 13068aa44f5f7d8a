//! `status`, `list`, `watch`, `break`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::stage::{Running, Stage, eventually};

const HOLD: &str = "echo $LOCKKIT_TOKEN; exec sleep 600";

fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap()
}

#[test]
fn status_tells_held_from_free() {
    let stage = Stage::used();
    assert_eq!(stage.code(&["status", "job"]), Some(1));
    let free = json(&stage.call(&["status", "job", "--json"]).stdout);
    assert_eq!(free["held"], false);
    assert_eq!(free["holders"], serde_json::json!([]));

    let mut holder = stage.run(&[], "job", HOLD);
    let token: u64 = holder.line().parse().unwrap();
    let held = stage.call(&["status", "job", "--json"]);
    assert_eq!(held.status.code(), Some(0));
    let held = json(&held.stdout);
    assert_eq!(held["name"], "job");
    assert_eq!(held["held"], true);
    assert_eq!(held["token"], token);
    assert_eq!(held["holders"].as_array().unwrap().len(), 1);
    assert!(held.get("remaining_ms").is_some() && held.get("waiters").is_some());
    let text = String::from_utf8(stage.call(&["status", "job"]).stdout).unwrap();
    assert!(text.contains(&format!("token      {token}")), "{text}");
}

#[test]
fn holder_is_shown_with_its_program_and_note() {
    let stage = Stage::used();
    let mut holder = stage.run(&["--note", "invoice 7"], "job", HOLD);
    holder.line();
    eventually("the note is there", || {
        let held = json(&stage.call(&["status", "job", "--json"]).stdout);
        held["holders"][0]["note"] == "invoice 7"
    });
    let held = json(&stage.call(&["list", "--json"]).stdout);
    let label = held[0]["holders"][0]["label"].as_str().unwrap().to_owned();
    assert!(label.ends_with(&format!(":{} sh", holder.pid())), "{label}");
    let text = String::from_utf8(stage.call(&["status", "job"]).stdout).unwrap();
    assert!(text.contains(&format!("holder     {label}")), "{text}");
    assert!(text.contains("note \"invoice 7\""), "{text}");
    let long = "x".repeat(513);
    assert_eq!(
        stage.code(&["run", "--note", &long, "other", "--", "true"]),
        Some(64)
    );
}

#[test]
fn several_locks_are_held_together_or_not_at_all() {
    let stage = Stage::used();
    let mut holder = stage.run(&["--also", "b", "--also", "c"], "job", HOLD);
    let token: u64 = holder.line().parse().unwrap();
    let state = |name| json(&stage.call(&["status", name, "--json"]).stdout);
    assert_eq!(state("job")["token"], token);
    for name in ["job", "b", "c"] {
        assert_eq!(state(name)["held"], true, "{name}");
    }
    let refused = stage.call(&["run", "-n", "--also", "c", "a", "--", "true"]);
    assert_eq!(refused.status.code(), Some(75));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("`c` is held by"), "{said}");
    assert_eq!(state("a")["held"], false);
    holder.signal(Signal::TERM);
    eventually("all are free", || {
        ["job", "b", "c"]
            .iter()
            .all(|name| state(name)["held"] == false)
    });
    let twice = stage.call(&["run", "--also", "job", "job", "--", "true"]);
    assert_eq!(twice.status.code(), Some(64));
}

#[test]
fn list_shows_what_begins_with_the_prefix() {
    let stage = Stage::used();
    assert_eq!(
        json(&stage.call(&["list", "--json"]).stdout),
        serde_json::json!([])
    );
    let mut holders = ["a/1", "a/2", "b/1"].map(|name| stage.run(&[], name, HOLD));
    for holder in &mut holders {
        holder.line();
    }
    let names = |prefix: &[&str]| {
        let mut arguments = vec!["list", "--json"];
        arguments.extend(prefix);
        let listed = json(&stage.call(&arguments).stdout);
        let listed = listed.as_array().unwrap().iter();
        listed
            .map(|lock| lock["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&["a/"]), ["a/1", "a/2"]);
    assert_eq!(names(&[]), ["a/1", "a/2", "b/1"]);
    assert_eq!(names(&["c"]), [""; 0]);
    let table = String::from_utf8(stage.call(&["list", "a/"]).stdout).unwrap();
    assert_eq!(table.lines().count(), 3, "{table}");
}

#[test]
fn list_says_how_many_entries_it_cannot_read() {
    let stage = Stage::new();
    let locks = stage.dir().join("locks");
    let url = format!("file:{}", locks.display());
    let used = stage.code(&["run", "--url", &url, "job", "--", "true"]);
    assert_eq!(used, Some(0));
    let list = || {
        let output = stage.call(&["list", "--url", &url, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(output.stdout, b"[]\n");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(list(), "");
    std::fs::create_dir(locks.join("x.lock")).unwrap();
    let said = list();
    assert!(said.starts_with("lockkit: 1 of the entries"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn break_needs_a_yes() {
    let stage = Stage::new();
    let mut holder = stage.run(&["--ttl", "3s"], "job", HOLD);
    let token = holder.line();
    let refused = stage.call(&["break", "job"]);
    assert_eq!(refused.status.code(), Some(64));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains(&token) && said.contains("--yes"), "{said}");
    assert!(!stage.is_free("job"));

    let broken = stage.call(&["break", "job", "--yes", "--json"]);
    assert!(refused.stdout.is_empty());
    assert_eq!(broken.status.code(), Some(0), "{broken:?}");
    let broken = json(&broken.stdout);
    assert_eq!(broken["broken"], true);
    assert_eq!(broken["lock"]["token"].to_string(), token);
    assert_eq!(holder.code(), Some(76));
    assert_eq!(stage.code(&["break", "job", "--yes"]), Some(1));
}

#[test]
fn watch_prints_a_line_for_each_change_and_ends_on_a_signal() {
    let stage = Stage::used();
    let mut command = stage.lockkit();
    command.args(["watch", "job", "--json", "--interval", "20ms"]);
    let mut watch = Running::start(command);
    let mut other = stage.run(&[], "other", HOLD);
    other.line();
    let mut holder = stage.run(&[], "job/1", HOLD);
    let token = holder.line();
    let event = json(watch.line().as_bytes());
    assert_eq!(event["event"], "held");
    assert!(event["at"].is_string() && event["lock"]["store"].is_string());
    assert_eq!(event["lock"]["name"], "job/1");
    assert_eq!(event["lock"]["token"].to_string(), token);
    holder.signal(Signal::TERM);
    let event = json(watch.line().as_bytes());
    assert_eq!(event["event"], "free");
    assert_eq!(event["lock"]["held"], false);
    watch.signal(Signal::INT);
    assert_eq!(watch.code(), Some(0));
    assert_eq!(watch.said(), "");
}

#[test]
fn watch_polls_without_an_interval_too() {
    let stage = Stage::used();
    let mut command = stage.lockkit();
    command.args(["watch", "--interval", "0s"]);
    let mut watch = Running::start(command);
    let mut holder = stage.run(&[], "job", HOLD);
    holder.line();
    let line = watch.line();
    assert!(line.contains("  held "), "{line}");
    holder.signal(Signal::TERM);
    let line = watch.line();
    assert!(line.contains("  free "), "{line}");
    watch.signal(Signal::INT);
    assert_eq!(watch.code(), Some(0));
}

#[test]
fn operators_are_told_where_the_locks_are_if_they_gave_no_url() {
    let stage = Stage::at(None);
    assert!(stage.is_free("job"));
    let place = format!("the locks are files in `{}/lockkit`", stage.dir().display());
    let calls: [&[&str]; 3] = [
        &["list"],
        &["break", "job", "--yes"],
        &["purge", "--older-than", "7d"],
    ];
    for call in calls {
        let said = String::from_utf8(stage.call(call).stderr).unwrap();
        assert!(said.starts_with(&format!("lockkit: {place}")), "{said}");
        // JSON names the store, and so does the text of `status`.
        let json = stage.call(&[call, &["--json"]].concat());
        assert_eq!(json.stderr, b"", "{call:?}");
    }
    assert_eq!(stage.call(&["status", "job"]).stderr, b"");
    let mut command = stage.lockkit();
    command.arg("watch");
    let said = Running::start(command).said_line();
    assert!(said.contains(&place), "{said}");
}

#[test]
fn watch_ends_quietly_when_its_output_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::at(Some(format!("file:{}", dir.path().display())));
    let mut holder = stage.run(&[], "job", HOLD);
    holder.line();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = stage.lockkit();
    command
        .args(["watch", "--interval", "20ms"])
        .stdout(writer)
        .stderr(Stdio::piped());
    let mut watch = command.spawn().unwrap();
    drop(command);
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).unwrap();
    let (at, event) = line.split_once("  ").unwrap();
    assert!(humantime::parse_rfc3339(at).is_ok(), "{line}");
    assert!(event.starts_with("held"), "{line}");
    holder.signal(Signal::TERM);
    eventually("the watch ends", || watch.try_wait().unwrap().is_some());
    let output = watch.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stderr, b"");
}

#[test]
fn schema_prints_what_makes_the_table_and_touches_nothing() {
    let stage = Stage::new();
    for url in [
        "sqlite:/nowhere/locks.db?table=app_locks",
        "postgres://nowhere.invalid/?table=app_locks",
        "mysql://nowhere.invalid/db?table=app_locks",
    ] {
        let output = stage.call(&["schema", url]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("CREATE TABLE IF NOT EXISTS"), "{text}");
        assert!(
            text.contains("app_locks") && !text.contains("{table}"),
            "{text}"
        );
    }
    assert_eq!(stage.code(&["schema", "redis://host/"]), Some(64));
    assert_eq!(stage.code(&["schema", "sqlite:a.db?table=a;b"]), Some(64));
}

#[test]
fn purge_deletes_rows_and_refuses_what_has_none() {
    let stage = Stage::new();
    let url = format!("sqlite:{}/purged.db", stage.dir().display());
    assert_eq!(
        stage.code(&["run", "--url", &url, "job", "--", "true"]),
        Some(0)
    );
    let arguments = ["purge", &url, "--older-than", "7d", "--json"];
    let output = stage.call(&arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(json(&output.stdout)["purged"], 0);
    // Shorter than the longest lease: the row of a hold could go with its token.
    let refused = stage.call(&["purge", &url, "--older-than", "1h"]);
    assert_eq!(refused.status.code(), Some(64));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("give at least 1d"), "{said}");
    assert_eq!(
        stage.code(&["purge", "memory:", "--older-than", "7d"]),
        Some(64)
    );
}

/// Before it waits: it has nothing to keep for a program that cannot start.
#[test]
fn note_that_is_too_long_is_refused_at_once() {
    let stage = Stage::new();
    let mut holder = stage.run(&[], "job", HOLD);
    holder.line();
    let note = "x".repeat(513);
    let run = [
        "run",
        "--at-least",
        "10m",
        "--note",
        &note,
        "job",
        "--",
        "true",
    ];
    assert_eq!(stage.code(&run), Some(64));
}

#[test]
fn break_of_a_free_lock_asks_nothing() {
    let stage = Stage::used();
    assert_eq!(stage.code(&["break", "job"]), Some(1));
}

#[test]
fn break_names_the_holder_and_warns_that_its_program_can_continue() {
    let stage = Stage::new();
    let mut holder = stage.run(&["--ttl", "3s"], "job", HOLD);
    holder.line();
    let broken = stage.call(&["break", "job", "--yes"]);
    let said = String::from_utf8(broken.stdout).unwrap();
    assert!(said.starts_with("broken: `job` was held by "), "{said}");
    assert!(said.contains("until its next renewal"), "{said}");
    // It may be a service, or the stay after a program.
    assert!(said.contains("the former holder can continue"), "{said}");
    assert_eq!(holder.code(), Some(76));
}

#[test]
fn reading_creates_nothing_and_reports_what_is_missing() {
    let stage = Stage::new();
    let looks: [&[&str]; 5] = [
        &["status", "job"],
        &["list"],
        &["watch"],
        &["break", "job", "--yes"],
        &["purge", "--older-than", "7d"],
    ];
    let place = stage.dir().join("typo");
    let urls = ["file", "sqlite"].map(|scheme| format!("{scheme}:{}", place.display()));
    for look in looks {
        // Of the store of these tests, nothing is there either.
        assert_eq!(stage.code(look), Some(69), "{look:?}");
        assert_eq!(stage.code(look), Some(69), "{look:?}");
        for url in &urls {
            let output = stage.call(&[&["--url", url], look].concat());
            assert_eq!(output.status.code(), Some(69), "{output:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains("does not exist"), "{said}");
            assert!(!place.exists(), "{url} {look:?}");
        }
    }
}

#[test]
fn a_path_that_cannot_be_a_store_is_a_wrong_argument() {
    let stage = Stage::new();
    let file = stage.dir().join("plain");
    std::fs::write(&file, "").unwrap();
    let urls = [
        "file:~/locks".to_owned(),
        "sqlite:~/locks.db".to_owned(),
        format!("file:{}", file.display()),
        format!("sqlite:{}", stage.dir().display()),
    ];
    for url in &urls {
        for arguments in [["run", "job", "--", "true"].as_slice(), &["status", "job"]] {
            let mut command = stage.lockkit();
            command.current_dir(stage.dir());
            let output = command.args(["--url", url]).args(arguments).output();
            assert_eq!(
                output.unwrap().status.code(),
                Some(64),
                "{url} {arguments:?}"
            );
        }
    }
    assert!(!stage.dir().join("~").exists());
}

#[test]
fn purge_removes_files_that_are_not_locked() {
    let stage = Stage::new();
    let locks = stage.dir().join("locks");
    let url = format!("file:{}", locks.display());
    let mut command = stage.lockkit();
    command.args(["run", "--url", &url, "held", "--", "sh", "-c", HOLD]);
    let mut holder = Running::start(command);
    holder.line();
    for name in ["a", "b"] {
        let code = stage.code(&["run", "--url", &url, name, "--", "true"]);
        assert_eq!(code, Some(0));
    }
    eventually("the files are old enough", || {
        stage.code(&["purge", &url, "--older-than", "1us"]) == Some(0)
            && std::fs::read_dir(&locks).unwrap().count() == 1
    });
    assert!(locks.join("held.lock").exists());
}
