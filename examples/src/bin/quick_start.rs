//! Acquire a lock, work, release it; and what others see during that time.
//!
//! Run it: `cargo run -p lockkit-examples --bin quick_start`
#![expect(clippy::print_stdout, reason = "it is for people")]

use std::time::Duration;

use lockkit_examples::Outcome;

#[tokio::main]
async fn main() -> Outcome {
    let client = lockkit::connect("memory:").await?;
    let lock = client.lock("orders/42")?;

    // In one piece: acquired before the work, released after it, dropped with the work if it is lost.
    let token = lock.scope(async |guard| guard.token()).await?;
    println!("worked under token {token}");

    // By hand.
    let guard = lock.acquire_timeout(Duration::from_secs(10)).await?;
    println!("again, under the larger token {}", guard.token());
    assert!(guard.token() > token);

    // A try returns at once; a waiter gets the lock after the release.
    assert!(lock.try_acquire().await?.is_none());
    let next = lock.clone();
    let waiter = tokio::task::JoinSet::from_iter([async move { next.acquire().await }]);
    guard.release().await?;
    for guard in waiter.join_all().await {
        let guard = guard?;
        println!("and the next has token {}", guard.token());
        // A dropped guard releases too, in the background.
        drop(guard);
    }
    client.drain().await;
    Ok(())
}
