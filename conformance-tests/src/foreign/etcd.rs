//! Other versions of etcd than the system's.

use std::path::PathBuf;

use super::{HOW, directory};

/// One line each: the setup's name, where it comes from, the package, the program in it.
const TABLE: &str = include_str!("../../interop/etcd.txt");

/// A version of etcd that comes over the network.
#[derive(Clone, Copy, Debug)]
pub struct EtcdVersion {
    name: &'static str,
    package: &'static str,
    program: &'static str,
}

impl EtcdVersion {
    /// All of them.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let read = |line: &'static str| match line.split(' ').collect::<Vec<_>>()[..] {
            ["#", ..] => None,
            [name, _, package, program] => Some(Self {
                name,
                package,
                program,
            }),
            _ => None,
        };
        TABLE.lines().filter_map(read).collect()
    }

    /// What the setup with it is called.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Where its program lies if it is there.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        directory().join(self.name).join(self.program)
    }

    /// Why it cannot be used here.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let there = self.path().is_file();
        (!there).then(|| format!("no etcd of {} here; {HOW}", self.package))
    }
}
