//! The sessions of a store: one for all tickets with the same ttl.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkit_core::BackendError;
use lockkit_core::clock::Clock;
use lockkit_core::store::lock;
use tokio::runtime::Handle;

use crate::keep_alive::KeepAlive;
use crate::link::Link;
use crate::session::Session;
use crate::waiters::Waiters;

/// Creates and keeps sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    link: Arc<Link>,
    waiters: Arc<Waiters>,
    clock: Arc<dyn Clock>,
    runtime: Handle,
    /// The newest session of each ttl.
    newest: Mutex<HashMap<Duration, Arc<Session>>>,
    /// Held while a session is created, so that others wait for it and share it.
    creating: tokio::sync::Mutex<()>,
}

impl Sessions {
    pub(crate) fn new(
        link: &Arc<Link>,
        waiters: &Arc<Waiters>,
        clock: Arc<dyn Clock>,
        runtime: Handle,
    ) -> Self {
        Self {
            link: Arc::clone(link),
            waiters: Arc::clone(waiters),
            clock,
            runtime,
            newest: Mutex::default(),
            creating: tokio::sync::Mutex::const_new(()),
        }
    }

    /// Returns a session for a new key.
    pub(crate) async fn take(&self, ttl: Duration) -> Result<Arc<Session>, BackendError> {
        if let Some(session) = self.fresh(ttl).await {
            return Ok(session);
        }
        let creating = self.creating.lock().await;
        if let Some(session) = self.fresh(ttl).await {
            return Ok(session);
        }
        let session = Box::pin(self.create(ttl)).await?;
        let mut newest = lock(&self.newest);
        let former = newest.insert(ttl, Arc::clone(&session));
        drop((newest, creating));
        // Its tickets keep it for as long as they need it.
        drop(former);
        Ok(session)
    }

    /// The newest session of each ttl.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        let newest = lock(&self.newest);
        newest.values().map(Arc::clone).collect()
    }

    async fn fresh(&self, ttl: Duration) -> Option<Arc<Session>> {
        let session = {
            let newest = lock(&self.newest);
            newest.get(&ttl).map(Arc::clone)
        };
        let session = session.filter(|session| session.takes_tickets())?;
        session.is_fresh().await.then_some(session)
    }

    async fn create(&self, ttl: Duration) -> Result<Arc<Session>, BackendError> {
        let created = Session::create(&self.link, ttl, &self.clock).await;
        let (session, lease, requests) = created?;
        let (link, waiters) = (Arc::clone(&self.link), Arc::clone(&self.waiters));
        let task = KeepAlive::new(lease, link, waiters, self.runtime.clone());
        // Detached: it ends with the session.
        drop(self.runtime.spawn(task.run(requests)));
        Ok(session)
    }
}
