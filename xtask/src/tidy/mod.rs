//! Rules that neither the compiler nor clippy checks: layout, and documents that stay true.

mod circles;
mod docs;
mod modules;
mod names;
mod source;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::done::Done;
use crate::mutants::by_hand;
use crate::workspace::{Crate, Workspace};
use circles::Circle;

/// The crates in which files may import each other. In all others no two do, directly or through others.
const FREE: &[&str] = &["conformance-tests", "lockkit-bench", "xtask"];

/// A file of the repository, as text.
pub(crate) struct File {
    /// Relative to the top directory, with `/` between its parts.
    path: String,
    text: String,
}

/// What a rule has to say.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Finding {
    /// Does not stop anybody.
    Note(String),
    Fault {
        path: String,
        line: usize,
        what: String,
    },
}

impl Finding {
    fn fault(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self::Fault {
            path: path.to_owned(),
            line,
            what: what.into(),
        }
    }
}

pub(crate) fn run(workspace: &Workspace) -> Result<Done> {
    let mut faults = 0;
    for finding in check(workspace)? {
        match finding {
            Finding::Note(text) => println!("   note: {text}"),
            Finding::Fault { path, line, what } => {
                faults += 1;
                println!("   {path}:{line}: {what}");
            }
        }
    }
    if faults > 0 {
        bail!("{faults} faults");
    }
    Ok(Done::Passed)
}

fn check(workspace: &Workspace) -> Result<Vec<Finding>> {
    let root = &workspace.root;
    let mut files = Vec::new();
    for package in workspace.crates() {
        for dir in ["src", "tests", "benches", "examples"] {
            collect(root, &package.dir().join(dir), "rs", &mut files)?;
        }
    }
    let sources = files;
    let mut documents = Vec::new();
    for entry in std::fs::read_dir(root)? {
        push(root, entry?.path(), "md", &mut documents)?;
    }
    let mut found: Vec<_> = sources.iter().flat_map(source::check).collect();
    for package in workspace.crates() {
        let manifest = read(root, package.manifest().to_owned())?;
        found.extend(source::check_manifest(&manifest));
        found.extend(check_circles(root, &package)?);
    }
    found.extend(docs::check(root, &documents, &sources));
    if let Err(error) = by_hand::check(workspace) {
        found.push(Finding::fault(by_hand::DIR, 1, format!("{error:#}")));
    }
    found.sort();
    Ok(found)
}

fn check_circles(root: &Path, package: &Crate<'_>) -> Result<Vec<Finding>> {
    let mut found = Vec::new();
    for target in roots(package) {
        for circle in circles_from(target)? {
            let way = circle.way.join(" -> ");
            let what = format!(
                "{} files import each other: {way} -> {} (`cargo x tidy --circles` shows the imports)",
                circle.files.len(),
                circle.way[0]
            );
            let dir = target.parent().unwrap_or(root).strip_prefix(root)?;
            let path = dir
                .join(&circle.way[0])
                .to_string_lossy()
                .replace('\\', "/");
            found.push(Finding::fault(&path, 1, what));
        }
    }
    Ok(found)
}

/// The root files of a crate of the product.
fn roots<'a>(package: &Crate<'a>) -> Vec<&'a Path> {
    if !FREE.contains(&package.name()) {
        package.roots().collect()
    } else {
        Vec::new()
    }
}

fn circles_from(root: &Path) -> Result<Vec<Circle>> {
    circles::find(root, &|path| std::fs::read_to_string(path).ok())
}

/// Prints every import that closes a circle, crate by crate.
pub(crate) fn print_circles(workspace: &Workspace) -> Result<()> {
    for package in workspace.crates() {
        for root in roots(&package) {
            let circles = circles_from(root)?;
            let files: usize = circles.iter().map(|circle| circle.files.len()).sum();
            println!(
                "{}: {files} files in {} circles",
                package.name(),
                circles.len()
            );
            for circle in circles {
                let way = circle.way.join(" -> ");
                println!(
                    "  {} files, shortest: {way} -> {}",
                    circle.files.len(),
                    circle.way[0]
                );
                for (from, line, path, to) in circle.imports {
                    println!("    {from}:{line}: {path}  [{to}]");
                }
            }
        }
    }
    Ok(())
}

fn collect(root: &Path, dir: &Path, extension: &str, files: &mut Vec<File>) -> Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, extension, files)?;
        } else {
            push(root, path, extension, files)?;
        }
    }
    Ok(())
}

fn push(root: &Path, path: PathBuf, extension: &str, files: &mut Vec<File>) -> Result<()> {
    if path.extension().is_some_and(|found| found == extension) {
        files.push(read(root, path)?);
    }
    Ok(())
}

fn read(root: &Path, path: PathBuf) -> Result<File> {
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("reading {} as text", path.display()))?;
    let path = path
        .strip_prefix(root)?
        .to_string_lossy()
        .replace('\\', "/");
    Ok(File { path, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let found = check(&Workspace::load().unwrap()).unwrap();
        let faults: Vec<_> = found
            .iter()
            .filter(|finding| matches!(finding, Finding::Fault { .. }))
            .collect();
        assert!(faults.is_empty(), "{faults:#?}");
    }
}
