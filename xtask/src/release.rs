//! What others rely on when they build a published crate: licences, the declared compiler, and what is in
//! its package.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::ci::Done;
use crate::workspace::{Crate, Workspace};

/// Needs a newer compiler than the facade itself, and so does the facade with these features.
const SQL: [&str; 4] = ["mysql", "postgres", "sqlite", "sqlx"];
const FACADE: &str = "lockkit";

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
        install.env("CARGO_TARGET_DIR", "target/cargo-deny").run()?;
    }
    let checks = ["licenses", "bans", "sources"];
    let deny = workspace
        .cargo("deny")
        .args(["--log-level", "error", "check"]);
    deny.args(checks).run()?;
    Ok(Done::Passed)
}

/// Each library and the command, with all features, by the oldest compiler that they declare.
pub(crate) fn msrv(workspace: &Workspace) -> Result<Done> {
    let ours = |package: &Crate<'_>| package.is_published() && package.name().starts_with(FACADE);
    let crates: Vec<_> = workspace.crates().filter(ours).collect();
    let versions: BTreeSet<_> = crates.iter().filter_map(Crate::rust_version).collect();
    for (i, version) in versions.iter().enumerate() {
        let toolchain = ["toolchain", "install", version, "--profile", "minimal"];
        xshell::cmd!(workspace.sh, "rustup {toolchain...}").run()?;
        let check = workspace.cargo("check").env("RUSTUP_TOOLCHAIN", version);
        let mut check = check.env("CARGO_TARGET_DIR", "target/msrv");
        // Both are checked by the newer one with the features that need it.
        let newest = i + 1 == versions.len();
        for package in &crates {
            let name = package.name();
            if package.rust_version().as_ref() != Some(version) && !(newest && name == FACADE) {
                continue;
            }
            check = check.args(["--package", name]);
            let features = package
                .features()
                .filter(|feature| *feature != "default" && (newest || !SQL.contains(feature)));
            check = check.args(features.map(|feature| format!("--features={name}/{feature}")));
        }
        check.run()?;
    }
    Ok(Done::Passed)
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
