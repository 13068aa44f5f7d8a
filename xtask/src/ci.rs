//! The steps of the one test command, in order: cheap and telling ones first.

use std::env;
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::done::Done;
use crate::workspace::Workspace;
use crate::{api, fetch, mutants, release, setup, steps, tidy};

struct Step {
    name: &'static str,
    what: &'static str,
    run: fn(&Workspace) -> Result<Done>,
}

/// Steps that begin before their turn, in a process of their own. What they have done is found when their turn comes.
struct Early {
    /// The step that they begin with.
    with: &'static str,
    names: &'static [&'static str],
    /// How they are started, so that they delay nothing.
    gently: &'static [&'static str],
}

const EARLY: [Early; 2] = [
    // They mostly wait for the network.
    Early {
        with: "fmt",
        names: &["servers", "foreign"],
        gently: &["nice", "-n", "19"],
    },
    // They only build. Tests wait a lot, and they get what it leaves: every other task interrupts them at once.
    // With `nice` they would delay renewals until leases end.
    Early {
        with: "unit",
        names: &["clippy", "msrv", "deny", "docs", "api", "copy"],
        gently: &["chrt", "--idle", "0"],
    },
];

/// From this step on the others run also if one fails: a run of an hour should tell all that it can.
const TELL_ALL_FROM: &str = "unit";

const STEPS: &[Step] = &[
    Step {
        name: "setup",
        what: "what the build needs is installed",
        run: setup::for_builds,
    },
    Step {
        name: "fmt",
        what: "the code is formatted",
        run: steps::fmt,
    },
    Step {
        name: "tidy",
        what: "layout, and names in the documents",
        run: tidy::run,
    },
    Step {
        name: "package",
        what: "each crate packs, with licences and a readme",
        run: release::package,
    },
    Step {
        name: "build",
        what: "the tests are built, while servers are installed",
        run: steps::build,
    },
    Step {
        name: "servers",
        what: "what the tests start is installed",
        run: setup::for_tests,
    },
    Step {
        name: "unit",
        what: "unit tests and the behaviour of core",
        run: steps::unit,
    },
    Step {
        name: "doctest",
        what: "the examples in the documentation",
        run: steps::doctest,
    },
    Step {
        name: "foreign",
        what: "programs of others are brought and built",
        run: |workspace| fetch::run(workspace).map(|()| Done::Passed),
    },
    Step {
        name: "conformance",
        what: "the suite on every setup, none may be absent",
        run: steps::conformance,
    },
    Step {
        name: "clippy",
        what: "no warnings in the workspace",
        run: steps::clippy,
    },
    Step {
        name: "msrv",
        what: "each library alone, by the oldest compiler that it declares",
        run: release::msrv,
    },
    Step {
        name: "deny",
        what: "licences and sources of the dependencies, by deny.toml",
        run: release::deny,
    },
    Step {
        name: "docs",
        what: "the documentation builds without warnings",
        run: steps::docs,
    },
    Step {
        name: "api",
        what: "the public API is the one listed in api/",
        run: |workspace| api::run(workspace, false),
    },
    Step {
        name: "copy",
        what: "the code with the mutants is built",
        run: |workspace| mutants::by_hand::build(workspace).map(|()| Done::Passed),
    },
    Step {
        name: "speed",
        what: "what an operation costs, alone on the machine",
        run: steps::speed,
    },
    Step {
        name: "mutants",
        what: "promises broken on purpose are caught",
        run: |workspace| mutants::by_hand::run(workspace, "").map(|()| Done::Passed),
    },
    Step {
        name: "cli",
        what: "the command, as real processes",
        run: steps::cli,
    },
];

/// The steps of `cargo x test`: they need nothing but what is there.
const TESTS: &[Step] = &[
    Step {
        name: "unit",
        what: "unit tests and the behaviour of core",
        run: steps::unit_on_what_is_present,
    },
    Step {
        name: "doctest",
        what: "the examples in the documentation",
        run: steps::doctest,
    },
    Step {
        name: "conformance",
        what: "the suite on the setups that are present",
        run: steps::suite_on_what_is_present,
    },
    Step {
        name: "cli",
        what: "the command, as real processes",
        run: steps::cli_on_what_is_present,
    },
];

pub(crate) fn names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

/// Runs the named steps, or all of them.
pub(crate) fn run(workspace: &Workspace, only: &[String]) -> Result<()> {
    let wanted = |step: &&Step| only.is_empty() || only.iter().any(|name| name == step.name);
    run_all(workspace, &STEPS.iter().filter(wanted).collect::<Vec<_>>())
}

