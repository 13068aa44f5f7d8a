//! What all parts of a store share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkit_core::Capabilities;
use lockkit_core::clock::Clock;
use lockkit_core::store::lock;
use lockkit_core::store::waiters::Waiters;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::config::{EtcdStoreBuilder, ROOT};
use crate::keys::{Layout, Names};
use crate::link::Link;
use crate::position::Position;
use crate::session::Session;
use crate::watches::KeyWatches;

pub(crate) struct Shared {
    pub(crate) link: Link,
    /// Its mutex is taken before that of the watches.
    pub(crate) tickets: Arc<Waiters<Position>>,
    pub(crate) watches: Mutex<KeyWatches>,
    /// Notified when a watch is wanted.
    pub(crate) wanted: Notify,
    pub(crate) token_base: u64,
    pub(crate) layout: Layout,
    pub(crate) capabilities: Capabilities,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runtime: Handle,
    /// The newest session of each ttl.
    pub(crate) sessions: Mutex<HashMap<Duration, Arc<Session>>>,
    /// Held while a session is created, so that others wait for it and share it.
    pub(crate) creating: tokio::sync::Mutex<()>,
}

impl Shared {
    pub(crate) fn new(config: EtcdStoreBuilder, runtime: Handle) -> Self {
        let root = match (&config.root, config.names) {
            (Some(root), _) => root.as_str(),
            (None, Names::Encoded) => ROOT,
            (None, Names::Raw) => "",
        };
        Self {
            tickets: Arc::default(),
            watches: Mutex::default(),
            wanted: Notify::new(),
            token_base: config.token_base,
            layout: Layout::new(root, config.names),
            capabilities: config.capabilities(),
            clock: Arc::clone(&config.clock),
            sessions: Mutex::default(),
            creating: tokio::sync::Mutex::default(),
            link: Link::new(config, runtime.clone()),
            runtime,
        }
    }

    /// Forgets all tickets and sessions, because the store is closed: the sessions' tasks end. The keys do
    /// not leave their sessions, as if the process had died: holds that are left end with their leases.
    pub(crate) fn close(&self) {
        let mut left = Vec::new();
        self.tickets
            .for_each(|_, entry| left.extend(entry.data.contender.take()));
        *lock(&self.watches) = KeyWatches::default();
        let sessions = std::mem::take(&mut *lock(&self.sessions));
        // The last reference to a session ends its task.
        drop((left, sessions));
    }
}
