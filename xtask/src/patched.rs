//! A copy of the workspace, to which patches can be applied.
//!
//! The copy lies in `target/mutants/src` and has a target directory of its own: cargo knows a crate by its
//! path within the workspace, and would take those of the copy for those of the workspace. That directory begins with
//! what is already built of other crates. Only files that changed since the last time are written: the rest of the
//! copy is not built again.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context, Result, ensure};
use xshell::{Cmd, cmd};

use crate::workspace::Workspace;

/// Brings the copy up to date, with the patches of a directory, and returns its own directory.
pub(crate) fn copy(workspace: &Workspace, patches: Option<&Path>) -> Result<PathBuf> {
    let root = &workspace.root;
    let base = root.join("target/mutants");
    let (fresh, copy) = (base.join("patched"), base.join("src"));
    remove(&fresh)?;
    let sh = &workspace.sh;
    let listed = cmd!(sh, "git ls-files -z --cached --others --exclude-standard").read()?;
    for name in listed.split('\0').filter(|name| root.join(name).is_file()) {
        write(&fresh.join(name), &fs::read(root.join(name))?)?;
    }
    if let Some(patches) = patches {
        for patch in patches_in(&root.join(patches))? {
            apply(workspace, &fresh, &base, &patch)?;
        }
    }
    let files = files_in(&fresh)?;
    for name in files_in(&copy)?.difference(&files) {
        fs::remove_file(copy.join(name))?;
    }
    for name in &files {
        let text = fs::read(fresh.join(name))?;
        if fs::read(copy.join(name)).ok().as_ref() != Some(&text) {
            write(&copy.join(name), &text)?;
        }
    }
    remove(&fresh)?;
    if !target(workspace).exists() {
        begin_with_what_is_built(&root.join("target/debug"), &target(workspace).join("debug"))?;
    }
    // The foreign programs of the tests lie there.
    link(&root.join("target"), &copy.join("target"))?;
    Ok(copy)
}

/// Copies what is built, without the programs. The files of the workspace's own crates are older than their sources in
/// the copy, so that cargo builds these again.
fn begin_with_what_is_built(from: &Path, to: &Path) -> Result<()> {
    for part in ["build", "deps", ".fingerprint"] {
        for name in files_in(&from.join(part))? {
            if part == "deps" && name.extension().is_none() {
                continue;
            }
            let (from, to) = (from.join(part).join(&name), to.join(part).join(&name));
            fs::create_dir_all(to.parent().unwrap_or(&to))?;
            fs::copy(&from, &to).with_context(|| from.display().to_string())?;
            let modified = fs::metadata(&from)?.modified()?;
            File::open(&to)?.set_modified(modified)?;
        }
    }
    Ok(())
}

/// Checks that all patches apply to the workspace, and changes nothing.
pub(crate) fn check(workspace: &Workspace, patches: &Path) -> Result<()> {
    let sh = &workspace.sh;
    for patch in patches_in(&workspace.root.join(patches))? {
        let check = cmd!(sh, "git apply --check -C1 {patch}");
        let output = check.quiet().ignore_status().output()?;
        ensure_applied(&patch, &output)?;
    }
    Ok(())
}

fn patches_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let paths = fs::read_dir(dir)?.map(|entry| Ok(entry?.path()));
    let mut patches = paths.collect::<Result<Vec<_>>>()?;
    patches.retain(|path| path.extension().is_some_and(|it| it == "patch"));
    patches.sort();
    Ok(patches)
}

/// The target directory of the copy.
pub(crate) fn target(workspace: &Workspace) -> PathBuf {
    workspace.root.join("target/mutants/target")
}

/// A call of cargo in the copy.
pub(crate) fn cargo<'a>(workspace: &'a Workspace, copy: &Path, subcommand: &str) -> Cmd<'a> {
    let call = workspace.cargo(subcommand);
    call.arg("--manifest-path")
        .arg(copy.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target(workspace))
}

/// Applies a patch, or says which of its hunks no longer apply.
fn apply(workspace: &Workspace, dir: &Path, base: &Path, patch: &Path) -> Result<()> {
    let sh = &workspace.sh;
    let _dir = sh.push_dir(dir);
    // Without the ceiling, git would take the paths of the patch as those of the repository around.
    let output = cmd!(sh, "git apply -C1 --reject --whitespace=nowarn {patch}")
        .env("GIT_CEILING_DIRECTORIES", base)
        .quiet()
        .ignore_status()
        .output()?;
    ensure_applied(patch, &output)
}

fn ensure_applied(patch: &Path, output: &Output) -> Result<()> {
    let said = String::from_utf8_lossy(&output.stderr);
    let rejected: Vec<_> = said
        .lines()
        .filter(|line| line.starts_with("error:") || line.starts_with("Rejected"))
        .collect();
    ensure!(
        output.status.success(),
        "{} does not apply; CONTRIBUTING.md says how to make it anew:\n{}",
        patch.display(),
        rejected.join("\n")
    );
    Ok(())
}

/// The files below a directory, relative to it. Links are none.
fn files_in(dir: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    let mut open = vec![PathBuf::new()];
    while let Some(inside) = open.pop() {
        let entries = match fs::read_dir(dir.join(&inside)) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let (path, kind) = (inside.join(entry.file_name()), entry.file_type()?);
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file() {
                files.insert(path);
            }
        }
    }
    Ok(files)
}

fn write(path: &Path, text: &[u8]) -> Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, text).with_context(|| path.display().to_string())
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(unix)]
fn link(target: &Path, at: &Path) -> Result<()> {
    match std::os::unix::fs::symlink(target, at) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn link(_target: &Path, _at: &Path) -> Result<()> {
    anyhow::bail!("the mutants run on Unix only")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "--- a/a.txt\n+++ b/a.txt\n@@ -4,3 +4,3 @@\n one\n-two\n+zwei\n three\n";

    fn applied(name: &str, text: &str) -> (Result<()>, String) {
        let workspace = Workspace::load().unwrap();
        let base = workspace.root.join("target/xtask-tests").join(name);
        remove(&base).unwrap();
        let dir = base.join("patched");
        write(&dir.join("a.txt"), text.as_bytes()).unwrap();
        write(&base.join("a.patch"), PATCH.as_bytes()).unwrap();
        let result = apply(&workspace, &dir, &base, &base.join("a.patch"));
        (result, fs::read_to_string(dir.join("a.txt")).unwrap())
    }

    #[test]
    fn a_patch_applies_where_its_lines_have_moved() {
        let (result, text) = applied("moved", "zero\none\ntwo\nthree\n");
        result.unwrap();
        assert_eq!(text, "zero\none\nzwei\nthree\n");
    }

    #[test]
    fn a_hunk_that_does_not_apply_is_named() {
        let (result, _) = applied("gone", "one\n2\nthree\n");
        let message = result.unwrap_err().to_string();
        assert!(message.contains("a.patch does not apply"), "{message}");
        assert!(message.contains("a.txt:4"), "{message}");
        assert!(message.contains("#1"), "{message}");
    }
}
