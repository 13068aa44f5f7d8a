//! What a section reads and writes: the work of a ticket.

use std::sync::Mutex;

use etcd_client::{GetResponse, Txn, TxnOp, TxnOpResponse, TxnResponse};
use lockkit_core::FencingToken;
use lockkit_core::contract::{Ticket, Work};
use lockkit_core::store::lock;

/// What is read in the transaction that grants.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    pub(crate) gets: Vec<TxnOp>,
    /// What came with the last grant.
    found: Mutex<Option<(FencingToken, Vec<GetResponse>)>>,
}

impl Reads {
    pub(crate) fn new(gets: Vec<TxnOp>) -> Self {
        let found = Mutex::default();
        Self { gets, found }
    }

    /// What an attempt of this ticket is to read.
    pub(crate) fn of(ticket: &Ticket) -> Option<&Self> {
        ticket.work.as_ref().and_then(Work::get)
    }

    /// Keeps what came with a grant.
    pub(crate) fn keep(&self, token: FencingToken, found: Vec<GetResponse>) {
        *lock(&self.found) = Some((token, found));
    }

    /// What came with the grant of this token; `None` if nothing did.
    pub(crate) fn take(&self, token: FencingToken) -> Option<Vec<GetResponse>> {
        let kept = lock(&self.found).take_if(|kept| kept.0 == token)?;
        Some(kept.1)
    }
}

/// The operations of an attempt, and behind them those that read for the section of the ticket.
pub(crate) fn and_read(operations: impl Into<Vec<TxnOp>>, ticket: &Ticket) -> Vec<TxnOp> {
    let mut operations = operations.into();
    if let Some(reads) = Reads::of(ticket) {
        operations.extend_from_slice(&reads.gets);
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
    let count = count.map_or(0, |reads| reads.gets.len());
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

/// What is done in the transaction that ends a hold.
#[derive(Debug)]
pub(crate) struct Writes {
    pub(crate) work: Txn,
    done: Mutex<Option<TxnResponse>>,
}

impl Writes {
    pub(crate) fn new(work: Txn) -> Self {
        let done = Mutex::default();
        Self { work, done }
    }

    /// What a release of this ticket is to do.
    pub(crate) fn of(ticket: &Ticket) -> Option<&Self> {
        ticket.work.as_ref().and_then(Work::get)
    }

    /// Keeps the result, which came with the end of the hold.
    pub(crate) fn keep(&self, done: TxnResponse) {
        *lock(&self.done) = Some(done);
    }

    /// The result; `None` if none came.
    pub(crate) fn take(&self) -> Option<TxnResponse> {
        lock(&self.done).take()
    }
}
