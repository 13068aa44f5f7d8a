//! The queue of a lock: the transactions of the server, and what their answers mean.
//!
//! A key holds the lock if its mode fits the keys that were created before it: a writer's if there is none,
//! a reader's if there is no writer's. No key is ever created before one that exists.

use std::sync::Arc;

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, PutResponse, SortOrder,
    SortTarget, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use lockkit_core::FencingToken;
use lockkit_core::clock::Moment;
use lockkit_core::contract::{Mode, Ticket};
use lockkit_core::store::predecessors::{fewest_that_block, fits, watched};
use lockkit_core::store::section::Exchange;
use lockkit_core::store::tag;

use crate::keys;
use crate::session::Session;

/// What is read in the transaction that grants.
pub(crate) type Reads = Exchange<Vec<TxnOp>, (FencingToken, Vec<GetResponse>)>;

/// What is done in the transaction that ends a hold.
pub(crate) type Writes = Exchange<Txn, TxnResponse>;

/// A key, and the revision that created it.
pub(crate) type Key = (Arc<str>, i64);

pub(crate) fn mode((key, _): &Key) -> Mode {
    keys::mode(key)
}

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

/// The last keys before a revision, in the order of their creation.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) revision: i64,
    pub(crate) keys: Vec<Key>,
    /// Whether there are keys before these.
    pub(crate) truncated: bool,
}

impl Listing {
    /// Reads the [`last`] keys that a transaction found at a revision.
    fn read(answer: &GetResponse, revision: i64) -> Self {
        Self {
            revision,
            keys: answer.kvs().iter().rev().map(key).collect(),
            truncated: answer.more(),
        }
    }

    /// Reads the answer to [`look`].
    pub(crate) fn looked(answer: &TxnResponse) -> Option<Self> {
        let operations = answer.op_responses();
        let [TxnOpResponse::Get(own), TxnOpResponse::Get(before)] = operations.as_slice() else {
            return None;
        };
        let mut listing = Self::read(before, answer.header()?.revision());
        match own.kvs().first() {
            Some(own) => listing.end_with(key(own)),
            None => listing.keys.clear(),
        }
        Some(listing)
    }

    /// Ends the listing with the own key, which may be missing, or before others.
    fn end_with(&mut self, own: Key) {
        self.keys.retain(|other| other.1 < own.1);
        self.keys.push(own);
    }
}

fn key(kv: &KeyValue) -> Key {
    // The key of a stranger may be no text. It is waited for all the same, without a watch.
    let text = String::from_utf8_lossy(kv.key()).into();
    (text, kv.create_revision())
}

/// The result of an attempt.
#[derive(Debug)]
pub(crate) struct Tried {
    /// The revision of the ticket's own key, if it exists.
    pub(crate) created: Option<i64>,
    /// Whether it holds: it fits the keys that were created before it.
    pub(crate) holds: bool,
    pub(crate) listing: Option<Listing>,
}

/// Puts the key and lists the last ones. A key that existed keeps its revision, which the answer tells.
pub(crate) fn enqueue(at: &Contender, ticket: &Ticket) -> Txn {
    let put = put(at, ticket, PutOptions::new().with_prev_key());
    let last = TxnOp::get(&*at.directory, Some(last(&at.key, &at.directory)));
    Txn::new().and_then(and_read([put, last], ticket))
}

/// Reads whether the key still exists, and whether it holds. It never puts the key again: keys that were
/// created meanwhile would not be known to come before it.
pub(crate) fn check(at: &Contender, ticket: &Ticket) -> Txn {
    Txn::new().and_then(and_read([own(&at.key), first(at)], ticket))
}

/// Succeeds while a key and one before it exist as they were created. It reads nothing else, so that the
/// server at hand answers from what it knows, which costs it less than [`check`]: one that is late makes a
/// waiter wait, or check.
pub(crate) fn still_waits((own, created): (&str, i64), nearest: &Key) -> Txn {
    let exists = |key: &str, created| Compare::create_revision(key, CompareOp::Equal, created);
    Txn::new().when([exists(own, created), exists(&nearest.0, nearest.1)])
}

/// Puts the key if the lock has no other that blocks it, so that a mere try leaves nothing behind. A
/// transaction cannot compare the number of keys: that of a permit has to be deleted if it does not hold.
pub(crate) fn try_once(at: &Contender, ticket: &Ticket) -> Txn {
    let free = Compare::create_revision(&*at.directory, CompareOp::Equal, 0);
    let (free, options) = match keys::mode(&at.key) {
        Mode::Permit { .. } => return enqueue(at, ticket),
        Mode::Read => {
            let end = keys::end_of_writers(&at.directory);
            (free.with_range(end), PutOptions::new().with_prev_key())
        }
        _ => (free.with_prefix(), PutOptions::new()),
    };
    Txn::new()
        .when([free])
        .and_then(and_read([put(at, ticket, options)], ticket))
        .or_else([own(&at.key), first(at)])
}

