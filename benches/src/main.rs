//! The command `lockkit-bench`, which `lockkit bench` runs: measures lock stores and compares them.

use std::fmt::Display;
use std::fs;
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use lockkit::url::parse_duration;
use lockkit_bench::report::Topic;
use lockkit_bench::{Bench, Program, Report};
use tokio::runtime::Runtime;

// The exit codes of `lockkit`, which are those of `sysexits.h`.
const USAGE: u8 = 64;
const UNAVAILABLE: u8 = 69;
const SOFTWARE: u8 = 70;
const SYSTEM: u8 = 71;

const HELP: &str = "\
Each STORE is a URL, or NAME=URL to give it a name in the report. Without a STORE, the stores that need no \
server are measured, in less than two minutes. LOCKKIT_URL is not used, so that no server gets this load \
by mistake. Names of locks begin with `lockkit-bench-`, and are removed from the stores afterwards.

Each figure is compared with the store's own bare operations, measured alternately in the same run. Their \
ratio depends least on the load of the machine. A tilde marks a ratio that varies by more than 15 %.

Examples:
  lockkit bench --html report.html
  lockkit bench redis://127.0.0.1/ file:/var/lib/lockkit
  lockkit bench fair=redis://h/ 'barging=redis://h/?queue=barging' --only crowd --delay 5ms
  lockkit bench redis://h/ etcd://h/ postgres://h/db --only sections --delay 5ms

Exit codes:
  0   everything was measured
  64  an argument is wrong
  69  a store cannot be opened, or something on it could not be measured
  70  internal error of lockkit
  71  a file cannot be written";

/// Measures lock stores and compares them.
#[derive(Debug, Parser)]
#[command(name = "lockkit bench", version, after_long_help = HELP)]
struct Args {
    /// The stores, each as URL or NAME=URL.
    #[arg(value_name = "STORE")]
    stores: Vec<String>,
    /// Measures only these parts, separated by commas.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Topic>,
    /// The time for each store, except for measurements of a fixed length; by default 15s, or 10s for
    /// the stores that need no server.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    time: Option<Duration>,
    /// The number of rounds.
    #[arg(long, value_name = "COUNT", default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// The most locks that are held at the same time.
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    holds: usize,
    /// Also measures with this delay in each direction, and counts round trips.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    delay: Option<Duration>,
    /// Writes the report with plots into this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Writes all figures as JSON into this file, or with `-` to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// An exit code and its message.
type Failed = (u8, String);

fn main() -> ExitCode {
    if let Some(code) = lockkit_bench::serve() {
        return code;
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            let code = if error.use_stderr() { USAGE } else { 0 };
            return code.into();
        }
    };
    match run(&args) {
        Ok(failures) if failures.is_empty() => ExitCode::SUCCESS,
        Ok(failures) => {
            failures.iter().for_each(say);
            UNAVAILABLE.into()
        }
        Err((code, message)) => {
            say(message);
            code.into()
        }
    }
}

/// Measures and reports. Returns what could not be measured.
fn run(args: &Args) -> Result<Vec<String>, Failed> {
    // Before minutes are spent on a report that then cannot be written.
    let files = args.html.iter().chain(&args.json);
    for file in files.filter(|file| *file != Path::new("-")) {
        let opened = fs::OpenOptions::new().append(true).create(true).open(file);
        opened.map_err(|error| unwritten(file.display(), &error))?;
    }
    let report = measure(args)?;
    if let Some(file) = &args.html {
        write(file, &report.to_page())?;
    }
    let json = report.to_json().map_err(fault)?;
    match &args.json {
        Some(file) if file == Path::new("-") => print(&json)?,
        Some(file) => {
            write(file, &json)?;
            print(&report.to_table())?;
        }
        None => print(&report.to_table())?,
    }
    Ok(report.failures)
}

fn measure(args: &Args) -> Result<Report, Failed> {
    let program = Program::own().map_err(fault)?;
    let bench = if args.stores.is_empty() {
        Bench::embedded(program).map_err(fault)?
    } else {
        Bench::new(args.stores.clone(), program)
    };
    let mut bench = bench
        .rounds(args.rounds.into())
        .delay(args.delay)
        .holds(args.holds)
        .progress(stderr().is_terminal());
    if let Some(time) = args.time {
        bench = bench.time(time);
    }
    if !args.only.is_empty() {
        bench = bench.topics(args.only.iter().copied());
    }
    let runtime = Runtime::new().map_err(|error| (SYSTEM, error.to_string()))?;
    let unavailable = |error: lockkit_bench::Failure| (UNAVAILABLE, error.to_string());
    runtime.block_on(bench.run()).map_err(unavailable)
}

/// Prints a line for the person who runs the command.
fn say(message: impl Display) {
    // Not `eprintln!`, which panics where standard error is closed.
    let _ = writeln!(stderr(), "lockkit bench: {message}");
}

fn print(text: &str) -> Result<(), Failed> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(unwritten("standard output", &error))
        }
        _ => Ok(()),
    }
}

fn write(file: &Path, text: &str) -> Result<(), Failed> {
    fs::write(file, text).map_err(|error| unwritten(file.display(), &error))
}

fn unwritten(file: impl Display, error: &std::io::Error) -> Failed {
    (SYSTEM, format!("cannot write `{file}`: {error}"))
}

fn fault(error: lockkit_bench::Failure) -> Failed {
    (SOFTWARE, error.to_string())
}
