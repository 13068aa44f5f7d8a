//! The exit codes that scripts rely on, and what the program is given.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use std::io::Write;

use crate::stage::{Running, Stage};

#[test]
fn the_programs_own_code_comes_through() {
    let stage = Stage::new();
    for code in [0, 1, 7, 75, 255] {
        let script = format!("exit {code}");
        assert_eq!(
            stage.code(&["run", "job", "--", "sh", "-c", &script]),
            Some(code)
        );
    }
}

#[test]
fn a_signal_that_ends_the_program_counts_from_128() {
    let stage = Stage::new();
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130)] {
        let script = format!("kill -{signal} $$");
        assert_eq!(
            stage.code(&["run", "job", "--", "sh", "-c", &script]),
            Some(code)
        );
    }
}

#[test]
fn a_program_that_is_not_there_or_not_a_program_is_told_apart() {
    let stage = Stage::new();
    let file = stage.dir().join("plain");
    fs::write(&file, "true\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let file = file.to_str().unwrap();
    for (program, code) in [
        ("no-such-program", 127),
        ("/no/such/program", 127),
        (file, 126),
    ] {
        let output = stage.call(&["run", "job", "--", program]);
        assert_eq!(output.status.code(), Some(code));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.starts_with(&format!("lockkit: cannot run `{program}`: ")),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1);
        assert!(stage.is_free("job"));
    }
}

#[test]
fn wrong_arguments_are_64_and_help_is_0() {
    let stage = Stage::new();
    let long = "x".repeat(513);
    let wrong: [&[&str]; 14] = [
        &[],
        &["run"],
        &["run", "job"],
        &["run", "job", "true"],
        &["run", "", "--", "true"],
        &["run", &long, "--", "true"],
        &["run", "--wait", "soon", "job", "--", "true"],
        &["run", "--wait", "1s", "--no-wait", "job", "--", "true"],
        &["run", "--url", "gopher://x", "job", "--", "true"],
        &["run", "--ttl", "0s", "job", "--", "true"],
        &["run", "--wait", "5sec", "job", "--", "true"],
        &["watch", "--interval", "-1s"],
        &["bench", "--url", "memory:"],
        &["man", "nonsense"],
    ];
    for arguments in wrong {
        let output = stage.call(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty());
    }
    for arguments in [
        ["run", "--help"],
        ["--help", "run"],
        ["-h", "run"],
        ["--version", "run"],
    ] {
        assert_eq!(stage.code(&arguments), Some(0), "{arguments:?}");
    }
}