pub(crate) fn run_tests(workspace: &Workspace) -> Result<()> {
    run_all(workspace, &TESTS.iter().collect::<Vec<_>>())
}

#[expect(clippy::disallowed_methods, reason = "it measures its own steps")]
fn run_all(workspace: &Workspace, steps: &[&Step]) -> Result<()> {
    let (mut ended, mut failed, mut goes_on) = (Vec::new(), Vec::new(), false);
    let mut told = Vec::new();
    let mut begun = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        println!(
            "\n== {}/{} {}: {}",
            i + 1,
            steps.len(),
            step.name,
            step.what
        );
        let later: Vec<_> = steps[i + 1..].iter().map(|step| step.name).collect();
        for early in EARLY.iter().filter(|early| early.with == step.name) {
            let names = early.names.iter().copied();
            let names: Vec<_> = names.filter(|name| later.contains(name)).collect();
            if !names.is_empty()
                && let Some(process) = begin(workspace, early, &names)?
            {
                begun.push((names, process));
            }
        }
        // Two of the same step would be in each other's way, and what goes on disturbs those behind it.
        for (names, process) in &mut begun {
            if !names.iter().all(|name| later.contains(name)) {
                process.wait()?;
            }
        }
        let start = Instant::now();
        goes_on |= step.name == TELL_ALL_FROM;
        let done = match (step.run)(workspace) {
            Err(error) if goes_on => {
                told.push(format!("{}: {error:#}", step.name));
                println!("   {error:#}");
                failed.push(step.name);
                Done::Failed
            }
            done => done.with_context(|| repeat(&[step.name]))?,
        };
        ended.push((step.name, start.elapsed(), done));
        println!("{}", line(&ended[i]));
    }
    match failed.is_empty() {
        true => println!("\n== all steps ended well"),
        false => println!("\n== not all steps ended well"),
    }
    for entry in &ended {
        println!("{}", line(entry));
    }
    for error in told {
        println!("\n{error}");
    }
    ensure!(failed.is_empty(), repeat(&failed));
    Ok(())
}

fn repeat(failed: &[&str]) -> String {
    let names = failed.join(" ");
    format!("failed: {names}; repeat with `cargo x ci {names}`")
}

/// Runs steps in a process of its own, if the system has the program for that.
fn begin(workspace: &Workspace, early: &Early, names: &[&str]) -> Result<Option<Child>> {
    let target = workspace.root.join("target");
    fs::create_dir_all(&target)?;
    let log = target.join(format!("beside-{}.log", early.with));
    let file = File::create(&log).with_context(|| log.display().to_string())?;
    let [program, arguments @ ..] = early.gently else {
        bail!("no program to start them with");
    };
    let mut process = Command::new(program);
    process.args(arguments).arg(env::current_exe()?);
    process.arg("ci").args(names).stdin(Stdio::null());
    process.stdout(file.try_clone()?).stderr(file);
    let names = names.join(" and ");
    match process.spawn() {
        Ok(process) => {
            let (id, log) = (process.id(), log.display());
            println!("   (process {id} already runs {names}, see {log})");
            Ok(Some(process))
        }
        Err(error) => {
            println!("   ({names} wait for their turn: {program}: {error})");
            Ok(None)
        }
    }
}

fn line((name, took, done): &(&str, Duration, Done)) -> String {
    let took = took.as_secs_f64();
    match done {
        Done::Passed => format!("   {name:<12} passed   {took:>7.1} s"),
        Done::Failed => format!("   {name:<12} FAILED   {took:>7.1} s"),
        Done::Skipped(reason) => format!("   {name:<12} SKIPPED  {took:>7.1} s  {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_step_shows_its_reason() {
        let skipped = Done::Skipped("no nightly".to_owned());
        let shown = line(&("api", Duration::from_millis(1_500), skipped));
        assert!(shown.contains("SKIPPED") && shown.ends_with("1.5 s  no nightly"));
    }

    #[test]
    fn every_named_step_is_a_step_of_the_full_run() {
        let tests = TESTS.iter().map(|test| test.name);
        let early = EARLY
            .iter()
            .flat_map(|it| it.names.iter().copied().chain([it.with]));
        for name in tests.chain(early).chain([TELL_ALL_FROM]) {
            assert!(names().contains(&name), "{name}");
        }
    }
}
