//! Other versions of ZooKeeper than the system's.

use std::path::PathBuf;

use super::{HOW, directory};
use crate::servers::ZkCommand;

/// One line each: the setup's name and the version.
const TABLE: &str = include_str!("../../interop/zookeeper/versions.txt");

/// A version of the server whose jars come from Maven.
#[derive(Clone, Copy, Debug)]
pub struct ZkVersion {
    name: &'static str,
    version: &'static str,
}

impl ZkVersion {
    /// All of them.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let read = |line: &'static str| match line.split(' ').collect::<Vec<_>>()[..] {
            ["#", ..] => None,
            [name, version] => Some(Self { name, version }),
            _ => None,
        };
        TABLE.lines().filter_map(read).collect()
    }

    /// What the setup with it is called.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    fn directory(&self) -> PathBuf {
        directory().join(self.name)
    }

    /// How to start it.
    #[must_use]
    pub fn command(&self) -> ZkCommand {
        ZkCommand::in_directory(&self.directory())
    }

    /// Why it cannot be used here.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        if let Some(reason) = super::missing("java") {
            return Some(reason);
        }
        let stamp = std::fs::read_to_string(self.directory().join("version.txt"));
        let there = stamp.is_ok_and(|stamp| stamp.trim() == self.version);
        (!there).then(|| format!("no jars of ZooKeeper {} here; {HOW}", self.version))
    }
}
