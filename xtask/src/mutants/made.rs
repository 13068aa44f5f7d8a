//! The mutants that cargo-mutants makes of the files of core that make decisions.
//!
//! They are made in a copy of the workspace, and tried by core's own tests.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use xshell::cmd;

use crate::patched;
use crate::workspace::Workspace;

/// The files of core that decide who holds a lock, and for how long.
const FILES: [&str; 13] = [
    "client/hold",
    "client/hold/renewing",
    "client/hold/state",
    "client/held",
    "client/renewal",
    "client/schedule",
    "time/lease",
    "client/wait",
    "client/queue",
    "client/guard",
    "client/reaper",
    "client/owner",
    "time/backoff",
];
/// Mutants that no test can or need notice: one a line, a `|`, and the reason.
const ACCEPTED: &str = "xtask/accepted-mutants.txt";

/// Random schedules that are tried with each mutant.
const SCHEDULES: &str = "100";
/// A test of the tests.
const SKIPPED: &str = "schedules::seed_repeats_its_schedule";

/// Makes mutants of `file`, or of all files that decide, and runs the tests of core against each.
pub(crate) fn run(workspace: &Workspace, file: &str) -> Result<()> {
    let files: Vec<_> = FILES
        .iter()
        .filter(|name| file.is_empty() || **name == file)
        .map(|name| format!("--file=lockkit-core/src/{name}.rs"))
        .collect();
    ensure!(!files.is_empty(), "`{file}` is none of {FILES:?}");
    install(workspace)?;
    let copy = patched::copy(workspace, None)?;
    let output = workspace.root.join("target");
    let call = workspace
        .cargo("mutants")
        .arg("--dir")
        .arg(&copy)
        .args(["--in-place", "--package=lockkit-core", "--all-features"])
        .arg("--output")
        .arg(&output)
        .args(files)
        .args(["--cargo-arg=--lib", "--cargo-arg=--test=core"])
        // The tests take three seconds; one that waits for ever is noticed.
        .arg("--minimum-test-timeout=12")
        .args(["--", "--", "--skip", SKIPPED])
        .env("CARGO_TARGET_DIR", patched::target(workspace))
        // A mutant changes one function: four seconds instead of thirty.
        .env("CARGO_INCREMENTAL", "1")
        .env("LOCKKIT_SCHEDULES", SCHEDULES);
    match Command::from(call).status()?.code() {
        // None was missed; some were; some ran into their time limit.
        Some(0 | 2 | 3) => {}
        code => bail!("cargo-mutants ended with {code:?}"),
    }
    let missed = output.join("mutants.out/missed.txt");
    let missed = fs::read_to_string(&missed).with_context(|| missed.display().to_string())?;
    let accepted = fs::read_to_string(workspace.root.join(ACCEPTED)).context(ACCEPTED)?;
    let left: Vec<_> = missed
        .lines()
        .filter(|mutant| !is_accepted(&accepted, mutant))
        .collect();
    ensure!(
        left.is_empty(),
        "no test notices these; write one, or give a reason in {ACCEPTED}:\n{}",
        left.join("\n")
    );
    Ok(())
}

/// Whether a mutant is listed. The list leaves out lines and columns, which move.
fn is_accepted(accepted: &str, mutant: &str) -> bool {
    let mut parts = mutant.splitn(4, ':');
    let (file, change) = (parts.next(), parts.nth(2));
    accepted.lines().any(|line| {
        let (what, reason) = line.split_once('|').unwrap_or((line, ""));
        let (listed, what) = what.split_once(':').unwrap_or_default();
        let matches = file == Some(listed.trim()) && change.map(str::trim) == Some(what.trim());
        matches && !reason.trim().is_empty()
    })
}

fn install(workspace: &Workspace) -> Result<()> {
    let sh = &workspace.sh;
    if cmd!(sh, "cargo mutants --version")
        .quiet()
        .ignore_stdout()
        .run()
        .is_err()
    {
        workspace
            .cargo("install")
            .args(["cargo-mutants", "--locked"])
            .run()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn files_that_decide_exist() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lockkit-core/src");
        for name in FILES {
            assert!(sources.join(format!("{name}.rs")).is_file(), "{name}");
        }
    }

    #[test]
    fn a_mutant_is_accepted_with_a_reason_wherever_its_line_is() {
        let list =
            "a/b.rs: replace f -> bool with true | it only saves time\nc.rs: delete ! in g |";
        assert!(is_accepted(
            list,
            "a/b.rs:12:5: replace f -> bool with true"
        ));
        assert!(!is_accepted(
            list,
            "a/b.rs:12:5: replace f -> bool with false"
        ));
        assert!(!is_accepted(list, "d.rs:12:5: replace f -> bool with true"));
        assert!(!is_accepted(list, "c.rs:1:1: delete ! in g"));
    }
}
