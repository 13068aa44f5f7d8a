//! The transactions of the server, and what their answers mean.

use std::sync::Arc;

use etcd_client::{
    Compare, CompareOp, DeleteOptions, DeleteResponse, GetOptions, GetResponse, KeyValue,
    PutOptions, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use lockkit_core::backend::Ticket;

use crate::contenders::{Key, Listed};
use crate::desk::Standing;

/// What an attempt has found.
#[derive(Debug)]
pub(crate) struct Tried {
    /// The revision of the ticket's own key, if there is one.
    pub(crate) created: Option<i64>,
    /// Whether no key was created before it.
    pub(crate) first: bool,
    /// The keys at the revision that created the own one, if it is new.
    pub(crate) listed: Option<Listed>,
}

/// Takes a place: the key is put, and so many of them are listed as were created last. What was created
/// first holds. A key that was there before stays the one that was created then, and the answer tells it.
///
/// Nothing is compared: a request of less than 256 bytes goes out in one piece.
pub(crate) fn queue(at: &Standing, ticket: &Ticket, most: i64) -> Txn {
    let put = put(at, ticket, PutOptions::new().with_prev_key());
    Txn::new().and_then([put, listed(&at.directory, most)])
}

/// Looks whether the place that an answer has told of is kept, and whether it is the first. A key that
/// is gone is never put again: others may have come in between who are not known to stand before it.
///
/// While the `nearest` key before it is there it is not the first, and the server need not sort all.
pub(crate) fn look(at: &Standing, nearest: Option<Key>) -> Txn {
    let all = [own(at), first(&at.directory)];
    match nearest {
        Some((key, created)) => Txn::new()
            .when([Compare::create_revision(&*key, CompareOp::Equal, created)])
            .and_then([own(at)])
            .or_else(all),
        None => Txn::new().and_then(all),
    }
}

/// A mere try: the key is put if there is no other, so that nothing stays where the lock is held.
pub(crate) fn try_once(at: &Standing, ticket: &Ticket) -> Txn {
    Txn::new()
        .when([nobody(&at.directory)])
        .and_then([put(at, ticket, PutOptions::new())])
        .or_else([own(at), first(&at.directory)])
}

/// Gives the place up, and tells whether it was the first.
pub(crate) fn leave(at: &Standing) -> Txn {
    Txn::new()
        .when([Compare::create_revision(&*at.key, CompareOp::Greater, 0)])
        .and_then([first(&at.directory), TxnOp::delete(&*at.key, None)])
}

/// Deletes the key of a hold, and tells what it was. Nothing is ever created before a key that is
/// there, so that who has held once need not be compared with the others again.
pub(crate) fn end() -> DeleteOptions {
    DeleteOptions::new().with_prev_key()
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

/// Reads the answer to [`queue`], [`look`] or [`try_once`]; `None` if it cannot be understood.
pub(crate) fn tried(at: &Standing, answer: &TxnResponse) -> Option<Tried> {
    let revision = answer.header()?.revision();
    match answer.op_responses().as_slice() {
        // Nobody was there.
        [TxnOpResponse::Put(_)] => Some(Tried {
            created: Some(revision),
            first: true,
            listed: Some(Listed {
                all: 1,
                last: vec![(Arc::clone(&at.key), revision)],
            }),
        }),
        [TxnOpResponse::Put(put), TxnOpResponse::Get(found)] => {
            let listed = Listed {
                all: found.count(),
                last: keys(found),
            };
            let Some(former) = put.prev_key() else {
                return Some(Tried {
                    created: Some(revision),
                    first: listed.all == 1,
                    listed: Some(listed),
                });
            };
            // A repeated attempt. Where not all are listed, its next look tells whether it is the first.
            let created = former.create_revision();
            Some(Tried {
                created: Some(created),
                first: listed.before(created).is_empty(),
                listed: None,
            })
        }
        [TxnOpResponse::Get(own), first @ ..] => {
            let first = first.first().and_then(first_key);
            Some(Tried {
                created: own.kvs().first().map(KeyValue::create_revision),
                first: first.is_some_and(|kv| kv.key() == at.key.as_bytes()),
                listed: None,
            })
        }
        _ => None,
    }
}

/// Reads the answer to [`leave`]: whether the key was there and the first.
pub(crate) fn held(at: &Standing, answer: &TxnResponse) -> bool {
    let operations = answer.op_responses();
    let first = operations.first().and_then(first_key);
    answer.succeeded() && first.is_some_and(|kv| kv.key() == at.key.as_bytes())
}

/// Reads the answer to a deletion with [`end`]: whether the key was the one that was created then.
pub(crate) fn ended(answer: &DeleteResponse, created: i64) -> bool {
    let former = answer.prev_kvs().first();
    former.is_some_and(|kv| kv.create_revision() == created)
}

/// The keys that a read has found.
pub(crate) fn keys(answer: &GetResponse) -> Vec<Key> {
    let key = |kv: &KeyValue| Some((kv.key_str().ok()?.into(), kv.create_revision()));
    answer.kvs().iter().filter_map(key).collect()
}

fn nobody(directory: &str) -> Compare {
    Compare::create_revision(directory, CompareOp::Equal, 0).with_prefix()
}

fn put(at: &Standing, ticket: &Ticket, options: PutOptions) -> TxnOp {
    let options = options.with_lease(at.session.lease());
    TxnOp::put(&*at.key, ticket.holder.to_string(), Some(options))
}

fn own(at: &Standing) -> TxnOp {
    TxnOp::get(&*at.key, Some(GetOptions::new().with_keys_only()))
}

fn listed(directory: &str, most: i64) -> TxnOp {
    let options = GetOptions::new()
        .with_prefix()
        .with_sort(SortTarget::Create, SortOrder::Descend)
        .with_limit(most)
        .with_keys_only();
    TxnOp::get(directory, Some(options))
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
