//! A server below its guardian, and a lock-taker, are gone afterwards, however their user ended.
//!
//! The program plays three parts: the tests, the user of a server that comes to a bad end, and the
//! server itself, which echoes.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "all of it is a test, although without the harness"
)]

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use conformance_tests::servers::{ServerCommand, ServerProcess, free_port};
use conformance_tests::taker::Taker;
use conformance_tests::{Failure, Outcome, ensure};
use libtest_mimic::{Arguments, Trial};
use rustix::process::{Pid, Signal};

const GUARD: &str = env!("CARGO_BIN_EXE_server-guard");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("--echo") => echo(&arguments[2]),
        Some("--user") => user(&arguments[2]),
        _ => libtest_mimic::run(&Arguments::from_args(), trials()).exit_code(),
    }
}

fn trials() -> Vec<Trial> {
    type Test = (&'static str, fn() -> Outcome);
    let cases: [Test; 11] = [
        ("serves_freezes_and_restarts_on_its_data", serves),
        ("gone_when_dropped_with_its_children", dropped),
        (
            "children_that_left_the_group_freeze_and_go_with_it",
            strayed,
        ),
        ("gone_after_a_panic", || gone_after("panic", None)),
        ("gone_after_ctrl_c", || {
            gone_after("wait", Some(Signal::INT))
        }),
        ("gone_after_kill_of_its_user", || {
            gone_after("wait", Some(Signal::KILL))
        }),
        ("gone_after_exit_without_drop", || gone_after("exit", None)),
        ("gone_after_kill_of_its_guardian", guardian_killed),
        ("frozen_lock_taker_is_gone_with_its_user", || {
            gone_after("freeze-taker", Some(Signal::KILL))
        }),
        ("a_failure_shows_the_log", failure_shows_log),
        ("is_not_ready_once_it_has_ended", not_ready_once_ended),
    ];
    cases
        .into_iter()
        .map(|(name, case)| {
            // Elsewhere than on Linux no signal tells a process of its parent's death, and
            // nobody finds out who is whose child.
            let told = [
                "children_that_left_the_group_freeze_and_go_with_it",
                "gone_after_kill_of_its_guardian",
                "frozen_lock_taker_is_gone_with_its_user",
            ];
            let untold = told.contains(&name) && !cfg!(target_os = "linux");
            Trial::test(name, move || Ok(case()?)).with_ignored_flag(untold)
        })
        .collect()
}

/// The server: echoes each byte, and counts its starts in its data.
fn echo(port: &str) -> ExitCode {
    let listener = TcpListener::bind(("127.0.0.1", port.parse().unwrap())).unwrap();
    writeln!(
        fs::File::options()
            .create(true)
            .append(true)
            .open("starts")
            .unwrap(),
        "start"
    )
    .unwrap();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut byte = [0];
        while let Ok(1) = stream.read(&mut byte) {
            stream.write_all(&byte).unwrap();
        }
    }
    ExitCode::SUCCESS
}

fn start_echo() -> Outcome<(ServerProcess, u16)> {
    let port = free_port()?;
    let server = ServerCommand::new(GUARD, std::env::current_exe()?)
        .args(["--echo".to_owned(), port.to_string()])
        .start()?;
    Ok((server, port))
}

fn ask(port: u16) -> io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    stream.write_all(b"x")?;
    stream.read_exact(&mut [0])
}

/// Another one answers at its port.
fn not_ready_once_ended() -> Outcome {
    let server = ServerCommand::new(GUARD, "false").start()?;
    while server.ended()?.is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let ready = runtime()?.block_on(server.ready(|| async { Outcome::Ok(()) }));
    let failure = ready.err().ok_or_else(|| Failure::new("it is ready"))?;
    let told = failure.message().starts_with("the server has ended");
    ensure(told, failure.message())
}

/// The user: starts a server, tells its number and comes to its end.
fn user(end: &str) -> ExitCode {
    if end == "freeze-taker" {
        return runtime().unwrap().block_on(freeze_taker()).unwrap();
    }
    let (server, port) = start_echo().unwrap();
    // A server that has not begun yet would be gone for other reasons.
    let ready = runtime()
        .unwrap()
        .block_on(server.ready(|| async { ask(port) }));
    ready.unwrap();
    println!("{} {}", server.pid().unwrap(), server.data().display());
    match end {
        "panic" => panic!("on purpose"),
        "exit" => std::process::exit(3),
        _ => {
            let mut line = String::new();
            io::stdin().read_line(&mut line).unwrap();
            ExitCode::SUCCESS
        }
    }
}

/// Freezes a lock-taker, which cannot see the end of its input then, and waits to be killed.
async fn freeze_taker() -> Outcome<ExitCode> {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_lock-taker"));
    let data = tempfile::tempdir()?;
    let url = format!("file:{}", data.path().display());
    let mut taker = Taker::start(program, &url, Duration::from_secs(30)).await?;
    taker.acquire("a").await?;
    taker.stop()?;
    println!("{} {}", taker.pid().unwrap(), data.path().display());
    std::future::pending().await
}

