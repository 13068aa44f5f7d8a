//! At most four importers at the same time, however many are started; and a lock that waits for all of them.
//!
//! Run it: `cargo run -p lockkit-examples --bin permits`
#![expect(clippy::print_stdout, reason = "it is for people")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockkit_examples::Outcome;
use tokio::task::JoinSet;
use tokio::time::sleep;

const AT_ONCE: u32 = 4;

#[tokio::main]
async fn main() -> Outcome {
    let client = lockkit::connect("memory:").await?;
    let importing = client.semaphore("import", AT_ONCE)?;
    let running = Arc::new(AtomicU32::new(0));

    let mut importers = JoinSet::new();
    for file in 1..=12 {
        let (importing, running) = (importing.clone(), Arc::clone(&running));
        importers.spawn(async move {
            let imported = importing.scope(async |permit| {
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                println!(
                    "file {file} under token {}: {now} of {AT_ONCE}",
                    permit.token()
                );
                assert!(now <= AT_ONCE);
                sleep(Duration::from_millis(20)).await;
                running.fetch_sub(1, Ordering::SeqCst);
            });
            imported.await
        });
    }
    sleep(Duration::from_millis(5)).await;

    // The plain lock of the same name waits until all permits are back, and keeps new ones out.
    let maintenance = client.lock("import")?.acquire().await?;
    println!(
        "maintenance, with {} importers",
        running.load(Ordering::SeqCst)
    );
    assert_eq!(running.load(Ordering::SeqCst), 0);
    maintenance.release().await?;

    while let Some(imported) = importers.join_next().await {
        imported??;
    }
    Ok(())
}
