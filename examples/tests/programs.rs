//! Every program runs by the command that its first lines name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

/// All programs are in the directory of the one that cargo names.
const ONE_OF_THEM: &str = env!("CARGO_BIN_EXE_quick_start");
/// What the command in each header begins with.
const RUN: [&str; 2] = [
    "//! Run it: `cargo run -p lockkit-examples --bin ",
    "//! Run it: `cargo run --release -p lockkit-examples --bin ",
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let required = std::env::var("LOCKKIT_REQUIRE").is_ok_and(|names| names.contains("all"));
    let server = Command::new("redis-server")
        .arg("--version")
        .output()
        .is_ok();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin");
    let sources = fs::read_dir(sources).map(|all| all.filter_map(Result::ok));
    let Ok(sources) = sources else {
        return ExitCode::FAILURE;
    };
    let mut trials = Vec::new();
    for source in sources {
        let path = source.path();
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = fs::read_to_string(&path).unwrap_or_default();
        let needs_server = text.contains("Server::at_or_own");
        let program = name.clone();
        let trial = Trial::test(name, move || run(&program, &text));
        trials.push(if needs_server && !server && !required {
            let why = "skip: no `redis-server` here; `cargo x setup` brings it";
            trial.with_ignored_flag(true).with_kind(why)
        } else {
            trial
        });
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn run(name: &str, text: &str) -> Result<(), Failed> {
    let line = text
        .lines()
        .find_map(|line| RUN.iter().find_map(|run| line.strip_prefix(run)));
    let line = line.ok_or("its first lines name no command")?;
    let command = line.strip_suffix('`').ok_or("the command does not end")?;
    let (program, arguments) = command.split_once(" -- ").unwrap_or((command, ""));
    if program != name {
        return Err(format!("it names `{program}`").into());
    }
    // Lock files that another version left behind are not a program's failure.
    let scratch = tempfile::tempdir()?;
    let arguments = arguments.replace("/tmp", &scratch.path().to_string_lossy());
    let mut arguments: Vec<&str> = arguments.split_whitespace().collect();
    if name == "cas_table" {
        // That it runs: figures need more time.
        arguments.extend(["--span", "20ms"]);
    }
    let directory: PathBuf = Path::new(ONE_OF_THEM)
        .parent()
        .unwrap_or(Path::new("."))
        .into();
    let program = directory.join(format!("{program}{}", std::env::consts::EXE_SUFFIX));
    let ended = Command::new(program)
        .args(arguments)
        .env_remove("LOCKKIT_URL")
        .output()?;
    if !ended.status.success() || ended.stdout.is_empty() {
        let said = String::from_utf8_lossy(&ended.stderr);
        return Err(format!("{}: {said}", ended.status).into());
    }
    Ok(())
}
