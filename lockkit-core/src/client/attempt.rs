//! One request for a lock. It owns what it needs, so that it can go on after its caller has gone.

use std::pin::Pin;
use std::sync::Arc;

use crate::client::context::Context;
use crate::contract::{Attempt, BackendError, HolderId, Ticket};
use crate::time::clock::Moment;

/// An attempt in flight.
pub(crate) struct Attempting {
    /// When it was written.
    pub(crate) sent: Moment,
    pub(crate) answer: Pin<Box<dyn Future<Output = Result<Attempt, BackendError>> + Send>>,
}

impl Attempting {
    /// Sends an attempt when its answer is polled first, which is bounded as one request is. With `from`, it adopts that
    /// hold.
    pub(crate) fn new(context: &Arc<Context>, ticket: Ticket, from: Option<HolderId>) -> Self {
        let context = Arc::clone(context);
        Self {
            sent: context.clock.now(),
            answer: Box::pin(async move {
                let store = &context.store;
                match from {
                    None => context.bounded("attempt", store.attempt(&ticket)).await,
                    Some(from) => context.bounded("adopt", store.adopt(from, &ticket)).await,
                }
            }),
        }
    }
}
