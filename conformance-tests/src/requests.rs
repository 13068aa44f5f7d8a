//! Single requests to a store, without a client above it.

use lockkit_core::contract::{Attempt, Renewal, Ticket};
use lockkit_core::{BackendError, DistributedLock, FencingToken};

use crate::failure::{Failure, Outcome, ensure};

/// Takes a lock that must be free. Returns the token.
///
/// # Errors
/// - [`Failure`] if it is not granted.
#[track_caller]
pub fn granted(
    store: &dyn DistributedLock,
    ticket: &Ticket,
) -> impl Future<Output = Outcome<FencingToken>> {
    let refused = Failure::new("a ticket was not granted");
    async move {
        match store.attempt(ticket).await? {
            Attempt::Granted(grant) => Ok(grant.token),
            other => Err(refused.with_detail(&format!("{other:?}"))),
        }
    }
}

/// Renews one ticket. Returns the only result.
///
/// # Errors
/// - [`Failure`] if there is not exactly one.
#[track_caller]
pub fn renewed(
    store: &dyn DistributedLock,
    ticket: &Ticket,
) -> impl Future<Output = Outcome<Result<Renewal, BackendError>>> {
    let missing = Failure::new("one ticket has not one result");
    async move {
        let mut results = store.renew(std::slice::from_ref(ticket)).await;
        let only = results.pop().filter(|_| results.is_empty());
        only.ok_or(missing)
    }
}

/// Renews one ticket, which must hold.
///
/// # Errors
/// - [`Failure`] if it does not, or the store fails.
pub async fn must_renew(store: &dyn DistributedLock, ticket: &Ticket) -> Outcome {
    let renewal = renewed(store, ticket).await??;
    let holds = matches!(renewal, Renewal::Renewed { .. });
    ensure(holds, format!("{renewal:?}"))
}
