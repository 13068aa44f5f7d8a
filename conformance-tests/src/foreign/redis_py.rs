//! The lock of redis-py, in a Python process.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::{HOW, Peer, directory, missing};
use crate::failure::Outcome;
use crate::servers::RedisServer;

/// The program in `interop/redis_py`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RedisPy;

impl RedisPy {
    /// The package and its version.
    const PACKAGE: &'static str = include_str!("../../interop/redis_py/requirements.txt");

    /// Why it cannot be used here.
    #[must_use]
    pub fn missing() -> Option<String> {
        if let Some(reason) = missing("python3") {
            return Some(reason);
        }
        let there = Self::directory().join("redis/lock.py").is_file();
        (!there).then(|| format!("no {} here; {HOW}", Self::PACKAGE.trim()))
    }

    /// Starts a client of `server`.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it does not come up.
    pub async fn start(server: &RedisServer) -> Outcome<Peer> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/redis_py/peer.py");
        let mut python = Command::new("python3");
        python
            .arg(program)
            .args(["127.0.0.1", &server.port().to_string()])
            .env("PYTHONPATH", Self::directory());
        Peer::start(&mut python).await
    }

    fn directory() -> PathBuf {
        directory().join("redis-py")
    }
}
