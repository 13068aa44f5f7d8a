//! A task that runs in one of several processes, and in another one when that process ends.
//!
//! Run it: `cargo run -p lockkit-examples --bin singleton`
#![expect(clippy::print_stdout, reason = "it is for people")]

use std::time::Duration;

use lockkit::memory::MemoryStore;
use lockkit::{Error, Lock, LockClient};
use lockkit_examples::Outcome;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The holder does the work until the hold is lost or the work is done, and then joins the queue again. Only
/// the shutdown of the client ends the loop: when the store fails for longer than `outage`, `acquire`
/// returns an error, and the task must continue after it.
async fn serve(name: &'static str, lock: Lock, done: mpsc::Sender<(&'static str, u64)>) -> Outcome {
    loop {
        let guard = match lock.acquire().await {
            Ok(guard) => guard,
            Err(Error::Shutdown) => return Ok(()),
            Err(error) => {
                println!("{name} waits: {error}");
                sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let token = guard.token().get();
        // Dropped at the moment the hold is lost, between two awaits of the work.
        let work = guard.protect(work(name, token, &done)).await;
        match work {
            Ok(ended) => ended?,
            Err(lost) => println!("{name} stops: {lost}"),
        }
        guard.release().await.ok();
    }
}

/// Three steps, then a pause for the others.
async fn work(name: &'static str, token: u64, done: &mpsc::Sender<(&'static str, u64)>) -> Outcome {
    for _ in 0..3 {
        done.send((name, token)).await?;
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome {
    // Two clients that share nothing but the store, as two processes do.
    let store = MemoryStore::new();
    let (tell, mut steps) = mpsc::channel(1);
    let mut tasks = JoinSet::new();
    for name in ["first", "second"] {
        let client = LockClient::new(store.connect())?;
        let lock = client.lock("mailer")?;
        tasks.spawn(serve(name, lock, tell.clone()));
    }
    let mut seen = Vec::new();
    while seen.len() < 12 {
        let step = steps.recv().await.ok_or("no process works")?;
        seen.push(step);
    }
    for turn in seen.chunk_by(|a, b| a.1 == b.1) {
        println!(
            "{} did {} steps under token {}",
            turn[0].0,
            turn.len(),
            turn[0].1
        );
        assert!(turn.iter().all(|step| step.0 == turn[0].0), "one at a time");
    }
    assert!(seen.is_sorted_by_key(|step| step.1), "tokens only grow");
    assert!(
        seen.iter().any(|step| step.0 != seen[0].0),
        "both had a turn"
    );
    Ok(())
}
