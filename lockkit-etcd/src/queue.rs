//! The queue of a lock: the transactions of the server, and what their answers mean.
//!
//! The key that was created first holds the lock. No key is ever created before one that exists.

use std::sync::Arc;

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, SortOrder, SortTarget, Txn,
    TxnOp, TxnOpResponse, TxnResponse,
};
use lockkit_core::FencingToken;
use lockkit_core::clock::Moment;
use lockkit_core::contract::Ticket;

use crate::session::Session;

/// A waiter watches at most this many of the keys before its own.
pub(crate) const WATCHED: usize = 2;
/// The number of keys that a listing returns: the own key, and those that are watched.
const LISTED: i64 = 3;

/// A key, and the revision that created it.
pub(crate) type Key = (Arc<str>, i64);

/// The key of a ticket under a session.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    pub(crate) session: Arc<Session>,
    pub(crate) directory: Arc<str>,
    pub(crate) key: Arc<str>,
    /// The number of the key under its lease.
    pub(crate) number: u64,
    /// The revision that created the key, once an answer has told it.
    pub(crate) created: Option<i64>,
    pub(crate) held: bool,
    /// The confirmation of the lease that the client knows of.
    pub(crate) reported: Moment,
}

/// The token of a key that was created at a revision.
pub(crate) fn token(created: i64, base: u64) -> Option<FencingToken> {
    let created = u64::try_from(created).ok()?;
    FencingToken::new(created.saturating_add(base))
}

/// The last keys before a revision, in the order of their creation.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) revision: i64,
    pub(crate) keys: Vec<Key>,
    /// Whether there are keys before these.
    pub(crate) truncated: bool,
}

impl Listing {
    /// Reads the answer to a read with [`before`]. Within a transaction it has no revision of its own.
    pub(crate) fn read(answer: &GetResponse) -> Self {
        // The key of a stranger may be no text. It is waited for all the same, without a watch.
        let text = |kv: &KeyValue| String::from_utf8_lossy(kv.key()).into();
        let key = |kv: &KeyValue| (text(kv), kv.create_revision());
        Self {
            revision: answer.header().map_or(0, |header| header.revision()),
            keys: answer.kvs().iter().rev().map(key).collect(),
            truncated: answer.more(),
        }
    }
}

/// The result of an attempt.
#[derive(Debug)]
pub(crate) struct Tried {
    /// The revision of the ticket's own key, if it exists.
    pub(crate) created: Option<i64>,
    /// Whether no key was created before it.
    pub(crate) first: bool,
    pub(crate) listing: Option<Listing>,
}

/// Puts the key and lists the last ones. A key that existed keeps its revision, which the answer tells.
pub(crate) fn enqueue(at: &Contender, ticket: &Ticket) -> Txn {
    let put = put(at, ticket, PutOptions::new().with_prev_key());
    let last = GetOptions::new()
        .with_prefix()
        .with_sort(SortTarget::Create, SortOrder::Descend)
        .with_limit(LISTED)
        .with_keys_only();
    Txn::new().and_then([put, TxnOp::get(&*at.directory, Some(last))])
}

/// Reads whether the key still exists, and whether it is the first. It never puts the key again: keys that
/// were created meanwhile would not be known to come before it.
pub(crate) fn check(at: &Contender) -> Txn {
    Txn::new().and_then([own(at), first(&at.directory)])
}

/// Succeeds while a key and one before it exist as they were created. It reads nothing else, so that the
/// server at hand answers from what it knows, which costs it less than [`check`]: one that is late makes a
/// waiter wait, or check.
pub(crate) fn still_waits((own, created): (&str, i64), nearest: &Key) -> Txn {
    let exists = |key: &str, created| Compare::create_revision(key, CompareOp::Equal, created);
    Txn::new().when([exists(own, created), exists(&nearest.0, nearest.1)])
}

/// Puts the key if the lock has no other, so that a mere try leaves nothing behind.
pub(crate) fn try_once(at: &Contender, ticket: &Ticket) -> Txn {
    let free = Compare::create_revision(&*at.directory, CompareOp::Equal, 0).with_prefix();
    Txn::new()
        .when([free])
        .and_then([put(at, ticket, PutOptions::new())])
        .or_else([own(at), first(&at.directory)])
}

/// Deletes the key of a waiter, and reads whether it was the first.
pub(crate) fn leave(at: &Contender) -> Txn {
    Txn::new()
        .when([Compare::create_revision(&*at.key, CompareOp::Greater, 0)])
        .and_then([first(&at.directory), TxnOp::delete(&*at.key, None)])
}

/// Does the caller's work if the key is the one that was created at a revision.
pub(crate) fn guarded(key: &str, created: i64, work: Txn) -> Txn {
    if_created(key, created).and_then([TxnOp::txn(work)])
}

/// Deletes a key if it is still the one that was created at a revision.
pub(crate) fn delete_if(key: &[u8], created: i64) -> Txn {
    if_created(key, created).and_then([TxnOp::delete(key, None)])
}

fn if_created(key: impl Into<Vec<u8>>, created: i64) -> Txn {
    Txn::new().when([Compare::create_revision(key, CompareOp::Equal, created)])
}

/// Reads the last keys up to the one that was created at a revision.
pub(crate) fn before(created: i64) -> GetOptions {
    GetOptions::new()
        .with_prefix()
        .with_keys_only()
        .with_max_create_revision(created)
        .with_sort(SortTarget::Create, SortOrder::Descend)
        .with_limit(LISTED)
}

/// Reads the answer to [`enqueue`], [`check`] or [`try_once`]; `None` if it cannot be understood.
pub(crate) fn tried(at: &Contender, answer: &TxnResponse) -> Option<Tried> {
    let revision = answer.header()?.revision();
    match answer.op_responses().as_slice() {
        // There was no other key.
        [TxnOpResponse::Put(_)] => Some(Tried {
            created: Some(revision),
            first: true,
            listing: None,
        }),
        [TxnOpResponse::Put(put), TxnOpResponse::Get(found)] => {
            let former = put.prev_key().map(KeyValue::create_revision);
            let listing = Listing {
                revision,
                ..Listing::read(found)
            };
            let head = listing.keys.first().filter(|_| !listing.truncated);
            Some(Tried {
                created: Some(former.unwrap_or(revision)),
                first: head.is_some_and(|(key, _)| *key == at.key),
                listing: Some(listing),
            })
        }
        [TxnOpResponse::Get(own), first @ ..] => {
            let first = first.first().and_then(first_key);
            Some(Tried {
                created: own.kvs().first().map(KeyValue::create_revision),
                first: first.is_some_and(|kv| kv.key() == at.key.as_bytes()),
                listing: None,
            })
        }
        _ => None,
    }
}

/// Reads the answer to [`leave`]: whether the key existed and was the first.
pub(crate) fn was_first(at: &Contender, answer: &TxnResponse) -> bool {
    let operations = answer.op_responses();
    let first = operations.first().and_then(first_key);
    answer.succeeded() && first.is_some_and(|kv| kv.key() == at.key.as_bytes())
}

fn put(at: &Contender, ticket: &Ticket, options: PutOptions) -> TxnOp {
    let options = options.with_lease(at.session.id());
    TxnOp::put(&*at.key, ticket.holder.to_string(), Some(options))
}

fn own(at: &Contender) -> TxnOp {
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

fn first_key(answer: &TxnOpResponse) -> Option<&KeyValue> {
    match answer {
        TxnOpResponse::Get(get) => get.kvs().first(),
        _ => None,
    }
}
