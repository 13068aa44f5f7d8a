//! Requests of operators: inspect, break, list.

use std::collections::VecDeque;
use std::sync::Arc;

use lockkit_core::contract::{Holder, LockState};
use lockkit_core::store::predecessors::holding;
use lockkit_core::store::{of_break, tag};
use lockkit_core::{BackendError, LockName, Outcome};
use zookeeper_client::Error;

use crate::error::{Result, fault, of_request};
use crate::keys;
use crate::queue;
use crate::session::Session;
use crate::shared::Shared;

/// How often a lock is read again because its holders released it in between.
const READS: u32 = 20;
/// Longer data of other programs are not shown.
const NOTE: usize = 512;

impl Shared {
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Option<LockState>> {
        let session = self.synced("inspect").await?;
        let read = self.read(&session, "inspect", name).await?;
        Ok(read.map(|(state, _)| state))
    }

    pub(crate) async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>> {
        let session = self.synced("break").await?;
        for _ in 0..READS {
            let Some((state, paths)) = self.read(&session, "break", name).await? else {
                return Ok(None);
            };
            let mut broken = false;
            for path in paths {
                let deleted = session.delete("break", &path).await;
                broken |= deleted.map_err(|error| of_break(error, broken))?;
            }
            if broken {
                return Ok(Some(state));
            }
            // The holders have released it, and the next ones have the lock now.
        }
        Err(unstable("break"))
    }

    /// Lists the locks whose names begin with `prefix`.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
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
    async fn synced(&self, operation: &'static str) -> Result<Arc<Session>> {
        let session = self.sessions.live(operation).await?;
        session.heartbeat(operation).await?;
        Ok(session)
    }

    async fn children(&self, session: &Session, folder: &str) -> Result<Vec<String>> {
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

    /// Reads the state of a lock and the paths of its holders' nodes.
    async fn read(
        &self,
        session: &Session,
        operation: &'static str,
        name: &LockName,
    ) -> Result<Option<(LockState, Vec<String>)>> {
        let lock_path = self.keys.of(name);
        for _ in 0..READS {
            let queue = queue::list(operation, session, &lock_path).await?;
            if queue.is_empty() {
                return Ok(None);
            }
            let nodes: Vec<_> = holding(&queue, |node| keys::mode(node)).collect();
            let paths: Vec<_> = nodes.iter().map(|it| format!("{lock_path}/{it}")).collect();
            // Sends all requests before it waits for the first answer.
            let read: Vec<_> = paths.iter().map(|it| session.client.get_data(it)).collect();
            let mut state = LockState::new(name.clone());
            state.waiters = u32::try_from(queue.len() - nodes.len()).ok();
            for (node, data) in nodes.into_iter().zip(read) {
                let (data, czxid) = match data.await {
                    Ok((data, stat)) => (data, Some(stat.czxid)),
                    // Its owner allows no reads; it holds the lock all the same.
                    Err(Error::NoAuth) => (Vec::new(), None),
                    Err(Error::NoNode) => continue,
                    Err(error) => return Err(of_request(operation, &error)),
                };
                let mut holder = holder(&data, node);
                holder.token = czxid.and_then(|czxid| self.token(czxid).ok());
                state = state.with_holder(holder);
            }
            if !state.holders.is_empty() {
                return Ok(Some((state, paths)));
            }
        }
        Err(unstable(operation))
    }
}

/// Describes a holder: ours by its identity, others by their node and its data.
fn holder(data: &[u8], node: &str) -> Holder {
    let text = std::str::from_utf8(data).unwrap_or_default();
    if let Some(ours) = tag::read(text) {
        let mode = Some(keys::mode(node));
        return Holder { mode, ..ours };
    }
    let shown = !text.is_empty() && text.len() <= NOTE && !text.contains(char::is_control);
    Holder {
        note: shown.then(|| text.to_owned()),
        ..Holder::new(node)
    }
}

fn unstable(operation: &'static str) -> BackendError {
    let why = "the holders changed each time they were read";
    fault(operation, Outcome::Unavailable, why)
}
