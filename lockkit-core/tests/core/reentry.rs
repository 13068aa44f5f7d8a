//! Reentry by guard and by owner.
#![expect(
    clippy::disallowed_methods,
    reason = "tests fail by panicking and run inside a runtime"
)]

use lockkit_core::memory::MemoryStore;
use lockkit_core::{Error, LockClient};
use tokio::time::{Duration, timeout};

fn client() -> LockClient {
    LockClient::new(MemoryStore::new()).unwrap()
}

#[tokio::test]
async fn guards_of_one_hold_share_its_token_and_free_it_together() {
    let client = client();
    let lock = client.lock("a").unwrap();
    let first = lock.acquire().await.unwrap();
    let second = first.reenter().unwrap();
    let third = second.reenter().unwrap();
    assert_eq!((first.token(), first.guard_count()), (third.token(), 3));
    first.release().await.unwrap();
    drop(second);
    assert!(lock.try_acquire().await.unwrap().is_none());
    third.release().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn owner_reenters_and_another_waits() {
    let client = client();
    let (mine, other) = (client.owner(), client.owner());
    let lock = client.lock("a").unwrap();
    let guard = lock
        .clone()
        .with_owner(&mine)
        .unwrap()
        .acquire()
        .await
        .unwrap();
    // By another handle of the same name.
    let again = client
        .lock("a")
        .unwrap()
        .with_owner(&mine)
        .unwrap()
        .acquire()
        .await
        .unwrap();
    assert_eq!(again.token(), guard.token());
    assert_eq!(
        lock.clone()
            .with_owner(&mine)
            .unwrap()
            .try_acquire()
            .await
            .unwrap()
            .unwrap()
            .guard_count(),
        3
    );
    assert!(
        lock.clone()
            .with_owner(&other)
            .unwrap()
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    assert!(lock.try_acquire().await.unwrap().is_none());
    drop(guard);
    again.release().await.unwrap();
    client.drain().await;
    let next = lock.with_owner(&mine).unwrap().acquire().await.unwrap();
    assert_eq!(next.guard_count(), 1);
}

#[tokio::test]
async fn two_acquires_of_one_owner_at_once_share_one_hold() {
    let client = client();
    let owner = client.owner();
    let lock = client.lock("a").unwrap().with_owner(&owner).unwrap();
    let (first, second) = tokio::join!(lock.acquire(), lock.acquire());
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!((first.token(), second.guard_count()), (second.token(), 2));
}

#[tokio::test]
async fn cancelled_acquire_of_an_owner_lets_the_next_one_in() {
    let client = client();
    let owner = client.owner();
    let plain = client.lock("a").unwrap();
    let lock = plain.clone().with_owner(&owner).unwrap();
    let held = plain.acquire().await.unwrap();
    assert!(
        timeout(Duration::from_millis(20), lock.acquire())
            .await
            .is_err()
    );
    let other = lock.clone();
    let waiting = tokio::spawn(async move { other.acquire().await.map(|guard| guard.token()) });
    let token = held.token();
    held.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap() > token);
}

#[tokio::test]
async fn owner_of_another_client_is_refused() {
    let owner = client().owner();
    assert!(matches!(
        client().lock("a").unwrap().with_owner(&owner),
        Err(Error::ForeignOwner)
    ));
}

#[tokio::test]
async fn without_an_owner_two_tasks_exclude_each_other() {
    let client = client();
    let lock = client.lock("a").unwrap();
    let (first, second) = tokio::join!(lock.try_acquire(), lock.try_acquire());
    assert!(first.unwrap().is_some() && second.unwrap().is_none());
}

#[tokio::test]
async fn hold_is_detached_only_by_its_last_guard() {
    let client = LockClient::new(MemoryStore::new()).unwrap();
    let first = client.lock("a").unwrap().acquire().await.unwrap();
    let second = first.reenter().unwrap();
    let refused = second.detach().await;
    assert!(
        matches!(refused, Err(Error::InvalidOption { .. })),
        "{refused:?}"
    );
    first.check().unwrap();
    let text = first.detach().await.unwrap();
    client.adopt(&text).await.unwrap().check().unwrap();
}
