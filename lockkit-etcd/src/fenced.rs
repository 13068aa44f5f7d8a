//! Guarded work: the server does it only while a hold lasts, in one transaction.

use etcd_client::{GetResponse, Txn, TxnOp, TxnOpResponse, TxnResponse};
use lockkit_core::contract::Ticket;
use lockkit_core::store::section::FencedError;
use lockkit_core::{FencingToken, Guard, LockClient};

use crate::backend::EtcdStore;
use crate::error::unreadable;
use crate::queue::{Key, gets, if_created};

/// Work that the server does only while one hold lasts.
///
/// One transaction checks the hold and does the work, so that the work of a stale holder is refused
/// whatever the clocks say. The key of the lock must be the one that was created with the hold.
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
    /// Work under the hold of `guard`, which comes from `client`; `None` if its store is not etcd.
    pub fn by(client: &'a LockClient, guard: &Guard) -> Option<Self> {
        let store = client.store()?;
        Some(Self::new(store, guard.ticket().clone(), guard.token()))
    }

    /// Work under the hold of a ticket, to which `store` gave `token`.
    pub const fn new(store: &'a EtcdStore, ticket: Ticket, token: FencingToken) -> Self {
        Self {
            store,
            ticket,
            token,
        }
    }

    /// Executes a transaction if the hold lasts, and returns its result. The transaction may have conditions of
    /// its own.
    ///
    /// # Errors
    /// - [`FencedError::Fenced`] if the hold has ended; nothing was done.
    /// - [`FencedError::Backend`] if the server failed or refused the transaction.
    ///
    /// # Cancel safety
    /// A dropped call may still be executed, if the hold lasts until then.
    ///
    /// # Cost
    /// One round trip.
    pub async fn commit(&self, work: Txn) -> Result<TxnResponse, FencedError> {
        let work = vec![TxnOp::txn(work)];
        let results = self.execute("guarded work", work).await?;
        match results.into_iter().next() {
            Some(TxnOpResponse::Txn(done)) => Ok(done),
            _ => Err(unreadable("guarded work").into()),
        }
    }

    /// Reads if the hold lasts. The server asks the leader, because these are no serializable reads.
    pub(crate) async fn read(&self, reads: &[TxnOp]) -> Result<Vec<GetResponse>, FencedError> {
        self.execute("read", reads.to_vec()).await.map(gets)
    }

    /// Executes operations if the key of the hold is the one that was created with it.
    async fn execute(
        &self,
        operation: &'static str,
        operations: Vec<TxnOp>,
    ) -> Result<Vec<TxnOpResponse>, FencedError> {
        // A released ticket holds nothing.
        let shared = self.store.shared();
        let own = shared.known(self.ticket.holder).and_then(|at| at.own());
        let is_hold = |own: &Key| shared.token(own.1) == self.token;
        let (key, created) = own.filter(is_hold).ok_or(FencedError::Fenced)?;
        let txn = if_created(&*key, created).and_then(operations);
        let answer = shared.link.txn(operation, &txn).await;
        let answer = answer.map_err(|failed| failed.of_work(operation))?;
        match answer.succeeded() {
            true => Ok(answer.op_responses()),
            false => Err(FencedError::Fenced),
        }
    }
}
