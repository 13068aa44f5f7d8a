//! How to test your own code against lost locks, without a server and without waiting for bad luck.
//!
//! Run it: `cargo run -p lockkit-examples --bin losing`
#![expect(clippy::print_stdout, reason = "it is for people")]

use std::sync::Arc;
use std::time::Duration;

use lockkit::layers::{Fault, Faulty, Rule};
use lockkit::memory::MemoryStore;
use lockkit::{Lease, Lock, LockClient};
use lockkit_examples::Outcome;
use tokio::time::sleep;

/// The code under test: copies as long as it holds the lock. Returns how many pieces, and whether all.
async fn copy(lock: &Lock, pieces: u32) -> lockkit::Result<(u32, bool)> {
    let guard = lock.acquire().await?;
    let mut copied = 0;
    for _ in 0..pieces {
        sleep(Duration::from_millis(20)).await;
        // Before each piece, not once at the beginning.
        if guard.check().is_err() {
            return Ok((copied, false));
        }
        copied += 1;
    }
    guard.release().await?;
    Ok((copied, true))
}

#[tokio::main]
async fn main() -> Outcome {
    // A store with faults that the test controls.
    let store = Faulty::new(Arc::new(MemoryStore::new()), 42);
    let faults = store.faults();
    let lease = Lease::renewed(Duration::from_secs(1));
    let client = LockClient::builder(store).lease(lease).build()?;
    let lock = client.lock("copy")?;

    assert_eq!(copy(&lock, 5).await?, (5, true));
    println!("undisturbed it copies all");

    // The store stops responding in the middle: no renewal succeeds any more.
    let silence = async {
        sleep(Duration::from_millis(50)).await;
        faults.black_hole();
    };
    let (copied, ()) = tokio::join!(copy(&lock, 100), silence);
    let (copied, finished) = copied?;
    println!("with a silent store it stops after {copied} of 100 pieces");
    // No later than the lease that others would wait for.
    assert!(!finished && copied <= 50);
    faults.heal();
    client.drain().await;

    // An operator breaks the lock under it.
    let broken = async {
        sleep(Duration::from_millis(50)).await;
        lock.break_lock().await
    };
    let (copied, broken) = tokio::join!(copy(&lock, 100), broken);
    let (copied, finished) = copied?;
    println!("broken by an operator it stops after {copied} of 100 pieces");
    assert!(broken?.is_some() && !finished);

    // Some replies are lost: the copy does not notice.
    faults.inject(Rule::new(Fault::DropReply).with_probability(0.3));
    assert_eq!(copy(&lock, 20).await?, (20, true));
    println!("with lost replies it copies all the same");
    Ok(())
}
