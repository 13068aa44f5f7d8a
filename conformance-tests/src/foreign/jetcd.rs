//! The lock of jetcd, in a Java process.

use std::path::PathBuf;

use super::{HOW, Peer, directory, is_built_from, java, missing};
use crate::failure::Outcome;
use crate::servers::EtcdCluster;

/// The program in `interop/jetcd`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Jetcd;

impl Jetcd {
    /// What it is built from, beside its bytes when it was built.
    const SOURCES: [(&str, &str); 2] = [
        ("pom.xml", include_str!("../../interop/jetcd/pom.xml")),
        (
            "Peer.java",
            include_str!("../../interop/jetcd/src/Peer.java"),
        ),
    ];

    /// Why it cannot be used here.
    #[must_use]
    pub fn missing() -> Option<String> {
        if let Some(reason) = missing("java") {
            return Some(reason);
        }
        let built = is_built_from(&Self::directory(), &Self::SOURCES);
        (!built).then(|| format!("the Java program with jetcd is not built; {HOW}"))
    }

    /// Starts a client of the cluster's first member.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it does not come up.
    pub async fn start(cluster: &EtcdCluster) -> Outcome<Peer> {
        let endpoints = cluster.endpoints();
        let first = endpoints.split(',').next().unwrap_or_default();
        let mut java = java(&Self::directory());
        Peer::start(java.arg(format!("http://{first}"))).await
    }

    fn directory() -> PathBuf {
        directory().join("jetcd")
    }
}
