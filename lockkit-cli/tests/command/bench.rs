//! `lockkit bench`, on the stores that need no server.

use serde_json::Value;

use crate::stage::Stage;

const SHORT: [&str; 4] = ["--time", "1s", "--rounds", "2"];

#[test]
fn without_a_store_those_are_measured_that_need_no_server() {
    let stage = Stage::new();
    let page = stage.dir().join("report.html");
    let html = format!("--html={}", page.display());
    let arguments = [
        &["bench", "--only", "solo,crowd", "--json", "-", &html],
        &SHORT[..],
    ];
    let out = stage.call(&arguments.concat());
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
fn a_store_has_the_name_that_it_was_given() {
    let stage = Stage::new();
    let store = format!("mine=file:{}", stage.dir().join("locks").display());
    let out = stage.call(&[&["bench", &store, "--only", "throughput"], &SHORT[..]].concat());
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    let table = String::from_utf8(out.stdout).unwrap();
    assert!(table.contains("mine: file:/"), "{table}");
    assert!(table.contains("64 tasks, 64 names: cycles"), "{table}");
    let left = std::fs::read_dir(stage.dir().join("locks")).unwrap();
    assert_eq!(left.count(), 0, "files of the run are left");
}

#[test]
fn a_store_that_is_not_there_is_not_available() {
    let stage = Stage::new();
    let out = stage.call(&["bench", "redis://me:s3cret@127.0.0.1:1/"]);
    assert_eq!(out.status.code(), Some(69), "{out:?}");
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(
        said.contains("redis: ") && !said.contains("s3cret"),
        "{said}"
    );
}

#[test]
fn a_part_that_does_not_exist_is_an_error_that_names_those_that_do() {
    let stage = Stage::new();
    let out = stage.call(&["bench", "--only", "sollo"]);
    assert_eq!(out.status.code(), Some(64));
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("solo") && said.contains("recovery"), "{said}");
}
