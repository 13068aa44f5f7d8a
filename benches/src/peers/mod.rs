//! The locks of other Rust crates, as they are where nothing is set that need not be.
//!
//! Those in other languages are programs of their own, in `benches/peers`.

mod etcd;
mod redis;
mod sqlx;
mod zk;

use crate::bare::Contender;
use crate::failure::{Failure, Outcome};

/// The lock of another crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer {
    /// `rslock`: Redlock, here on one server.
    Rslock,
    /// The advisory lock of `sqlx` for PostgreSQL.
    Sqlx,
    /// The client of etcd's own lock service.
    EtcdClient,
    /// `zookeeper-client`, with the nodes of Curator.
    ZookeeperClient,
}

impl Peer {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Rslock,
        Self::Sqlx,
        Self::EtcdClient,
        Self::ZookeeperClient,
    ];

    /// What the crate is called.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Rslock => "rslock",
            Self::Sqlx => "sqlx",
            Self::EtcdClient => "etcd-client",
            Self::ZookeeperClient => "zookeeper-client",
        }
    }

    /// The scheme of the stores that it works on.
    #[must_use]
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Rslock => "redis",
            Self::Sqlx => "postgres",
            Self::EtcdClient => "etcd",
            Self::ZookeeperClient => "zk",
        }
    }

    /// The version of the crate that is built in; a test compares it with `Cargo.lock`.
    #[must_use]
    pub const fn version(self) -> &'static str {
        match self {
            Self::Rslock => "0.10.0",
            Self::Sqlx => "0.9.0",
            Self::EtcdClient => "0.21.1",
            Self::ZookeeperClient => "0.11.2",
        }
    }

    pub(crate) fn named(label: &str) -> Outcome<Self> {
        let found = Self::ALL.into_iter().find(|peer| peer.label() == label);
        found.ok_or_else(|| Failure::new(format!("no peer is called `{label}`")))
    }

    /// One of several who want `name`.
    pub(crate) async fn contender(self, url: &str, name: &str) -> Outcome<Box<dyn Contender>> {
        let url = url.parse()?;
        Ok(match self {
            Self::Rslock => Box::new(redis::Turn::new(&url, name)?),
            Self::Sqlx => Box::new(sqlx::Turn::new(&url, name).await?),
            Self::EtcdClient => Box::new(etcd::Turn::new(&url, name).await?),
            Self::ZookeeperClient => Box::new(zk::Turn::new(&url, name).await?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_are_those_that_are_built_in() {
        let lock = include_str!("../../../Cargo.lock");
        for peer in Peer::ALL {
            let (name, version) = (peer.label(), peer.version());
            let entry = format!("name = \"{name}\"\nversion = \"{version}\"");
            assert!(lock.contains(&entry), "say the version of {name}");
            assert_eq!(Peer::named(name).unwrap(), peer);
        }
        assert!(Peer::named("another").is_err());
    }
}
