//! The gate of the file store: a waiter keeps newcomers out, and a dead or frozen one does not.

#![cfg(unix)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use crate::scratch::{Scratch, name, ticket};
use lockkit_core::contract::{Attempt, Release, Ticket};
use lockkit_core::file::FileStore;
use lockkit_core::{DistributedLock as _, PollRange};

async fn gets(store: &FileStore, ticket: &Ticket) -> bool {
    matches!(store.attempt(ticket).await.unwrap(), Attempt::Granted(_))
}

/// Is refused as often as a waiter is before it keeps newcomers out.
async fn waits(store: &FileStore, ticket: &Ticket) {
    for _ in 0..2 {
        assert!(!gets(store, ticket).await);
    }
}

/// The pause that a refused ticket is told.
async fn pause(store: &FileStore, ticket: &Ticket) -> Option<Duration> {
    match store.attempt(ticket).await.unwrap() {
        Attempt::Held { retry_after } => retry_after,
        granted => unreachable!("{granted:?}"),
    }
}

fn gate(scratch: &Scratch) -> PathBuf {
    scratch.0.join("a.gate")
}

/// What a waiter that dies leaves behind.
fn leave_a_gate(path: &Path) {
    fs::write(path, "lockkit gate, format 1, since 00000000000000000001\n").unwrap();
}

#[tokio::test]
async fn waiter_keeps_newcomers_out() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.store(), scratch.store());
    let (holder, waiter) = (ticket("a"), ticket("a"));
    assert!(gets(&one, &holder).await);
    waits(&two, &waiter).await;
    assert!(gate(&scratch).exists());
    one.release(&holder).await.unwrap();
    for store in [&one, &two] {
        assert!(!gets(store, &ticket("a")).await);
        assert!(!gets(store, &ticket("a").with_enqueue(false)).await);
    }
    assert!(gets(&one, &ticket("b")).await, "another lock");
    assert!(gets(&two, &waiter).await);
    assert!(!gate(&scratch).exists());
    assert_eq!(two.release(&waiter).await.unwrap(), Release::Released);
    assert!(gets(&one, &ticket("a").with_enqueue(false)).await);
}

#[tokio::test]
async fn waiter_that_came_later_is_kept_out_until_the_first_is_served() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.store(), scratch.store());
    let (holder, first, second) = (ticket("a"), ticket("a"), ticket("a"));
    assert!(gets(&one, &holder).await);
    waits(&one, &first).await;
    waits(&two, &second).await;
    one.release(&holder).await.unwrap();
    assert!(!gets(&two, &second).await);
    assert!(gets(&one, &first).await);
    assert!(!gets(&two, &second).await);
    one.release(&first).await.unwrap();
    assert!(!gets(&one, &ticket("a")).await);
    assert!(gets(&two, &second).await);
}

#[tokio::test]
async fn waiter_that_came_earlier_takes_the_gate() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.store(), scratch.store());
    let (holder, first, second) = (ticket("a"), ticket("a"), ticket("a"));
    assert!(gets(&one, &holder).await);
    assert!(!gets(&one, &first).await);
    waits(&two, &second).await;
    assert!(!gets(&one, &first).await);
    one.release(&holder).await.unwrap();
    assert!(!gets(&two, &second).await);
    assert!(gets(&one, &first).await);
}

/// Who keeps others out looks often, but not more often the longer it waits.
#[tokio::test]
async fn waiter_with_the_gate_is_told_to_poll_soon() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let (waiter, other) = (ticket("a"), ticket("a"));
    assert!(gets(&store, &ticket("a")).await);
    assert_eq!(store.attempt(&waiter).await.unwrap(), Attempt::held());
    assert!(pause(&store, &waiter).await >= Some(Duration::from_millis(5)));
    waits(&store, &other).await;
    assert_eq!(pause(&store, &other).await, None);
    tokio::time::sleep(Duration::from_millis(80)).await;
    assert!(pause(&store, &waiter).await >= Some(Duration::from_millis(10)));
}

#[tokio::test]
async fn one_refusal_or_a_try_shuts_no_gate() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let holder = ticket("a");
    assert!(gets(&store, &holder).await);
    assert!(!gets(&store, &ticket("a")).await);
    waits(&store, &ticket("a").with_enqueue(false)).await;
    assert!(!gate(&scratch).exists());
    store.release(&holder).await.unwrap();
    assert!(gets(&store, &ticket("a")).await);
}

#[tokio::test]
async fn withdrawn_or_closed_waiter_lets_newcomers_in() {
    let scratch = Scratch::new();
    let store = scratch.store();
    for closes in [false, true] {
        let (holder, waiter, other) = (ticket("a"), ticket("a"), scratch.store());
        assert!(gets(&store, &holder).await);
        waits(&other, &waiter).await;
        store.release(&holder).await.unwrap();
        assert!(!gets(&store, &ticket("a")).await);
        if closes {
            drop(other);
        } else {
            assert_eq!(other.release(&waiter).await.unwrap(), Release::NotHeld);
        }
        assert!(!gate(&scratch).exists());
        let newcomer = ticket("a");
        assert!(gets(&store, &newcomer).await);
        store.release(&newcomer).await.unwrap();
    }
}

