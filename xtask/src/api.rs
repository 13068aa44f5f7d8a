//! The public API of each library, compared with the listing in `api/`, so that a change of it is
//! seen in review.
//!
//! The listing comes from rustdoc's JSON output, which is not stable: its format changes, and `public-api` reads
//! exactly one version of it. So three things move together: [`FORMAT`], [`RUST`] and the version of `public-api` in
//! `Cargo.toml`. A toolchain that writes another format is a visible skip and not a failure.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cargo_metadata::TargetKind;
use public_api::Builder;
use serde_json::Value;

use crate::done::Done;
use crate::workspace::{Crate, Workspace};

/// The version of rustdoc's JSON format that `public-api` reads.
const FORMAT: u64 = 57;

/// A toolchain that writes it.
const RUST: &str = "1.95.0";

/// Calls rustdoc and lets it write JSON. The variable that does so is set for rustdoc alone: build scripts that read it
/// would run again, and with them everything that the other steps have built.
const RUSTDOC: &str = "xtask/rustdoc.sh";

pub(crate) fn run(workspace: &Workspace, bless: bool) -> Result<Done> {
    document(workspace)?;
    let mut changed = Vec::new();
    for package in workspace.crates().filter(Crate::is_public_library) {
        let json = json_of(workspace, &package)?;
        let format = format_of(&json)?;
        if format != FORMAT {
            return Ok(Done::Skipped(format!(
                "this toolchain writes format {format} of rustdoc's JSON and not {FORMAT}; \
                 `RUSTUP_TOOLCHAIN={RUST} cargo x api` uses one that does"
            )));
        }
        let api = Builder::from_rustdoc_json(&json)
            .omit_blanket_impls(true)
            .omit_auto_trait_impls(true)
            .build()
            .with_context(|| format!("reading {}", json.display()))?;
        let listing = listing(api.items().map(ToString::to_string));
        let path = workspace.root.join(format!("api/{}.txt", package.name()));
        if !is_listed(workspace, &path, &listing, bless)? {
            changed.push(package.name());
        }
    }
    if !changed.is_empty() {
        bail!(
            "the public API of {} is not the one listed in api/; if that is meant, run \
             `cargo x api --bless` and commit the listing",
            changed.join(", ")
        );
    }
    Ok(Done::Passed)
}

/// Writes the JSON of all libraries. The documentation itself is judged by another step, hence the capped lints.
fn document(workspace: &Workspace) -> Result<()> {
    let documented = workspace.cargo("doc").arg("--quiet");
    documented
        .args(["--workspace", "--all-features", "--no-deps", "--lib"])
        .env("RUSTDOC", workspace.root.join(RUSTDOC))
        .env(
            "RUSTDOCFLAGS",
            "-Zunstable-options --output-format json --cap-lints allow",
        )
        .run()?;
    Ok(())
}

fn json_of(workspace: &Workspace, package: &Crate<'_>) -> Result<PathBuf> {
    let lib = package
        .target_name(&TargetKind::Lib)
        .context("a library has a library target")?;
    Ok(workspace.root.join(format!("target/doc/{lib}.json")))
}

fn format_of(json: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(json)?;
    let value: Value = serde_json::from_str(&text)?;
    value["format_version"]
        .as_u64()
        .with_context(|| format!("{} names no format", json.display()))
}

fn listing(items: impl Iterator<Item = String>) -> String {
    items.map(|item| item + "\n").collect()
}

/// Compares, shows the difference, and rewrites the file if it is told to.
fn is_listed(workspace: &Workspace, path: &Path, listing: &str, bless: bool) -> Result<bool> {
    let old = std::fs::read_to_string(path).unwrap_or_default();
    if old == listing {
        return Ok(true);
    }
    for line in difference(&old, listing) {
        println!("   {line}");
    }
    if bless {
        workspace.sh.write_file(path, listing)?;
        println!("   wrote {}", path.display());
    }
    Ok(bless)
}

/// The lines that went and the lines that came.
fn difference(old: &str, new: &str) -> Vec<String> {
    let missing_in = |text: &str, lines: &str, sign: char| -> Vec<String> {
        let there: std::collections::HashSet<_> = text.lines().collect();
        let gone = lines.lines().filter(|line| !there.contains(line));
        gone.map(|line| format!("{sign}{line}")).collect()
    };
    [missing_in(new, old, '-'), missing_in(old, new, '+')].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_what_went_and_what_came() {
        assert_eq!(difference("a\nb\n", "b\nc\n"), ["-a", "+c"]);
        assert!(difference("a\n", "a\n").is_empty());
    }
}
