//! The real Curator, in a Java process.

use std::path::PathBuf;
use std::time::Duration;

use super::{HOW, Peer, directory, is_built_from, java, missing};
use crate::failure::Outcome;

/// The program in `interop/curator`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Curator;

impl Curator {
    /// What it is built from, beside its bytes when it was built.
    const SOURCES: [(&str, &str); 2] = [
        ("pom.xml", include_str!("../../interop/curator/pom.xml")),
        (
            "Peer.java",
            include_str!("../../interop/curator/src/Peer.java"),
        ),
    ];

    /// Why it cannot be used here.
    #[must_use]
    pub fn missing() -> Option<String> {
        if let Some(reason) = missing("java") {
            return Some(reason);
        }
        let built = is_built_from(&Self::directory(), &Self::SOURCES);
        (!built).then(|| format!("the Java program with Curator is not built; {HOW}"))
    }

    /// Starts a client of the server on a port of this machine, whose session ends `session` after
    /// its death.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it does not come up.
    pub async fn start(port: u16, session: Duration) -> Outcome<Peer> {
        let mut java = java(&Self::directory());
        java.arg(format!("127.0.0.1:{port}"))
            .arg(session.as_millis().to_string());
        Peer::start(&mut java).await
    }

    fn directory() -> PathBuf {
        directory().join("curator")
    }
}
