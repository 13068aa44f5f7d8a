//! What the command says, and what it must never say.

use crate::stage::Stage;

#[test]
fn no_message_holds_a_password() {
    let stage = Stage::new();
    let secret = "hunter2";
    let long = "x".repeat(50);
    let urls = [
        format!("redis://default:{secret}{long}@redis-12345.example.com:12345/0"),
        format!("redis://me:quo'{secret}@127.0.0.1:1/ a"),
        format!("gopher://me:{secret}@127.0.0.1/"),
        format!("redis://me:{secret}?x@127.0.0.1:1/"),
        format!("redis://me:{secret}@127.0.0.1:1/?nonsense=1"),
        format!("file:/tmp?password={secret}&nonsense={secret}"),
        format!("://me:{secret}@"),
        format!("redis://me:{secret}@["),
    ];
    for url in &urls {
        let calls: [&[&str]; 6] = [
            &[url, "job"],
            &["run", "--wait", url, "job", "--", "true"],
            &["--url", url, "list"],
            &["list", "--url", url, "--nonsense"],
            &["run", "-n", "--url", url, "job", "--", "true"],
            &["status", "job", url],
        ];
        for arguments in calls {
            let output = stage.call(arguments);
            assert_ne!(output.status.code(), Some(0), "{arguments:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(!said.contains(secret), "{said}");
        }
        for arguments in [
            ["list"].as_slice(),
            &["--help"],
            &["run", "--help"],
            &["run"],
        ] {
            let output = stage
                .lockkit()
                .env("LOCKKIT_URL", url)
                .args(arguments)
                .output()
                .unwrap();
            let said = [output.stdout, output.stderr].concat();
            assert!(!String::from_utf8(said).unwrap().contains(secret));
        }
    }
}

#[test]
fn passwords_are_hidden_wherever_a_url_is() {
    let stage = Stage::new();
    for (argument, shown) in [
        ("redis://me:s3/cr@et@host/0' and a://b c@d", "redis://***@d"),
        ("redis:me:s3cret@host/0", "redis:***@host/0"),
        ("file:/tmp?key=s3cret", "file:/tmp?***"),
        ("what? nothing", "what? nothing"),
    ] {
        let said = stage.call(&["status", "job", argument]).stderr;
        let said = String::from_utf8(said).unwrap();
        let first = said.lines().next().unwrap();
        assert_eq!(first, format!("error: unexpected argument '{shown}' found"));
    }
}

#[test]
fn names_cannot_play_tricks_on_the_terminal() {
    let stage = Stage::new();
    let name = "a\n\x1b[2Jb\u{202e}";
    let mut holder = stage.run(&[], name, "echo ready; exec sleep 600");
    assert_eq!(holder.line(), "ready");
    let said = stage.call(&["run", "-n", name, "--", "true"]).stderr;
    let said = String::from_utf8(said).unwrap();
    let start = r"lockkit: `a\u{a}\u{1b}[2Jb\u{202e}` is held by ";
    assert!(said.starts_with(start), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let table = String::from_utf8(stage.call(&["list"]).stdout).unwrap();
    assert_eq!(table.lines().count(), 2, "{table}");
}

#[test]
fn the_url_comes_from_the_argument_before_the_environment() {
    let stage = Stage::new();
    let [one, two] = ["one", "two"].map(|name| format!("file:{}/{name}", stage.dir().display()));
    let script = format!(
        "{0} status job >/dev/null && {0} --url {two} status job >/dev/null || echo $?",
        env!("CARGO_BIN_EXE_lockkit")
    );
    assert_eq!(
        stage.code(&["--url", &two, "run", "job", "--", "true"]),
        Some(0)
    );
    let output = stage
        .lockkit()
        .env("LOCKKIT_URL", &one)
        .args(["run", "job", "--", "sh", "-c", &script])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "1\n");
}

#[test]
fn a_memory_store_gives_a_warning() {
    let stage = Stage::new();
    let output = stage.call(&["run", "--url", "memory:", "job", "--", "true"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("memory:")
    );
}

#[test]
fn completions_and_manual_pages_come_out() {
    let stage = Stage::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = stage.call(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("no-wait"), "{shell}");
    }
    let page = String::from_utf8(stage.call(&["man"]).stdout).unwrap();
    assert!(
        page.contains(".TH lockkit 1") && page.contains("LOCKKIT_URL"),
        "{page}"
    );
    for command in [
        "run",
        "status",
        "list",
        "watch",
        "break",
        "schema",
        "purge",
        "completions",
        "man",
    ] {
        let output = stage.call(&["man", command]);
        assert_eq!(output.status.code(), Some(0));
        let page = String::from_utf8(output.stdout).unwrap();
        assert!(page.contains(&format!(".TH lockkit-{command} 1")), "{page}");
    }
}

#[test]
fn a_wrong_argument_gets_a_hint() {
    let stage = Stage::new();
    let long = "x".repeat(5000);
    let cases: [(&[&str], &str); 9] = [
        (&["run", "job", "./job.sh"], "put `--` before the program"),
        (
            &["run", "--wait", "-5s", "job", "--", "true"],
            "must not be negative",
        ),
        (
            &["run", "--ttl", "-1s", "job", "--", "true"],
            "must not be negative",
        ),
        (&["run", "--wait", "5sec", "job", "--", "true"], "`30s`"),
        (
            &["run", "--permits", "-1", "job", "--", "true"],
            "invalid value '-1'",
        ),
        (
            &["run", "--timeout", "5s", "job", "--", "true"],
            "unexpected argument '--timeout'",
        ),
        (
            &["run", "-w", "5s", "job", "--", "true"],
            "unexpected argument '-w'",
        ),
        (
            &["run", "--json", "job", "--", "true"],
            "unexpected argument '--json'",
        ),
        (&["run", &long, "--", "true"], "xxx..."),
    ];
    for (arguments, hint) in cases {
        let output = stage.call(arguments);
        assert_eq!(output.status.code(), Some(64));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(hint) && said.len() < 600, "{said}");
        // It would run a program of that name.
        assert!(!said.contains("use '-- "), "{said}");
    }
}

#[test]
fn verbose_and_status_name_the_store() {
    let stage = Stage::new();
    let url = format!("file:{}/locks", stage.dir().display());
    let mut command = stage.lockkit();
    command.args(["run", "-v", "--url", &url, "job", "--", "true"]);
    let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(
        said.contains(&format!("holds `job` in {url} with token ")),
        "{said}"
    );
    let status = stage.call(&["status", "--url", &format!("{url}?poll=1ms..2ms"), "job"]);
    let text = String::from_utf8(status.stdout).unwrap();
    assert!(text.starts_with(&format!("store      {url}\n")), "{text}");
    let status = stage.call(&["status", "--url", &url, "--json", "job"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["store"], url);
}
