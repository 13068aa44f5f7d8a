//! A price list that many tasks read, and one reloads: readers hold together, the reload holds alone.
//!
//! Run it: `cargo run -p lockkit-examples --bin readers`
#![expect(clippy::print_stdout, reason = "it is for people")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockkit::RwLock;
use lockkit_examples::Outcome;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Two values that must never be seen half reloaded. In a fleet they are files or rows.
static PRICES: [AtomicU32; 2] = [AtomicU32::new(1), AtomicU32::new(1)];

async fn read(prices: &RwLock) -> lockkit::Result<u32> {
    let guard = prices.read().acquire().await?;
    let first = PRICES[0].load(Ordering::SeqCst);
    sleep(Duration::from_millis(2)).await;
    let second = PRICES[1].load(Ordering::SeqCst);
    assert_eq!(first, second, "a reload came in between");
    guard.release().await?;
    Ok(first)
}

async fn reload(prices: &RwLock, version: u32) -> lockkit::Result<()> {
    // It gets its turn although readers never pause: those that ask later wait for it.
    let guard = prices.write().acquire().await?;
    PRICES[0].store(version, Ordering::SeqCst);
    sleep(Duration::from_millis(2)).await;
    PRICES[1].store(version, Ordering::SeqCst);
    println!("version {version} under token {}", guard.token());
    guard.release().await
}

#[tokio::main]
async fn main() -> Outcome {
    let client = lockkit::connect("memory:").await?;
    let prices = client.rw_lock("prices")?;

    let mut readers = JoinSet::new();
    for _ in 0..16 {
        let prices = prices.clone();
        readers.spawn(async move {
            let mut reads = 0;
            while read(&prices).await? < 5 {
                reads += 1;
            }
            Ok::<u32, lockkit::Error>(reads)
        });
    }
    for version in 2..=5 {
        sleep(Duration::from_millis(20)).await;
        reload(&prices, version).await?;
    }
    let mut reads = 0;
    while let Some(read) = readers.join_next().await {
        reads += read??;
    }
    println!("{reads} reads, none of half a version");
    Ok(())
}