#[test]
fn a_store_that_is_not_there_is_69() {
    let stage = Stage::new();
    let url = format!("file:{}/plain/locks", stage.dir().display());
    fs::write(stage.dir().join("plain"), "").unwrap();
    for arguments in [
        ["run", "job", "--", "true"].as_slice(),
        &["status", "job"],
        &["list"],
    ] {
        let output = stage
            .lockkit()
            .arg("--url")
            .arg(&url)
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(69), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("lockkit: "), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn another_code_may_tell_a_lock_that_is_held() {
    let stage = Stage::new();
    let mut holder = stage.run(&[], "job", "echo ready; exec sleep 600");
    holder.line();
    for options in [
        ["-n", "-E", "3"].as_slice(),
        &["--wait", "50ms", "--conflict-exit-code", "3"],
    ] {
        assert_eq!(stage.run(options, "job", "true").code(), Some(3));
    }
    assert_eq!(
        stage.code(&["run", "-E", "3", "other", "--", "true"]),
        Some(0)
    );
}

#[test]
fn an_empty_url_is_64_and_never_the_files_of_this_host() {
    let stage = Stage::new();
    for arguments in [
        ["run", "job", "--", "true"].as_slice(),
        &["status", "job"],
        &["list"],
    ] {
        let option = stage.call(&[&["--url", ""], arguments].concat());
        let mut variable = stage.lockkit();
        let variable = variable.env("LOCKKIT_URL", "").args(arguments).output();
        for output in [option, variable.unwrap()] {
            assert_eq!(output.status.code(), Some(64), "{output:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains("empty"), "{said}");
        }
    }
    assert!(!stage.dir().join("lockkit").exists());
}

#[test]
fn a_file_may_hold_the_url() {
    let stage = Stage::new();
    let [file, locks] = ["url", "locks"].map(|name| stage.dir().join(name));
    let with_file = |code| {
        let mut command = stage.lockkit();
        command
            .env_remove("LOCKKIT_URL")
            .env("LOCKKIT_URL_FILE", &file);
        let output = command.args(["run", "job", "--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    };
    with_file(64);
    fs::write(&file, "\n").unwrap();
    with_file(64);
    fs::write(&file, format!("file:{}\n", locks.display())).unwrap();
    with_file(0);
    assert!(locks.join("job.lock").exists());
}

#[test]
fn the_lock_files_have_one_place() {
    let stage = Stage::at(None);
    let dir = stage.dir().display();
    let state = |variables: &[(&str, &str)]| {
        let mut command = stage.lockkit();
        command.env_remove("XDG_STATE_HOME").env_remove("HOME");
        command
            .envs(variables.iter().copied())
            .current_dir(stage.dir());
        let output = command.args(["status", "job"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said)
    };
    let (xdg, home) = (format!("{dir}/a b%"), format!("{dir}/home"));
    for (variables, place) in [
        (
            [("XDG_STATE_HOME", xdg.as_str()), ("HOME", &home)].as_slice(),
            format!("{xdg}/lockkit"),
        ),
        // Another place in each directory.
        (
            &[("XDG_STATE_HOME", "a"), ("HOME", &home)],
            format!("{home}/.local/state/lockkit"),
        ),
        (&[("HOME", &home)], format!("{home}/.local/state/lockkit")),
    ] {
        let (code, said) = state(variables);
        assert_eq!(code, Some(69), "{said}");
        assert!(
            said.contains(&format!("`{place}` does not exist")),
            "{said}"
        );
    }
    if !rustix::process::geteuid().is_root() {
        assert_eq!(state(&[]).0, Some(64));
    }
}

#[test]
fn the_program_does_not_find_the_password_of_the_url() {
    let stage = Stage::new();
    let url = format!("file:{}/locks", stage.dir().display());
    let secret = "redis://:s3cret@127.0.0.1:1/";
    let harmless = "redis://me@127.0.0.1:1/";
    for (variable, options, found) in [
        (secret, [].as_slice(), ""),
        ("postgres://h/?sslpassword=x", &[], ""),
        ("not a url", &[], ""),
        (secret, &["--keep-url"], secret),
        (harmless, &[], harmless),
    ] {
        let mut command = stage.lockkit();
        command.env("LOCKKIT_URL", variable);
        command.args(["run", "--url", &url]).args(options);
        let output = command
            .args(["job", "--", "sh", "-c", "echo \"$LOCKKIT_URL\""])
            .output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        assert_eq!(text.trim_end(), found);
    }
}

#[test]
fn the_program_finds_the_name_and_the_token() {
    let stage = Stage::new();
    let script = r#"printf '%s|%s' "$LOCKKIT_NAME" "$LOCKKIT_TOKEN""#;
    let output = stage.call(&["run", "a b\n/c", "--", "sh", "-c", script]);
    let text = String::from_utf8(output.stdout).unwrap();
    let (name, token) = text.split_once('|').unwrap();
    assert_eq!(name, "a b\n/c");
    assert!(token.parse::<u64>().unwrap() > 0);
}

#[test]
fn standard_streams_go_straight_through() {
    let stage = Stage::new();
    let mut command = stage.lockkit();
    command
        .args(["run", "job", "--", "sh", "-c", "cat; echo done >&2"])
        .stdin(Stdio::piped());
    let mut running = Running::start(command);
    let mut stdin = running.stdin();
    stdin.write_all(b"one\n").unwrap();
    assert_eq!(running.line(), "one");
    // Far more than a pipe holds: no process on the way may buffer it.
    let writer = std::thread::spawn(move || {
        for _ in 0..50_000 {
            stdin.write_all(b"another line of text\n").unwrap();
        }
    });
    for _ in 0..50_000 {
        assert_eq!(running.line(), "another line of text");
    }
    writer.join().unwrap();
    assert_eq!(running.line(), "");
    assert_eq!(running.code(), Some(0));
    assert_eq!(running.said(), "done\n");
}

#[test]
fn a_closed_standard_input_stays_empty() {
    let stage = Stage::new();
    let mut command = stage.under("exec \"$0\" \"$@\" <&-");
    let output = command.args(["run", "job", "--", "cat"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn the_program_starts_with_clean_signals_and_no_files_of_ours() {
    let stage = Stage::new();
    // No shell between: it would clear the mask by itself.
    let programs: [&[&str]; 2] = [
        &["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"],
        &["ls", "/proc/self/fd"],
    ];
    for program in programs {
        let inside = stage.call(&[&["run", "job", "--"], program].concat());
        let mut outside = std::process::Command::new(program[0]);
        outside.args(&program[1..]).stdin(Stdio::null());
        let outside = outside.output().unwrap();
        assert_eq!(
            String::from_utf8(inside.stdout).unwrap(),
            String::from_utf8(outside.stdout).unwrap()
        );
    }
}
