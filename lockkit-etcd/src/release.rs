//! Releases: deletes the key of a ticket.

use etcd_client::{DeleteOptions, TxnOpResponse};
use lockkit_core::Outcome;
use lockkit_core::contract::{Release, Ticket};

use crate::error::{Failed, Result, fault};
use crate::queue::{self, Contender};
use crate::shared::Shared;
use crate::work::Writes;

impl Shared {
    /// Ends the hold of a ticket, or removes it from the queue.
    pub(crate) async fn release(&self, ticket: &Ticket) -> Result<Release> {
        let mut released = Release::NotHeld;
        let at = self.known(ticket.holder);
        // A lease that has ended has deleted its keys.
        if let Some(at) = at.filter(|at| at.session.is_alive()) {
            // Before it is written: a request that is abandoned here may delete the key later.
            self.tickets
                .with(ticket.holder, |entry| entry.data.unanswered += 1);
            let held = match Writes::of(ticket) {
                Some(writes) => self.commit(&at, writes).await,
                None => self.delete(&at).await,
            };
            if held.map_err(|failed| failed.into_error("release"))? {
                released = Release::Released;
            }
        }
        self.released(ticket.holder);
        Ok(released)
    }

    /// Deletes the key of a ticket, in the transaction that does its work if it holds. Returns whether it did.
    async fn commit(&self, at: &Contender, writes: &Writes) -> Result<bool, Failed> {
        let Some(created) = at.created.filter(|_| at.held) else {
            return self.delete(at).await.map(|_| false);
        };
        let txn = queue::commit(&at.key, created, writes.request.clone());
        let answer = match self.link.txn("commit", &txn).await {
            Err(Failed::LeaseGone) => {
                let why = "nothing was done: a lease of the transaction has ended";
                return Err(Failed::Other(fault("commit", Outcome::Rejected, why)));
            }
            answer => answer?,
        };
        if let Some(TxnOpResponse::Txn(done)) = answer.op_responses().into_iter().next() {
            writes.keep(done);
        }
        Ok(answer.succeeded())
    }

    /// Deletes the key of a ticket. Returns whether it was a hold.
    async fn delete(&self, at: &Contender) -> Result<bool, Failed> {
        let Some(created) = at.created.filter(|_| at.held) else {
            let answer = self.link.txn("release", &queue::leave(at)).await?;
            return Ok(queue::had_held(at, &answer));
        };
        // A key that held once holds until it is deleted. A transaction would be refused by a full server.
        let limit = self.link.request_timeout();
        let deleted = self.link.ask("release", limit, |client| {
            let options = Some(DeleteOptions::new().with_prev_key());
            let key = at.key.as_bytes().to_vec();
            async move { client.kv_client().delete(key, options).await }
        });
        let deleted = deleted.await?;
        let former = deleted.prev_kvs().first();
        Ok(former.is_some_and(|kv| kv.create_revision() == created))
    }
}
