//! Servers that consist of one process or of several.

use std::fmt::Debug;

use async_trait::async_trait;

use super::ServerProcess;
use crate::failure::Outcome;
use crate::namespace::Server;

/// A server of one or more processes. It can be restarted and frozen: it is a [`Server`].
#[async_trait]
pub trait Processes: Debug + Send + Sync {
    /// Its processes.
    fn processes(&self) -> Vec<&ServerProcess>;

    /// Waits until it serves clients.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) with the end of the log if it ends or takes too long.
    async fn ready(&self) -> Outcome;
}

#[async_trait]
impl<T: Processes> Server for T {
    async fn restart(&self) -> Outcome {
        self.processes().into_iter().for_each(ServerProcess::kill);
        for process in self.processes() {
            process.restart()?;
        }
        self.ready().await
    }

    fn pids(&self) -> Vec<u32> {
        let processes = self.processes().into_iter();
        processes.filter_map(ServerProcess::pid).collect()
    }

    fn freeze(&self) -> Outcome {
        self.processes()
            .into_iter()
            .try_for_each(ServerProcess::stop)
    }

    fn thaw(&self) -> Outcome {
        self.processes()
            .into_iter()
            .try_for_each(ServerProcess::resume)
    }
}
