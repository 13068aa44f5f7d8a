//! Names of every kind work and stay apart.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::stage::{Running, Stage};

#[test]
fn odd_names_work_and_stay_apart() {
    let stage = Stage::new();
    let long = "x".repeat(512);
    let other_long = format!("{}y", "x".repeat(511));
    let emoji = "\u{1F512}".repeat(128);
    let names = [
        "a",
        "A",
        "a/b",
        "a%2fb",
        "a%2Fb",
        "../a",
        "..",
        ".",
        "/",
        "%",
        "%25",
        "{a}",
        "{}",
        "a\nb",
        "a b",
        " ",
        "a.lock",
        "\u{e9}",
        "e\u{301}",
        &long,
        &other_long,
        &emoji,
    ];
    let mut holders: Vec<Running> = Vec::new();
    for name in names {
        let mut command = stage.lockkit();
        command.args(["run", "--no-wait"]);
        let script =
            r#"printf '%s' "$LOCKKIT_NAME" | od -An -v -tx1 | tr -d ' \n'; echo; exec sleep 600"#;
        command.args([name, "--", "sh", "-c", script]);
        let mut holder = Running::start(command);
        let hex: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(holder.line(), hex, "{name:?}");
        holders.push(holder);
    }
    let listed = stage.call(&["list", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let mut listed: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| lock["name"].as_str().unwrap().to_owned())
        .collect();
    let mut expected = names.map(str::to_owned);
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
    for name in &expected {
        assert!(!stage.is_free(name), "{name:?}");
    }
}

#[test]
fn a_name_that_is_not_text_is_refused() {
    let stage = Stage::new();
    let name = OsStr::from_bytes(b"a\xffb");
    for command in ["run", "status", "break"] {
        let mut lockkit = stage.lockkit();
        lockkit.arg(command).arg(name);
        if command == "run" {
            lockkit.args(["--", "true"]);
        }
        let output = lockkit.output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("UTF-8"), "{said}");
    }
}

#[test]
fn arguments_of_the_program_need_not_be_text() {
    let stage = Stage::new();
    let output = stage
        .lockkit()
        .args(["run", "job", "--", "printf", "%s"])
        .arg(OsStr::from_bytes(b"a\xffb"))
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"a\xffb");
}