/// Gives the key another value if it is the one that was created at a revision.
pub(crate) fn write(at: &Contender, created: i64, value: String) -> Txn {
    let options = PutOptions::new().with_lease(at.session.id());
    if_created(&*at.key, created).and_then([TxnOp::put(&*at.key, value, Some(options))])
}

/// Does the caller's work and deletes the key, if it is the one that was created at a revision. Else it only
/// deletes the key.
pub(crate) fn commit(key: &str, created: i64, work: Txn) -> Txn {
    let delete = || TxnOp::delete(key, None);
    if_created(key, created)
        .and_then([TxnOp::txn(work), delete()])
        .or_else([delete()])
}

/// Deletes a key if it is still the one that was created at a revision.
pub(crate) fn delete_if(key: &[u8], created: i64) -> Txn {
    if_created(key, created).and_then([TxnOp::delete(key, None)])
}

/// A transaction that does its operations if a key is the one that was created at a revision.
pub(crate) fn if_created(key: impl Into<Vec<u8>>, created: i64) -> Txn {
    Txn::new().when([Compare::create_revision(key, CompareOp::Equal, created)])
}

/// Reads a key that was created at a revision, and the last ones that can block it up to there.
pub(crate) fn look(key: &str, directory: &str, created: i64, serializable: bool) -> Txn {
    let mut own = GetOptions::new().with_keys_only();
    let mut before = last(key, directory).with_max_create_revision(created);
    if serializable {
        (own, before) = (own.with_serializable(), before.with_serializable());
    }
    Txn::new().and_then([
        TxnOp::get(key, Some(own)),
        TxnOp::get(directory, Some(before)),
    ])
}

/// Reads the results of [`enqueue`], [`check`] or [`try_once`] at a revision; `None` if they cannot be
/// understood.
pub(crate) fn tried(at: &Contender, revision: i64, results: &[TxnOpResponse]) -> Option<Tried> {
    let own_mode = keys::mode(&at.key);
    let former = |put: &PutResponse| put.prev_key().map_or(revision, KeyValue::create_revision);
    match results {
        // There was no other key.
        [TxnOpResponse::Put(put)] => Some(Tried {
            created: Some(former(put)),
            holds: true,
            listing: None,
        }),
        [TxnOpResponse::Put(put), TxnOpResponse::Get(found)] => {
            let created = former(put);
            let mut listing = Listing::read(found, revision);
            listing.end_with((Arc::clone(&at.key), created));
            let before = listing
                .keys
                .split_last()
                .map_or(&[][..], |(_, before)| before);
            Some(Tried {
                created: Some(created),
                holds: !listing.truncated && fits(own_mode, before, mode),
                listing: Some(listing),
            })
        }
        [TxnOpResponse::Get(own), TxnOpResponse::Get(first)] => {
            let created = own.kvs().first().map(KeyValue::create_revision);
            let mut before: Vec<Key> = first.kvs().iter().map(key).collect();
            before.retain(|other| created.is_some_and(|created| other.1 < created));
            Some(Tried {
                created,
                holds: created.is_some() && fits(own_mode, &before, mode),
                listing: None,
            })
        }
        _ => None,
    }
}

/// The operations of an attempt, and behind them those that read for the section of the ticket.
fn and_read(operations: impl Into<Vec<TxnOp>>, ticket: &Ticket) -> Vec<TxnOp> {
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

fn put(at: &Contender, ticket: &Ticket, options: PutOptions) -> TxnOp {
    let options = options.with_lease(at.session.id());
    TxnOp::put(&*at.key, tag::write(ticket, None), Some(options))
}

fn own(key: &str) -> TxnOp {
    TxnOp::get(key, Some(GetOptions::new().with_keys_only()))
}

/// Reads as many of the first keys that can block a key as are needed to see whether they do.
fn first(at: &Contender) -> TxnOp {
    let own = keys::mode(&at.key);
    let options = rivals(own, &at.directory)
        .with_sort(SortTarget::Create, SortOrder::Ascend)
        .with_limit(i64::from(fewest_that_block(own)));
    TxnOp::get(&*at.directory, Some(options))
}

/// Reads the last keys that can block a key: those that it would watch, and one more, which may be itself.
fn last(own: &str, directory: &str) -> GetOptions {
    let own = keys::mode(own);
    rivals(own, directory)
        .with_sort(SortTarget::Create, SortOrder::Descend)
        .with_limit(i64::from(watched(own)) + 1)
}

/// The keys of a lock that can block one in a mode.
fn rivals(mode: Mode, directory: &str) -> GetOptions {
    let range = match mode {
        Mode::Read => GetOptions::new().with_range(keys::end_of_writers(directory)),
        _ => GetOptions::new().with_prefix(),
    };
    range.with_keys_only()
}
