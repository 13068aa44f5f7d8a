//! The mutants made by hand.
//!
//! They exist only in a patched copy of the workspace. The environment variable `LOCKKIT_MUTANT` turns one of
//! them on in a process, so that all are tried with one build.
#![expect(clippy::disallowed_methods, reason = "it measures its own runs")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::{Message, TargetKind};

use super::table::{self, Row};
use crate::failures::Failures;
use crate::patched;
use crate::workspace::Workspace;

/// The table, the patches and the files that the patches include.
pub(crate) const DIR: &str = "conformance-tests/mutants";
/// Turns a mutant on.
const VARIABLE: &str = "LOCKKIT_MUTANT";
/// How many test programs run at once. Most of them wait for leases and servers.
const THREADS: usize = 6;
/// The longest that a test may take to notice a mutant.
const LIMIT: Duration = Duration::from_secs(60);
/// The longest that any test may take.
const LONGEST: Duration = Duration::from_secs(600);

/// Tests that need something else which only the copy has: requests that fail on purpose.
const OF_THE_COPY: [(&str, &str); 8] = [
    (
        "faults_etcd",
        "faults-of-etcd::failed_request_does_not_block_others",
    ),
    (
        "faults_etcd",
        "faults-of-etcd::break_that_fails_in_part_is_indeterminate",
    ),
    ("faults_etcd", "faults-of-etcd::executed_release_is_no_loss"),
    (
        "faults_etcd",
        "faults-of-etcd::late_deletion_of_a_try_ends_no_later_hold",
    ),
    (
        "faults_etcd",
        "faults-of-etcd::slow_deletion_delays_no_keep_alive",
    ),
    (
        "faults_sql",
        "faults-of-mariadb::step_returns_its_true_outcome_whichever_request_fails",
    ),
    (
        "faults_sql",
        "faults-of-postgres::step_returns_its_true_outcome_whichever_request_fails",
    ),
    (
        "faults_sql",
        "faults-of-sqlite::step_in_a_file_returns_its_true_outcome",
    ),
];

/// A test that must pass, or fail with a mutant.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    program: String,
    test: String,
    mutant: Option<String>,
}

/// A test program that was built.
#[derive(Debug)]
struct Program {
    path: PathBuf,
    /// The directory of its crate, in which cargo runs it.
    dir: PathBuf,
}

/// Checks the table, and that the patches apply.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    table::read(&workspace.root.join(DIR))?;
    patched::check(workspace, Path::new(DIR))
}

/// Builds all that [`run`] needs.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    programs(workspace, &runs_of(workspace, "")?).map(drop)
}

