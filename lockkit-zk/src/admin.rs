//! Requests of operators: inspect, break, list.

use std::collections::VecDeque;
use std::sync::Arc;

use lockkit_core::contract::LockState;
use lockkit_core::{BackendError, HolderId, LockName, Outcome};
use zookeeper_client::Error;

use crate::error::{fault, of_request};
use crate::queue;
use crate::session::Session;
use crate::shared::Shared;

/// How often a lock is read again because its holder released it in between.
const READS: u32 = 20;

impl Shared {
    /// Reads the state of one lock.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let session = self.synced("inspect").await?;
        let read = self.read(&session, "inspect", name).await?;
        Ok(read.map(|(state, _)| state))
    }

    /// Ends a hold.
    pub(crate) async fn break_lock(
        &self,
        name: &LockName,
    ) -> Result<Option<LockState>, BackendError> {
        let session = self.synced("break").await?;
        for _ in 0..READS {
            let Some((state, path)) = self.read(&session, "break", name).await? else {
                return Ok(None);
            };
            if session.delete("break", &path).await? {
                return Ok(Some(state));
            }
            // The holder released it, and the next one has the lock now.
        }
        Err(unstable("break"))
    }

    /// Lists the locks whose names begin with `prefix`.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        let session = self.synced("list").await?;
        let mut found = Vec::new();
        let mut folders = VecDeque::from([String::new()]);
        while let Some(folder) = folders.pop_front() {
            for node in self.children(&session, &folder).await? {
                let below = match folder.as_str() {
                    "" => node,
                    folder => format!("{folder}/{node}"),
                };
                let Some(name) = self.keys.name_at(&below) else {
                    continue;
                };
                let named = name.as_str();
                if named.starts_with(prefix)
                    && let Some((state, _)) = self.read(&session, "list", &name).await?
                {
                    found.push(state);
                }
                if self.keys.nested() && (named.starts_with(prefix) || prefix.starts_with(named)) {
                    folders.push_back(below);
                }
            }
        }
        Ok(found)
    }

    /// A session whose reads from now on see all writes before.
    async fn synced(&self, operation: &'static str) -> Result<Arc<Session>, BackendError> {
        let session = self.sessions.live(operation).await?;
        session.heartbeat(operation).await?;
        Ok(session)
    }

    async fn children(&self, session: &Session, folder: &str) -> Result<Vec<String>, BackendError> {
        let path = self.keys.path(folder);
        match session.client.list_children(&path).await {
            Ok(mut children) => {
                children.sort_unstable();
                Ok(children)
            }
            Err(Error::NoNode) => Ok(Vec::new()),
            Err(error) => Err(of_request("list", &error)),
        }
    }

    /// Reads the state of a lock and the path of its holder's node.
    async fn read(
        &self,
        session: &Session,
        operation: &'static str,
        name: &LockName,
    ) -> Result<Option<(LockState, String)>, BackendError> {
        let lock_path = self.keys.of(name);
        for _ in 0..READS {
            let queue = queue::list(operation, session, &lock_path).await?;
            let Some(first) = queue.first() else {
                return Ok(None);
            };
            let path = format!("{lock_path}/{first}");
            let (data, czxid) = match session.client.get_data(&path).await {
                Ok((data, stat)) => (data, Some(stat.czxid)),
                // Its owner allows no reads; it holds the lock all the same.
                Err(Error::NoAuth) => (Vec::new(), None),
                Err(Error::NoNode) => continue,
                Err(error) => return Err(of_request(operation, &error)),
            };
            let token = czxid.and_then(|czxid| self.token(czxid).ok());
            let waiters = u32::try_from(queue.len() - 1).ok();
            let state = LockState::new(name.clone())
                .with_holder(holder(&data, first))
                .with_token(token)
                .with_waiters(waiters);
            return Ok(Some((state, path)));
        }
        Err(unstable(operation))
    }
}

/// Names the holder: ours by their identity, others by their node and its data.
fn holder(data: &[u8], node: &str) -> String {
    let text = std::str::from_utf8(data).ok();
    match text {
        Some(text) if text.parse::<HolderId>().is_ok() => text.to_owned(),
        Some(text) if !text.is_empty() && text.len() <= 64 && !text.contains(char::is_control) => {
            format!("{node} ({text})")
        }
        _ => node.to_owned(),
    }
}

fn unstable(operation: &'static str) -> BackendError {
    let why = "the holder changed each time it was read";
    fault(operation, Outcome::Unavailable, why)
}
