//! The lock of go-zookeeper, in a process of its own.

use std::path::PathBuf;

use tokio::process::Command;

use super::{HOW, Peer, directory, is_built_from};
use crate::failure::Outcome;

/// The program in `interop/gozk`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GoZk;

impl GoZk {
    /// What it is built from, beside its bytes when it was built.
    const SOURCES: [(&str, &str); 3] = [
        ("main.go", include_str!("../../interop/gozk/main.go")),
        ("go.mod", include_str!("../../interop/gozk/go.mod")),
        ("go.sum", include_str!("../../interop/gozk/go.sum")),
    ];

    /// Why it cannot be used here.
    #[must_use]
    pub fn missing() -> Option<String> {
        let built = is_built_from(&Self::directory(), &Self::SOURCES);
        (!built).then(|| format!("the program with go-zookeeper is not built; {HOW}, with Go"))
    }

    /// Starts a client of the server on a port of this machine.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it does not come up.
    pub async fn start(port: u16) -> Outcome<Peer> {
        let mut program = Command::new(Self::directory().join("peer"));
        program.arg(format!("127.0.0.1:{port}"));
        Peer::start(&mut program).await
    }

    fn directory() -> PathBuf {
        directory().join("gozk")
    }
}
