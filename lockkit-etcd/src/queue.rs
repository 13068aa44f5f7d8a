//! The queue of a lock: the transactions of the server, and what their answers mean.
//!
//! A key holds the lock if its mode fits the keys that were created before it: a writer's if there is none,
//! a reader's if there is no writer's. No key is ever created before one that exists.

use std::sync::Arc;

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, PutResponse, ResponseHeader,
    SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use lockkit_core::FencingToken;
use lockkit_core::clock::Moment;
use lockkit_core::contract::{Mode, Ticket};
use lockkit_core::store::predecessors::{fits, watched};
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
    pub(crate) key: Arc<str>,
    /// The number of the key under its lease.
    pub(crate) number: u64,
    /// The revision that created the key, once an answer has told it.
    pub(crate) created: Option<i64>,
    pub(crate) held: bool,
    /// The confirmation of the lease that the client knows of.
    pub(crate) reported: Moment,
}

impl Contender {
    /// The key, once it is known when it was created.
    pub(crate) fn own(&self) -> Option<Key> {
        Some((Arc::clone(&self.key), self.created?))
    }

    /// The revision that created the key, if it holds.
    pub(crate) fn hold(&self) -> Option<i64> {
        self.created.filter(|_| self.held)
    }
}

/// What an answer shows of a key, and of those before it.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) revision: i64,
    /// The revision that created the key, if it exists.
    pub(crate) created: Option<i64>,
    /// The last keys before it that can block it, in the order of their creation.
    pub(crate) before: Vec<Key>,
    /// Whether there are keys before these.
    pub(crate) truncated: bool,
}

impl Listing {
    /// Reads the results of [`attempt`] or [`look`]; `None` if they cannot be understood.
    pub(crate) fn read(results: &[TxnOpResponse], header: Option<&ResponseHeader>) -> Option<Self> {
        let revision = header?.revision();
        // A key that existed keeps its revision.
        let put_at = |put: &PutResponse| put.prev_key().map_or(revision, KeyValue::create_revision);
        let (created, found) = match results {
            // There was no other key.
            [TxnOpResponse::Put(put)] => (Some(put_at(put)), None),
            [TxnOpResponse::Put(put), TxnOpResponse::Get(found)] => {
                (Some(put_at(put)), Some(found))
            }
            [TxnOpResponse::Get(own), TxnOpResponse::Get(found)] => {
                let own = own.kvs().first();
                (own.map(KeyValue::create_revision), Some(found))
            }
            _ => return None,
        };
        let kvs = found.map_or(&[][..], GetResponse::kvs);
        let mut before: Vec<Key> = kvs.iter().rev().map(key).collect();
        before.retain(|other| created.is_some_and(|created| other.1 < created));
        Some(Self {
            revision,
            created,
            before,
            truncated: found.is_some_and(GetResponse::more),
        })
    }

    /// Whether the key holds: it fits those that were created before it.
    pub(crate) fn holds(&self, own: Mode) -> bool {
        self.created.is_some() && !self.truncated && fits(own, &self.before, mode)
    }
}

fn key(kv: &KeyValue) -> Key {
    // The key of a stranger may be no text. It is waited for all the same, without a watch.
    let text = String::from_utf8_lossy(kv.key()).into();
    (text, kv.create_revision())
}

/// The transaction of an attempt. Once the key was created it only looks, and never puts the key again: keys
/// that were created meanwhile would not be known to come before it.
pub(crate) fn attempt(at: &Contender, ticket: &Ticket) -> Txn {
    match at.created {
        Some(created) => {
            Txn::new().and_then(and_read(own_and_before(&at.key, Some(created)), ticket))
        }
        None if ticket.enqueue => enqueue(at, ticket),
        None => try_once(at, ticket),
    }
}

/// Puts the key and lists the last ones.
fn enqueue(at: &Contender, ticket: &Ticket) -> Txn {
    let put = put(at, ticket, PutOptions::new().with_prev_key());
    Txn::new().and_then(and_read([put, last(&at.key, None)], ticket))
}

/// Succeeds while a key and one before it exist as they were created. It reads nothing else, so that the
/// server at hand answers from what it knows, which costs it less than [`look`]: one that is late makes a
/// waiter wait, or look.
pub(crate) fn still_waits(keys: [Key; 2]) -> Txn {
    Txn::new().when(keys.map(|(key, created)| exists(&*key, created)))
}

/// Puts the key if the lock has no other that blocks it, so that a mere try leaves nothing behind. A
/// transaction cannot compare the number of keys: that of a permit has to be deleted if it does not hold.
fn try_once(at: &Contender, ticket: &Ticket) -> Txn {
    let directory = keys::directory(&at.key);
    let free = Compare::create_revision(directory, CompareOp::Equal, 0);
    let (free, options) = match keys::mode(&at.key) {
        Mode::Permit { .. } => return enqueue(at, ticket),
        Mode::Read => {
            let end = keys::end_of_writers(directory);
            (free.with_range(end), PutOptions::new().with_prev_key())
        }
        _ => (free.with_prefix(), PutOptions::new()),
    };
    Txn::new()
        .when([free])
        .and_then(and_read([put(at, ticket, options)], ticket))
        .or_else(own_and_before(&at.key, None))
}

/// Gives the key another value if it is the one that was created at a revision.
pub(crate) fn write(at: &Contender, created: i64, value: String) -> Txn {
    let options = PutOptions::new().with_lease(at.session.lease.id);
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
    Txn::new().when([exists(key, created)])
}

fn exists(key: impl Into<Vec<u8>>, created: i64) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, created)
}

/// Reads a key that was created at a revision, and the last ones before it that can block it.
pub(crate) fn look((key, created): &Key) -> Txn {
    Txn::new().and_then(own_and_before(key, Some(*created)))
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
    let options = options.with_lease(at.session.lease.id);
    TxnOp::put(&*at.key, tag::write(ticket, None), Some(options))
}

fn own_and_before(key: &str, created: Option<i64>) -> [TxnOp; 2] {
    let own = GetOptions::new().with_keys_only();
    [TxnOp::get(key, Some(own)), last(key, created)]
}

/// Reads the last keys that can block one, of those up to its own if that is known: as many as it would watch,
/// and one more, which may be itself.
fn last(own: &str, created: Option<i64>) -> TxnOp {
    let (mode, directory) = (keys::mode(own), keys::directory(own));
    let range = match mode {
        Mode::Read => GetOptions::new().with_range(keys::end_of_writers(directory)),
        _ => GetOptions::new().with_prefix(),
    };
    let mut options = range
        .with_keys_only()
        .with_sort(SortTarget::Create, SortOrder::Descend)
        .with_limit(i64::from(watched(mode)) + 1);
    if let Some(created) = created {
        options = options.with_max_create_revision(created);
    }
    TxnOp::get(directory, Some(options))
}
