//! The sessions of a store: one for all holds with the same ttl.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkit_core::BackendError;
use lockkit_core::clock::Clock;
use tokio::runtime::Handle;

use crate::desk::Desk;
use crate::link::Link;
use crate::mutant::{Broken, EtcdMutant};
use crate::session::{Plan, Session};

/// Makes and keeps sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    link: Arc<Link>,
    desk: Arc<Desk>,
    clock: Arc<dyn Clock>,
    runtime: Handle,
    broken: Broken,
    /// The newest of each ttl.
    shared: Mutex<HashMap<Duration, Arc<Session>>>,
    /// One is made at a time: whoever comes meanwhile takes it too.
    making: tokio::sync::Mutex<()>,
}

impl Sessions {
    pub(crate) fn new(
        link: &Arc<Link>,
        desk: &Arc<Desk>,
        clock: Arc<dyn Clock>,
        runtime: Handle,
        broken: Broken,
    ) -> Self {
        Self {
            link: Arc::clone(link),
            desk: Arc::clone(desk),
            clock,
            runtime,
            broken,
            shared: Mutex::default(),
            making: tokio::sync::Mutex::const_new(()),
        }
    }

    /// A session for a new key.
    pub(crate) async fn take(&self, ttl: Duration) -> Result<Arc<Session>, BackendError> {
        if let Some(session) = self.shared(ttl)
            && session.is_fresh().await
        {
            return Ok(session);
        }
        let making = self.making.lock().await;
        if let Some(session) = self.shared(ttl)
            && session.is_fresh().await
        {
            return Ok(session);
        }
        let session = Box::pin(self.make(ttl)).await?;
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let former = shared.insert(ttl, Arc::clone(&session));
        drop((shared, making));
        // Its tickets keep it for as long as they need it.
        drop(former);
        Ok(session)
    }

    /// The newest session of each ttl.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.values().map(Arc::clone).collect()
    }

    fn shared(&self, ttl: Duration) -> Option<Arc<Session>> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let session = shared.get(&ttl)?;
        session.takes_tickets().then(|| Arc::clone(session))
    }

    async fn make(&self, ttl: Duration) -> Result<Arc<Session>, BackendError> {
        Session::begin(Plan {
            ttl,
            ageless: self.broken.is(EtcdMutant::LeaseAgeIgnored),
            link: Arc::clone(&self.link),
            desk: Arc::clone(&self.desk),
            clock: Arc::clone(&self.clock),
            runtime: self.runtime.clone(),
        })
        .await
    }
}
