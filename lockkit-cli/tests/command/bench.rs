//! `lockkit bench`: another program, which need not be installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::stage::Stage;

/// A copy of the command in a directory without `lockkit-bench`.
fn installed(stage: &Stage) -> PathBuf {
    let dir = stage.dir().join("bin");
    fs::create_dir(&dir).unwrap();
    let copy = dir.join("lockkit");
    copied(Path::new(stage.lockkit().get_program()), &copy);
    copy
}

/// Copies a program in another process: a process that a test beside this one starts meanwhile would
/// inherit the open file, and a file that is open for writing cannot be executed.
fn copied(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

/// Writes a `lockkit-bench` that prints its arguments and ends with 7.
fn write_program(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let (text, path) = (dir.join("text"), dir.join("lockkit-bench"));
    let script = "#!/bin/sh\nprintf '%s|' \"${0##*/}\" \"$@\"\nexit 7\n";
    fs::write(&text, script).unwrap();
    copied(&text, &path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Calls `lockkit bench` where programs are searched for in `path`.
fn bench(stage: &Stage, lockkit: &Path, path: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(lockkit);
    stage.lead(&mut command);
    command.arg("bench").args(arguments).env("PATH", path);
    command.output().unwrap()
}

#[test]
fn is_127_and_says_how_to_install_the_program_that_is_missing() {
    let stage = Stage::new();
    let lockkit = installed(&stage);
    let out = bench(&stage, &lockkit, "/nowhere", &["memory:"]);
    assert_eq!(out.status.code(), Some(127), "{out:?}");
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("cargo install --path benches"), "{said}");
}

#[test]
fn passes_all_arguments_and_the_exit_code_on() {
    for dir in ["bin", "other"] {
        let stage = Stage::new();
        let lockkit = installed(&stage);
        write_program(&stage.dir().join(dir));
        let path = format!("{}/other:/usr/bin:/bin", stage.dir().display());
        let arguments = ["--help", "a=memory:", "--only", "solo", "-h", "--version"];
        let out = bench(&stage, &lockkit, &path, &arguments);
        assert_eq!(out.status.code(), Some(7), "{out:?}");
        let said = String::from_utf8(out.stdout).unwrap();
        assert_eq!(said, format!("lockkit-bench|{}|", arguments.join("|")));
    }
}

#[test]
fn a_url_before_it_is_refused() {
    let stage = Stage::new();
    let lockkit = installed(&stage);
    write_program(&stage.dir().join("bin"));
    let call = |arguments: &[&str], url: Option<&str>| {
        let mut command = Command::new(&lockkit);
        stage.lead(&mut command);
        command.args(arguments);
        if let Some(url) = url {
            command.env("LOCKKIT_URL", url);
        }
        command.output().unwrap()
    };
    let out = call(&["--url", "memory:", "bench", "memory:"], None);
    assert_eq!(out.status.code(), Some(64), "{out:?}");
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("does not use --url"), "{said}");
    // One in the environment is that of other commands.
    let out = call(&["bench", "memory:"], Some("file:/tmp"));
    assert_eq!(out.status.code(), Some(7), "{out:?}");
}
