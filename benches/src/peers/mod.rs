//! The locks of other Rust crates, as they are where nothing is set that need not be.
//!
//! Those in other languages are programs of their own, in `benches/peers`.

mod etcd;
mod redis;
mod sqlx;
mod zk;

use crate::bare::Contender;
use crate::built_in::{self, Library};
use crate::failure::{Failure, Outcome};

/// The lock of another crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer {
    /// `rslock`: Redlock, also on one server.
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

    const fn library(self) -> Library {
        match self {
            Self::Rslock => built_in::RSLOCK,
            Self::Sqlx => built_in::SQLX,
            Self::EtcdClient => built_in::ETCD,
            Self::ZookeeperClient => built_in::ZOOKEEPER,
        }
    }

    /// What the crate is called.
    #[must_use]
    pub const fn label(self) -> &'static str {
        self.library().name
    }

    /// The schemes of the stores that it works on.
    #[must_use]
    pub const fn schemes(self) -> &'static [&'static str] {
        match self {
            Self::Rslock => &["redis", "redlock"],
            Self::Sqlx => &["postgres"],
            Self::EtcdClient => &["etcd"],
            Self::ZookeeperClient => &["zk"],
        }
    }

    /// The version of the crate that is built in.
    #[must_use]
    pub const fn version(self) -> &'static str {
        self.library().version
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
    fn a_label_names_one_peer() {
        for peer in Peer::ALL {
            assert_eq!(Peer::named(peer.label()).unwrap(), peer);
        }
        assert!(Peer::named("another").is_err());
    }
}
