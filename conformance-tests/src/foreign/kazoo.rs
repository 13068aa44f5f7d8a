//! The lock of kazoo, in a Python process.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::{HOW, Peer, directory, missing};
use crate::failure::Outcome;

/// The program in `interop/kazoo`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Kazoo;

impl Kazoo {
    const NEEDS: &str = include_str!("../../interop/kazoo/requirements.txt");

    /// Why it cannot be used here.
    #[must_use]
    pub fn missing() -> Option<String> {
        if let Some(reason) = missing("python3") {
            return Some(reason);
        }
        let installed = std::fs::read_to_string(Self::directory().join("requirements.txt"));
        let current = installed.is_ok_and(|installed| installed == Self::NEEDS);
        (!current).then(|| format!("kazoo is not installed; {HOW}"))
    }

    /// Starts a client of the server on a port of this machine. Beside its own nodes its locks respect
    /// those with one of `patterns` before the number.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it does not come up.
    pub async fn start(port: u16, patterns: &[&str]) -> Outcome<Peer> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut python = Command::new("python3");
        python
            .arg(here.join("interop/kazoo/peer.py"))
            .arg(format!("127.0.0.1:{port}"))
            .arg(patterns.join(","))
            .env("PYTHONPATH", Self::directory())
            .env("PYTHONDONTWRITEBYTECODE", "1");
        Peer::start(&mut python).await
    }

    fn directory() -> PathBuf {
        directory().join("kazoo")
    }
}