/// Tries the mutants whose names contain `name`: each test in their rows must pass, and fail while the mutant
/// is on.
pub(crate) fn run(workspace: &Workspace, name: &str) -> Result<()> {
    let runs = runs_of(workspace, name)?;
    let programs = programs(workspace, &runs)?;
    let outputs = workspace.root.join("target/mutants/output");
    fs::create_dir_all(&outputs)?;
    let runs: Vec<_> = runs.into_iter().collect();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(run) = runs.get(number) else { return };
            let output = outputs.join(format!("{number}.txt"));
            let start = Instant::now();
            let ended = run.carry_out(&programs, &output);
            let took = start.elapsed().as_secs_f64();
            match ended {
                Ok(()) => println!("{run}: {took:.1} s"),
                Err(error) => {
                    let told = format!("FAILED: {run}: {error:#}");
                    println!("{told}; see {}", output.display());
                    failed
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(told);
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(
        failed.is_empty(),
        "{} of {} tests did not end as they must\n{}",
        failed.len(),
        runs.len(),
        failed.join("\n")
    );
    Ok(())
}

/// What is run for the mutants whose names contain `name`.
fn runs_of(workspace: &Workspace, name: &str) -> Result<BTreeSet<Run>> {
    let mut table = table::read(&workspace.root.join(DIR))?;
    table.retain(|row| row.mutant.contains(name));
    ensure!(!table.is_empty(), "no mutant has `{name}` in its name");
    let mut runs = runs(&table);
    if name.is_empty() {
        runs.extend(OF_THE_COPY.map(|(program, test)| Run::new(program, test, None)));
    }
    Ok(runs)
}

/// Each test of the table once without a mutant, and once with each mutant that it must notice.
fn runs(table: &[Row]) -> BTreeSet<Run> {
    let each = table.iter().flat_map(|row| {
        let mutants = [None, Some(row.mutant.as_str())];
        mutants.map(|mutant| Run::new(&row.program, &row.test, mutant))
    });
    each.collect()
}

/// Builds the test programs of the copy.
fn programs(workspace: &Workspace, runs: &BTreeSet<Run>) -> Result<BTreeMap<String, Program>> {
    let copy = patched::copy(workspace, Some(Path::new(DIR)))?;
    let names: BTreeSet<_> = runs.iter().map(|run| run.program.as_str()).collect();
    let build = patched::cargo(workspace, &copy, "test")
        .args(["--workspace", "--all-features", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .args(names.iter().flat_map(|name| ["--test", name]));
    let mut programs = BTreeMap::new();
    for message in Message::parse_stream(build.read()?.as_bytes()) {
        if let Message::CompilerArtifact(built) = message?
            && built.target.kind.contains(&TargetKind::Test)
            && let Some(path) = built.executable
        {
            let dir = built
                .manifest_path
                .parent()
                .context("a crate without a directory")?;
            let (path, dir) = (path.into(), dir.into());
            programs.insert(built.target.name, Program { path, dir });
        }
    }
    Ok(programs)
}

impl Run {
    fn new(program: &str, test: &str, mutant: Option<&str>) -> Self {
        Self {
            program: program.to_owned(),
            test: test.to_owned(),
            mutant: mutant.map(str::to_owned),
        }
    }

    /// Runs the test, and returns an error if it does not end as it must.
    fn carry_out(&self, programs: &BTreeMap<String, Program>, output: &Path) -> Result<()> {
        let program = programs
            .get(&self.program)
            .context("there is no such program")?;
        let file = File::create(output)?;
        let mut command = Command::new(&program.path);
        command
            .current_dir(&program.dir)
            .args(["--exact", &self.test])
            .env_remove(VARIABLE)
            .stdout(file.try_clone()?)
            .stderr(file);
        if let Some(mutant) = &self.mutant {
            command.env(VARIABLE, mutant);
            // A short history of random faults may miss it by chance.
            command.env("LOCKKIT_SOAK", "10");
        }
        let mut child = command.spawn()?;
        let limit = self.mutant.as_ref().map_or(LONGEST, |_| LIMIT);
        let start = Instant::now();
        while child.try_wait()?.is_none() {
            if start.elapsed() > limit {
                child.kill()?;
                child.wait()?;
                bail!("not done after {limit:?}");
            }
            thread::sleep(Duration::from_millis(50));
        }
        let output = fs::read_to_string(output)?;
        if let Some(line) = without_a_server(&output) {
            bail!("a server is missing: {line}");
        }
        match (counts(&output), &self.mutant) {
            (Some((1, 0)), None) | (Some((0, 1)), Some(_)) => Ok(()),
            (Some((1, 0)), Some(_)) => bail!("the test does not notice the mutant"),
            (Some((0, 1)), None) => bail!(
                "the test fails without any mutant\n{}",
                Failures::of(&output).told()
            ),
            (counts, _) => bail!("one test must run, but passed and failed are {counts:?}"),
        }
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.mutant {
            Some(mutant) => write!(f, "{mutant} fails {} {}", self.program, self.test),
            None => write!(f, "{} {} passes", self.program, self.test),
        }
    }
}

/// The line that says that a server could not be used. A test that fails so has not noticed a mutant.
fn without_a_server(output: &str) -> Option<&str> {
    const SAID: [&str; 4] = [
        "the server cannot be started: ",
        "the server has ended",
        "the server is not ready: ",
        "required, but ",
    ];
    let mut lines = output.lines();
    lines.find(|line| SAID.iter().any(|said| line.contains(said)))
}

/// How many tests passed and failed, as the last line of a test program says.
fn counts(output: &str) -> Option<(u32, u32)> {
    let line = output
        .lines()
        .find(|line| line.starts_with("test result: "))?;
    let number = |what: &str| {
        let before = line.split(what).next()?;
        before.rsplit(' ').next()?.parse().ok()
    };
    Some((number(" passed")?, number(" failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted() {
        let output =
            "running 1 test\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured\n";
        assert_eq!(counts(output), Some((0, 1)));
        assert_eq!(counts("running 1 test\n"), None);
    }

    #[test]
    fn missing_server_is_no_noticed_mutant() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance-tests/src");
        let process = fs::read_to_string(root.join("servers/process.rs")).unwrap();
        for said in [
            "cannot be started: `{program}`",
            "has {end}",
            "is not ready: {last}",
        ] {
            assert!(process.contains(&format!("the server {said}")), "{said}");
        }
        for line in [
            "the server cannot be started: `etcd`: No such file or directory (a.rs:1)",
            "the server has ended Some(1) (a.rs:1)",
            "the server is not ready: deadline has elapsed (a.rs:1)",
            "required, but no `etcd` here",
        ] {
            let output = format!("failures:\n\n{line}\n");
            assert_eq!(without_a_server(&output), Some(line));
        }
        assert_eq!(without_a_server("two hold at once (a.rs:1)"), None);
    }

    /// No other run has them.
    #[test]
    fn tests_of_the_copy_are_listed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let table = table::read(&root.join(DIR)).unwrap();
        let tests = root.join("conformance-tests/tests");
        let mut found = 0;
        for entry in fs::read_dir(tests).unwrap() {
            let main = entry.unwrap().path().join("main.rs");
            let text = fs::read_to_string(&main).unwrap_or_default();
            // A test is added by a path, which may have generic arguments.
            for added in text.split("#[cfg(feature = \"mutants\")]").skip(1) {
                let statement = added.split(';').next().unwrap();
                for path in statement.split(".test(").skip(1) {
                    let name = path.split(")").next().unwrap();
                    let name = name.split("::").nth(1).unwrap();
                    let end = format!("::{name}");
                    let listed = OF_THE_COPY.iter().any(|(_, test)| test.ends_with(&end))
                        || table.iter().any(|row| row.test.ends_with(&end));
                    assert!(listed, "{name} of {} is never run", main.display());
                    found += 1;
                }
            }
        }
        assert!(found >= 7, "{found} tests of the copy");
    }

    #[test]
    fn each_test_runs_once_without_a_mutant() {
        let row = |mutant: &str| Row {
            mutant: mutant.into(),
            program: "schedules".into(),
            test: "all".into(),
        };
        let runs = runs(&[row("client::A"), row("client::B")]);
        let mutants: Vec<_> = runs.iter().map(|run| run.mutant.as_deref()).collect();
        assert_eq!(mutants, [None, Some("client::A"), Some("client::B")]);
    }
}
