//! Functions that call each other and all take the same lock.
//!
//! Run it: `cargo run -p lockkit-examples --bin reentrant`
#![expect(clippy::print_stdout, reason = "it is for people")]

use lockkit::{FencingToken, LockClient, Owner};
use lockkit_examples::Outcome;

/// The caller identifies itself with an owner, not with a thread or task, so that it works across both.
async fn close_account(locks: &LockClient, owner: &Owner) -> Outcome<FencingToken> {
    let guard = locks
        .lock("account/7")?
        .with_owner(owner)?
        .acquire()
        .await?;
    let inner = pay_out(locks, owner).await?;
    assert_eq!(inner, guard.token(), "one hold, one token");
    let token = guard.token();
    guard.release().await?;
    Ok(token)
}

/// Works alone too.
async fn pay_out(locks: &LockClient, owner: &Owner) -> Outcome<FencingToken> {
    let guard = locks
        .lock("account/7")?
        .with_owner(owner)?
        .acquire()
        .await?;
    let token = guard.token();
    // The outer hold lasts until its own guard is released.
    guard.release().await?;
    Ok(token)
}

#[tokio::main]
async fn main() -> Outcome {
    let locks = lockkit::connect("memory:").await?;
    let owner = locks.owner();
    println!(
        "closed under token {}",
        close_account(&locks, &owner).await?
    );
    println!("paid out under token {}", pay_out(&locks, &owner).await?);

    // Another owner waits, even in the same process.
    let lock = locks.lock("account/7")?;
    let guard = lock.clone().with_owner(&owner)?.acquire().await?;
    let stranger = lock.with_owner(&locks.owner())?.try_acquire().await?;
    assert!(stranger.is_none());
    // Where a guard is at hand, it needs no owner.
    let again = guard.reenter()?;
    println!("entered again under the same token {}", again.token());
    Ok(())
}