/// The kernel unlocks the gate of a process that ends; its file stays.
#[tokio::test]
async fn dead_waiter_keeps_nobody_out() {
    let scratch = Scratch::new();
    let store = scratch.store();
    leave_a_gate(&gate(&scratch));
    let (holder, waiter) = (ticket("a"), ticket("a"));
    assert!(gets(&store, &holder).await);
    waits(&store, &waiter).await;
    store.release(&holder).await.unwrap();
    assert!(!gets(&store, &ticket("a")).await, "its gate is used again");
    assert!(gets(&store, &waiter).await);
    assert!(!gate(&scratch).exists());
}

#[tokio::test]
async fn frozen_waiter_keeps_nobody_out_for_long() {
    let scratch = Scratch::new();
    let poll = PollRange::new(Duration::from_millis(5), Duration::from_secs(3));
    let store = || FileStore::builder(&scratch.0).poll(poll).build().unwrap();
    let (store, frozen) = (store(), store());
    let (holder, first, second) = (ticket("a"), ticket("a"), ticket("a"));
    assert!(gets(&store, &holder).await);
    waits(&frozen, &first).await;
    let shut = File::options().write(true).open(gate(&scratch)).unwrap();
    let now = fs::metadata(gate(&scratch)).unwrap().modified().unwrap();
    for (time, lets_in) in [
        (now - Duration::from_secs(4), false),
        (now - Duration::from_secs(10), true),
        (now + Duration::from_secs(3600), true),
        (UNIX_EPOCH, true),
    ] {
        shut.set_modified(time).unwrap();
        store.release(&holder).await.unwrap();
        let newcomer = ticket("a");
        assert_eq!(gets(&store, &newcomer).await, lets_in, "{time:?}");
        store.release(&newcomer).await.unwrap();
    }
    // The next waiter has a gate of its own, which does not keep out the first.
    let holder = ticket("a");
    assert!(gets(&store, &holder).await);
    waits(&store, &second).await;
    store.release(&holder).await.unwrap();
    assert!(!gets(&frozen, &ticket("a")).await);
    assert!(gets(&frozen, &first).await);
    assert!(gate(&scratch).exists(), "it is not that of the first");
    frozen.release(&first).await.unwrap();
    assert!(!gets(&frozen, &ticket("a")).await);
    assert!(gets(&store, &second).await);
}

#[tokio::test]
async fn released_ticket_shuts_no_gate() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let (holder, waiter) = (ticket("a"), ticket("a"));
    assert!(gets(&store, &holder).await);
    waits(&store, &waiter).await;
    store.release(&waiter).await.unwrap();
    for _ in 0..2 {
        assert!(store.attempt(&waiter).await.is_err());
    }
    assert!(!gate(&scratch).exists());
}

#[tokio::test]
async fn gates_are_no_locks_and_purge_removes_those_of_the_dead() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let (held, waiter) = (ticket("A/~"), ticket("A/~"));
    assert!(gets(&store, &held).await);
    waits(&store, &waiter).await;
    let shut = scratch.0.join("%41%2f%7e.gate");
    let left = scratch.0.join("left.gate");
    leave_a_gate(&left);
    let foreign = ["left.gate.gate", "b.gate", "B.gate"].map(|name| scratch.0.join(name));
    for path in &foreign {
        fs::write(path, "precious").unwrap();
    }
    assert_eq!(store.list("").await.unwrap().len(), 1);
    assert!(store.unreadable().await.unwrap().is_empty());
    assert_eq!(store.purge(Duration::from_secs(3600)).await.unwrap(), 0);
    assert!(left.exists());
    assert_eq!(store.purge(Duration::ZERO).await.unwrap(), 0);
    assert!(!left.exists());
    assert!(shut.exists());

    // A file of another program is neither a gate nor changed, also while it is locked.
    let program = File::open(&foreign[1]).unwrap();
    program.lock().unwrap();
    let holder = ticket("b");
    assert!(gets(&store, &holder).await);
    waits(&store, &ticket("b")).await;
    store.release(&holder).await.unwrap();
    assert!(gets(&store, &ticket("b")).await);
    for path in &foreign {
        assert_eq!(fs::read(path).unwrap(), b"precious");
    }
}

#[tokio::test]
async fn each_name_has_a_gate_of_its_own() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let longest = "x".repeat(512);
    for text in ["a", "A", "a.gate", "a.lock", "..", &longest] {
        assert!(gets(&store, &ticket(text)).await);
        waits(&store, &ticket(text)).await;
        let gate = store.path(&name(text)).with_extension("gate");
        assert!(gate.exists(), "{text}");
    }
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 2 * 6);
    assert_eq!(store.list("").await.unwrap().len(), 6);
}
