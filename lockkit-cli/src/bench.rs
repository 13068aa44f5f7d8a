//! `lockkit bench`: the measurements are those of the library `lockkit-benches`.

use std::fs;
use std::io::{IsTerminal, stderr};
use std::path::Path;

use lockkit_benches::report::Topic;
use lockkit_benches::{Bench, Program, Report};
use tokio::runtime::Runtime;

use crate::args::{BenchArgs, Part, StoreArgs};
use crate::exit::{Code, Failure};
use crate::output::{print, say};

/// Measures and reports.
pub(crate) fn bench(args: &BenchArgs, store: &StoreArgs) -> Result<Code, Failure> {
    if store.url.is_some() && store.url != std::env::var("LOCKKIT_URL").ok() {
        let text = "name the stores as arguments: `lockkit bench URL`; --url is not used here";
        return Err(Failure::new(Code::Usage, text));
    }
    // Before minutes are spent on what then cannot be written.
    let files = args.html.iter().chain(&args.json);
    for file in files.filter(|file| *file != Path::new("-")) {
        let opened = fs::OpenOptions::new().append(true).create(true).open(file);
        opened.map_err(|error| unwritten(file, &error))?;
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
            print(&report.to_table())?
        }
        None => print(&report.to_table())?,
    };
    if report.failures.is_empty() {
        return Ok(Code::Own(0));
    }
    for failure in &report.failures {
        say(failure);
    }
    Ok(Code::Unavailable)
}

fn measure(args: &BenchArgs) -> Result<Report, Failure> {
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
        bench = bench.topics(args.only.iter().map(|part| topic(*part)));
    }
    // All cores, unlike the other commands: what is measured is what a server program would see.
    let runtime = Runtime::new().map_err(|error| Failure::from_error(Code::System, &error))?;
    let unavailable =
        |error: lockkit_benches::Failure| Failure::new(Code::Unavailable, error.to_string());
    runtime.block_on(bench.run()).map_err(unavailable)
}

fn topic(part: Part) -> Topic {
    match part {
        Part::Solo => Topic::Solo,
        Part::Throughput => Topic::Throughput,
        Part::Crowd => Topic::Crowd,
        Part::Names => Topic::Names,
        Part::Distance => Topic::Distance,
        Part::Recovery => Topic::Recovery,
        Part::Holds => Topic::Holds,
    }
}

fn fault(error: lockkit_benches::Failure) -> Failure {
    Failure::new(Code::Software, error.to_string())
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    fs::write(file, text).map_err(|error| unwritten(file, &error))
}

fn unwritten(file: &Path, error: &std::io::Error) -> Failure {
    let file = file.display();
    Failure::new(Code::System, format!("cannot write `{file}`: {error}"))
}
