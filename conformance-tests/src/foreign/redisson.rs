//! The real Redisson, in a Java process.

use std::path::PathBuf;
use std::time::Duration;

use super::{HOW, Peer, directory, is_built_from, java, missing};
use crate::failure::Outcome;
use crate::servers::RedisServer;

/// The program in `interop/redisson`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Redisson;

impl Redisson {
    /// What it is built from, beside its bytes when it was built.
    const SOURCES: [(&str, &str); 2] = [
        ("pom.xml", include_str!("../../interop/redisson/pom.xml")),
        (
            "Peer.java",
            include_str!("../../interop/redisson/src/Peer.java"),
        ),
    ];

    /// Why it cannot be used here.
    #[must_use]
    pub fn missing() -> Option<String> {
        if let Some(reason) = missing("java") {
            return Some(reason);
        }
        let built = is_built_from(&Self::directory(), &Self::SOURCES);
        (!built).then(|| format!("the Java program with Redisson is not built; {HOW}"))
    }

    /// Starts a client of `server` whose locks without a lease are renewed, and end `watchdog` after
    /// its death.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it does not come up.
    pub async fn start(server: &RedisServer, watchdog: Duration) -> Outcome<Peer> {
        let mut java = java(&Self::directory());
        java.arg(server.url()).arg(watchdog.as_millis().to_string());
        Peer::start(&mut java).await
    }

    fn directory() -> PathBuf {
        directory().join("redisson")
    }
}
