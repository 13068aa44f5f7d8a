//! The steps that are calls of cargo.
//!
//! All tests run from one build: every call names the whole workspace with all features and chooses
//! among the finished programs. Choosing crates instead (`-p`) would give their dependencies another
//! set of features and build them again, minutes for each set. That a crate names each feature of
//! its dependencies that it needs is checked where building is cheap: `msrv`, one by one.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use cargo_metadata::TargetKind;

use crate::done::Done;
use crate::failures::Failures;
use crate::workspace::{Crate, Workspace};

const COMMAND: &str = "lockkit-cli";

/// Every case on every setup, and beside that table what only one kind of store can be asked.
const SUITE: &[&str] = &[
    "browser",
    "cas",
    "conformance",
    "faults_etcd",
    "faults_redis",
    "faults_sql",
    "faults_zk",
    "interop_etcd",
    "interop_redis_py",
    "interop_redisson",
    "interop_zk",
    "programs",
    "soak_modes",
    "soak_redis",
    "soak_sql",
];

/// Programs that measure.
const SPEED: &[&str] = &[
    "measure",
    "peers",
    "speed_etcd",
    "speed_redis",
    "speed_sql",
    "speed_zk",
];

pub(crate) fn fmt(workspace: &Workspace) -> Result<Done> {
    workspace.cargo("fmt").args(["--all", "--check"]).run()?;
    Ok(Done::Passed)
}

/// The whole workspace with its tests.
pub(crate) fn clippy(workspace: &Workspace) -> Result<Done> {
    workspace
        .cargo("clippy")
        .args(["--workspace", "--all-targets", "--all-features"])
        .args(["--", "-D", "warnings"])
        .run()?;
    Ok(Done::Passed)
}

/// Of the libraries: what programs document, nobody reads as pages.
pub(crate) fn docs(workspace: &Workspace) -> Result<Done> {
    workspace
        .cargo("doc")
        .args(["--workspace", "--all-features", "--no-deps", "--lib"])
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()?;
    Ok(Done::Passed)
}

pub(crate) fn build(workspace: &Workspace) -> Result<Done> {
    test(workspace)
        .args(["--lib", "--bins", "--tests", "--no-run"])
        .run()?;
    Ok(Done::Passed)
}

/// None of the stores may be absent.
pub(crate) fn unit(workspace: &Workspace) -> Result<Done> {
    run(requiring_all(unit_tests(workspace)))
}

pub(crate) fn unit_on_what_is_present(workspace: &Workspace) -> Result<Done> {
    run(unit_tests(workspace))
}

fn unit_tests(workspace: &Workspace) -> xshell::Cmd<'_> {
    let tests = tests_of(workspace, |package| package.name() != COMMAND);
    let others = tests
        .iter()
        .filter(|name| !SUITE.contains(name) && !SPEED.contains(name));
    test(workspace)
        .args(["--lib", "--bins"])
        .args(others.flat_map(|name| ["--test", name]))
}

pub(crate) fn doctest(workspace: &Workspace) -> Result<Done> {
    run(test(workspace).arg("--doc"))
}

pub(crate) fn conformance(workspace: &Workspace) -> Result<Done> {
    all_of(workspace, SUITE)
}

pub(crate) fn speed(workspace: &Workspace) -> Result<Done> {
    all_of(workspace, SPEED)
}

/// None of the stores may be absent.
fn all_of(workspace: &Workspace, programs: &[&str]) -> Result<Done> {
    let tests = programs.iter().flat_map(|name| ["--test", name]);
    run(requiring_all(test(workspace).args(tests)))
}

pub(crate) fn suite_on_what_is_present(workspace: &Workspace) -> Result<Done> {
    let tests = SUITE.iter().chain(SPEED);
    run(test(workspace).args(tests.flat_map(|name| ["--test", name])))
}

/// None of the stores may be absent.
pub(crate) fn cli(workspace: &Workspace) -> Result<Done> {
    run(requiring_all(cli_tests(workspace)?))
}

pub(crate) fn cli_on_what_is_present(workspace: &Workspace) -> Result<Done> {
    run(cli_tests(workspace)?)
}

fn cli_tests(workspace: &Workspace) -> Result<xshell::Cmd<'_>> {
    let tests = tests_of(workspace, |package| package.name() == COMMAND);
    ensure!(!tests.is_empty(), "{COMMAND} has no tests");
    let programs = tests.iter().flat_map(|name| ["--test", name]);
    Ok(test(workspace).args(programs))
}

/// Measures nothing: each table is written from the figures that its own measurement has left.
pub(crate) fn tables(workspace: &Workspace) -> Result<()> {
    let tables = ["--package", "lockkit-bench", "--example", "tables"];
    let cas = ["--package", "lockkit-examples", "--bin", "cas_table"];
    workspace.cargo("run").arg("--quiet").args(tables).run()?;
    let run = workspace.cargo("run").arg("--quiet").args(cas);
    run.args(["--", "--table"]).run()?;
    Ok(())
}

/// Runs all of them, also if one fails: a run of an hour should tell all that it can.
fn test(workspace: &Workspace) -> xshell::Cmd<'_> {
    workspace
        .cargo("test")
        .args(["--workspace", "--all-features", "--no-fail-fast"])
}

/// Runs tests; the error tells which of them failed.
fn run(tests: xshell::Cmd<'_>) -> Result<Done> {
    println!("$ {tests}");
    let mut tests = Command::from(tests);
    let mut tests = tests.stdout(Stdio::piped()).spawn()?;
    let mut failures = Failures::default();
    if let Some(output) = tests.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            failures.see(&line);
        }
    }
    let status = tests.wait()?;
    ensure!(status.success(), "{status}\n{}", failures.told());
    Ok(Done::Passed)
}

/// Turns a server that is absent into a failure.
fn requiring_all(tests: xshell::Cmd<'_>) -> xshell::Cmd<'_> {
    tests.env("LOCKKIT_REQUIRE", "all")
}

fn tests_of(workspace: &Workspace, which: impl Fn(&Crate<'_>) -> bool) -> Vec<&str> {
    let chosen = workspace.crates().filter(|package| which(package));
    chosen
        .filter(|package| package.has(&TargetKind::Test))
        .flat_map(|package| package.tests())
        .collect()
}