fn runtime() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

fn serves() -> Outcome {
    let (server, port) = start_echo()?;
    let runtime = runtime()?;
    runtime.block_on(server.ready(|| async { ask(port) }))?;
    server.stop()?;
    ensure(ask(port).is_err(), "a frozen server answered")?;
    server.resume()?;
    runtime.block_on(server.ready(|| async { ask(port) }))?;
    server.kill();
    ensure(ask(port).is_err(), "a killed server answered")?;
    server.restart()?;
    runtime.block_on(server.ready(|| async { ask(port) }))?;
    let starts = fs::read_to_string(server.data().join("starts"))?;
    ensure(starts.lines().count() == 2, starts)
}

fn dropped() -> Outcome {
    let server = ServerCommand::new(GUARD, "sh")
        .args(["-c", "sleep 600 & echo $!; wait"])
        .start()?;
    let runtime = runtime()?;
    let read = || -> Result<u32, Failure> {
        let log = server.log_tail();
        log.trim().parse().map_err(Failure::from)
    };
    let mut child = read();
    for _ in 0..500 {
        if child.is_ok() {
            break;
        }
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(10)).await });
        child = read();
    }
    let (leader, child) = (server.pid().unwrap(), child?);
    ensure(!gone(child), "the child never ran")?;
    let data = server.data().to_owned();
    drop(server);
    ensure(gone(leader), "the server outlived its handle")?;
    ensure(!data.exists(), "its data outlived its handle")?;
    wait_gone(child)
}

/// As the processes of PostgreSQL do, each of which has a session of its own.
fn strayed() -> Outcome {
    let server = ServerCommand::new(GUARD, "sh")
        .args([
            "-c",
            "setsid sh -c 'while :; do echo $$; sleep 0.01; done' & wait",
        ])
        .start()?;
    let runtime = runtime()?;
    let wait = |millis| {
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(millis)).await });
    };
    let grows = || {
        let before = server.log().len();
        (0..500).any(|_| {
            wait(10);
            server.log().len() > before
        })
    };
    ensure(grows(), "the child never ran")?;
    let log = server.log();
    let child = log.lines().next().unwrap_or_default().parse()?;
    for _ in 0..3 {
        server.stop()?;
        let before = server.log().len();
        wait(100);
        ensure(server.log().len() == before, "a frozen child wrote")?;
        server.resume()?;
        ensure(grows(), "the child did not go on")?;
    }
    drop(server);
    ensure(gone(child), "the child outlived the server")
}

/// Starts a user in its own process group, as a shell does, and returns the number of its server.
fn start_user(end: &str) -> Outcome<(Child, u32, String)> {
    let mut user = Command::new(std::env::current_exe()?)
        .args(["--user", end])
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    let output = user.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line)?;
    let (pid, data) = line.trim().split_once(' ').unwrap();
    Ok((user, pid.parse()?, data.to_owned()))
}

fn gone_after(end: &str, signal: Option<Signal>) -> Outcome {
    let (mut user, server, _) = start_user(end)?;
    if let Some(signal) = signal {
        ensure(!gone(server), "the server did not run")?;
        // Ctrl-C goes to all that the terminal knows, anything else to the process alone.
        if signal == Signal::INT {
            rustix::process::kill_process_group(pid(user.id()), signal)?;
        } else {
            rustix::process::kill_process(pid(user.id()), signal)?;
        }
    }
    user.wait()?;
    wait_gone(server)
}

fn guardian_killed() -> Outcome {
    let (server, port) = start_echo()?;
    runtime()?.block_on(server.ready(|| async { ask(port) }))?;
    let number = server.pid().unwrap();
    let stat = fs::read_to_string(format!("/proc/{number}/stat"))?;
    let guardian: u32 = stat.split(' ').nth(3).unwrap().parse()?;
    rustix::process::kill_process(pid(guardian), Signal::KILL)?;
    wait_gone(number)
}

fn failure_shows_log() -> Outcome {
    let server = ServerCommand::new(GUARD, "sh")
        .args(["-c", "echo cannot open the frobnicator; exit 3"])
        .start()?;
    let probe = server.ready(|| async { ask(1) });
    let failure = runtime()?.block_on(probe).unwrap_err().to_string();
    ensure(failure.contains("ended Some(3)"), &failure)?;
    ensure(failure.contains("cannot open the frobnicator"), &failure)
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).unwrap()).unwrap()
}

/// Whether no process has this number, or only the dead entry that its parent has not read.
fn gone(number: u32) -> bool {
    let dead =
        fs::read_to_string(format!("/proc/{number}/stat")).is_ok_and(|stat| stat.contains(") Z "));
    dead || rustix::process::test_kill_process(pid(number)).is_err()
}

fn wait_gone(number: u32) -> Outcome {
    let runtime = runtime()?;
    for _ in 0..500 {
        if gone(number) {
            return Ok(());
        }
        // The system reports the end of a process to its parent only.
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(10)).await });
    }
    rustix::process::kill_process(pid(number), Signal::KILL)?;
    Err(Failure::new(format!("process {number} still runs")))
}
