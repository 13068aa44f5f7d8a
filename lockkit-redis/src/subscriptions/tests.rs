//! What the waiters of this process learn from notifications.

use lockkit_core::ClientId;
use lockkit_core::contract::{Attempt, Wake};

use super::*;

/// Of the lock `a`.
const CHANNEL: &str = "redisson_lock__channel:{a}";

fn ticket(n: u64) -> Ticket {
    let holder = HolderId::new(ClientId::random(), n);
    Ticket::new(LockName::new("a").unwrap(), holder, Duration::from_secs(30))
}

fn open() -> Subscriptions {
    let subscriptions = Subscriptions::new("me".into(), true, Arc::default());
    subscriptions.opened();
    subscriptions
}

/// One attempt that finds the lock held; returns its number.
fn wait(subscriptions: &Subscriptions, ticket: &Ticket) -> u64 {
    let number = subscriptions.waiters.attempted(ticket);
    let held = Ok(Attempt::held());
    subscriptions.waiters.answered(ticket, number, &held);
    number
}

fn grant(ticket: &Ticket, token: u64, attempt: u64) -> String {
    format!("{} {token} 900 {attempt} a", ticket.holder)
}

async fn next(watch: &mut Box<dyn Watch>) -> Wake {
    tokio::time::timeout(Duration::from_secs(1), watch.changed())
        .await
        .expect("nothing came")
        .unwrap()
}

async fn nothing(watch: &mut Box<dyn Watch>) {
    let wake = tokio::time::timeout(Duration::from_millis(1), watch.changed()).await;
    assert!(wake.is_err(), "{wake:?}");
}

#[tokio::test]
async fn reads_grants_of_current_and_earlier_attempts() {
    let (subscriptions, ticket) = (open(), ticket(1));
    let first = wait(&subscriptions, &ticket);
    subscriptions.message(b"me", grant(&ticket, 7, first).as_bytes());
    let mut watch = subscriptions.watch(&ticket);
    let expected = Grant::new(FencingToken::new(7).unwrap(), Duration::from_millis(900));
    assert_eq!(next(&mut watch).await, Wake::Granted(expected));
    wait(&subscriptions, &ticket);
    subscriptions.message(b"me", grant(&ticket, 8, first).as_bytes());
    assert_eq!(next(&mut watch).await, Wake::Retry);
    nothing(&mut watch).await;
}

#[tokio::test(start_paused = true)]
async fn unsubscribes_a_while_after_last_waiter() {
    let (subscriptions, ticket) = (open(), ticket(1));
    wait(&subscriptions, &ticket);
    let watch = subscriptions.watch(&ticket);
    tokio::time::advance(LINGER * 2).await;
    assert!(subscriptions.take_idle().is_empty());
    assert_eq!(subscriptions.take_all(), [CHANNEL], "on a new connection");
    drop(watch);
    assert!(subscriptions.take_idle().is_empty());
    tokio::time::advance(LINGER).await;
    assert_eq!(subscriptions.take_idle(), [CHANNEL]);
    assert_eq!(subscriptions.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn unsubscribes_when_only_others_use_a_channel() {
    let (subscriptions, ticket) = (open(), ticket(1));
    let watch = || {
        wait(&subscriptions, &ticket);
        subscriptions.watch(&ticket)
    };
    let messages = |count| (0..count).for_each(|_| subscriptions.message(CHANNEL.as_bytes(), b"0"));
    let first = watch();
    messages(MAX_UNHEEDED);
    drop(first);
    assert!(subscriptions.take_idle().is_empty(), "a waiter read them");
    messages(MAX_UNHEEDED - 1);
    drop(watch());
    messages(MAX_UNHEEDED - 1);
    assert!(subscriptions.take_idle().is_empty(), "a waiter came since");
    messages(1);
    subscriptions.unheeded.notified().await;
    assert_eq!(subscriptions.take_idle(), [CHANNEL]);
}

#[test]
fn ignores_foreign_messages() {
    let subscriptions = open();
    let stranger = ticket(1);
    for payload in [
        "",
        "0",
        "a b c d e",
        &grant(&stranger, 0, 1),
        &grant(&stranger, 1, 1),
    ] {
        subscriptions.message(b"me", payload.as_bytes());
        subscriptions.message(b"other", payload.as_bytes());
    }
    subscriptions.message(&[0xff], &[0xff]);
    assert!(subscriptions.waiters.is_empty() && subscriptions.len() == 0);
}
