//! The steps that are calls of cargo.
//!
//! All tests run from one build: every call names the whole workspace with all features and chooses
//! among the finished programs. Choosing crates instead (`-p`) would give their dependencies another
//! set of features and build them again, minutes for each set. That a crate names each feature of
//! its dependencies that it needs is checked where building is cheap: `msrv`, one by one.

use anyhow::{Result, ensure};
use cargo_metadata::TargetKind;

use crate::ci::Done;
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
    "interop_etcd_go",
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

/// Programs first and by themselves: the command and the facade have the same name, and what is
/// documented last stays.
pub(crate) fn docs(workspace: &Workspace) -> Result<Done> {
    for targets in ["--bins", "--lib"] {
        workspace
            .cargo("doc")
            .args(["--workspace", "--all-features", "--no-deps", targets])
            .env("RUSTDOCFLAGS", "-D warnings")
            .run()?;
    }
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
    requiring_all(unit_tests(workspace)).run()?;
    Ok(Done::Passed)
}

pub(crate) fn unit_on_what_is_present(workspace: &Workspace) -> Result<Done> {
    unit_tests(workspace).run()?;
    Ok(Done::Passed)
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
    test(workspace).arg("--doc").run()?;
    Ok(Done::Passed)
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
    requiring_all(test(workspace).args(tests)).run()?;
    Ok(Done::Passed)
}

pub(crate) fn suite_on_what_is_present(workspace: &Workspace) -> Result<Done> {
    test(workspace)
        .args(SUITE.iter().chain(SPEED).flat_map(|name| ["--test", name]))
        .run()?;
    Ok(Done::Passed)
}

/// None of the stores may be absent.
pub(crate) fn cli(workspace: &Workspace) -> Result<Done> {
    requiring_all(cli_tests(workspace)?).run()?;
    Ok(Done::Passed)
}

pub(crate) fn cli_on_what_is_present(workspace: &Workspace) -> Result<Done> {
    cli_tests(workspace)?.run()?;
    Ok(Done::Passed)
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
