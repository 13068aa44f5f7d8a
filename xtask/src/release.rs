//! What others rely on when they build a published crate: licences, the declared compiler, and what is in
//! its package.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use crate::done::Done;
use crate::workspace::{Crate, Workspace};

/// Features that need a newer compiler than their crates declare.
const SQL: [&str; 4] = ["mysql", "postgres", "sqlite", "sqlx"];
const FACADE: &str = "lockkit";

/// What nobody builds with some of its features only: one build for all of them.
const TOOLS: [&str; 3] = ["conformance-tests", "lockkit-bench", "lockkit-cli"];

/// Files that each package has.
const FILES: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Licences, bans and sources of all dependencies, by `deny.toml`. Advisories are left out: they change
/// without any change here.
pub(crate) fn deny(workspace: &Workspace) -> Result<Done> {
    if workspace
        .cargo("deny")
        .arg("--version")
        .quiet()
        .ignore_stdout()
        .run()
        .is_err()
    {
        let install = workspace
            .cargo("install")
            .args(["cargo-deny", "--locked", "--debug"]);
        let install = install.env("CARGO_TARGET_DIR", "target/cargo-deny");
        install.env("CARGO_PROFILE_DEV_DEBUG", "0").run()?;
    }
    let checks = ["licenses", "bans", "sources"];
    let deny = workspace
        .cargo("deny")
        .args(["--log-level", "error", "check"]);
    deny.args(checks).run()?;
    Ok(Done::Passed)
}

/// Each published crate alone and without its development dependencies, where no other crate turns on a feature for
/// it, by the oldest compiler that it declares and without warnings: without features and with all of them, the facade
/// also with each one by itself, which is how it is used. The tools are checked together and with all features.
pub(crate) fn msrv(workspace: &Workspace) -> Result<Done> {
    let crates: Vec<_> = workspace.crates().filter(Crate::is_published).collect();
    let versions: BTreeSet<_> = crates.iter().filter_map(Crate::rust_version).collect();
    for version in &versions {
        let sh = &workspace.sh;
        let is_here = xshell::cmd!(sh, "rustup run {version} rustc --version");
        if is_here
            .quiet()
            .ignore_stdout()
            .ignore_stderr()
            .run()
            .is_err()
        {
            let toolchain = ["toolchain", "install", version, "--profile", "minimal"];
            xshell::cmd!(sh, "rustup {toolchain...}").run()?;
        }
    }
    let newest = versions.last().context("no crate declares a compiler")?;
    let (tools, crates): (Vec<_>, Vec<_>) = crates
        .iter()
        .partition(|package| TOOLS.contains(&package.name()));
    let tools: Vec<_> = tools.iter().map(|package| package.name()).collect();
    check(workspace, newest, &tools, "--all-features")?;
    for package in crates {
        let declared = package.rust_version();
        let declared = declared.as_ref().unwrap_or(newest);
        let needs = |feature| {
            if SQL.contains(&feature) {
                newest
            } else {
                declared
            }
        };
        let features = || package.features().filter(|feature| *feature != "default");
        let of_all = features().map(needs).max().unwrap_or(declared);
        let name = [package.name()];
        check(workspace, declared, &name, "--no-default-features")?;
        check(workspace, of_all, &name, "--all-features")?;
        if package.name() == FACADE {
            for feature in features() {
                let chosen = format!("--features={feature}");
                check(workspace, needs(feature), &name, &chosen)?;
            }
        }
    }
    Ok(Done::Passed)
}

fn check(workspace: &Workspace, version: &str, crates: &[&str], features: &str) -> Result<()> {
    let crates = crates.iter().flat_map(|name| ["--package", name]);
    let check = workspace.cargo("check").args(crates).arg(features);
    let check = check.env("RUSTUP_TOOLCHAIN", version);
    let check = check.env("CARGO_TARGET_DIR", "target/msrv");
    check.env("RUSTFLAGS", "-D warnings").run()?;
    Ok(())
}

/// Each published crate packs, with its licences and a page for the registry.
pub(crate) fn package(workspace: &Workspace) -> Result<Done> {
    let dry = [
        "--workspace",
        "--no-verify",
        "--allow-dirty",
        "--offline",
        "--quiet",
    ];
    workspace.cargo("package").args(dry).run()?;
    for package in workspace.crates().filter(Crate::is_published) {
        let list = ["--list", "--allow-dirty", "--package", package.name()];
        let files = workspace.cargo("package").args(list).quiet().read()?;
        for file in FILES {
            let name = package.name();
            ensure!(
                files.lines().any(|line| line == file),
                "the package of {name} has no {file}"
            );
        }
        ensure!(package.has_readme(), "{} names no readme", package.name());
    }
    Ok(Done::Passed)
}
