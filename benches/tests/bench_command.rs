//! The command `lockkit-bench`, on the stores that need no server.

use std::io;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

const SHORT: [&str; 4] = ["--time", "1s", "--rounds", "2"];

/// Runs the command to its end.
fn bench(arguments: &[&str]) -> io::Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkit-bench"));
    command.args(arguments).output()
}

#[test]
fn measures_the_stores_without_a_server_by_default() {
    let dir = TempDir::new().unwrap();
    let page = dir.path().join("report.html");
    let html = format!("--html={}", page.display());
    let arguments = [&["--only", "solo,crowd", "--json", "-", &html], &SHORT[..]];
    let out = bench(&arguments.concat()).unwrap();
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let stores = report["stores"].as_array().unwrap();
    let labels: Vec<_> = stores.iter().map(|store| store["label"].as_str()).collect();
    assert_eq!(labels[..2], [Some("memory"), Some("file")]);
    let topics = report["figures"].as_array().unwrap().iter();
    let topics: std::collections::BTreeSet<_> = topics.map(|it| it["topic"].as_str()).collect();
    assert_eq!(topics, [Some("crowd"), Some("solo")].into());
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg"));
    assert!(!page.contains("http"), "the page needs the network");
}

#[test]
fn shows_the_name_that_a_store_was_given() {
    let dir = TempDir::new().unwrap();
    let store = format!("mine=file:{}", dir.path().join("locks").display());
    let out = bench(&[&[&store, "--only", "throughput"], &SHORT[..]].concat()).unwrap();
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    let table = String::from_utf8(out.stdout).unwrap();
    assert!(table.contains("mine: file:/"), "{table}");
    assert!(table.contains("64 tasks, 64 names: cycles"), "{table}");
    let left = std::fs::read_dir(dir.path().join("locks")).unwrap();
    assert_eq!(left.count(), 0, "files of the run are left");
}

#[test]
fn an_unreachable_store_is_69_and_its_password_is_hidden() {
    let out = bench(&["redis://me:s3cret@127.0.0.1:1/?outage=1s"]).unwrap();
    assert_eq!(out.status.code(), Some(69), "{out:?}");
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(
        said.contains("redis: ") && !said.contains("s3cret"),
        "{said}"
    );
}

#[test]
fn an_unknown_part_is_64_and_the_message_lists_the_parts() {
    let out = bench(&["--only", "sollo"]).unwrap();
    assert_eq!(out.status.code(), Some(64));
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("solo") && said.contains("recovery"), "{said}");
}

#[test]
fn a_report_that_cannot_be_written_fails_before_measuring() {
    let dir = TempDir::new().unwrap();
    let html = format!("{}/missing/report.html", dir.path().display());
    let store = format!("file:{}/locks", dir.path().display());
    let out = bench(&[&store, "--html", &html]).unwrap();
    assert_eq!(out.status.code(), Some(71), "{out:?}");
    assert!(!dir.path().join("locks").exists());
}
