//! One request for a lock, on its own feet.

use std::pin::Pin;
use std::sync::Arc;

use tokio::time::timeout;

use crate::client::shared::Core;
use crate::contract::error::BackendError;
use crate::contract::{Attempt, Ticket};

/// An attempt in flight. It owns what it needs, so that it can be finished after its caller has gone.
pub(crate) type AttemptFuture = Pin<Box<dyn Future<Output = Result<Attempt, BackendError>> + Send>>;

/// Sends an attempt when it is polled first; never takes longer than one request may.
pub(crate) fn attempt(core: &Arc<Core>, ticket: &Ticket) -> AttemptFuture {
    let (store, limit, ticket) = (Arc::clone(&core.store), core.timeout, ticket.clone());
    Box::pin(async move {
        match timeout(limit, store.attempt(&ticket)).await {
            Ok(answer) => answer,
            Err(_) => Err(BackendError::timeout(store.backend(), "attempt", limit)),
        }
    })
}
