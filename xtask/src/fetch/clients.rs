//! Programs with the locks of others: in Java, Go and Python.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::cmd;

use super::{INTEROP, SOON};
use crate::workspace::Workspace;

const PEERS: &str = "benches/peers";

/// Builds the Java programs of the bench's peers with the jars that a program of the same library has
/// brought.
pub(super) fn java_turns(
    workspace: &Workspace,
    target: &Path,
    name: &str,
    class: &str,
) -> Result<()> {
    let (sh, place) = (&workspace.sh, target.join(name));
    let source = workspace.root.join(PEERS).join("java");
    let out = place.join("turns");
    let sources = ["Turns".to_owned(), class.to_owned()].map(|name| {
        let name = format!("{name}.java");
        (source.join(&name), out.join(name))
    });
    if sources.iter().all(is_copied) {
        return Ok(());
    }
    sh.remove_path(&out)?;
    sh.create_dir(&out)?;
    let jars = place.join("lib/*");
    let files = sources.iter().map(|(from, _)| from);
    cmd!(
        sh,
        "javac --release 11 -nowarn -d {out} -cp {jars} {files...}"
    )
    .quiet()
    .ignore_stderr()
    .run()
    .context("javac cannot build the program")?;
    copy(workspace, &sources)
}

/// Builds the Go programs of the bench's peers. Their directories are called as they are.
pub(super) fn go_turns(workspace: &Workspace, target: &Path) -> Result<()> {
    let (sh, out) = (&workspace.sh, target.join("go-turns"));
    let source = workspace.root.join(PEERS).join("go");
    let sources = [
        "go.mod",
        "go.sum",
        "turns/turns.go",
        "etcd_mutex/main.go",
        "redsync/main.go",
    ]
    .map(|name| (source.join(name), out.join("from").join(name)));
    if sources.iter().all(is_copied) {
        return Ok(());
    }
    sh.remove_path(&out)?;
    sh.create_dir(&out)?;
    for program in ["etcd_mutex", "redsync"] {
        go_build(
            workspace,
            &source,
            &format!("./{program}"),
            &out.join(program),
        )?;
    }
    copy(workspace, &sources)
}

/// Builds a Java program. What it was built from lies beside it, for the tests to compare.
pub(super) fn java(workspace: &Workspace, target: &Path, name: &str) -> Result<()> {
    let (sh, out) = (&workspace.sh, target.join(name));
    let source = workspace.root.join(INTEROP).join(name);
    let sources = ["pom.xml", "src/Peer.java"].map(|path| {
        let path = source.join(path);
        let name = path.file_name().map(PathBuf::from).unwrap_or_default();
        (path, out.join(name))
    });
    if sources.iter().all(is_copied) {
        return Ok(());
    }
    let pom = &sources[0].0;
    let repository = target.join("maven");
    cmd!(
        sh,
        "mvn -q -B -f {pom} -Dmaven.repo.local={repository} -Dout={out} compile"
    )
    .quiet()
    .run()
    .context("Maven cannot build the program")?;
    copy(workspace, &sources)
}

/// Builds a Go program, where there is Go. What it was built from lies beside it, for the tests to
/// compare.
pub(super) fn go(workspace: &Workspace, target: &Path, name: &str, into: &str) -> Result<()> {
    let (sh, out) = (&workspace.sh, target.join(into));
    let source = workspace.root.join(INTEROP).join(name);
    let sources = ["main.go", "go.mod", "go.sum"].map(|name| (source.join(name), out.join(name)));
    if sources.iter().all(is_copied) {
        return Ok(());
    }
    sh.create_dir(&out)?;
    go_build(workspace, &source, ".", &out.join("peer"))?;
    copy(workspace, &sources)
}

fn go_build(workspace: &Workspace, source: &Path, package: &str, program: &Path) -> Result<()> {
    let sh = &workspace.sh;
    cmd!(sh, "go build -C {source} -trimpath -o {program} {package}")
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-buildvcs=false -mod=readonly")
        .quiet()
        .run()
        .context("Go cannot build the program")
}

/// Puts beside a program what it was built from.
fn copy(workspace: &Workspace, sources: &[(PathBuf, PathBuf)]) -> Result<()> {
    for (from, to) in sources {
        if let Some(directory) = to.parent() {
            workspace.sh.create_dir(directory)?;
        }
        workspace.sh.copy_file(from, to)?;
    }
    Ok(())
}

/// Whether a file and its copy are there and have the same bytes.
fn is_copied((from, to): &(PathBuf, PathBuf)) -> bool {
    let old = fs::read(to);
    old.is_ok_and(|old| fs::read(from).is_ok_and(|new| new == old))
}

/// Installs what a Python program needs, beside the list that it was installed from.
pub(super) fn python(workspace: &Workspace, into: &Path, name: &str) -> Result<()> {
    let needs = workspace
        .root
        .join(INTEROP)
        .join(name)
        .join("requirements.txt");
    let stamp = into.join("requirements.txt");
    let source = (needs, stamp);
    if is_copied(&source) {
        return Ok(());
    }
    let needs = &source.0;
    let sh = &workspace.sh;
    sh.remove_path(into)?;
    cmd!(
        sh,
        "python3 -m pip install {SOON...} --root-user-action=ignore --target {into} -r {needs}"
    )
    .quiet()
    .run()
    .context("pip cannot install it")?;
    copy(workspace, &[source])
}
