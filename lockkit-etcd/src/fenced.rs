//! Work in etcd that is carried out only while a hold stands, in one transaction.

use etcd_client::{Txn, TxnOpResponse, TxnResponse};
use lockkit_core::backend::Ticket;
use lockkit_core::{BackendError, FencingToken, Guard, LockClient};

use crate::backend::EtcdStore;
use crate::error::unreadable;
use crate::mutant::EtcdMutant;
use crate::steps::guarded;

/// Says why guarded work was not done.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FencedError {
    /// The hold has ended: nothing was done. Stop writing.
    #[error("the hold has ended: nothing was done")]
    Fenced,
    /// The server failed, or refused what was asked. Look at the source.
    #[error("the guarded request failed")]
    Backend(#[from] BackendError),
}

/// Work that the server carries out only while one hold stands.
///
/// The look at the hold and the work are one transaction, so that a stale holder's work is refused
/// whatever the clocks say: the key of the lock must be the one that was created with the hold.
///
/// # Examples
/// ```no_run
/// use lockkit_core::{Guard, LockClient};
/// use lockkit_etcd::etcd_client::{Txn, TxnOp};
/// use lockkit_etcd::{Fenced, FencedError};
///
/// # async fn example(client: LockClient, guard: Guard) -> Result<(), FencedError> {
/// if let Some(fenced) = Fenced::by(&client, &guard) {
///     let work = Txn::new().and_then([TxnOp::put("stock/42", "7", None)]);
///     fenced.commit(work).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is done before `commit`"]
pub struct Fenced<'a> {
    store: &'a EtcdStore,
    ticket: Ticket,
    token: FencingToken,
}

impl<'a> Fenced<'a> {
    /// Work under the hold of `guard`, which `client` gave; `None` if its store is not etcd.
    pub fn by(client: &'a LockClient, guard: &Guard) -> Option<Self> {
        let store = client.store()?;
        // As the store sees it: a prefix of the client is part of its name.
        let ticket = client.backend().resolve(guard.ticket());
        Some(Self::new(store, ticket, guard.token()))
    }

    /// Work under the hold of a ticket, for which `store` gave `token`.
    pub const fn new(store: &'a EtcdStore, ticket: Ticket, token: FencingToken) -> Self {
        Self {
            store,
            ticket,
            token,
        }
    }

    /// Carries out a transaction while the hold stands, and answers its result. It may have conditions
    /// of its own.
    ///
    /// # Errors
    /// - [`FencedError::Fenced`] if the hold has ended; nothing was done.
    /// - [`FencedError::Backend`] if the server failed or refused the transaction.
    ///
    /// # Cancel safety
    /// Dropped, it may still be carried out, if the hold stands then.
    ///
    /// # Cost
    /// One round trip.
    pub async fn commit(&self, work: Txn) -> Result<TxnResponse, FencedError> {
        // A ticket that was released holds nothing any more.
        let at = self.store.desk().known(self.ticket.holder);
        let at = at.ok_or(FencedError::Fenced)?;
        let created = self.token.get().checked_sub(self.store.token_base());
        let created = created.and_then(|created| i64::try_from(created).ok());
        let created = created.ok_or(FencedError::Fenced)?;
        let txn = if self.store.broken().is(EtcdMutant::FenceNotCompared) {
            Txn::new().and_then([etcd_client::TxnOp::txn(work)])
        } else {
            guarded(&at.key, created, work)
        };
        let answer = self.store.txn("guarded work", &txn).await;
        let answer = answer.map_err(|failed| failed.into_error("guarded work"))?;
        if !answer.succeeded() {
            return Err(FencedError::Fenced);
        }
        match answer.op_responses().into_iter().next() {
            Some(TxnOpResponse::Txn(done)) => Ok(done),
            _ => Err(unreadable("guarded work").into()),
        }
    }
}
