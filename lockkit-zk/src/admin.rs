//! Requests of operators: inspect, break, list.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use lockkit_core::contract::{Holder, LockState};
use lockkit_core::store::predecessors::holding;
use lockkit_core::store::{of_break, tag};
use lockkit_core::{BackendError, LockName, Outcome};
use zookeeper_client::Error;

use crate::error::{Result, fault};
use crate::keys;
use crate::queue;
use crate::session::Session;
use crate::shared::Shared;

/// How often a lock is read again because its holders released it in between.
const READS: u32 = 20;
/// How many nodes and locks are read at once.
const AT_ONCE: usize = 64;
/// Longer data of other programs are not shown.
const NOTE: usize = 512;
/// Stands for the holder of a lock that belongs to another user.
const UNREADABLE: &str = "(unknown: this user may not read the lock)";

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
        let session = &session;
        let mut names = Vec::new();
        let mut folders = vec![String::new()];
        while !folders.is_empty() {
            let level = stream::iter(std::mem::take(&mut folders));
            let level = level.map(|folder| self.children(session, folder));
            let level: Vec<Vec<String>> = level.buffered(AT_ONCE).try_collect().await?;
            for below in level.into_iter().flatten() {
                let Some(name) = self.keys.name_at(&below) else {
                    continue;
                };
                let named = name.as_str();
                let is_listed = named.starts_with(prefix);
                if self.keys.nested() && (is_listed || prefix.starts_with(named)) {
                    folders.push(below);
                }
                if is_listed {
                    names.push(name);
                }
            }
        }
        let read = stream::iter(names).map(|name| async move {
            match self.read(session, "list", &name).await {
                Ok(read) => Ok(read.map(|(state, _)| state)),
                Err(error) if error.outcome() == Outcome::Rejected => {
                    Ok(Some(LockState::new(name).with_holder(UNREADABLE)))
                }
                Err(error) => Err(error),
            }
        });
        let read: Vec<Option<LockState>> = read.buffered(AT_ONCE).try_collect().await?;
        Ok(read.into_iter().flatten().collect())
    }

    /// A session whose reads from now on see all writes before.
    async fn synced(&self, operation: &'static str) -> Result<Arc<Session>> {
        let session = self.sessions.live(operation).await?;
        session.heartbeat(operation).await?;
        Ok(session)
    }

    /// Reads the paths of the nodes in a folder, below the root of the locks.
    async fn children(&self, session: &Session, folder: String) -> Result<Vec<String>> {
        let path = self.keys.path(&folder);
        match session.client.list_children(&path).await {
            Ok(mut children) => {
                children.sort_unstable();
                let below = |node: String| match folder.as_str() {
                    "" => node,
                    folder => format!("{folder}/{node}"),
                };
                Ok(children.into_iter().map(below).collect())
            }
            Err(Error::NoNode) => Ok(Vec::new()),
            // The locks below that of another user are that user's, too.
            Err(Error::NoAuth) if !folder.is_empty() => Ok(Vec::new()),
            Err(error) => Err(session.error("list", &error)),
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
                    Err(error) => return Err(session.error(operation, &error)),
                };
                let mut holder = holder(&data, node);
                holder.token = czxid.map(|czxid| self.token(czxid));
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
