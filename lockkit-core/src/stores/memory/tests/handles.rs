//! Handles, watches and sessions of the store itself, with paused time.

use std::sync::Arc;

use super::*;
use crate::contract::DistributedLock;
use crate::stores::memory::{Counts, MemoryStore};
use crate::time::clock::TokioClock;

fn store() -> MemoryStore {
    MemoryStore::builder()
        .clock(Arc::new(TokioClock::new()))
        .build()
}

fn ticket(n: u64) -> Ticket {
    Ticket::new(name(), HolderId::new(ClientId::random(), n), TTL)
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_for_a_wake_up_loses_nothing() {
    let store = store();
    let (first, second) = (ticket(1), ticket(2));
    store.attempt(&first).await.unwrap();
    store.attempt(&second).await.unwrap();
    let mut watch = store.watch(&second).await.unwrap();
    let timeout = tokio::time::timeout(secs(1), watch.changed()).await;
    assert!(timeout.is_err());
    store.release(&first).await.unwrap();
    // Polled once after the bell rang, and dropped: the wake-up stays.
    drop(watch.changed());
    assert!(matches!(watch.changed().await, Ok(Wake::Granted(_))));
    store.release(&second).await.unwrap();
    drop(watch);
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_watch_leaves_nothing_behind() {
    let store = store();
    let (first, second) = (ticket(1), ticket(2));
    store.attempt(&first).await.unwrap();
    store.attempt(&second).await.unwrap();
    let watch = store.watch(&second).await.unwrap();
    tokio::time::advance(TTL).await;
    let counts = store.counts();
    let kept = (counts.holds, counts.waiters, counts.watches);
    assert_eq!(kept, (0, 0, 1));
    drop(watch);
    assert_eq!(store.counts(), Counts::default());
}

#[tokio::test(start_paused = true)]
async fn a_clone_shares_the_session_and_a_connection_has_its_own() {
    let store = store();
    let other = store.connect();
    let (first, second) = (ticket(1), ticket(2));
    store.clone().attempt(&first).await.unwrap();
    other.attempt(&second).await.unwrap();
    store.expire_session();
    let state = other.inspect(&name()).await.unwrap().unwrap();
    assert_eq!(state.holders, [second.holder.to_string()]);
}

#[tokio::test(start_paused = true)]
async fn renewals_are_answered_one_by_one_in_order() {
    let store = store();
    let tickets: Vec<_> = (0..1201)
        .map(|n| ticket(n).with_name(LockName::new(n.to_string()).unwrap()))
        .collect();
    for ticket in tickets.iter().step_by(2) {
        store.attempt(ticket).await.unwrap();
    }
    let answers = store.renew(&tickets).await;
    assert_eq!(answers.len(), tickets.len());
    for (n, answer) in answers.into_iter().enumerate() {
        let held = answer.unwrap() != Renewal::NotHeld;
        assert_eq!(held, n % 2 == 0, "{n}");
    }
}
