//! The public API of each library, compared with the listing in `api/`, so that a change of it is
//! seen in review.
//!
//! The listing comes from rustdoc's JSON output, which only a nightly toolchain writes and whose
//! format changes with it. The crate `public-api` reads exactly one version of the format, so three
//! things move together: [`FORMAT`], [`NIGHTLY`] and the version of `public-api` in `Cargo.toml`. A
//! toolchain that is absent or writes another format is a visible skip and not a failure.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cargo_metadata::TargetKind;
use public_api::Builder;
use serde_json::Value;
use xshell::cmd;

use crate::ci::Done;
use crate::workspace::{Crate, Workspace};

/// The version of rustdoc's JSON format that `public-api` reads.
const FORMAT: u64 = 57;

/// A toolchain that writes it. Any other nightly that does will serve as well.
const NIGHTLY: &str = "nightly-2026-05-20";

pub(crate) fn run(workspace: &Workspace, bless: bool) -> Result<Done> {
    let Some(toolchain) = nightly(workspace)? else {
        return Ok(Done::Skipped(format!(
            "no nightly toolchain; `rustup toolchain install {NIGHTLY} --profile minimal` gives one"
        )));
    };
    let mut changed = Vec::new();
    for package in workspace.crates().filter(Crate::is_public_library) {
        let json = document(workspace, &toolchain, &package)?;
        let format = format_of(&json)?;
        if format != FORMAT {
            return Ok(Done::Skipped(format!(
                "toolchain {toolchain} writes format {format} of rustdoc's JSON and not {FORMAT}; \
                 {NIGHTLY} writes it"
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

fn nightly(workspace: &Workspace) -> Result<Option<String>> {
    let installed = cmd!(workspace.sh, "rustup toolchain list").quiet();
    let Ok(installed) = installed.ignore_stderr().read() else {
        return Ok(None); // no rustup
    };
    let names = || installed.lines().filter_map(|line| line.split(' ').next());
    let pinned = names().find(|name| name.starts_with(NIGHTLY));
    let any = || names().find(|name| name.starts_with("nightly"));
    Ok(pinned.or_else(any).map(str::to_owned))
}

/// Writes the JSON of one library, into a target directory of its own: two toolchains that share one
/// would both build everything again and again.
fn document(workspace: &Workspace, toolchain: &str, package: &Crate<'_>) -> Result<PathBuf> {
    let target = workspace.root.join("target/api");
    let (name, target_dir) = (package.name(), &target);
    let features: Vec<_> = package
        .features()
        .filter(|feature| *feature != "default")
        .collect();
    let features = features.join(",");
    // Through `rustup run` because `cargo +nightly` needs rustup's own cargo first in PATH. The
    // documentation itself is judged by another step, hence the capped lints.
    let json = [
        "-Zunstable-options",
        "--output-format",
        "json",
        "--cap-lints",
        "allow",
    ];
    cmd!(
        workspace.sh,
        "rustup run {toolchain} cargo rustdoc --quiet --lib --package {name} --features {features}
         --target-dir {target_dir} -- {json...}"
    )
    .env_remove("RUSTUP_TOOLCHAIN")
    .env_remove("CARGO")
    .run()?;
    let lib = package
        .target_name(&TargetKind::Lib)
        .context("a library has a library target")?;
    Ok(target.join(format!("doc/{lib}.json")))
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
