//! The versions of the client libraries, which do not report them.

/// A crate of another project.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library {
    pub(crate) name: &'static str,
    /// A test compares it with `Cargo.lock`.
    pub(crate) version: &'static str,
}

const fn library(name: &'static str, version: &'static str) -> Library {
    Library { name, version }
}

pub(crate) const ETCD: Library = library("etcd-client", "0.21.1");
pub(crate) const REDIS: Library = library("redis", "1.8.1");
pub(crate) const RSLOCK: Library = library("rslock", "0.10.0");
pub(crate) const SQLX: Library = library("sqlx", "0.9.0");
pub(crate) const ZOOKEEPER: Library = library("zookeeper-client", "0.11.2");

impl Library {
    /// As a line of a report on a store.
    pub(crate) fn as_client(self) -> (String, String) {
        let Self { name, version } = self;
        ("client".to_owned(), format!("{name} {version}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_are_those_that_are_built_in() {
        let lock = include_str!("../../Cargo.lock");
        for Library { name, version } in [ETCD, REDIS, RSLOCK, SQLX, ZOOKEEPER] {
            let entry = format!("name = \"{name}\"\nversion = \"{version}\"");
            assert!(lock.contains(&entry), "say the version of {name}");
        }
    }
}
