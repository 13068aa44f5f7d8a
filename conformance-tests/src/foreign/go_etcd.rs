//! The mutex of etcd's own client, in a Go process.

use std::path::PathBuf;

use tokio::process::Command;

use super::{HOW, Peer, directory, is_built_from};
use crate::failure::Outcome;
use crate::servers::EtcdCluster;

/// The program in `interop/etcd_go`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GoEtcd;

impl GoEtcd {
    /// What it is built from, beside its bytes when it was built.
    const SOURCES: [(&str, &str); 2] = [
        ("go.sum", include_str!("../../interop/etcd_go/go.sum")),
        ("main.go", include_str!("../../interop/etcd_go/main.go")),
    ];

    /// Why it cannot be used here.
    #[must_use]
    pub fn missing() -> Option<String> {
        let built = is_built_from(&Self::directory(), &Self::SOURCES);
        (!built).then(|| format!("the Go program with etcd's client is not built; {HOW}"))
    }

    /// Starts a client of the cluster's first member.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it does not come up.
    pub async fn start(cluster: &EtcdCluster) -> Outcome<Peer> {
        let endpoints = cluster.endpoints();
        let first = endpoints.split(',').next().unwrap_or_default().to_owned();
        Peer::start(Command::new(Self::directory().join("peer")).arg(first)).await
    }

    fn directory() -> PathBuf {
        directory().join("etcd-go")
    }
}
