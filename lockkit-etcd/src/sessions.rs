//! The sessions of a store: one for all tickets with the same ttl.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::Outcome;
use lockkit_core::store::lock;

use crate::error::{Result, fault};
use crate::keep_alive::KeepAlive;
use crate::session::{Lease, Session};
use crate::shared::Shared;

impl Shared {
    /// Returns a session for a new key.
    pub(crate) async fn session(self: &Arc<Self>, ttl: Duration) -> Result<Arc<Session>> {
        // Rounded up: a fixed lease may be of any length, and the server keeps none for less than is believed.
        let fraction = u64::from(ttl.subsec_nanos() > 0);
        let ttl = Duration::from_secs(ttl.as_secs().saturating_add(fraction));
        if let Some(session) = self.fresh(ttl).await {
            return Ok(session);
        }
        let _creating = self.creating.lock().await;
        if let Some(session) = self.fresh(ttl).await {
            return Ok(session);
        }
        let session = Box::pin(self.create(ttl)).await?;
        // Their tickets keep the former ones for as long as they need them.
        let mut sessions = lock(&self.sessions);
        let is_former = |of: &Duration, it: &mut Arc<Session>| *of == ttl || !it.takes_tickets();
        let former: Vec<_> = sessions.extract_if(is_former).collect();
        sessions.insert(ttl, Arc::clone(&session));
        drop(sessions);
        drop(former);
        Ok(session)
    }

    /// The newest session, if it can be used.
    async fn fresh(&self, ttl: Duration) -> Option<Arc<Session>> {
        let session = lock(&self.sessions).get(&ttl).map(Arc::clone);
        let session = session.filter(|session| session.takes_tickets())?;
        session.is_fresh().await.then_some(session)
    }

    /// Creates a lease, and spawns the task that keeps it alive.
    async fn create(self: &Arc<Self>, ttl: Duration) -> Result<Arc<Session>> {
        let confirmed = self.clock.now();
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        let granted = self.link.ask(
            "attempt",
            self.link.request_timeout(),
            |client| async move { client.lease_client().grant(seconds, None).await },
        );
        let granted = granted
            .await
            .map_err(|failed| failed.into_error("attempt"))?;
        if granted.ttl() < seconds {
            let why = format!("the server grants a lease of {} s only", granted.ttl());
            return Err(fault("attempt", Outcome::Rejected, why));
        }
        let lease = Arc::new(Lease::new(granted.id(), ttl, &self.clock, confirmed));
        let (session, requests) = Session::new(Arc::clone(&lease));
        let task = KeepAlive::new(Arc::clone(self), lease);
        // Detached: it ends with the session.
        drop(self.runtime.spawn(task.run(requests)));
        Ok(Arc::new(session))
    }
}
