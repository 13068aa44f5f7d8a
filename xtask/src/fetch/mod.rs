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

const ZOOKEEPER: &str = "zookeeper/versions.txt";
const ETCD: &str = "etcd.txt";
const SERVERS: &str = "servers.txt";
const DATABASES: &str = "databases.txt";

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
    for [name, version] in table(workspace, ZOOKEEPER)? {
        tell(&name, zookeeper(workspace, &target, &name, &version));
    }
    for [name, from, package, program] in table(workspace, ETCD)? {
        let into = target.join(&name);
        let brought = match &*from {
            "go" => etcd_from_source(workspace, &into, &package),
            _ => server(workspace, &into, &package, &program),
        };
        tell(&name, brought);
    }
    for [name, package, program] in table(workspace, SERVERS)? {
        let brought = server(workspace, &target.join(&name), &package, &program);
        tell(&name, brought);
    }
    for [name, artifact, archive, program] in table(workspace, DATABASES)? {
        let what = [&*artifact, &archive, &program];
        tell(&name, database(workspace, &target, &name, what));
    }
    Ok(())
}

/// The lines of a table of pinned versions, each with `N` words.
fn table<const N: usize>(workspace: &Workspace, file: &str) -> Result<Vec<[String; N]>> {
    let text = workspace.sh.read_file(format!("{INTEROP}/{file}"));
    let text = text.with_context(|| format!("the table {file}"))?;
    rows(&text).with_context(|| format!("the table {file}"))
}

fn rows<const N: usize>(text: &str) -> Result<Vec<[String; N]>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let rows = lines.map(|line| {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        let row = words.try_into().ok();
        row.with_context(|| format!("a line has not {N} words: {line}"))
    });
    rows.collect()
}

fn tell(name: &str, brought: Result<()>) {
    match brought {
        Ok(()) => println!("   {name:<16} found: runs with the suite"),
        Err(error) => println!("   {name:<16} NOT HERE: {error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_a_table_is_read() {
        let workspace = Workspace::load().unwrap();
        assert!(!table::<2>(&workspace, ZOOKEEPER).unwrap().is_empty());
        assert!(!table::<4>(&workspace, ETCD).unwrap().is_empty());
        assert!(!table::<3>(&workspace, SERVERS).unwrap().is_empty());
        assert!(!table::<4>(&workspace, DATABASES).unwrap().is_empty());
    }

    #[test]
    fn malformed_line_is_an_error() {
        let row = ["a".to_owned(), "1".to_owned()];
        assert_eq!(rows("# A table.\na 1\n").unwrap(), [row]);
        for line in ["a", "a  1", "a 1 b", ""] {
            assert!(rows::<2>(&format!("{line}\n")).is_err(), "{line}");
        }
    }
}
