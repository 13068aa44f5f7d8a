//! The transactions of the server, and what their answers mean.

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, SortOrder, SortTarget, Txn,
    TxnOp, TxnOpResponse, TxnResponse,
};
use lockkit_core::backend::Ticket;

use crate::desk::Standing;

/// What an attempt has found.
#[derive(Debug)]
pub(crate) struct Tried {
    /// The revision of the ticket's own key, if there is one.
    pub(crate) created: Option<i64>,
    /// Whether no key was created before it.
    pub(crate) first: bool,
    /// How many keys there are, if the own one is new.
    pub(crate) all: Option<i64>,
}

/// Takes a place: the key is put unless it is there. What was created first holds.
pub(crate) fn queue(at: &Standing, ticket: &Ticket) -> Txn {
    Txn::new()
        .when([Compare::create_revision(&*at.key, CompareOp::Equal, 0)])
        .and_then([put(at, ticket), first(&at.directory)])
        .or_else([own(at), first(&at.directory)])
}

/// A mere try: the key is put if there is no other, so that nothing stays where the lock is held.
pub(crate) fn try_once(at: &Standing, ticket: &Ticket) -> Txn {
    let nobody = Compare::create_revision(&*at.directory, CompareOp::Equal, 0).with_prefix();
    Txn::new()
        .when([nobody])
        .and_then([put(at, ticket), first(&at.directory)])
        .or_else([own(at), first(&at.directory)])
}

/// Gives the place up, and tells whether it was the first.
pub(crate) fn leave(at: &Standing) -> Txn {
    Txn::new()
        .when([Compare::create_revision(&*at.key, CompareOp::Greater, 0)])
        .and_then([first(&at.directory), TxnOp::delete(&*at.key, None)])
}

/// Carries out the caller's work if the key is the one that was created at a revision.
pub(crate) fn guarded(key: &str, created: i64, work: Txn) -> Txn {
    Txn::new()
        .when([Compare::create_revision(key, CompareOp::Equal, created)])
        .and_then([TxnOp::txn(work)])
}

/// Deletes a key if it is still the one that was created at a revision.
pub(crate) fn delete_if(key: &[u8], created: i64) -> Txn {
    Txn::new()
        .when([Compare::create_revision(key, CompareOp::Equal, created)])
        .and_then([TxnOp::delete(key, None)])
}

/// Reads the answer to [`queue`] or [`try_once`]; `None` if it cannot be understood.
pub(crate) fn tried(at: &Standing, answer: &TxnResponse) -> Option<Tried> {
    let operations = answer.op_responses();
    let [own, first] = operations.as_slice() else {
        return None;
    };
    let first_is_own = first_key(first).is_some_and(|kv| kv.key() == at.key.as_bytes());
    match own {
        TxnOpResponse::Put(_) => Some(Tried {
            created: Some(answer.header()?.revision()),
            first: first_is_own,
            all: got(first).map(GetResponse::count),
        }),
        TxnOpResponse::Get(get) => Some(Tried {
            created: get.kvs().first().map(KeyValue::create_revision),
            first: first_is_own,
            all: None,
        }),
        _ => None,
    }
}

/// Reads the answer to [`leave`]: whether the key was there and the first.
pub(crate) fn held(at: &Standing, answer: &TxnResponse) -> bool {
    let operations = answer.op_responses();
    let first = operations.first().and_then(first_key);
    answer.succeeded() && first.is_some_and(|kv| kv.key() == at.key.as_bytes())
}

fn put(at: &Standing, ticket: &Ticket) -> TxnOp {
    let options = PutOptions::new().with_lease(at.session.lease());
    TxnOp::put(&*at.key, ticket.holder.to_string(), Some(options))
}

fn own(at: &Standing) -> TxnOp {
    TxnOp::get(&*at.key, Some(GetOptions::new().with_keys_only()))
}

fn first(directory: &str) -> TxnOp {
    let options = GetOptions::new()
        .with_prefix()
        .with_sort(SortTarget::Create, SortOrder::Ascend)
        .with_limit(1)
        .with_keys_only();
    TxnOp::get(directory, Some(options))
}

const fn got(answer: &TxnOpResponse) -> Option<&GetResponse> {
    match answer {
        TxnOpResponse::Get(get) => Some(get),
        _ => None,
    }
}

fn first_key(answer: &TxnOpResponse) -> Option<&KeyValue> {
    got(answer)?.kvs().first()
}
