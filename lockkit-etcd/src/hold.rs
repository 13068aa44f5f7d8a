//! Steps of a ticket that holds: renewals, notes, releases. A release also removes a waiter.

use std::collections::HashMap;

use etcd_client::{DeleteOptions, KeyValue, TxnOpResponse};
use lockkit_core::contract::{Release, Renewal, Ticket};

use crate::error::{Failed, Result};
use crate::queue::{self, Contender, Writes};
use crate::shared::Shared;

impl Shared {
    /// Renews all tickets, with one keep-alive for each session, at the same time.
    pub(crate) async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal>> {
        let held = |ticket: &Ticket| self.known(ticket.holder).filter(|at| at.held);
        let holds: Vec<_> = tickets.iter().map(held).collect();
        let mut requests = HashMap::new();
        for at in holds.iter().flatten() {
            let session = &at.session;
            // Holds share the keep-alives of their session, also if they are not renewed together. A result
            // that came too late for one renewal serves the next.
            if session.lease.is_alive() && !session.is_renewed_since(at.reported) {
                requests
                    .entry(session.lease.id)
                    .or_insert_with(|| session.keep_alive());
            }
        }
        let mut results = HashMap::new();
        for (lease, request) in requests {
            results.insert(lease, request.await);
        }
        let renewal = |(ticket, at): (&Ticket, &Option<_>)| {
            let lease = at.as_ref().map(|at: &Contender| at.session.lease.id);
            if let Some(result) = lease.and_then(|lease| results.get(&lease)) {
                result.clone()?;
            }
            Ok(self.renewed(ticket.holder))
        };
        tickets.iter().zip(&holds).map(renewal).collect()
    }

    /// Gives a hold a note. Returns whether the ticket holds.
    pub(crate) async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool> {
        let at = self.alive(ticket.holder);
        let Some((created, at)) = at.and_then(|at| Some((at.hold()?, at))) else {
            return Ok(false);
        };
        let write = queue::write(&at, created, self.layout.value(ticket, text));
        match self.link.txn("note", &write).await {
            Ok(answer) => Ok(answer.succeeded()),
            Err(Failed::LeaseGone) => Ok(false),
            Err(failed) => Err(failed.into_error("note")),
        }
    }

    /// Ends the hold of a ticket, or removes it from the queue.
    pub(crate) async fn release(&self, ticket: &Ticket) -> Result<Release> {
        let mut released = Release::NotHeld;
        let at = self.known(ticket.holder);
        // A lease that has ended has deleted its keys.
        if let Some(at) = at.filter(|at| at.session.lease.is_alive()) {
            // Before it is written: a request that is abandoned here may delete the key later.
            self.tickets
                .with(ticket.holder, |entry| entry.data.unanswered += 1);
            let held = match (Writes::of(ticket), at.hold()) {
                (Some(writes), Some(created)) => self.commit((&at.key, created), writes).await,
                _ => self.delete("release", &at).await,
            };
            if held.map_err(|failed| failed.into_error("release"))? {
                released = Release::Released;
            }
        }
        self.forget(ticket.holder, true);
        Ok(released)
    }

    /// Deletes the key of a hold, in the transaction that does its work if it still holds. Returns whether it did.
    async fn commit(&self, (key, created): (&str, i64), writes: &Writes) -> Result<bool, Failed> {
        let txn = queue::commit(key, created, writes.request.clone());
        let answer = self.link.txn("commit", &txn).await;
        let answer = answer.map_err(|failed| Failed::Other(failed.of_work("commit")))?;
        if let Some(TxnOpResponse::Txn(done)) = answer.op_responses().into_iter().next() {
            writes.keep(done);
        }
        Ok(answer.succeeded())
    }

    /// Deletes the key of a ticket. Returns whether it was a hold that the client knows of.
    pub(crate) async fn delete(
        &self,
        operation: &'static str,
        at: &Contender,
    ) -> Result<bool, Failed> {
        // A transaction would be refused by a full server.
        let limit = self.link.request_timeout();
        let deleted = self.link.ask(operation, limit, |client| {
            let options = Some(DeleteOptions::new().with_prev_key());
            let key = at.key.as_bytes().to_vec();
            async move { client.kv_client().delete(key, options).await }
        });
        let deleted = deleted.await?;
        let former = deleted.prev_kvs().first().map(KeyValue::create_revision);
        // A key that held once holds until it is deleted.
        Ok(former.is_some() && former == at.hold())
    }
}
