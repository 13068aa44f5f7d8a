//! What all parts of a store share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkit_core::Capabilities;
use lockkit_core::clock::Clock;
use lockkit_core::store::lock;
use tokio::runtime::Handle;

use crate::config::{EtcdStoreBuilder, ROOT};
use crate::keys::{Layout, Names};
use crate::link::Link;
use crate::session::Session;
use crate::waiters::Waiters;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) link: Link,
    pub(crate) waiters: Waiters,
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
            waiters: Waiters::new(config.token_base),
            layout: Layout::new(root, config.names),
            capabilities: config.capabilities(),
            clock: Arc::clone(&config.clock),
            runtime,
            sessions: Mutex::default(),
            creating: tokio::sync::Mutex::default(),
            link: Link::new(config),
        }
    }

    /// Forgets all tickets and sessions, because the store is closed: the sessions' tasks end.
    pub(crate) fn close(&self) {
        self.waiters.close();
        let sessions = std::mem::take(&mut *lock(&self.sessions));
        drop(sessions);
    }
}
