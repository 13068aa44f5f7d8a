//! What a section reads and writes: the work of a ticket.

use etcd_client::{GetResponse, Txn, TxnOp, TxnOpResponse, TxnResponse};
use lockkit_core::FencingToken;
use lockkit_core::contract::Ticket;
use lockkit_core::store::section::Exchange;

/// What is read in the transaction that grants.
pub(crate) type Reads = Exchange<Vec<TxnOp>, (FencingToken, Vec<GetResponse>)>;

/// What is done in the transaction that ends a hold.
pub(crate) type Writes = Exchange<Txn, TxnResponse>;

/// The operations of an attempt, and behind them those that read for the section of the ticket.
pub(crate) fn and_read(operations: impl Into<Vec<TxnOp>>, ticket: &Ticket) -> Vec<TxnOp> {
    let mut operations = operations.into();
    if let Some(reads) = Reads::of(ticket) {
        operations.extend_from_slice(&reads.request);
    }
    operations
}

/// The results of an attempt, and of what [`and_read`] added to it.
pub(crate) fn split(
    ticket: &Ticket,
    answer: &TxnResponse,
) -> (Vec<TxnOpResponse>, Vec<GetResponse>) {
    let mut results = answer.op_responses();
    // Only what is done if the condition holds also reads.
    let count = Reads::of(ticket).filter(|_| answer.succeeded());
    let count = count.map_or(0, |reads| reads.request.len());
    let found = results.split_off(results.len().saturating_sub(count));
    (results, gets(found))
}

/// The results of operations that read.
pub(crate) fn gets(results: Vec<TxnOpResponse>) -> Vec<GetResponse> {
    let get = |result| match result {
        TxnOpResponse::Get(get) => Some(get),
        _ => None,
    };
    results.into_iter().filter_map(get).collect()
}
