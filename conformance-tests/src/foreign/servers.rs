//! Other versions of servers than the system's.

use std::path::PathBuf;

use super::{HOW, directory};

/// One line each: the setup's name, the package, the program in it.
const TABLE: &str = include_str!("../../interop/servers.txt");

/// A version of a server that comes out of a Python package, where it lies as a program.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    name: &'static str,
    package: &'static str,
    program: &'static str,
}

impl Version {
    /// All of them.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let read = |line: &'static str| match line.split(' ').collect::<Vec<_>>()[..] {
            ["#", ..] => None,
            [name, package, program] => Some(Self {
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
        (!there).then(|| format!("no server of {} here; {HOW}", self.package))
    }
}
